//! Creating, activating, renaming and deleting branches, and what that does to queued runs.

use std::sync::Arc;

use super::{
    address::auto_name,
    error::Error,
    event,
    store::{
        read::Read,
        rows::{Branch, NewEvent, OpenRun, Outcome, Point, ThreadRow},
        tx::{InsertBranch, Tx},
    },
};
use crate::{
    id::{BranchId, RunId},
    value::{Map, Value},
};

/// Most branches of a thread; also the most tags of a thread.
pub const MAX_PER_THREAD: usize = 10_000;

/// A branch to create.
#[derive(Clone, Debug)]
pub struct CreateBranch {
    /// The checkpoint it begins at; `None` for an empty branch.
    pub base: Option<Point>,
    /// Its name; derived from the name of `from` without one.
    pub name: Option<Arc<str>>,
    /// The branch that the address names, else the active one.
    pub from: Branch,
    /// `branches.origin`.
    pub origin: &'static str,
    /// Makes it the active branch, with this policy for the runs of the branch that was active.
    /// Message posts let them [float](SwitchPolicy::FLOAT).
    pub activate: Option<SwitchPolicy>,
    /// Graph nodes wait to run at the base.
    pub waits: bool,
}

/// A branch that was created.
#[derive(Clone, Debug)]
pub struct CreatedBranch {
    /// The branch.
    pub branch: Branch,
    /// Number of the last event written.
    pub event_number: i64,
    /// Runs that were cancelled by it.
    pub cancelled: Vec<RunId>,
}

/// What happens to the runs of the active branch when another branch becomes active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchPolicy {
    /// What happens to queued runs that float, that is, belong to no branch yet.
    pub queued: QueuedRuns,
    /// Whether the running one is cancelled; otherwise it goes on, on its branch.
    pub cancel_running: bool,
}

impl SwitchPolicy {
    /// No run is cancelled; floating runs take the new branch.
    pub const FLOAT: Self = Self {
        queued: QueuedRuns::Float,
        cancel_running: false,
    };
}

/// What happens to floating runs when another branch becomes active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedRuns {
    /// They are cancelled.
    Cancel,
    /// They are pinned to the branch that was active.
    Pin,
    /// They take the new branch.
    Float,
}

/// Checks that a thread may have one more branch.
///
/// # Errors
/// 409 `too_many`.
pub fn ensure_room(branches: &[Branch]) -> Result<(), Error> {
    match branches.len() < MAX_PER_THREAD {
        true => Ok(()),
        false => Err(Error::conflict(
            "too_many",
            format!("The thread has {MAX_PER_THREAD} branches: delete some first"),
        )),
    }
}

/// Creates a branch of `thread` for operations on branches and messages.
///
/// At the head of an interrupted idle branch the new branch gets a copy of the pending writes, so
/// that either branch can be resumed; any other new branch begins without pending writes.
///
/// # Errors
/// 409 `name_taken` or `too_many`, or the storage failed.
pub async fn create(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    new: CreateBranch,
) -> Result<CreatedBranch, Error> {
    let taken = tx.branches(thread.tree, thread.id).await?;
    ensure_room(&taken)?;
    let names = taken.iter().map(|branch| &*branch.name);
    let name = match new.name {
        Some(name) => {
            ensure_name_free(names, &name)?;
            name
        }
        None => auto_name(&new.from.name, names),
    };
    let source = match &new.base {
        Some(base) => interrupted(tx, thread, &new.from, base).await?,
        None => None,
    };
    let cancelled = match new.activate {
        Some(how) => release_active(tx, thread, how).await?,
        None => vec![],
    };
    let copies = source.is_some();
    let source = source.unwrap_or_else(|| new.from.clone());
    let id = BranchId::mint();
    let outcome = match copies || new.waits {
        true => Outcome::Interrupted,
        false => Outcome::Idle,
    };
    tx.insert_branch(InsertBranch {
        id,
        tree: thread.tree,
        thread: thread.id,
        name: name.clone(),
        head: new.base.as_ref().map(|base| base.id),
        head_depth: new.base.as_ref().map_or(-1, |base| base.depth),
        outcome,
        origin: new.origin,
        source: Some(source.id),
    })
    .await?;
    if let Some(base) = new.base.as_ref().filter(|_| copies) {
        tx.copy_writes(thread.tree, base.id, source.id, id).await?;
    }
    let base = new.base.as_ref().map(|base| base.id);
    let created = event::branch_created(id, &name, new.origin, &source.name, base);
    let mut events = vec![created];
    if new.activate.is_some() {
        tx.activate(thread.id, id).await?;
        events.push(event::branch_activated(id, &name));
    }
    let event_number = tx.append(thread.tree, thread.id, events).await?;
    let branch = tx.branch(thread.tree, id).await?;
    let branch = branch.ok_or_else(|| deleted_meanwhile(&name))?;
    Ok(CreatedBranch {
        branch,
        event_number,
        cancelled,
    })
}

