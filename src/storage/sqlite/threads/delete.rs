//! Deleting threads and trees, and the tombstones that deleted threads leave.

use rusqlite::{Connection, named_params, params};

use super::{blobs::collect, event_facts, rows::tree_of};
use crate::{
    checkpoint::Result,
    id::{CheckpointId, ThreadId, TreeId},
    storage::sqlite::columns,
    time::Timestamp,
    tree::event::codes::event_code,
};

/// How long a tombstone without content stays, in microseconds: 30 days.
const TOMBSTONE: i64 = 30 * 24 * 3600 * 1_000_000;

/// See [`tree::Store::delete_thread`](crate::tree::Store::delete_thread).
pub(in super::super) fn delete_thread(db: &Connection, id: ThreadId) -> Result<bool> {
    match tree_of(db, id)? {
        Some(tree) => thread(db, tree, id, true).map(|()| true),
        None => Ok(false),
    }
}

/// Deletes a thread: everything of the tree with its last living thread, else all that no other
/// thread inherits. With `trace` a tombstone is left.
pub(in super::super) fn thread(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    trace: bool,
) -> Result<()> {
    let has_relatives = db
        .prepare_cached(
            "SELECT 1 FROM threads WHERE tree_id = ?1 AND thread_id <> ?2 \
             AND deleted_at IS NULL",
        )?
        .exists(params![tree, thread])?;
    if !has_relatives {
        return whole_tree(db, tree, trace);
    }
    let has_events = open_purge(db, tree)?;
    one_of_many(db, tree, thread)?;
    close_purge(db, has_events)
}

/// Deletes the tree of a living thread; returns the threads that were not deleted before.
pub(in super::super) fn delete_tree(db: &Connection, of: ThreadId) -> Result<Vec<ThreadId>> {
    match tree_of(db, of)? {
        Some(tree) => all(db, tree),
        None => Ok(Vec::new()),
    }
}

/// Deletes a tree; returns the threads that were not deleted before.
pub(in super::super) fn all(db: &Connection, tree: TreeId) -> Result<Vec<ThreadId>> {
    let living = db
        .prepare_cached(
            "SELECT thread_id FROM threads WHERE tree_id = ?1 AND deleted_at IS NULL \
             ORDER BY created_at, thread_id",
        )?
        .query_map([tree], |row| columns::id(row, 0))?
        .collect::<Result<_, _>>()?;
    whole_tree(db, tree, true)?;
    Ok(living)
}

/// Deletes events. False when there are none, and so nothing to write.
fn open_purge(db: &Connection, tree: TreeId) -> Result<bool> {
    let has_events = db
        .prepare_cached("SELECT 1 FROM events WHERE tree_id = ?1")?
        .exists([tree])?;
    if has_events {
        db.prepare_cached("UPDATE purge_switch SET open = 1")?
            .execute([])?;
    }
    Ok(has_events)
}

fn close_purge(db: &Connection, open: bool) -> Result<()> {
    if open {
        db.prepare_cached("UPDATE purge_switch SET open = 0")?
            .execute([])?;
    }
    Ok(())
}

/// Deletes what is derived from one thread of a tree, or from all of them, while their rows are
/// there.
fn forget_derived(db: &Connection, tree: TreeId, thread: Option<ThreadId>) -> Result<()> {
    for sql in [
        "DELETE FROM projection_offsets WHERE thread_id IN (SELECT thread_id FROM threads \
         WHERE tree_id = ?1 AND (?2 IS NULL OR thread_id = ?2))",
        "DELETE FROM thread_heads WHERE tree_id = ?1 AND (?2 IS NULL OR thread_id = ?2)",
    ] {
        db.prepare_cached(sql)?.execute(params![tree, thread])?;
    }
    Ok(())
}

