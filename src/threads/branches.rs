//! Operations on branches of a thread: rewinding, switching, naming.

use std::{collections::HashMap, sync::Arc};

use super::{Error, Service};
use crate::{
    checkpoint::At,
    engine::snapshot::snapshot,
    id::{CheckpointId, RunId, ThreadId},
    tree::{
        self, Address, Base, Read, Resolved, Tx,
        branch::{self, BranchView, SwitchPolicy},
        dangling::has_open_calls,
        load, resolve,
        store::rows::{Branch, MessageNode, ThreadRow},
    },
    value::Value,
};

/// How often an operation is retried because its base moved meanwhile.
const TRIES: usize = 5;
/// Checkpoints that are searched for one without a dangling tool call.
const SEARCH_DEPTH: usize = 64;

/// A branch to make.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// Where it begins.
    pub from: Begin,
    /// Its name; generated without one.
    pub name: Option<Arc<str>>,
    /// `branches.origin`.
    pub origin: &'static str,
    /// Make it the active one.
    pub activate: Option<SwitchPolicy>,
}

/// Where a branch begins.
#[derive(Clone, Debug)]
pub enum Begin {
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
    /// Content of the message of a user which the branch comes before.
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
    /// Threads forked from this one.
    pub forks: Vec<ThreadRow>,
}

/// The part of a checkpoint that new branches need; it never changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// Nodes wait to run.
    pub waits: bool,
    /// Its messages.
    pub messages: Vec<Value>,
}

impl Service {
    /// Makes a branch.
    ///
    /// # Errors
    /// 404: no such thread or address. 409: the name is taken, nothing to branch off, too many.
    /// Or the storage failed.
    pub async fn make_branch(&self, id: ThreadId, new: NewBranch) -> Result<Branched, Error> {
        let store = &self.shared.parts.tree;
        let mut known: HashMap<CheckpointId, Content> = HashMap::new();
        for _ in 0..TRIES {
            let mut reader = store.reader().await?;
            let thread = resolve::thread(&mut *reader, id).await?;
            let resolved = self.resolve_start(&mut *reader, &thread, &new.from).await?;
            drop(reader);
            let prefill = match resolved.prefill() {
                Some(node) => {
                    let content = self.content(&thread, node.checkpoint).await?;
                    text_of(&content.messages, &node.message_id)
                }
                None => None,
            };
            if let Some(base) = resolved.base.id()
                && !known.contains_key(&base)
            {
                known.insert(base, self.content(&thread, base).await?);
            }
            let mut tx = store.begin(thread.tree).await?;
            let thread = resolve::thread(&mut *tx, id).await?;
            let current = match &new.from {
                Begin::Address(address) => Some(tree::resolve(&mut *tx, &thread, address).await?),
                Begin::Side => if_present(&mut *tx, &thread, &resolved).await?,
            };
            let Some(current) = current.filter(|current| current.base.id() == resolved.base.id())
            else {
                continue;
            };
            let none = Content::default();
            let content = match current.base.id() {
                Some(base) => known.get(&base).unwrap_or(&none),
                None => &none,
            };
            let from = match &current.named {
                Some(branch) => branch.clone(),
                None => resolve::active(&mut *tx, &thread).await?,
            };
            let made = self.insert(&mut *tx, &thread, &current, from, &new, content.waits);
            let made = made.await?;
            let shown = self.committed(tx, id, made.branch).await?;
            self.runs.cancel(&made.cancelled);
            return Ok(Branched {
                branch: shown,
                event_number: made.event_number,
                cancelled: made.cancelled,
                prefill,
                dangling: has_open_calls(&content.messages),
            });
        }
        Err(moved())
    }

    async fn insert(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        resolved: &Resolved,
        from: Branch,
        new: &NewBranch,
        waits: bool,
    ) -> Result<branch::CreatedBranch, Error> {
        let created = branch::create(
            tx,
            thread,
            branch::CreateBranch {
                base: resolved.base.point().cloned(),
                name: new.name.clone(),
                from,
                origin: new.origin,
                activate: new.activate,
                waits,
            },
        )
        .await?;
        let branch = self
            .shared
            .trim_branch(tx, thread, created.branch, &resolved.base)
            .await?;
        Ok(branch::CreatedBranch { branch, ..created })
    }

    pub(crate) async fn resolve_start(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        from: &Begin,
    ) -> Result<Resolved, Error> {
        let address = match from {
            Begin::Address(address) => return Ok(tree::resolve(read, thread, address).await?),
            Begin::Side => Address::default(),
        };
        let mut resolved = tree::resolve(read, thread, &address).await?;
        let (Some(head), Some(active)) = (resolved.base.id(), thread.active_branch) else {
            return Err(tree::Error::conflict(
                "empty_branch",
                "The active branch has no checkpoint yet: there is nothing to branch off",
            )
            .into());
        };
        let open = read.open_runs(thread.tree, thread.id).await?;
        if !branch::is_running(&open, active) {
            return Ok(resolved);
        }
        for point in read.path(thread.tree, head, SEARCH_DEPTH).await? {
            let content = self.content(thread, point.id).await?;
            if !has_open_calls(&content.messages) {
                resolved.base = Base::At(point);
                break;
            }
        }
        Ok(resolved)
    }

