//! Independent copies of threads.

use rusqlite::{Connection, params};

use super::{
    super::{events, tree::level},
    create::is_free,
    rows::{thread, tree_of},
};
use crate::{
    checkpoint::{Error, Result, frame},
    id::{ThreadId, TreeId},
    time::Timestamp,
    tree::{Copied, NewCopy},
};

/// See [`tree::Store::copy_thread`](crate::tree::Store::copy_thread).
pub(in super::super) fn copy_thread(
    db: &Connection,
    from: ThreadId,
    new: &NewCopy,
) -> Result<Copied> {
    let Some(tree) = tree_of(db, from)? else {
        return Ok(Copied::Missing);
    };
    if let Some(reader) = &new.reader
        && level(db, tree, reader)?.is_none()
    {
        return Ok(Copied::Missing);
    }
    if !is_free(db, new.id)? {
        return Ok(Copied::Taken);
    }
    let now = Timestamp::now();
    if visible(db, tree, from)? > new.limit {
        return Ok(Copied::TooLarge);
    }
    insert_thread(db, from, new, now)?;
    let to = TreeId::of_root(new.id);
    for sql in ROWS {
        db.prepare_cached(sql)?
            .execute(params![tree, from, to, now.0])?;
    }
    named_by_results(db, to)?;
    db.prepare_cached(BLOBS)?.execute(params![tree, to])?;
    for sql in [
        "DELETE FROM temp.copy_seen",
        "DELETE FROM temp.copy_owners",
        "DELETE FROM temp.copy_shared",
        "DELETE FROM temp.copy_values",
    ] {
        db.prepare_cached(sql)?.execute([])?;
    }
    events::append(db, to, new.id, &new.events, now)?;
    thread(db, new.id)?
        .map(|copy| Copied::Done(Box::new(copy)))
        .ok_or_else(|| Error::Database("the copy is not there".into()))
}

/// Tables of one copy, empty.
pub(in crate::storage::sqlite) const TABLES: &str = "CREATE TEMP TABLE IF NOT EXISTS copy_seen (id BLOB PRIMARY KEY) WITHOUT ROWID; \
     CREATE TEMP TABLE IF NOT EXISTS copy_owners (id BLOB PRIMARY KEY) WITHOUT ROWID; \
     CREATE TEMP TABLE IF NOT EXISTS copy_shared (source BLOB, id BLOB, creation BLOB, n INTEGER); \
     CREATE TEMP TABLE IF NOT EXISTS copy_values (ns TEXT, channel TEXT, version TEXT, \
       PRIMARY KEY (ns, channel, version)) WITHOUT ROWID; \
     DELETE FROM temp.copy_seen; DELETE FROM temp.copy_owners; DELETE FROM temp.copy_shared; \
     DELETE FROM temp.copy_values;";

