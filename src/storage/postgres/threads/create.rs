//! New threads, each with its tree and its branch `main`.

pub(crate) mod group;

use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::{
    super::{
        Store,
        columns::Json,
        connection::{self, prepare},
    },
    rows::{SELECT, thread_of},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, ThreadId},
    tree::{IfExists, NewThread, Thread, event::codes::event_code},
};

/// A thread with its tree and its branch, unless the id is taken: a row like that of [`SELECT`]. With `$6`
/// it has a log, which begins with its creation.
pub(in super::super) const CREATE: &str = concat!(
    "
WITH t AS (
  INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, last_event_number, owner, ttl_minutes, ttl_strategy, expires_at)
  SELECT $1, $1, $2, $4, $6::bool::int, $3, $7::float8, $8::text, now() + $7::float8 * interval '1 minute' WHERE $5::uuid IS NULL OR NOT EXISTS (SELECT 1 FROM runs WHERE run_id = $5)
  ON CONFLICT (thread_id) DO NOTHING RETURNING *),
tr AS (INSERT INTO trees (tree_id, owner) SELECT thread_id, $3 FROM t ON CONFLICT DO NOTHING),
b AS (
  INSERT INTO branches (tree_id, branch_id, thread_id, name, origin)
  SELECT thread_id, $2, thread_id, 'main', 'root' FROM t RETURNING *),
ev AS (INSERT INTO events (tree_id, thread_id, event_number, kind) SELECT thread_id, thread_id, 1, ",
    event_code!(THREAD_CREATED),
    " FROM t WHERE $6)
SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, t.updated_at, b.updated_at AS state_updated_at, b.branch_id,
       b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error, false AS busy
  FROM t CROSS JOIN b"
);

/// Makes room for a thread where a tombstone is that nothing refers to.
pub(super) const MAKE_ROOM: &str = "
DELETE FROM threads t WHERE t.thread_id = $1 AND t.deleted_at IS NOT NULL
   AND (SELECT 1 FROM trees x WHERE x.tree_id = t.thread_id) IS NULL
   AND (SELECT 1 FROM threads k WHERE k.parent_thread_id = t.thread_id LIMIT 1) IS NULL
   AND (SELECT 1 FROM events e WHERE e.tree_id = t.tree_id AND e.thread_id = t.thread_id LIMIT 1) IS NULL
   AND (SELECT 1 FROM checkpoints c WHERE c.tree_id = t.tree_id AND c.thread_id = t.thread_id LIMIT 1) IS NULL";

/// See [`tree::Store::create_thread`](crate::tree::Store::create_thread).
pub(in super::super) async fn create_thread(
    store: &Store,
    new: &NewThread,
) -> Result<Option<Thread>, Error> {
    let branch = BranchId::mint();
    let row = match store.new_threads.create(new, branch).await? {
        Some(row) => Some(row),
        None => create_alone(store, new, branch).await?,
    };
    let Some(row) = row else {
        // The id is that of a tombstone.
        return if make_room(store, new.id).await? {
            Box::pin(create_thread(store, new)).await
        } else {
            Ok(None)
        };
    };
    let thread = thread_of(&row)?;
    // The branch's id shows that the thread is the new one, also when the first reply was lost.
    let is_new = thread.active_branch == branch;
    Ok((is_new || new.if_exists == IfExists::DoNothing).then_some(thread))
}

/// The row of the thread with this id: of the new one, or of the one that is there.
async fn create_alone(
    store: &Store,
    new: &NewThread,
    branch: BranchId,
) -> Result<Option<Row>, Error> {
    connection::retry(&store.pools.reads, |client| async move {
        let client = &client;
        let create = prepare(client, CREATE).await?;
        if let Some(row) = send_create(client, &create, new, branch, None).await? {
            return Ok(Some(row));
        }
        let select = prepare(client, SELECT).await?;
        Ok(client.query_opt(&select, &[&new.id.0]).await?)
    })
    .await
}

/// Removes a tombstone that stands in the way of a new thread and that nothing refers to.
pub(in super::super) async fn make_room(store: &Store, thread: ThreadId) -> Result<bool, Error> {
    let removed = connection::retry(&store.pools.reads, |client| async move {
        let statement = prepare(&client, MAKE_ROOM).await?;
        Ok(client.execute(&statement, &[&thread.0]).await?)
    })
    .await?;
    Ok(removed > 0)
}

/// Sends the creation of a thread, whose row comes back unless the id is taken: for a run, whose id must be
/// free and with which the thread may go (`(id, temporary)`), or by itself.
pub(in super::super) async fn send_create(
    client: &Client,
    statement: &Statement,
    new: &NewThread,
    branch: BranchId,
    run: Option<(Uuid, bool)>,
) -> Result<Option<Row>, tokio_postgres::Error> {
    let metadata = Json::of_map(&new.metadata);
    let log = !run.is_some_and(|(_, temporary)| temporary);
    let run = run.map(|(id, _)| id);
    let minutes = new.ttl.map(|ttl| ttl.minutes);
    let strategy = new.ttl.map(|ttl| ttl.strategy.as_str());
    client
        .query_opt(
            statement,
            &[
                &new.id.0, &branch.0, &new.owner, &metadata, &run, &log, &minutes, &strategy,
            ],
        )
        .await
}

statements!(CREATE, MAKE_ROOM; group);