    /// Makes the changes of a transaction durable, and shows a branch as it is then.
    async fn committed(
        &self,
        mut tx: Box<dyn Tx>,
        id: ThreadId,
        row: Branch,
    ) -> Result<BranchView, Error> {
        let thread = resolve::thread(&mut *tx, id).await?;
        let shown = branch::view(&mut *tx, &thread, row).await?;
        tx.commit().await?;
        // Runs that float may have found a free slot.
        self.runs.wake();
        self.shared.notifier.notify(id);
        Ok(shown)
    }

    /// The content of a checkpoint, read with the graph of its thread.
    pub(crate) async fn content(
        &self,
        thread: &ThreadRow,
        at: CheckpointId,
    ) -> Result<Content, Error> {
        let saver = &self.shared.parts.saver;
        let loaded =
            load::checkpoint(saver, thread.tree, thread.id, &"".into(), At::Id(at)).await?;
        let Some(mut decoded) = loaded else {
            return Ok(Content::default());
        };
        decoded.writes.clear();
        let registered = self.shared.graph_of(&thread.metadata);
        let channel = self.shared.message_channel(&thread.metadata);
        let messages = decoded.checkpoint.values.get(&channel);
        let messages = messages.and_then(Value::as_list).map(<[_]>::to_vec);
        let waits = match &registered {
            Some(registered) => {
                let state = snapshot(&registered.wiring, &"".into(), &decoded, false);
                state.is_ok_and(|state| !state.next.is_empty())
            }
            None => false,
        };
        Ok(Content {
            waits,
            messages: messages.unwrap_or_default(),
        })
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
    ) -> Result<Branched, Error> {
        let (mut tx, thread) = self.begin(id).await?;
        let row = resolve::branch(&mut *tx, &thread, name).await?;
        let (cancelled, number) = branch::activate(&mut *tx, &thread, &row, how).await?;
        let branch = self.committed(tx, id, row).await?;
        self.runs.cancel(&cancelled);
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
    pub async fn rename_branch(
        &self,
        id: ThreadId,
        name: &str,
        to: Arc<str>,
    ) -> Result<Branched, Error> {
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

    /// Deletes the pointer of a branch.
    ///
    /// # Errors
    /// 404: no such thread or branch. 409 `branch_active`, `branch_busy`. Or the storage failed.
    pub async fn delete_branch(&self, id: ThreadId, name: &str) -> Result<(), Error> {
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
    pub async fn branches(&self, id: ThreadId) -> Result<Branches, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let read = &mut *reader;
        let thread = resolve::thread(read, id).await?;
        let rows = read.branches(thread.tree, id).await?;
        let open = read.open_runs(thread.tree, id).await?;
        let names: HashMap<_, _> = rows.iter().map(|row| (row.id, row.name.clone())).collect();
        let mut branches = Vec::with_capacity(rows.len());
        let mut leaves: Vec<(MessageNode, Vec<Arc<str>>)> = vec![];
        for row in rows {
            let last = branch::last_message(read, &thread, &row).await?;
            branches.push(BranchView {
                is_active: thread.active_branch == Some(row.id),
                busy: branch::is_busy(&open, &thread, row.id),
                source: row.source.and_then(|source| names.get(&source).cloned()),
                head_message: last.as_ref().map(|node| node.message_id.clone()),
                messages: last.as_ref().map_or(0, |node| node.ordinal),
                row,
            });
            let Some(last) = last else { continue };
            let name = branches.last().map(|shown| shown.row.name.clone());
            match leaves.iter_mut().find(|(node, _)| node.id == last.id) {
                Some((_, names)) => names.extend(name),
                None => leaves.push((last, name.into_iter().collect())),
            }
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
        let mut forks = read.relatives(thread.tree).await?;
        forks.retain(|fork| fork.parent == Some(id) && fork.deleted_at.is_none());
        Ok(Branches {
            active: thread.active_branch.and_then(|id| names.get(&id).cloned()),
            branches,
            leaves: ends,
            forks,
        })
    }
}

/// The content of a message as it is stored.
fn text_of(messages: &[Value], id: &str) -> Option<Value> {
    let of = |message: &&Value| message.get("id").and_then(Value::as_str) == Some(id);
    messages.iter().find(of)?.get("content").cloned()
}

/// A position that was found without an address, unless its checkpoint is gone since then: pruned,
/// or rolled back with its run.
pub(crate) async fn if_present(
    read: &mut dyn Read,
    thread: &ThreadRow,
    resolved: &Resolved,
) -> Result<Option<Resolved>, Error> {
    if let Some(id) = resolved.base.id()
        && read.point(thread.tree, id).await?.is_none()
    {
        return Ok(None);
    }
    Ok(Some(resolved.clone()))
}

fn moved() -> Error {
    tree::Error::conflict(
        "head_conflict",
        "The thread moved on current and current while the branch was made: try current",
    )
    .into()
}
