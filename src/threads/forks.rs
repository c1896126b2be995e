//! Forks of threads: creating them, and the family of a thread.

use std::sync::Arc;

use super::{
    Result, Service,
    branches::{BranchStart, create::if_present},
};
use crate::{
    id::ThreadId,
    tree::{
        self, Address, AddressTarget, Read, Resolved, fork, resolve,
        store::rows::{Position, ThreadRow},
    },
    value::Map,
};

pub mod family;

/// How often a fork is retried because its base moved meanwhile.
const TRIES: usize = 5;

/// A fork to make.
#[derive(Clone, Debug)]
pub struct NewFork {
    /// The thread it forks.
    pub source: ThreadId,
    /// The address in that thread.
    pub at: Address,
    /// Its id; a new one without.
    pub id: Option<ThreadId>,
    /// The new one: what has it was made by an earlier attempt of the request. `None` for any.
    pub id_of_key: Option<ThreadId>,
    /// Metadata in addition to what it inherits.
    pub metadata: Map,
    /// The principal of the request.
    pub by: Arc<str>,
}

/// A fork that was made.
#[derive(Clone, Debug)]
pub struct Forked {
    /// The thread.
    pub thread: ThreadRow,
    /// Number of the last event written.
    pub event_number: i64,
    /// The state ends in tool calls without results.
    pub dangling: bool,
}

impl Service {
    /// Makes a thread that shares the path of another one up to an address.
    ///
    /// # Errors
    /// 404: no such thread or address. 409: the id is taken, `thread_deleted`, `not_checkpointed`,
    /// `checkpoint_pruned`, `lineage_too_deep`. Or the storage failed.
    pub async fn fork(&self, new: NewFork) -> Result<Forked> {
        let id_of_key = new.id_of_key.filter(|_| new.id.is_none());
        let id = new.id.or(id_of_key).unwrap_or_else(ThreadId::mint);
        let store = &self.shared.parts.tree;
        for _ in 0..TRIES {
            let (mut reader, parent) = self.reader(new.source).await?;
            if id_of_key.is_some()
                && let Some(made) = reader.thread_row(id).await?
                && made.deleted_at.is_none()
            {
                if made.parent != Some(parent.id) {
                    return Err(fork::already_exists(id).into());
                }
                // Of its creation and of its fork.
                let events = reader.events(made.tree, id, 0, 2).await?;
                drop(reader);
                let number = events.last().map_or(0, |event| event.number);
                return self.made_before(&parent, made, number).await;
            }
            let resolved = self.base_of(&mut *reader, &parent, &new.at).await?;
            drop(reader);
            let content = match resolved.base.id() {
                Some(base) => self.content(&parent, base).await?,
                None => Default::default(),
            };
            let memory = self.change_memory();
            let (mut tx, parent) = self.begin_in(parent.tree, new.source).await?;
            self.must_be_free(&mut *tx, id).await?;
            let current = match new.at.target {
                AddressTarget::Active => if_present(&mut *tx, &parent, &resolved).await?,
                _ => Some(tree::resolve(&mut *tx, &parent, &new.at).await?),
            };
            let Some(current) = current.filter(|current| current.base.id() == resolved.base.id())
            else {
                continue;
            };
            let from = match &current.named {
                Some(branch) => branch.clone(),
                None => resolve::active(&mut *tx, &parent).await?,
            };
            let is_addressed = new.at != Address::default();
            let made = fork::create(
                &mut *tx,
                &parent,
                fork::CreateFork {
                    id,
                    by: new.by.clone(),
                    metadata: new.metadata.clone(),
                    base: current.base.clone(),
                    from: Some(from),
                    event: event_number(&new.at),
                    anchor: match &new.at.target {
                        AddressTarget::Message(id) => Some(id.clone()),
                        _ => None,
                    },
                    position: is_addressed.then_some(new.at.position),
                    waits: content.waits,
                },
            )
            .await;
            let made = match made {
                Err(tree::Error::Storage(error)) => {
                    drop(tx);
                    // Another request created it in another tree at the same moment.
                    self.must_be_free(&mut *store.reader().await?, id).await?;
                    return Err(error.into());
                }
                made => made?,
            };
            self.shared
                .trim_branch(&mut *tx, &made.thread, made.branch, &current.base, &memory)
                .await?;
            tx.commit().await?;
            return Ok(Forked {
                thread: made.thread,
                event_number: made.event_number,
                dangling: content.dangling,
            });
        }
        Err(tree::Error::conflict(
            "head_conflict",
            "The thread moved on again and again while it was forked: try again",
        )
        .into())
    }

    /// The fork that an earlier attempt has made of a thread.
    async fn made_before(
        &self,
        parent: &ThreadRow,
        fork: ThreadRow,
        event_number: i64,
    ) -> Result<Forked> {
        let content = match fork.fork_checkpoint {
            Some(base) => self.content(parent, base).await?,
            None => Default::default(),
        };
        Ok(Forked {
            event_number,
            thread: fork,
            dangling: content.dangling,
        })
    }

    /// The base of a fork. Without an address that is the head of the active branch; while that
    /// runs, its newest checkpoint without a dangling tool call.
    async fn base_of(
        &self,
        read: &mut dyn Read,
        parent: &ThreadRow,
        at: &Address,
    ) -> Result<Resolved> {
        if at.target == AddressTarget::Active && at.position == Position::At {
            let active = resolve::active(read, parent).await?;
            if active.head.is_some() {
                return self.resolve_start(read, parent, &BranchStart::Side).await;
            }
        }
        Ok(tree::resolve(read, parent, at).await?)
    }

    async fn must_be_free(&self, read: &mut dyn Read, id: ThreadId) -> Result<()> {
        match read.thread_row(id).await? {
            None => Ok(()),
            Some(row) if row.deleted_at.is_some() && self.sees(read, &row).await => {
                Err(fork::deleted(id).into())
            }
            Some(_) => Err(fork::already_exists(id).into()),
        }
    }

    /// Whether the client has a level on the tree of a thread, which may be deleted: of other
    /// threads it learns no more than that their ids are taken.
    pub(super) async fn sees(&self, read: &mut dyn Read, thread: &ThreadRow) -> bool {
        let Some(principal) = self.access.principal() else {
            return true;
        };
        let level = read.level(thread.tree, principal.clone()).await;
        level.is_ok_and(|level| level.is_some())
    }
}

/// The number of an event that an address names.
fn event_number(at: &Address) -> i64 {
    match (&at.target, at.position) {
        (AddressTarget::Event(number), Position::At) => *number,
        (AddressTarget::Event(number), Position::Before) => number - 1,
        _ => 0,
    }
}