fn whole_tree(db: &Connection, tree: TreeId, trace: bool) -> Result<()> {
    let has_events = open_purge(db, tree)?;
    forget_derived(db, tree, None)?;
    for sql in [
        "DELETE FROM tags WHERE tree_id = ?1",
        "DELETE FROM branches WHERE tree_id = ?1",
        "DELETE FROM runs WHERE thread_id IN (SELECT thread_id FROM threads WHERE tree_id = ?1)",
        "DELETE FROM crons WHERE thread_id IN (SELECT thread_id FROM threads WHERE tree_id = ?1)",
        "DELETE FROM checkpoint_writes WHERE tree_id = ?1",
        "DELETE FROM checkpoint_blobs WHERE tree_id = ?1",
        "DELETE FROM checkpoints WHERE tree_id = ?1",
        "DELETE FROM message_nodes WHERE tree_id = ?1",
        "DELETE FROM events WHERE tree_id = ?1",
        "DELETE FROM event_facts WHERE tree_id = ?1",
        "DELETE FROM deleted_runs WHERE tree_id = ?1",
        "DELETE FROM tree_members WHERE tree_id = ?1",
        "DELETE FROM trees WHERE tree_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute([tree])?;
    }
    close_purge(db, has_events)?;
    if !trace {
        db.prepare_cached("DELETE FROM threads WHERE tree_id = ?1")?
            .execute([tree])?;
        return Ok(());
    }
    // Nothing refers to these tombstones, nor they to anything: their ids can be used again.
    let now = Timestamp::now();
    db.prepare_cached(
        "UPDATE threads SET tree_id = thread_id, parent_thread_id = NULL, \
         fork_checkpoint_id = NULL, fork_checkpoint_depth = -1, fork_anchor = NULL, \
         fork_position = NULL, fork_event_number = 0, fork_level = 0, active_branch_id = NULL, \
         last_event_number = 0, metadata = '{}', config = '{}', \
         deleted_at = coalesce(deleted_at, ?2) WHERE tree_id = ?1",
    )?
    .execute(params![tree, now.0])?;
    forget(db, now)
}

const DELETE_OWN_ROWS: [&str; 4] = [
    "DELETE FROM crons WHERE thread_id = (SELECT t.thread_id FROM threads t \
     WHERE t.tree_id = ?1 AND t.thread_id = ?2)",
    "DELETE FROM tags WHERE tree_id = ?1 AND thread_id = ?2",
    "DELETE FROM branches INDEXED BY sqlite_autoindex_branches_2 \
     WHERE tree_id = ?1 AND thread_id = ?2",
    "DELETE FROM runs WHERE tree_id = ?1 AND thread_id = ?2",
];

/// Rows of dead threads that are on no living thread's path. What a living thread wrote is no such row, and
/// leads on to the base of that thread, which is looked at by itself: the walk is through dead threads alone.
const UNREACHABLE: &str = "WITH RECURSIVE keep (checkpoint_id, parent_checkpoint_id) AS ( \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM threads t \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = t.fork_checkpoint_id \
       WHERE t.tree_id = :tree AND t.deleted_at IS NULL \
         AND (SELECT d.deleted_at IS NULL FROM threads d WHERE d.thread_id = c.thread_id) IS NOT TRUE \
      UNION \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = k.parent_checkpoint_id \
       WHERE (SELECT d.deleted_at IS NULL FROM threads d WHERE d.thread_id = c.thread_id) IS NOT TRUE) \
    SELECT c.checkpoint_id FROM threads t \
      CROSS JOIN checkpoints c INDEXED BY checkpoints_thread ON c.tree_id = :tree \
       AND c.thread_id = t.thread_id AND c.checkpoint_ns = '' \
     WHERE t.tree_id = :tree AND t.deleted_at IS NOT NULL \
       AND c.checkpoint_id NOT IN (SELECT checkpoint_id FROM keep)";

