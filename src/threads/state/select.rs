//! Selecting the checkpoint that a request addresses: by its id as LangGraph's clients do, or by
//! branch, tag, message and event.

use std::sync::Arc;

use crate::{
    budget::Reservation,
    checkpoint::{
        At, Query, Slot, Stored,
        cache::CachedHead,
        frame::{self, Decoded},
    },
    id::{BranchId, ThreadId},
    runs::request::Address,
    threads::{Error, Result, Service},
    tree::{
        self, Thread,
        load::{self, References, keep_own_writes},
        resolve,
        store::rows::Position,
    },
};

/// The checkpoint that a request addresses.
pub(super) struct Selection {
    /// The checkpoint; `None` at an address without one.
    pub at: Option<At>,
    /// The branch whose pending writes count; without one the rules of records apply.
    pub owner: Option<BranchId>,
    /// The state of a branch as it is now, not a record of the past.
    pub live: bool,
}

/// What is known of the checkpoint that is to be shown once the row of its thread was read.
pub(super) enum Known {
    /// Its row and what is pending at it, without its values.
    Row(Box<Stored>),
    /// All of it.
    Head(CachedHead),
}

impl Service {
    /// Selects the checkpoint that `at` addresses in a thread.
    ///
    /// # Errors
    /// 404 for an address that is not visible in the thread, or the storage failed.
    pub(super) async fn select(&self, thread: &Thread, at: &Address) -> Result<Selection> {
        let Some(address) = &at.tree_address else {
            return Ok(match (at.checkpoint, at.ns.is_empty()) {
                (Some(id), _) => Selection {
                    at: Some(At::Id(id)),
                    owner: None,
                    live: false,
                },
                (None, true) => Selection {
                    at: Some(At::ActiveHead),
                    owner: Some(thread.active_branch),
                    live: true,
                },
                (None, false) => Selection {
                    at: thread.head.map(|start| At::Subgraph {
                        start,
                        branch: thread.active_branch,
                        before: None,
                    }),
                    owner: Some(thread.active_branch),
                    live: true,
                },
            });
        };
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread.id).await?;
        let found = tree::resolve(&mut *reader, &row, address).await?;
        let named = found.named.filter(|_| address.position == Position::At);
        let id = found.base.id();
        let head_of_active = (id == thread.head).then_some(thread.active_branch);
        let owner = named.as_ref().map(|branch| branch.id).or(head_of_active);
        let selected = id.map(|id| {
            if at.ns.is_empty() {
                At::Id(id)
            } else {
                At::Subgraph {
                    start: id,
                    branch: owner.unwrap_or(thread.active_branch),
                    before: None,
                }
            }
        });
        Ok(Selection {
            at: selected,
            owner,
            live: named.is_some(),
        })
    }

    /// The row of a thread whose state is to be shown, and with it the checkpoint that `at` addresses, if that is the
    /// head or a checkpoint of the root graph by its id. Of a head at which the last run ended here nothing is read.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    pub(super) async fn row_for_state(
        &self,
        id: ThreadId,
        at: &Address,
    ) -> Result<(Thread, Option<Known>)> {
        if at.tree_address.is_some() || !at.ns.is_empty() {
            return Ok((self.row(id).await?, None));
        }
        if at.checkpoint.is_none()
            && let Some((thread, head)) = self.thread_at_cached_head(id).await?
        {
            return Ok((thread, Some(Known::Head(head))));
        }
        let principal = self.access.principal().cloned();
        let tree = &self.shared.parts.tree;
        let found = tree.thread_with_checkpoint(id, principal, at.checkpoint);
        let found = found.await?;
        let level = found.as_ref().and_then(|found| found.level);
        self.access.check_with_read(id, level)?;
        let found = found.ok_or(Error::NoThread(id))?;
        Ok((
            found.thread,
            found.checkpoint.map(|read| Known::Row(Box::new(read))),
        ))
    }

    /// The row of a thread at whose head the last run ended in this process; `None` as well if the head, its row or
    /// what is pending at it may have changed since: then all of it is to be read, and is from now on.
    async fn thread_at_cached_head(&self, id: ThreadId) -> Result<Option<(Thread, CachedHead)>> {
        let cache = &self.shared.cache;
        let Some(head) = cache.last_head(id) else {
            return Ok(None);
        };
        let principal = self.access.principal().cloned();
        let found = self.shared.parts.tree.thread_with_level(id, principal);
        let found = found.await?.filter(|found| {
            let thread = &found.thread;
            let slot = Slot {
                tree: thread.tree,
                thread: thread.id,
                branch: thread.active_branch,
                epoch: thread.epoch,
                head: thread.head,
                head_depth: thread.head_depth,
            };
            head.is_at(&slot) && !found.is_head_reparented
        });
        let Some(found) = found else {
            cache.forget_last(id, &head);
            return Ok(None);
        };
        self.access.check_with_read(id, found.level)?;
        Ok(Some((found.thread, head)))
    }

    /// Loads the selected checkpoint with the pending writes that count, and the memory of a large one;
    /// `None` also for one that is not visible in the thread. `known` is what is known of the checkpoint: nothing more is
    /// read of one whose values are in memory.
    pub(super) async fn load_selected(
        &self,
        thread: &Thread,
        ns: &Arc<str>,
        selection: &Selection,
        known: Option<Known>,
    ) -> Result<Option<(Decoded, Option<Reservation>)>> {
        let Some(at) = selection.at.clone() else {
            return Ok(None);
        };
        let read = match known {
            Some(Known::Head(head)) => {
                // To show it takes as much as if it had been read.
                let memory = self.reserve(head.weight, "")?;
                let decoded = (*head.decoded).clone();
                let visible = self.if_visible(thread, selection, decoded).await?;
                return Ok(visible.map(|decoded| (decoded, memory)));
            }
            Some(Known::Row(read)) => Some(read),
            None => None,
        };
        if let Some(read) = read
            && let Some(known) = self.shared.cache.get(thread.tree, read.row.id)
        {
            let mut decoded = frame::with_row(&known, &read)?;
            let saver = &self.shared.parts.saver;
            let page = std::slice::from_mut(&mut decoded);
            // They were written before what refers to them.
            let references = References::of(saver, thread.tree, ns, page).await?;
            // To show it takes as much as if it had been read.
            let weight = known.weight() + read.weight() + references.weight();
            let memory = self.reserve(weight, "")?;
            references.resolve(page).await?;
            let visible = self.if_visible(thread, selection, decoded).await?;
            return Ok(visible.map(|decoded| (decoded, memory)));
        }
        self.access.record_shown(thread.id);
        let saver = &self.shared.parts.saver;
        let known = match at {
            At::Id(id) => Some(id),
            At::ActiveHead => thread.head,
            _ => None,
        };
        let query = Query {
            tree: thread.tree,
            thread: thread.id,
            ns: ns.clone(),
            at,
            values: true,
        };
        let reserve = |weight| self.reserve(weight, "");
        let loaded = load::reserved_checkpoint(saver, query, known, reserve).await?;
        let Some((decoded, memory)) = loaded else {
            return Ok(None);
        };
        if memory.is_none() && ns.is_empty() {
            self.shared.cache.insert(thread.tree, decoded.clone());
        }
        let visible = self.if_visible(thread, selection, decoded).await?;
        Ok(visible.map(|decoded| (decoded, memory.flatten())))
    }

    /// A checkpoint with the pending writes that count; `None` for one that is not visible in the thread.
    async fn if_visible(
        &self,
        thread: &Thread,
        selection: &Selection,
        mut decoded: Decoded,
    ) -> Result<Option<Decoded>> {
        let checkpoint = &decoded.checkpoint;
        if selection.owner.is_none() && checkpoint.thread != thread.id {
            let root = checkpoint.root.unwrap_or(checkpoint.id);
            self.access.record_shown(thread.id);
            let mut reader = self.shared.parts.tree.reader().await?;
            if !reader.visible(thread.tree, thread.id, root).await? {
                return Ok(None);
            }
        }
        match selection.owner {
            // What other branches and forks found at a state that they share is not this one's.
            Some(owner) => decoded.retain_writes(|branch, _| branch == owner),
            None => keep_own_writes(&mut decoded, thread.active_branch),
        }
        Ok(Some(decoded))
    }
}
