//! Where a writer starts: its base checkpoint, whose pending writes count there, and the branch
//! it writes to.

use std::{collections::HashMap, sync::Arc};

use super::Indexer;
use crate::{
    checkpoint::{
        At, Error, Query, Saver, Slot,
        frame::{self, Chains, Decoded},
    },
    engine::Start,
    id::{BranchId, CheckpointId, RunId, TaskId, ThreadId, TreeId},
};

/// The start of a run that holds `slot` and addresses `address`, or the head without one. `base`
/// is that checkpoint. Off the head the run writes to a new branch, made by its first write.
pub fn start(
    saver: Arc<dyn Saver>,
    slot: Slot,
    address: Option<CheckpointId>,
    mut base: Option<Decoded>,
    run: Option<RunId>,
) -> Start {
    if let Some(base) = &mut base {
        keep_own_writes(base, slot.branch);
    }
    let superseded = address.is_some() && address != slot.head;
    let (mut target, mut open) = (slot, None);
    if superseded {
        let depth = base.as_ref().map_or(-1, |base| base.checkpoint.depth);
        let (new, on) = slot.branch_off(address, depth, "checkpoint", run);
        open = Some(new);
        target = on;
    }
    Start {
        saver,
        slot: target,
        open,
        base,
        index: Some(Arc::new(Indexer::default())),
        addressed: address.is_some(),
        superseded,
        inside: HashMap::new(),
        continues: None,
        again: false,
        floor: slot.head,
    }
}

/// For a run that answers at an interrupted checkpoint which its thread has moved past: the branch
/// it makes takes over the questions, so that they stay open where they are and can be answered
/// again should the run stop before its first checkpoint.
pub fn ask_again(start: &mut Start) {
    const QUESTION: &str = "__interrupt__";
    let (Some(open), Some(base)) = (&mut start.open, &start.base) else {
        return;
    };
    let question = base
        .writes
        .iter()
        .find(|(_, write)| &*write.channel == QUESTION);
    let Some((owner, _)) = question else { return };
    if *owner != open.source.branch {
        let checkpoint = &base.checkpoint;
        if checkpoint.branch != *owner || checkpoint.thread != open.source.thread {
            return;
        }
        open.writes_of = Some(*owner);
    }
    open.copy_writes = true;
}

/// Whose pending writes count at a base: those of the slot's branch if it has any there, else
/// those of the branch that wrote it, else those of the branch that was there first.
pub fn owner_of_writes(base: &Decoded, branch: BranchId) -> BranchId {
    for wanted in [branch, base.checkpoint.branch] {
        if base.writes.iter().any(|(owner, _)| *owner == wanted) {
            return wanted;
        }
    }
    base.writes
        .iter()
        .map(|(owner, _)| *owner)
        .min()
        .unwrap_or(branch)
}

/// Drops the pending writes that do not count for `branch`.
pub fn keep_own_writes(base: &mut Decoded, branch: BranchId) {
    let owner = owner_of_writes(base, branch);
    base.writes.retain(|(branch, _)| *branch == owner);
}

/// Keeps of the pending writes what a record of the superstep shows: of every task the output of
/// the branch that finished it first, and its control values of the branch that was there first.
pub fn keep_first_writes(base: &mut Decoded) {
    let mut first: HashMap<(TaskId, i32), BranchId> = HashMap::new();
    for (branch, write) in &base.writes {
        // All output of a task is of one branch.
        let owner = first
            .entry((write.task, write.idx.min(0)))
            .or_insert(*branch);
        *owner = (*owner).min(*branch);
    }
    base.writes
        .retain(|(branch, write)| first.get(&(write.task, write.idx.min(0))) == Some(branch));
}

/// One checkpoint, decoded, with what its writes refer to.
///
/// # Errors
/// The storage failed, or a row cannot be read.
pub async fn load(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    thread: ThreadId,
    ns: &Arc<str>,
    at: At,
) -> Result<Option<Decoded>, Error> {
    match load_unresolved(saver, tree, thread, ns, at).await? {
        Some(decoded) => resolve(saver, tree, ns, decoded).await.map(Some),
        None => Ok(None),
    }
}

/// [`load`] without what the writes refer to, for pages: [`resolve_all`] comes next.
///
/// # Errors
/// As [`load`].
pub async fn load_unresolved(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    thread: ThreadId,
    ns: &Arc<str>,
    at: At,
) -> Result<Option<Decoded>, Error> {
    let query = Query {
        tree,
        thread,
        ns: ns.clone(),
        at,
        values: true,
    };
    let stored = saver.load(query).await?;
    stored.map(|stored| frame::decode(&stored)).transpose()
}

/// Fills in writes that point to the blobs they became.
///
/// # Errors
/// The storage failed, or a row cannot be read.
pub async fn resolve(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    mut decoded: Decoded,
) -> Result<Decoded, Error> {
    resolve_all(saver, tree, ns, std::slice::from_mut(&mut decoded)).await?;
    Ok(decoded)
}

/// [`resolve`] for checkpoints of one namespace at once: what the blobs of a page build on they
/// mostly share, and it is read once.
///
/// # Errors
/// The storage failed, or a row cannot be read.
pub async fn resolve_all(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    page: &mut [Decoded],
) -> Result<(), Error> {
    let named = |decoded: &Decoded| {
        let references = decoded.references.iter();
        let named = references.map(|(at, version)| {
            let channel = decoded.writes.get(*at).map(|(_, write)| &write.channel);
            (channel.cloned().unwrap_or_default(), *version)
        });
        named.collect::<Vec<_>>()
    };
    let wanted: Vec<_> = page.iter().flat_map(named).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = saver.blobs(tree, ns.clone(), wanted).await?;
    let chains = Chains::new(&rows);
    for decoded in page {
        for (at, version) in std::mem::take(&mut decoded.references) {
            let write = &mut decoded.writes[at].1;
            let items = chains
                .items(&write.channel, version)
                .map_err(Error::Corrupt)?;
            write.value = items.unwrap_or_default();
        }
    }
    Ok(())
}