/// The thread becomes a tombstone while others need its rows; what they inherit is exactly the
/// path of their fork base.
fn one_of_many(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<()> {
    forget_derived(db, tree, Some(thread))?;
    for sql in DELETE_OWN_ROWS {
        db.prepare_cached(sql)?.execute(params![tree, thread])?;
    }
    let now = Timestamp::now();
    db.prepare_cached(
        "UPDATE threads SET deleted_at = ?1, metadata = '{}', config = '{}', \
         active_branch_id = NULL WHERE thread_id = ?2",
    )?
    .execute(params![now.0, thread])?;
    let unreachable = ids(db, UNREACHABLE, named_params! { ":tree": tree })?;
    // Numbers up to a fork's point are coordinates of that fork, as long as it or a fork of it
    // lives. A row of two events goes when the first one is behind that point.
    db.prepare_cached(concat!(
        "WITH RECURSIVE needed (id, parent, number) AS ( \
           SELECT thread_id, parent_thread_id, fork_event_number FROM threads \
            WHERE tree_id = ?1 AND deleted_at IS NULL \
           UNION \
           SELECT t.thread_id, t.parent_thread_id, t.fork_event_number FROM needed n \
             JOIN threads t ON t.thread_id = n.parent) \
         DELETE FROM events WHERE tree_id = ?1 AND thread_id IN ( \
             SELECT thread_id FROM threads INDEXED BY threads_tree \
              WHERE tree_id = ?1 AND deleted_at IS NOT NULL) \
           AND event_number - (kind IN (",
        event_code!(ENQUEUED_AND_STARTED),
        ", ",
        event_code!(CREATED_AND_FINISHED),
        ")) > (SELECT coalesce(max(n.number), 0) FROM needed n \
                                WHERE n.parent = events.thread_id)",
    ))?
    .execute([tree])?;
    db.prepare_cached(concat!(
        "DELETE FROM event_facts WHERE tree_id = ?1 AND thread_id IN ( \
             SELECT thread_id FROM threads INDEXED BY threads_tree \
              WHERE tree_id = ?1 AND deleted_at IS NOT NULL) \
           AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tree_id = ?1 \
             AND e.thread_id = event_facts.thread_id AND e.event_number = event_facts.event_number) \
           AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tree_id = ?1 \
             AND e.thread_id = event_facts.thread_id \
             AND e.event_number = event_facts.event_number + 1 AND e.kind = ",
        event_code!(CREATED_AND_FINISHED),
        ")",
    ))?
    .execute([tree])?;
    event_facts::store(db, tree, &unreachable, true)?;
    remove(db, tree, &unreachable, true)?;
    collect(db, tree)?;
    forget(db, now)
}

const FORGET: &str = "DELETE FROM threads WHERE thread_id IN ( \
    SELECT t.thread_id FROM threads t WHERE t.deleted_at < ?1 \
       AND NOT EXISTS (SELECT 1 FROM threads k WHERE k.parent_thread_id = t.thread_id) \
       AND NOT EXISTS (SELECT 1 FROM events e \
         WHERE e.tree_id = t.tree_id AND e.thread_id = t.thread_id) \
       AND NOT EXISTS (SELECT 1 FROM checkpoints c \
         WHERE c.tree_id = t.tree_id AND c.thread_id = t.thread_id) LIMIT 100)";

/// Removes tombstones that are old and that nothing refers to.
fn forget(db: &Connection, now: Timestamp) -> Result<()> {
    db.prepare_cached(FORGET)?.execute([now.0 - TOMBSTONE])?;
    Ok(())
}

pub(in super::super) fn ids(
    db: &Connection,
    sql: &'static str,
    params: &[(&str, &dyn rusqlite::ToSql)],
) -> Result<Vec<CheckpointId>> {
    columns::all(db, sql, params, |row| columns::id(row, 0))
}

const REMOVE: [&str; 4] = [
    "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = '' \
     AND checkpoint_id = ?2",
    "DELETE FROM checkpoint_writes WHERE rowid IN (SELECT w.rowid \
       FROM checkpoints c INDEXED BY checkpoints_sub CROSS JOIN checkpoint_writes w \
         ON w.tree_id = ?1 AND w.checkpoint_ns = c.checkpoint_ns \
        AND w.checkpoint_id = c.checkpoint_id \
      WHERE c.tree_id = ?1 AND c.root_checkpoint_id = ?2 AND c.checkpoint_ns <> '')",
    "DELETE FROM checkpoints INDEXED BY checkpoints_sub \
     WHERE tree_id = ?1 AND root_checkpoint_id = ?2 AND checkpoint_ns <> ''",
    "DELETE FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = '' \
     AND checkpoint_id = ?2",
];

const REMOVE_MESSAGES: &str = "WITH RECURSIVE dead (node_id) AS ( \
      SELECT node_id FROM message_nodes INDEXED BY message_nodes_checkpoint \
       WHERE tree_id = ?1 AND checkpoint_id = ?2 \
      UNION \
      SELECT n.node_id FROM dead d \
        CROSS JOIN message_nodes n INDEXED BY message_nodes_parent \
         ON n.tree_id = ?1 AND n.parent_node_id = d.node_id) \
    DELETE FROM message_nodes WHERE tree_id = ?1 AND node_id IN (SELECT node_id FROM dead)";

/// Removes root checkpoints with all rows that belong to them, except blobs; if `messages`, also
/// messages that begin there and those after them, whose own checkpoints may have been pruned.
pub(in super::super) fn remove(
    db: &Connection,
    tree: TreeId,
    unreachable: &[CheckpointId],
    messages: bool,
) -> Result<()> {
    for checkpoint in unreachable {
        for sql in REMOVE {
            db.prepare_cached(sql)?.execute(params![tree, checkpoint])?;
        }
        if messages {
            db.prepare_cached(REMOVE_MESSAGES)?
                .execute(params![tree, checkpoint])?;
        }
    }
    Ok(())
}
