//! Checkpoints as they are loaded: decoded, with the pending writes that count.

use std::{collections::HashMap, sync::Arc};

use super::error;
pub use crate::checkpoint::references::{AT_ONCE, References, resolve_references};
use crate::{
    budget::Reservation,
    checkpoint::{
        Error, Page, PageScope, Query, Saver, StoredRows,
        frame::{self, Chains, Decoded},
    },
    id::{BranchId, CheckpointId, TaskId, TreeId},
};

/// The branch whose pending writes count at a base checkpoint: `branch` if it has any there, else
/// the branch that wrote the checkpoint, else the oldest branch that has any.
pub fn owner_of_writes(base: &Decoded, branch: BranchId) -> BranchId {
    for candidate in [branch, base.checkpoint.branch] {
        if base.writes.iter().any(|(owner, _)| *owner == candidate) {
            return candidate;
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
    base.retain_writes(|branch, _| branch == owner);
}

/// Drops the pending writes that a record of the superstep does not show. Of every task it shows
/// the output of the branch that finished the task first, and the control values of the oldest
/// branch.
pub fn keep_first_writes(base: &mut Decoded) {
    let mut first: HashMap<(TaskId, i32), BranchId> = HashMap::new();
    for (branch, write) in &base.writes {
        // All output of a task is of one branch.
        let owner = first
            .entry((write.task, write.idx.min(0)))
            .or_insert(*branch);
        *owner = (*owner).min(*branch);
    }
    base.retain_writes(|branch, write| first.get(&(write.task, write.idx.min(0))) == Some(&branch));
}

/// Where the memory of large states comes from.
pub trait StateMemory: Send + Sync {
    /// Takes the memory of a state that weighs so much, before it is decoded; small ones take none. `None`
    /// also when the reservation is held elsewhere.
    ///
    /// # Errors
    /// There is not enough left.
    fn take(&self, weight: u64) -> error::Result<Option<Reservation>>;
}

/// Loads one checkpoint with the values that its pending writes refer to, however large it is: for a program
/// that works on its own threads.
///
/// # Errors
/// The storage failed, or a row cannot be read.
pub async fn uncounted(saver: &Arc<dyn Saver>, query: Query) -> Result<Option<Decoded>, Error> {
    let (tree, ns) = (query.tree, query.ns.clone());
    let Some(stored) = saver.load(query).await? else {
        return Ok(None);
    };
    let decoded = frame::decode(&stored)?;
    drop(stored);
    resolve_references(saver, tree, &ns, decoded)
        .await
        .map(Some)
}

/// One checkpoint, read as far as is needed to know its size.
pub enum Weighed {
    /// There is none of this id, or no longer.
    Missing,
    /// It is small: everything that is stored of it.
    Read(StoredRows),
    /// It is large, weighs so much, and is read once there is memory for that.
    Large(u64),
}

impl Weighed {
    /// What it weighs.
    pub fn weight(&self) -> u64 {
        match self {
            Self::Missing => 0,
            Self::Read(rows) => rows.weight(),
            Self::Large(bytes) => *bytes,
        }
    }
}

/// Reads one checkpoint if it weighs at most `most`, else its size alone.
///
/// # Errors
/// The storage failed.
pub async fn weighed(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    id: CheckpointId,
    most: u64,
) -> Result<Weighed, Error> {
    let scope = PageScope {
        most,
        metadata: false,
    };
    Ok(
        match saver.page_of(tree, ns.clone(), vec![id], scope).await? {
            Page::Rows(rows) if rows.rows.is_empty() => Weighed::Missing,
            Page::Rows(rows) => Weighed::Read(rows),
            Page::Sizes(sizes) => {
                let size = sizes.first().map(|one| Weighed::Large(one.weight));
                size.unwrap_or(Weighed::Missing)
            }
        },
    )
}

/// Decodes the first of some checkpoints that were read with their blobs; the values that its pending
/// writes refer to are still to be read.
///
/// # Errors
/// A row cannot be read.
pub fn decode_first(rows: &StoredRows) -> Result<Option<Decoded>, Error> {
    let Some((row, writes)) = rows.rows.first() else {
        return Ok(None);
    };
    frame::decode_row(row, writes, &Chains::new(&rows.blobs)).map(Some)
}

/// The checkpoint of a query that was weighed, without the values that its pending writes refer to. For a large one the
/// caller has the memory.
///
/// # Errors
/// As [`uncounted`].
pub async fn of_weighed(
    saver: &Arc<dyn Saver>,
    query: Query,
    weighed: &Weighed,
) -> Result<Option<Decoded>, Error> {
    match weighed {
        Weighed::Read(rows) => decode_first(rows),
        // One that has gone meanwhile is looked for by its address.
        Weighed::Missing | Weighed::Large(_) => {
            let stored = saver.load(query).await?;
            stored.map(|stored| frame::decode(&stored)).transpose()
        }
    }
}

/// Loads one checkpoint, a large one in `memory`; without that it takes none. See [`reserved_checkpoint`].
///
/// # Errors
/// As [`uncounted`]; 503: there is not enough left.
pub async fn checkpoint_in(
    saver: &Arc<dyn Saver>,
    query: Query,
    id: Option<CheckpointId>,
    memory: Option<&dyn StateMemory>,
) -> error::Result<Option<(Decoded, Option<Reservation>)>> {
    let reserve = |weight| {
        let taken = memory.map(|memory| memory.take(weight)).transpose()?;
        Ok::<_, error::Error>(taken.flatten())
    };
    let loaded = reserved_checkpoint(saver, query, id, reserve).await?;
    Ok(loaded.map(|(decoded, memory)| (decoded, memory.flatten())))
}

/// Loads one checkpoint, a large one after `reserve` has allowed it: that is called with what
/// it weighs, before its values are read, and once more with all of it where what its pending writes
/// refer to is large too. `id` is the checkpoint if it is known.
///
/// # Errors
/// As [`uncounted`], or that of `reserve`.
pub async fn reserved_checkpoint<M, E: From<Error>>(
    saver: &Arc<dyn Saver>,
    query: Query,
    id: Option<CheckpointId>,
    reserve: impl Fn(u64) -> Result<M, E>,
) -> Result<Option<(Decoded, Option<M>)>, E> {
    let (tree, ns) = (query.tree, query.ns.clone());
    let id = match id {
        Some(id) => id,
        None => {
            let address = Query {
                values: false,
                ..query.clone()
            };
            match saver.load(address).await? {
                Some(found) => found.row.id,
                None => return Ok(None),
            }
        }
    };
    let mut memory = None;
    match weighed(saver, tree, &ns, id, AT_ONCE).await? {
        // One that has gone meanwhile is looked for by its address.
        Weighed::Missing => {}
        Weighed::Read(rows) => {
            if let Some(mut decoded) = decode_first(&rows)? {
                let page = std::slice::from_mut(&mut decoded);
                let references = References::of(saver, tree, &ns, page).await?;
                let weight = rows.weight() + references.weight();
                let memory = (weight > AT_ONCE).then(|| reserve(weight)).transpose()?;
                references.resolve(page).await?;
                return Ok(Some((decoded, memory)));
            }
        }
        Weighed::Large(bytes) => memory = Some(reserve(bytes)?),
    }
    let Some(stored) = saver.load(query).await? else {
        return Ok(None);
    };
    let weight = stored.weight();
    if memory.is_none() {
        memory = Some(reserve(weight)?);
    }
    let mut decoded = frame::decode(&stored)?;
    drop(stored);
    let page = std::slice::from_mut(&mut decoded);
    let references = References::of(saver, tree, &ns, page).await?;
    if references.weight() > AT_ONCE {
        // Both are counted together, so that a state that is too large with its results is refused. A response or a change
        // that holds the first part itself counts it twice.
        drop(memory);
        memory = Some(reserve(weight + references.weight())?);
    }
    references.resolve(page).await?;
    Ok(Some((decoded, memory)))
}
