//! Deleting threads, rolling back runs and collecting blobs nobody names any more.

use std::collections::HashSet;

use rusqlite::{Connection, named_params, params};

use super::load::Envelope;
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    time::Timestamp,
};

/// Deletes a thread: everything of the tree with its last living thread, else all that no other
/// thread inherits.
pub(super) fn thread(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<(), Error> {
    let has_relatives = db
        .prepare_cached(
            "SELECT 1 FROM threads WHERE tree_id = ?1 AND thread_id <> ?2 \
             AND deleted_at IS NULL",
        )?
        .exists(params![tree.0.as_bytes(), thread.0.as_bytes()])?;
    let has_events = db
        .prepare_cached("SELECT 1 FROM events WHERE tree_id = ?1")?
        .exists([tree.0.as_bytes()])?;
    if has_events {
        open_purge(db, true)?;
    }
    if has_relatives {
        one_of_many(db, tree, thread)?;
    } else {
        whole_tree(db, tree)?;
    }
    if has_events {
        open_purge(db, false)?;
    }
    Ok(())
}

fn open_purge(db: &Connection, open: bool) -> Result<(), Error> {
    db.prepare_cached("UPDATE purge_switch SET open = ?1")?
        .execute([open])?;
    Ok(())
}

fn whole_tree(db: &Connection, tree: TreeId) -> Result<(), Error> {
    for sql in [
        "DELETE FROM tags WHERE tree_id = ?1",
        "DELETE FROM branches WHERE tree_id = ?1",
        "DELETE FROM runs WHERE thread_id IN (SELECT thread_id FROM threads WHERE tree_id = ?1)",
        "DELETE FROM checkpoint_writes WHERE tree_id = ?1",
        "DELETE FROM checkpoint_blobs WHERE tree_id = ?1",
        "DELETE FROM checkpoints WHERE tree_id = ?1",
        "DELETE FROM message_nodes WHERE tree_id = ?1",
        "DELETE FROM events WHERE tree_id = ?1",
        "DELETE FROM deleted_runs WHERE tree_id = ?1",
        "DELETE FROM threads WHERE tree_id = ?1",
        "DELETE FROM tree_members WHERE tree_id = ?1",
        "DELETE FROM trees WHERE tree_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute([tree.0.as_bytes()])?;
    }
    Ok(())
}

/// The thread becomes a tombstone while others need its rows; what they inherit is exactly the
/// path of their fork base.
fn one_of_many(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<(), Error> {
    let id = tree.0.as_bytes();
    for sql in [
        "DELETE FROM tags WHERE tree_id = ?1 AND thread_id = ?2",
        "DELETE FROM branches WHERE tree_id = ?1 AND thread_id = ?2",
        "DELETE FROM runs WHERE tree_id = ?1 AND thread_id = ?2",
    ] {
        db.prepare_cached(sql)?
            .execute(params![id, thread.0.as_bytes()])?;
    }
    db.prepare_cached(
        "UPDATE threads SET deleted_at = ?1, metadata = '{}', config = '{}', \
         active_branch_id = NULL WHERE thread_id = ?2",
    )?
    .execute(params![Timestamp::now().0, thread.0.as_bytes()])?;
    let doomed = ids(
        db,
        "WITH RECURSIVE keep (checkpoint_id, parent_checkpoint_id) AS ( \
           SELECT c.checkpoint_id, c.parent_checkpoint_id FROM threads t \
             JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
              AND c.checkpoint_id = t.fork_checkpoint_id \
            WHERE t.tree_id = :tree AND t.deleted_at IS NULL \
           UNION \
           SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k \
             JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
              AND c.checkpoint_id = k.parent_checkpoint_id) \
         SELECT c.checkpoint_id FROM checkpoints c \
           JOIN threads t ON t.thread_id = c.thread_id AND t.deleted_at IS NOT NULL \
          WHERE c.tree_id = :tree AND c.checkpoint_ns = '' \
            AND c.checkpoint_id NOT IN (SELECT checkpoint_id FROM keep)",
        named_params! { ":tree": id },
    )?;
    remove(db, tree, &doomed)?;
    db.prepare_cached(
        "DELETE FROM events WHERE tree_id = ?1 AND thread_id = ?2 AND event_number > \
         (SELECT coalesce(max(fork_event_number), 0) FROM threads \
           WHERE tree_id = ?1 AND parent_thread_id = ?2)",
    )?
    .execute(params![id, thread.0.as_bytes()])?;
    // Tombstones that nothing hangs on any more.
    let gone = "DELETE FROM threads WHERE tree_id = ?1 AND deleted_at IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM threads k WHERE k.parent_thread_id = threads.thread_id) \
         AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tree_id = ?1 \
           AND e.thread_id = threads.thread_id) \
         AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = ?1 \
           AND c.thread_id = threads.thread_id)";
    while db.prepare_cached(gone)?.execute([id])? > 0 {}
    collect(db, tree)
}

/// Puts a branch back to `base` after its run's epoch was raised, and deletes what the run wrote
/// as far as no branch, tag, fork or other run needs it.
pub(super) fn roll_back(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    base: Option<CheckpointId>,
) -> Result<(), Error> {
    let id = tree.0.as_bytes();
    let base_id = base.as_ref().map(|id| id.0.as_bytes());
    let head: Option<[u8; 16]> = db
        .prepare_cached(
            "SELECT head_checkpoint_id FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
        )?
        .query_row(params![id, branch.0.as_bytes()], |row| row.get(0))?;
    db.prepare_cached(
        "UPDATE branches SET head_checkpoint_id = ?3, version = version + 1, updated_at = ?4, \
         head_depth = coalesce((SELECT depth FROM checkpoints WHERE tree_id = ?1 \
           AND checkpoint_ns = '' AND checkpoint_id = ?3), -1) \
         WHERE tree_id = ?1 AND branch_id = ?2",
    )?
    .execute(params![
        id,
        branch.0.as_bytes(),
        base_id,
        Timestamp::now().0
    ])?;
    if let Some(base) = base_id {
        // What the run decided at its base: results of tasks that had asked, and its own answers.
        db.prepare_cached(
            "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
             AND checkpoint_ns = '' AND checkpoint_id = ?3 \
             AND (task_id = zeroblob(16) OR (idx = 0 AND task_id IN ( \
               SELECT task_id FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
               AND checkpoint_ns = '' AND checkpoint_id = ?3 AND channel = '__interrupt__')))",
        )?
        .execute(params![id, branch.0.as_bytes(), base])?;
    }
    if head.as_ref() != base_id {
        unpinned(db, tree, head, base_id)?;
    }
    Ok(())
}

/// Removes the rows from `head` down to `base` that no pin's path holds.
pub(super) fn unpinned(
    db: &Connection,
    tree: TreeId,
    head: Option<[u8; 16]>,
    base: Option<&[u8; 16]>,
) -> Result<(), Error> {
    let doomed = ids(
        db,
        "WITH RECURSIVE bound (depth) AS ( \
           SELECT coalesce((SELECT depth FROM checkpoints WHERE tree_id = :tree \
             AND checkpoint_ns = '' AND checkpoint_id = :base), -1)), \
         run_rows AS ( \
           SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints \
            WHERE tree_id = :tree AND checkpoint_ns = '' AND checkpoint_id = :head \
           UNION ALL \
           SELECT c.checkpoint_id, c.parent_checkpoint_id FROM run_rows r \
             JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
              AND c.checkpoint_id = r.parent_checkpoint_id \
            WHERE r.parent_checkpoint_id IS NOT :base), \
         keep AS ( \
           SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM pins p \
             JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
              AND c.checkpoint_id = p.checkpoint_id \
            WHERE p.tree_id = :tree AND p.depth > (SELECT depth FROM bound) \
           UNION \
           SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM keep k \
             JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
              AND c.checkpoint_id = k.parent_checkpoint_id \
            WHERE c.depth > (SELECT depth FROM bound)) \
         SELECT checkpoint_id FROM run_rows \
          WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM keep)",
        named_params! { ":tree": tree.0.as_bytes(), ":head": head, ":base": base },
    )?;
    if doomed.is_empty() {
        return Ok(());
    }
    remove(db, tree, &doomed)?;
    collect(db, tree)
}

