//! Branches of a thread: listing, switching, renaming and deleting them.

pub(super) mod create;

use std::{collections::HashMap, sync::Arc};

use super::{Result, Service};
use crate::{
    id::{NodeId, RunId, ThreadId},
    tree::{
        Address, Tx,
        branch::{self, BranchView, SwitchPolicy},
        resolve,
        store::rows::{Branch, MessageNode, ThreadRow},
    },
    value::Value,
};

/// Most forks that are listed with the branches of a thread; the list of forks has pages.
const FORKS_MAX: usize = 1000;

/// A branch to make.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// Where it begins.
    pub from: BranchStart,
    /// Its name; generated without one.
    pub name: Option<Arc<str>>,
    /// `branches.origin`.
    pub origin: &'static str,
    /// Make it the active one.
    pub activate: Option<SwitchPolicy>,
}

/// Where a branch begins.
#[derive(Clone, Debug)]
pub enum BranchStart {
    /// At an address.
    Address(Address),
    /// At the head of the active branch; while that runs, at its newest checkpoint without a
    /// dangling tool call. An empty branch is refused.
    Side,
}

/// A branch that was made or changed.
#[derive(Clone, Debug)]
pub struct Branched {
    /// The branch as it is now.
    pub branch: BranchView,
    /// Number of the last event written, else of the thread's last.
    pub event_number: i64,
    /// Runs that this ended.
    pub cancelled: Vec<RunId>,
    /// Content of the user's message that follows the base of the branch, for editing.
    pub prefill: Option<Value>,
    /// The state ends in tool calls without results.
    pub dangling: bool,
}

/// Everything about the branches of a thread.
#[derive(Clone, Debug)]
pub struct Branches {
    /// Name of the active one.
    pub active: Option<Arc<str>>,
    /// All, oldest first.
    pub branches: Vec<BranchView>,
    /// Last messages of paths, with the names of the branches that have them.
    pub leaves: Vec<(MessageNode, Vec<Arc<str>>)>,
    /// Threads forked from this one, oldest first.
    pub forks: Vec<ThreadRow>,
    /// There are more forks than those.
    pub more_forks: bool,
}

impl Service {
    /// Makes the changes of a transaction durable, and shows a branch as it is then.
    async fn committed(
        &self,
        mut tx: Box<dyn Tx>,
        id: ThreadId,
        row: Branch,
    ) -> Result<BranchView> {
        let thread = resolve::thread(&mut *tx, id).await?;
        let shown = branch::view(&mut *tx, &thread, row).await?;
        tx.commit().await?;
        // Runs that float may have found a free slot.
        self.runs.wake_thread(id);
        self.shared.notifier.notify(id);
        Ok(shown)
    }

    /// Makes a branch the active one.
    ///
    /// # Errors
    /// 404: no such thread or branch, or the storage failed.
    pub async fn activate_branch(
        &self,
        id: ThreadId,
        name: &str,
        how: SwitchPolicy,
    ) -> Result<Branched> {
        let (mut tx, thread) = self.begin(id).await?;
        let row = resolve::branch(&mut *tx, &thread, name).await?;
        let (cancelled, number) = branch::activate(&mut *tx, &thread, &row, how).await?;
        let branch = self.committed(tx, id, row).await?;
        self.runs.cancel(id, &cancelled);
        Ok(Branched {
            branch,
            event_number: number.unwrap_or(thread.last_event_number),
            cancelled,
            prefill: None,
            dangling: false,
        })
    }

    /// Gives a branch another name.
    ///
    /// # Errors
    /// 404: no such thread or branch. 409 `name_taken`. Or the storage failed.
    pub async fn rename_branch(&self, id: ThreadId, name: &str, to: Arc<str>) -> Result<Branched> {
        let (mut tx, thread) = self.begin(id).await?;
        let row = resolve::branch(&mut *tx, &thread, name).await?;
        let number = branch::rename(&mut *tx, &thread, &row, to).await?;
        let row = tx.branch(thread.tree, row.id).await?.unwrap_or(row);
        let branch = self.committed(tx, id, row).await?;
        Ok(Branched {
            branch,
            event_number: number.unwrap_or(thread.last_event_number),
            cancelled: vec![],
            prefill: None,
            dangling: false,
        })
    }

    /// Deletes a branch; its checkpoints stay.
    ///
    /// # Errors
    /// 404: no such thread or branch. 409 `branch_active`, `branch_busy`. Or the storage failed.
    pub async fn delete_branch(&self, id: ThreadId, name: &str) -> Result<()> {
        let (mut tx, thread) = self.begin(id).await?;
        let row = resolve::branch(&mut *tx, &thread, name).await?;
        branch::delete(&mut *tx, &thread, &row).await?;
        tx.commit().await?;
        self.shared.notifier.notify(id);
        Ok(())
    }

    /// Branches, leaves and forks of a thread.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn branches(&self, id: ThreadId) -> Result<Branches> {
        let (mut reader, thread) = self.reader(id).await?;
        let read = &mut *reader;
        let mut branches = vec![];
        let mut leaves: Vec<(MessageNode, Vec<Arc<str>>)> = vec![];
        let mut known: HashMap<NodeId, usize> = HashMap::new();
        for (view, last) in branch::views(read, &thread).await? {
            if let Some(last) = last {
                let at = *known.entry(last.id).or_insert(leaves.len());
                if at == leaves.len() {
                    leaves.push((last, vec![]));
                }
                leaves[at].1.push(view.row.name.clone());
            }
            branches.push(view);
        }
        // Of the messages that a fork inherits only the last one can be without a successor.
        let inherited = resolve::last_inherited(read, &thread).await?;
        let mut ends = Vec::with_capacity(leaves.len());
        for (node, names) in leaves {
            if node.thread != id && Some(node.id) != inherited {
                continue;
            }
            let next = read.children(thread.tree, Some(node.id)).await?;
            if next.iter().all(|child| child.thread != id) {
                ends.push((node, names));
            }
        }
        let mut forks = read.forks(thread.tree, id, FORKS_MAX + 1).await?;
        let more_forks = forks.len() > FORKS_MAX;
        forks.truncate(FORKS_MAX);
        Ok(Branches {
            active: branches
                .iter()
                .find(|branch| branch.is_active)
                .map(|branch| branch.row.name.clone()),
            branches,
            leaves: ends,
            forks,
            more_forks,
        })
    }
}