/// The branch whose pending writes a new branch at `base` copies: one whose head is `base`, that
/// is interrupted there and has no running run.
pub(super) async fn interrupted(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    from: &Branch,
    base: &Point,
) -> Result<Option<Branch>, Error> {
    let mut candidates = vec![from.id];
    let there = tx.branches(thread.tree, thread.id).await?;
    let heads = there.iter().filter(|branch| branch.head == Some(base.id));
    let others = [base.branch]
        .into_iter()
        .chain(heads.map(|branch| branch.id));
    for id in thread.active_branch.into_iter().chain(others) {
        if !candidates.contains(&id) {
            candidates.push(id);
        }
    }
    for id in candidates {
        let Some(branch) = tx.branch(thread.tree, id).await? else {
            continue;
        };
        // The branch that wrote the base may belong to another thread of the tree.
        if branch.head != Some(base.id) || !tx.is_interrupted(thread.tree, id, base.id).await? {
            continue;
        }
        let open = tx.open_runs(thread.tree, branch.thread).await?;
        if open.iter().any(|run| run.running && run.branch == Some(id)) {
            continue;
        }
        // The lock waits for writes that are being flushed there.
        let locked = tx.lock_branch(thread.tree, id).await?;
        if let Some(branch) = locked.filter(|branch| branch.head == Some(base.id)) {
            return Ok(Some(branch));
        }
    }
    Ok(None)
}

/// Makes a branch the active one. Returns the runs that were cancelled and the number of the
/// event; nothing happens when the branch is active already.
///
/// # Errors
/// The storage failed.
pub async fn activate(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    to: &Branch,
    how: SwitchPolicy,
) -> Result<(Vec<RunId>, Option<i64>), Error> {
    if thread.active_branch == Some(to.id) {
        return Ok((vec![], None));
    }
    let ended = release_active(tx, thread, how).await?;
    tx.activate(thread.id, to.id).await?;
    let activated = event::branch_activated(to.id, &to.name);
    let number = tx.append(thread.tree, thread.id, vec![activated]).await?;
    Ok((ended, Some(number)))
}

/// Applies a policy to the runs of the active branch. Returns the runs that were cancelled.
async fn release_active(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    how: SwitchPolicy,
) -> Result<Vec<RunId>, Error> {
    let Some(active) = thread.active_branch else {
        return Ok(vec![]);
    };
    let open = tx.open_runs(thread.tree, thread.id).await?;
    let floating: Vec<RunId> = open
        .iter()
        .filter(|run| !run.running && run.branch.is_none())
        .map(|run| run.id)
        .collect();
    let mut end: Vec<RunId> = match how.queued {
        QueuedRuns::Cancel => floating,
        QueuedRuns::Pin => {
            if !floating.is_empty() {
                tx.pin_runs(floating, active).await?;
            }
            vec![]
        }
        QueuedRuns::Float => vec![],
    };
    if how.cancel_running {
        let running = open
            .iter()
            .filter(|run| run.running && run.branch == Some(active));
        end.extend(running.map(|run| run.id));
    }
    if !end.is_empty() {
        tx.cancel_runs(thread.id, end.clone()).await?;
    }
    Ok(end)
}

/// Renames a branch. Returns the number of the event; `None` when it has that name already.
///
/// # Errors
/// 409 `name_taken`, or the storage failed.
pub async fn rename(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    branch: &Branch,
    name: Arc<str>,
) -> Result<Option<i64>, Error> {
    if branch.name == name {
        return Ok(None);
    }
    let taken = tx.branches(thread.tree, thread.id).await?;
    ensure_name_free(taken.iter().map(|branch| &*branch.name), &name)?;
    tx.rename_branch(thread.tree, branch.id, name.clone())
        .await?;
    let event = NewEvent {
        kind: event::BRANCH_RENAMED,
        payload: Map::from([
            ("branch", Value::Str(name)),
            ("from", Value::Str(branch.name.clone())),
        ]),
        branch: Some(branch.id),
        ..NewEvent::default()
    };
    let number = tx.append(thread.tree, thread.id, vec![event]).await?;
    Ok(Some(number))
}