/// Collects the root checkpoints that the thread sees, the branches of them and of the thread, and those of other threads
/// whose states inside branches of the thread share; returns how many checkpoints.
fn visible(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<usize> {
    db.execute_batch(TABLES)?;
    for sql in [
        "INSERT INTO temp.copy_seen \
         WITH RECURSIVE up (id, parent) AS ( \
           SELECT c.checkpoint_id, c.parent_checkpoint_id FROM threads t CROSS JOIN checkpoints c \
             ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = t.fork_checkpoint_id \
            WHERE t.thread_id = ?2 \
           UNION ALL \
           SELECT c.checkpoint_id, c.parent_checkpoint_id FROM up u CROSS JOIN checkpoints c \
             ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.parent) \
         SELECT id FROM up UNION SELECT checkpoint_id FROM checkpoints \
          WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns = ''",
        "INSERT INTO temp.copy_owners \
         SELECT branch_id FROM branches INDEXED BY sqlite_autoindex_branches_2 \
          WHERE tree_id = ?1 AND thread_id = ?2 \
         UNION SELECT c.branch_id FROM temp.copy_seen s CROSS JOIN checkpoints c \
           ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = s.id",
        "INSERT INTO temp.copy_shared \
         WITH RECURSIVE shared (source, id, creation, n) AS ( \
           SELECT source_branch_id, source_branch_id, creation_id, 1 FROM branches INDEXED BY sqlite_autoindex_branches_2 \
            WHERE tree_id = ?1 AND thread_id = ?2 AND creation_id IS NOT NULL \
           UNION ALL \
           SELECT a.source, s.source_branch_id, min(a.creation, s.creation_id), a.n + 1 FROM shared a CROSS JOIN branches s \
             ON s.tree_id = ?1 AND s.branch_id = a.id AND s.creation_id IS NOT NULL) \
         SELECT source, id, creation, n FROM shared WHERE id NOT IN ( \
           SELECT branch_id FROM branches INDEXED BY sqlite_autoindex_branches_2 WHERE tree_id = ?1 AND thread_id = ?2)",
    ] {
        db.prepare_cached(sql)?.execute(params![tree, thread])?;
    }
    let count: i64 = db
        .prepare_cached("SELECT count(*) FROM temp.copy_seen")?
        .query_row([], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn insert_thread(db: &Connection, from: ThreadId, new: &NewCopy, now: Timestamp) -> Result<()> {
    let to = TreeId::of_root(new.id);
    db.prepare_cached("INSERT INTO trees (tree_id, owner, created_at) VALUES (?1, ?2, ?3)")?
        .execute(params![to, new.owner, now.0])?;
    db.prepare_cached(
        "INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, config, created_at, \
         updated_at, owner) SELECT ?1, ?1, active_branch_id, metadata, config, ?3, ?3, ?4 \
           FROM threads WHERE thread_id = ?2",
    )?
    .execute(params![new.id, from, now.0, new.owner])?;
    Ok(())
}

/// From the tree `?1` and its thread `?2` to the tree `?3`, at `?4`.
/// States inside that a fork shares at the checkpoint where it begins may be those of a branch further up. In the copy they
/// belong to the source of the fork's own branch: rows of branches are copied of this thread alone, so that nothing would
/// lead further up.
const ROWS: [&str; 6] = [
    "INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, \
     thread_id, branch_id, root_checkpoint_id, last_node_id, run_id, source, step, checkpoint, \
     metadata, created_at, run_supersteps, blob_versions, graph_id, assistant_id, result_task, \
     result_header, result) \
     SELECT ?3, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.depth, ?3, \
       c.branch_id, c.root_checkpoint_id, c.last_node_id, c.run_id, c.source, c.step, \
       c.checkpoint, c.metadata, c.created_at, c.run_supersteps, c.blob_versions, c.graph_id, \
       c.assistant_id, c.result_task, c.result_header, c.result \
       FROM temp.copy_seen s CROSS JOIN checkpoints c \
         ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = s.id \
      WHERE ?2 = ?2 AND ?4 = ?4",
    "INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, \
     thread_id, branch_id, root_checkpoint_id, last_node_id, run_id, source, step, checkpoint, \
     metadata, created_at, run_supersteps, blob_versions, graph_id, assistant_id, result_task, \
     result_header, result) \
     SELECT ?3, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.depth, ?3, \
       coalesce((SELECT h.source FROM temp.copy_shared h WHERE h.id = c.branch_id AND c.checkpoint_id < h.creation \
         AND c.root_checkpoint_id = (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = ?2) \
         ORDER BY h.n LIMIT 1), c.branch_id), c.root_checkpoint_id, c.last_node_id, c.run_id, c.source, c.step, \
       c.checkpoint, c.metadata, c.created_at, c.run_supersteps, c.blob_versions, c.graph_id, \
       c.assistant_id, c.result_task, c.result_header, c.result \
       FROM temp.copy_seen s CROSS JOIN checkpoints c INDEXED BY checkpoints_sub \
         ON c.tree_id = ?1 AND c.root_checkpoint_id = s.id AND c.checkpoint_ns <> '' \
        AND (c.branch_id IN (SELECT id FROM temp.copy_owners) OR EXISTS ( \
          SELECT 1 FROM temp.copy_shared h WHERE h.id = c.branch_id AND c.checkpoint_id < h.creation \
            AND c.root_checkpoint_id = (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = ?2)) OR EXISTS ( \
          SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = ?1 AND w.checkpoint_ns = c.checkpoint_ns \
             AND w.checkpoint_id = c.checkpoint_id AND w.branch_id IN (SELECT id FROM temp.copy_owners) \
             AND w.idx = -3)) \
      WHERE ?2 = ?2 AND ?4 = ?4",
    "INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, \
     idx, task_path, channel, type, writes) \
     SELECT ?3, w.checkpoint_ns, w.checkpoint_id, w.branch_id, w.task_id, w.idx, w.task_path, \
       w.channel, w.type, w.writes FROM checkpoints c CROSS JOIN checkpoint_writes w \
       ON w.tree_id = ?1 AND w.checkpoint_ns = c.checkpoint_ns \
      AND w.checkpoint_id = c.checkpoint_id AND w.branch_id IN (SELECT id FROM temp.copy_owners) \
      WHERE c.tree_id = ?3 AND ?2 = ?2 AND ?4 = ?4",
    "INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, \
     version, outcome, error, origin, source_branch_id, creation_id, created_at, updated_at) \
     SELECT ?3, branch_id, ?3, name, head_checkpoint_id, head_depth, version, outcome, error, \
       CASE origin WHEN 'fork' THEN 'root' ELSE origin END, source_branch_id, creation_id, \
       created_at, ?4 FROM branches INDEXED BY sqlite_autoindex_branches_2 \
      WHERE tree_id = ?1 AND thread_id = ?2",
    "INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, message_id, created_at, \
     updated_at) \
     SELECT ?3, ?3, name, checkpoint_id, depth, message_id, created_at, updated_at FROM tags \
      WHERE tree_id = ?1 AND thread_id = ?2 AND ?4 = ?4",
    // The messages of the checkpoints and those before them, whose checkpoints may be pruned.
    "INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, \
     edit_of, checkpoint_id, depth, seq, settled_checkpoint_id, thread_id, branch_id, run_id, \
     role, created_at) \
     WITH RECURSIVE chain (id) AS ( \
       SELECT c.last_node_id FROM temp.copy_seen s CROSS JOIN checkpoints c \
           ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = s.id \
       UNION \
       SELECT m.node_id FROM temp.copy_seen s CROSS JOIN message_nodes m \
           ON m.tree_id = ?1 AND m.checkpoint_id = s.id \
       UNION \
       SELECT m.parent_node_id FROM chain k CROSS JOIN message_nodes m \
         ON m.tree_id = ?1 AND m.node_id = k.id) \
     SELECT ?3, m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, \
       m.checkpoint_id, m.depth, m.seq, m.settled_checkpoint_id, ?3, m.branch_id, m.run_id, \
       m.role, m.created_at \
       FROM chain k CROSS JOIN message_nodes m ON m.tree_id = ?1 AND m.node_id = k.id \
      WHERE ?2 = ?2 AND ?4 = ?4",
];

/// From the tree `?1` to the tree `?2`: what its checkpoints and results name, with the chains of
/// deltas.
const BLOBS: &str = "INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, \
     base_version, chain_bytes, type, blob) \
     WITH RECURSIVE named (ns, channel, version) AS ( \
       SELECT c.checkpoint_ns, v.key, v.value FROM checkpoints c, \
         json_each(c.blob_versions) v WHERE c.tree_id = ?2 \
       UNION SELECT ns, channel, version FROM temp.copy_values \
       UNION \
       SELECT n.ns, n.channel, b.base_version FROM named n CROSS JOIN checkpoint_blobs b \
         ON b.tree_id = ?1 AND b.checkpoint_ns = n.ns AND b.channel = n.channel \
        AND b.version = n.version WHERE b.base_version IS NOT NULL) \
     SELECT ?2, b.checkpoint_ns, b.channel, b.version, b.base_version, b.chain_bytes, b.type, \
       b.blob FROM named n CROSS JOIN checkpoint_blobs b ON b.tree_id = ?1 \
        AND b.checkpoint_ns = n.ns AND b.channel = n.channel AND b.version = n.version";

/// Collects the values that copied results name.
fn named_by_results(db: &Connection, tree: TreeId) -> Result<()> {
    let mut results = db.prepare_cached(
        "SELECT checkpoint_ns, type, writes FROM all_checkpoint_writes WHERE tree_id = ?1 AND idx = 0",
    )?;
    let mut insert =
        db.prepare_cached("INSERT OR IGNORE INTO temp.copy_values VALUES (?1, ?2, ?3)")?;
    let mut rows = results.query([tree])?;
    while let Some(row) = rows.next()? {
        let ns: String = row.get(0)?;
        let tag = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        for (channel, version) in frame::references(tag, bytes) {
            insert.execute(params![ns, channel, version.to_string()])?;
        }
    }
    Ok(())
}