fn ids(
    db: &Connection,
    sql: &'static str,
    params: &[(&str, &dyn rusqlite::ToSql)],
) -> Result<Vec<[u8; 16]>, Error> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params, |row| row.get(0))?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

/// Removes root checkpoints with everything that hangs on them, except blobs.
fn remove(db: &Connection, tree: TreeId, doomed: &[[u8; 16]]) -> Result<(), Error> {
    for checkpoint in doomed {
        for sql in [
            "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = '' \
             AND checkpoint_id = ?2",
            "DELETE FROM message_nodes WHERE tree_id = ?1 AND checkpoint_id = ?2",
            "DELETE FROM checkpoint_writes WHERE tree_id = ?1 \
             AND (checkpoint_ns, checkpoint_id) IN (SELECT checkpoint_ns, checkpoint_id \
               FROM checkpoints WHERE tree_id = ?1 AND root_checkpoint_id = ?2 \
               AND checkpoint_ns <> '')",
            "DELETE FROM checkpoints WHERE tree_id = ?1 AND root_checkpoint_id = ?2 \
             AND checkpoint_ns <> ''",
            "DELETE FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = '' \
             AND checkpoint_id = ?2",
        ] {
            db.prepare_cached(sql)?
                .execute(params![tree.0.as_bytes(), checkpoint])?;
        }
    }
    Ok(())
}

