//! Threads and the slots of their active branches.

use std::sync::Arc;

use async_trait::async_trait;
use rows::{thread, tree_of};
use rusqlite::params;
use slots::{is_head, raise_epoch, record_outcome, slot};

use super::{Store, columns::map_text, runs, tree as trees};
use crate::{
    checkpoint::{Error, Slot},
    id::{ThreadId, TreeId},
    time::Timestamp,
    tree::{self, Copied, IfExists, NewCopy, NewThread, Outcome, Thread, members::Level},
    value::{Map, Value},
};

pub(super) mod blobs;
mod copy;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod event_facts;
mod prune;
mod rows;
mod search;
pub(super) mod slots;

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&[&str]] = &[
    &[rows::THREAD, prune::INNER],
    delete::PLANNED,
    event_facts::PLANNED,
];
/// Statements that walk a tree on purpose, and the alias of the table they walk: a resume value
/// retains a checkpoint of the thread, whatever branch it is stored for.
#[cfg(test)]
pub(super) const WALKING: &[(&str, &str)] = &[
    (search::ASCENDING, "t"),
    (search::DESCENDING, "t"),
    (prune::ROWS, "w"),
];

#[async_trait]
impl tree::Store for Store {
    async fn create_thread(&self, new: NewThread) -> Result<Option<Thread>, Error> {
        self.writer
            .submit(move |db| {
                if !create::is_free(db, new.id)? {
                    return match new.if_exists {
                        IfExists::Raise => Ok(None),
                        IfExists::DoNothing => thread(db, new.id),
                    };
                }
                create::insert(db, new.id, &new, true, Timestamp::now())?;
                thread(db, new.id)
            })
            .await
    }

    async fn thread(&self, id: ThreadId) -> Result<Option<Thread>, Error> {
        self.readers.read(move |db| thread(db, id)).await
    }

    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<Option<Thread>, Error> {
        self.writer
            .submit(move |db| {
                let Some(mut thread) = thread(db, id)? else {
                    return Ok(None);
                };
                thread.metadata.extend(metadata);
                let now = Timestamp::now();
                db.prepare_cached(
                    "UPDATE threads SET metadata = ?1, updated_at = ?2 WHERE thread_id = ?3",
                )?
                .execute(params![
                    map_text(&thread.metadata),
                    now.0,
                    id.0.as_bytes()
                ])?;
                thread.updated_at = thread.updated_at.max(now);
                Ok(Some(thread))
            })
            .await
    }

    async fn delete_thread(&self, id: ThreadId) -> Result<bool, Error> {
        self.writer
            .submit(move |db| match tree_of(db, id)? {
                Some(tree) => delete::thread(db, tree, id, true).map(|()| true),
                None => Ok(false),
            })
            .await
    }

    async fn take_slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        self.writer
            .submit(move |db| {
                let Some(mut slot) = slot(db, id, None)? else {
                    return Ok(None);
                };
                let now = Timestamp::now();
                // A run that is fenced off must not stay `running` for ever.
                runs::end_running(db, &slot, now)?;
                slot.epoch = raise_epoch(db, slot.tree, slot.branch)?;
                Ok(Some(slot))
            })
            .await
    }

    async fn slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        self.readers.read(move |db| slot(db, id, None)).await
    }

    async fn record_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                if !is_head(db, &slot)? {
                    return Err(Error::Fenced);
                }
                record_outcome(db, &slot, outcome, error.as_ref(), Timestamp::now())
            })
            .await
    }

    async fn level(&self, id: ThreadId, principal: Arc<str>) -> Result<Option<Level>, Error> {
        self.readers
            .read(move |db| trees::level(db, id, &principal))
            .await
    }

    async fn search(&self, page: tree::search::ThreadPage) -> Result<Vec<Thread>, Error> {
        self.readers.read(move |db| search::search(db, &page)).await
    }

    async fn count(&self, filter: tree::search::ThreadFilter) -> Result<u64, Error> {
        self.readers
            .read(move |db| search::count(db, &filter))
            .await
    }

    async fn reader(&self) -> Result<Box<dyn tree::Read>, Error> {
        Ok(Box::new(self.rows()))
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn tree::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }

    async fn delete_tree(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        self.writer.submit(move |db| delete::tree(db, id)).await
    }

    async fn copy_thread(&self, from: ThreadId, copy: NewCopy) -> Result<Copied, Error> {
        self.writer
            .submit(move |db| copy::copy(db, from, &copy))
            .await
    }

    async fn prune_thread(&self, id: ThreadId) -> Result<Option<usize>, Error> {
        self.writer.submit(move |db| prune::prune(db, id)).await
    }
}
