//! Making branches at an address, and the part of a checkpoint that new branches and forks need.

use std::collections::HashMap;

use super::{BranchStart, Branched, NewBranch};
use crate::{
    engine::snapshot::snapshot,
    fail_point,
    id::{CheckpointId, ThreadId},
    threads::{Error, Result, Service},
    tree::{
        self, Address, Base, Read, Resolved, Tx, branch,
        dangling::has_open_calls,
        resolve,
        store::rows::{Branch, MessageNode, ThreadRow},
    },
    value::Value,
};

/// How often an operation is retried because its base moved meanwhile.
const TRIES: usize = 5;
/// Checkpoints that are searched for one without a dangling tool call.
const SEARCH_DEPTH: usize = 64;

/// The part of a checkpoint that new branches need; it never changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// Nodes wait to run.
    pub waits: bool,
    /// Its messages end in tool calls without results.
    pub dangling: bool,
}

impl Service {
    /// Makes a branch.
    ///
    /// # Errors
    /// 404: no such thread or address. 409: the name is taken, nothing to branch off, too many.
    /// Or the storage failed.
    pub async fn make_branch(&self, id: ThreadId, new: NewBranch) -> Result<Branched> {
        let mut known: HashMap<CheckpointId, Content> = HashMap::new();
        for _ in 0..TRIES {
            let (mut reader, thread) = self.reader(id).await?;
            let resolved = self.resolve_start(&mut *reader, &thread, &new.from).await?;
            drop(reader);
            let prefill = match resolved.prefill() {
                Some(node) => self.text_of(&thread, node).await?,
                None => None,
            };
            if let Some(base) = resolved.base.id()
                && !known.contains_key(&base)
            {
                known.insert(base, self.content(&thread, base).await?);
            }
            let memory = self.change_memory();
            let (mut tx, thread) = self.begin_in(thread.tree, id).await?;
            let current = match &new.from {
                BranchStart::Address(address) => {
                    Some(tree::resolve(&mut *tx, &thread, address).await?)
                }
                BranchStart::Side => if_present(&mut *tx, &thread, &resolved).await?,
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
            let mut made = made.await?;
            let trimmed =
                self.shared
                    .trim_branch(&mut *tx, &thread, made.branch, &current.base, &memory);
            made.branch = trimmed.await?;
            let shown = self.committed(tx, id, made.branch).await?;
            self.runs.cancel(id, &made.cancelled);
            return Ok(Branched {
                branch: shown,
                event_number: made.event_number,
                cancelled: made.cancelled,
                prefill,
                dangling: content.dangling,
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
    ) -> Result<branch::CreatedBranch> {
        let create = branch::CreateBranch {
            base: resolved.base.point().cloned(),
            name: new.name.clone(),
            from,
            origin: new.origin,
            activate: new.activate,
            waits,
        };
        Ok(branch::create(tx, thread, create).await?)
    }

    pub(crate) async fn resolve_start(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        from: &BranchStart,
    ) -> Result<Resolved> {
        let address = match from {
            BranchStart::Address(address) => return Ok(tree::resolve(read, thread, address).await?),
            BranchStart::Side => Address::default(),
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
            if !content.dangling {
                resolved.base = Base::At(point);
                break;
            }
        }
        Ok(resolved)
    }

    /// The content of a checkpoint, read with the graph of its thread. The memory of its state is free again
    /// when this returns.
    pub(crate) async fn content(&self, thread: &ThreadRow, at: CheckpointId) -> Result<Content> {
        let memory = self.change_memory();
        let channel = self.shared.message_channel(&thread.metadata);
        let values = self.shared.conversation_in(thread, channel, Some(&memory));
        let Some(decoded) = values.decoded(at).await? else {
            return Ok(Content::default());
        };
        let registered = self
            .shared
            .shown_graph_of(thread.id, &thread.metadata, None)
            .await?;
        let waits = match &registered {
            Some(registered) => {
                let state = snapshot(&registered.topology, &"".into(), &decoded, false);
                state.is_ok_and(|state| !state.next.is_empty())
            }
            None => false,
        };
        fail_point!(async "threads.content");
        Ok(Content {
            waits,
            dangling: has_open_calls(values.of_state(&decoded).all()),
        })
    }

    /// The content of a message as it is stored.
    async fn text_of(&self, thread: &ThreadRow, node: &MessageNode) -> Result<Option<Value>> {
        let memory = self.change_memory();
        let channel = self.shared.message_channel(&thread.metadata);
        let values = self.shared.conversation_in(thread, channel, Some(&memory));
        let messages = values.messages(node.checkpoint).await?.unwrap_or_default();
        let message = messages.find(&node.message_id);
        Ok(message.and_then(|message| message.get("content").cloned()))
    }
}

/// A position that was found without an address, unless its checkpoint is gone since then: pruned,
/// or rolled back with its run.
pub(crate) async fn if_present(
    read: &mut dyn Read,
    thread: &ThreadRow,
    resolved: &Resolved,
) -> Result<Option<Resolved>> {
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
        "The thread moved on again and again while the branch was made: try again",
    )
    .into()
}
