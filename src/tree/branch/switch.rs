//! Activating a branch, and what happens then to the runs of the branch that was active.

use crate::{
    id::RunId,
    tree::{
        error::Result,
        event,
        store::{Branch, ThreadRow, Tx},
    },
};

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
) -> Result<(Vec<RunId>, Option<i64>)> {
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
pub(super) async fn release_active(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    how: SwitchPolicy,
) -> Result<Vec<RunId>> {
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
