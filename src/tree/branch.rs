//! Creating, activating, renaming and deleting branches, and what that does to queued runs.

use std::sync::Arc;

use super::{
    address::auto_name,
    error::{Error, Result},
    event,
    store::{Branch, InsertBranch, NewEvent, Outcome, Point, ThreadRow, Tx},
};
use crate::{
    id::{BranchId, RunId},
    value::{Map, Value},
};

mod switch;
mod view;

use switch::release_active;
pub use switch::{QueuedRuns, SwitchPolicy, activate};
pub use view::{BranchView, is_busy, is_running, view, views};

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

/// Checks that a thread may have one more branch.
///
/// # Errors
/// 409 `too_many`.
pub fn ensure_room(branches: &[Branch]) -> Result<()> {
    if branches.len() < MAX_PER_THREAD {
        Ok(())
    } else {
        Err(Error::conflict(
            "too_many",
            format!("The thread has {MAX_PER_THREAD} branches: delete some first"),
        ))
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
) -> Result<CreatedBranch> {
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
    let outcome = if copies || new.waits {
        Outcome::Interrupted
    } else {
        Outcome::Idle
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
    match &new.base {
        Some(base) if copies => tx.copy_writes(thread.tree, base.id, source.id, id).await?,
        Some(base) => share_inside(tx, &source, base, id).await?,
        None => {}
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
) -> Result<Option<Branch>> {
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

/// Lets a new branch at the head of another one go on from what graphs inside have stored there: edits, and what a run
/// that failed had done. What a run stores that is being executed there is its own.
pub(super) async fn share_inside(
    tx: &mut dyn Tx,
    from: &Branch,
    base: &Point,
    to: BranchId,
) -> Result<()> {
    if from.head != Some(base.id) || tx.inside(from.tree, base.id, from.id).await?.is_none() {
        return Ok(());
    }
    // From here on no run begins there.
    let locked = tx.lock_branch(from.tree, from.id).await?;
    if locked.is_none_or(|branch| branch.head != Some(base.id)) {
        return Ok(());
    }
    let open = tx.open_runs(from.tree, from.thread).await?;
    if (open.iter()).any(|run| run.running && run.branch == Some(from.id)) {
        return Ok(());
    }
    // What was being stored is there by now.
    if let Some(shared) = tx.inside(from.tree, base.id, from.id).await? {
        // With the results of the tasks that have ended there, which are not to run the graphs inside once more.
        tx.copy_writes(from.tree, base.id, from.id, to).await?;
        tx.share_inside(from.tree, to, shared).await?;
    }
    Ok(())
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
) -> Result<Option<i64>> {
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
pub async fn delete(tx: &mut dyn Tx, thread: &ThreadRow, branch: &Branch) -> Result<i64> {
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

fn ensure_name_free<'a>(mut taken: impl Iterator<Item = &'a str>, name: &str) -> Result<()> {
    if taken.any(|one| one == name) {
        Err(Error::conflict(
            "name_taken",
            format!("The thread has a branch `{name}` already: choose another name"),
        ))
    } else {
        Ok(())
    }
}

fn deleted_meanwhile(name: &str) -> Error {
    Error::conflict(
        "branch_not_found",
        format!("Branch `{name}` was deleted while it was made: try again"),
    )
}