/// Deletes a branch but not its checkpoints. Returns the number of the event.
///
/// # Errors
/// 409 `branch_active` or `branch_busy`, or the storage failed.
pub async fn delete(tx: &mut dyn Tx, thread: &ThreadRow, branch: &Branch) -> Result<i64, Error> {
    if thread.active_branch == Some(branch.id) {
        return Err(Error::conflict(
            "branch_active",
            format!(
                "Branch `{}` is the active one: activate another branch first",
                branch.name
            ),
        ));
    }
    tx.lock_branch(thread.tree, branch.id).await?;
    let open = tx.open_runs(thread.tree, thread.id).await?;
    if is_busy(&open, thread, branch.id) {
        return Err(Error::conflict(
            "branch_busy",
            format!(
                "Branch `{}` has runs: wait for them to end or cancel them first",
                branch.name
            ),
        ));
    }
    tx.delete_branch(thread.tree, branch.id).await?;
    let event = NewEvent {
        kind: event::BRANCH_DELETED,
        payload: event::about_branch(&branch.name),
        branch: Some(branch.id),
        checkpoint: branch.head,
        message_id: None,
    };
    Ok(tx.append(thread.tree, thread.id, vec![event]).await?)
}

/// Whether runs are queued or running on a branch. Floating runs count for the active branch.
pub fn is_busy(open: &[OpenRun], thread: &ThreadRow, branch: BranchId) -> bool {
    open.iter()
        .any(|run| run.branch.or(thread.active_branch) == Some(branch))
}

/// Whether a run is executed on a branch.
pub fn is_running(open: &[OpenRun], branch: BranchId) -> bool {
    open.iter()
        .any(|run| run.running && run.branch == Some(branch))
}

/// A branch with what is computed for clients.
#[derive(Clone, Debug)]
pub struct BranchView {
    /// The row.
    pub row: Branch,
    /// It is the thread's active one.
    pub is_active: bool,
    /// The newest message of the path.
    pub head_message: Option<Arc<str>>,
    /// Messages of the path, removed ones too.
    pub messages: i32,
    /// Current name of the branch it was created from.
    pub source: Option<Arc<str>>,
    /// Runs are queued or running there.
    pub busy: bool,
}

impl BranchView {
    /// `idle`, `busy`, `interrupted` or `error`.
    pub fn status(&self) -> &'static str {
        match self.busy {
            true => "busy",
            false => self.row.outcome.as_str(),
        }
    }
}

/// Computes what clients are shown of a branch.
///
/// # Errors
/// The storage failed.
pub async fn view(
    read: &mut dyn Read,
    thread: &ThreadRow,
    row: Branch,
) -> Result<BranchView, Error> {
    let open = read.open_runs(thread.tree, thread.id).await?;
    let source = match row.source {
        Some(id) => read.branch(thread.tree, id).await?,
        None => None,
    };
    let last = last_message(read, thread, &row).await?;
    Ok(BranchView {
        is_active: thread.active_branch == Some(row.id),
        busy: is_busy(&open, thread, row.id),
        // Names mean something within one thread only.
        source: source
            .filter(|source| source.thread == thread.id)
            .map(|source| source.name),
        head_message: last.as_ref().map(|node| node.message_id.clone()),
        messages: last.map_or(0, |node| node.ordinal),
        row,
    })
}

/// The newest message on the path of a branch.
///
/// # Errors
/// The storage failed.
pub async fn last_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    branch: &Branch,
) -> Result<Option<super::store::rows::MessageNode>, Error> {
    let point = match branch.head {
        Some(head) => read.point(thread.tree, head).await?,
        None => None,
    };
    match point.and_then(|point| point.last_node) {
        Some(node) => Ok(read.node(thread.tree, node).await?),
        None => Ok(None),
    }
}

fn ensure_name_free<'a>(mut taken: impl Iterator<Item = &'a str>, name: &str) -> Result<(), Error> {
    match taken.any(|one| one == name) {
        false => Ok(()),
        true => Err(Error::conflict(
            "name_taken",
            format!("The thread has a branch `{name}` already: choose another name"),
        )),
    }
}

fn deleted_meanwhile(name: &str) -> Error {
    Error::conflict(
        "branch_not_found",
        format!("Branch `{name}` was deleted while it was made: try again"),
    )
}