/// Deletes the blobs of a tree that no remaining checkpoint names, directly or by a delta.
fn collect(db: &Connection, tree: TreeId) -> Result<(), Error> {
    type Key = (String, String, String);
    let id = tree.0.as_bytes();
    let mut live: HashSet<Key> = HashSet::new();
    let mut envelopes =
        db.prepare_cached("SELECT checkpoint_ns, checkpoint FROM checkpoints WHERE tree_id = ?1")?;
    let mut rows = envelopes.query([id])?;
    while let Some(row) = rows.next()? {
        let ns: String = row.get(0)?;
        let envelope = Envelope::parse(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?;
        for (channel, version) in envelope.channel_versions {
            live.insert((ns.clone(), channel.to_string(), version));
        }
    }
    // Bases are only named by deltas: follow them from what is live until nothing is added.
    let mut blobs = db.prepare_cached(
        "SELECT checkpoint_ns, channel, version, base_version FROM checkpoint_blobs \
         WHERE tree_id = ?1",
    )?;
    let all: Vec<(Key, Option<String>)> = blobs
        .query_map([id], |row| {
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?))
        })?
        .collect::<Result<_, _>>()?;
    let bases: std::collections::HashMap<&Key, &str> = all
        .iter()
        .filter_map(|(key, base)| Some((key, base.as_deref()?)))
        .collect();
    let mut follow: Vec<Key> = live.iter().cloned().collect();
    while let Some(key) = follow.pop() {
        if let Some(base) = bases.get(&key) {
            let base = (key.0, key.1, (*base).to_owned());
            if live.insert(base.clone()) {
                follow.push(base);
            }
        }
    }
    let mut delete = db.prepare_cached(
        "DELETE FROM checkpoint_blobs WHERE tree_id = ?1 AND checkpoint_ns = ?2 \
         AND channel = ?3 AND version = ?4",
    )?;
    for (key, _) in &all {
        if !live.contains(key) {
            delete.execute(params![id, key.0, key.1, key.2])?;
        }
    }
    Ok(())
}
