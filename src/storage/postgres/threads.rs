//! Threads and the slots of their active branches.

use std::sync::Arc;

use async_trait::async_trait;
use rows::{SELECT, slot_of, thread_of};

use super::{
    Store,
    columns::{Json, Params},
    connection::{self, prepare},
    events::{append_rows, ended},
    runs::create::LOCK,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{ThreadId, TreeId},
    tree::{self, Copied, NewCopy, NewThread, Outcome, Thread},
    value::{Map, Value},
};

pub(super) mod blobs;
mod copy;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod event_facts;
mod prune;
pub(super) mod rows;
mod search;

const PATCH: &str = "
UPDATE threads SET metadata = metadata || $2, updated_at = now() WHERE thread_id = $1 AND deleted_at IS NULL";

const SLOT: &str = "
SELECT b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth
  FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL";

/// A run that holds the slot ends with it. Behind the lock of `create`, so that a claim that was
/// quicker is seen.
const TAKE: &str = concat!(
    "
WITH b AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM threads t
   WHERE t.thread_id = $1 AND t.deleted_at IS NULL AND b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
  RETURNING b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
r AS (
  UPDATE runs r SET status = 'interrupted', last_checkpoint_id = b.head_checkpoint_id, updated_at = now() FROM b
   WHERE r.tree_id = b.tree_id AND r.thread_id = b.thread_id AND r.branch_id = b.branch_id AND r.status = 'running'
  RETURNING r.tree_id, r.thread_id, r.seq, r.run_id, r.branch_id, r.base_checkpoint_id AS base, r.last_checkpoint_id AS head, r.status, r.temporary),
d AS (SELECT * FROM r),",
    ended!(),
    append_rows!(),
    "
SELECT * FROM b"
);

const RECORD_OUTCOME: &str = "
UPDATE branches SET outcome = $4, error = $5, updated_at = now()
 WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $6";

#[async_trait]
impl tree::Store for Store {
    async fn create_thread(&self, new: NewThread) -> Result<Option<Thread>, Error> {
        create::create(self, &new).await
    }

    async fn thread(&self, id: ThreadId) -> Result<Option<Thread>, Error> {
        let row = connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, SELECT).await?;
            Ok(client.query_opt(&statement, &[&id.0]).await?)
        })
        .await?;
        row.as_ref().map(thread_of).transpose()
    }

    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<Option<Thread>, Error> {
        let metadata = Arc::new(metadata);
        let metadata = &metadata;
        let row = connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let patch = prepare(client, PATCH).await?;
            let select = prepare(client, SELECT).await?;
            let json = Json::of_map(metadata);
            let (by_id, change): (Params<'_, 1>, Params<'_, 2>) = ([&id.0], [&id.0, &json]);
            let (patched, row) = tokio::join!(
                biased;
                client.execute(&patch, &change),
                client.query_opt(&select, &by_id),
            );
            patched?;
            Ok(row?)
        })
        .await?;
        row.as_ref().map(thread_of).transpose()
    }

    async fn delete_thread(&self, id: ThreadId) -> Result<bool, Error> {
        delete::delete_thread(self, id).await
    }

    async fn take_slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        let row = connection::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let lock = prepare(client, LOCK).await?;
            let take = prepare(client, TAKE).await?;
            let active: Params<'_, 2> = [&id.0, &None::<uuid::Uuid>];
            let id: Params<'_, 1> = [&id.0];
            let (begin, locked, row, end) = tokio::join!(
                biased;
                client.batch_execute("BEGIN"),
                client.query_opt(&lock, &active),
                client.query_opt(&take, &id),
                client.batch_execute("COMMIT"),
            );
            begin?;
            locked?;
            let row = row?;
            end?;
            Ok(row)
        })
        .await?;
        row.as_ref().map(slot_of).transpose()
    }

    async fn slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        let row = connection::retry(&self.pools.critical, |client| async move {
            let statement = prepare(&client, SLOT).await?;
            Ok(client.query_opt(&statement, &[&id.0]).await?)
        })
        .await?;
        row.as_ref().map(slot_of).transpose()
    }

    async fn record_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error> {
        let error = &error;
        let changed = connection::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let statement = prepare(client, RECORD_OUTCOME).await?;
            let error = error.as_ref().map(Json::of_value);
            let changed = client
                .execute(
                    &statement,
                    &[
                        &slot.tree.0,
                        &slot.branch.0,
                        &slot.epoch,
                        &outcome.as_str(),
                        &error,
                        &slot.head.map(|head| head.0),
                    ],
                )
                .await?;
            Ok(changed)
        })
        .await?;
        if changed == 0 {
            return Err(Error::Fenced);
        }
        Ok(())
    }

    async fn level(
        &self,
        id: ThreadId,
        principal: Arc<str>,
    ) -> Result<Option<tree::members::Level>, Error> {
        self.level_of(id, principal).await
    }

    async fn search(&self, page: tree::search::ThreadPage) -> Result<Vec<Thread>, Error> {
        search::search(self, &page).await
    }

    async fn count(&self, filter: tree::search::ThreadFilter) -> Result<u64, Error> {
        search::count(self, &filter).await
    }

    async fn reader(&self) -> Result<Box<dyn tree::Read>, Error> {
        Ok(self.rows())
    }

    async fn begin(&self, tree: TreeId) -> Result<Box<dyn tree::Tx>, Error> {
        Ok(self.transaction(tree).await?)
    }

    async fn delete_tree(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        delete::delete_tree(self, id).await
    }

    async fn copy_thread(&self, from: ThreadId, copy: NewCopy) -> Result<Copied, Error> {
        copy::copy(self, from, copy).await
    }

    async fn prune_thread(&self, id: ThreadId) -> Result<Option<usize>, Error> {
        prune::prune(self, id).await
    }
}
