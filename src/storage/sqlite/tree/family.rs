//! Forks of a tree, and the paths of many branches at once.

use std::collections::HashSet;

use const_format::formatcp;
use rusqlite::{Connection, params};

use super::{THREAD_COLUMNS, WITHOUT_METADATA, index::node, lookup::read_thread, paths::bounded};
use crate::{
    checkpoint::Result,
    id::{NodeId, ThreadId, TreeId},
    storage::sqlite::columns::{all, id, id_if, one},
    tree::store::rows::{BranchEnd, ForkCursor, MessageNode, PathNode, Relative, ThreadRow},
};

pub(in super::super) const RELATIVES: &str = formatcp!(
    "SELECT {THREAD_COLUMNS}, NOT EXISTS (SELECT 1 FROM threads p \
        WHERE p.thread_id = t.parent_thread_id AND p.deleted_at IS NULL) \
     FROM threads t INDEXED BY threads_forks \
     WHERE t.tree_id = ?1 AND t.parent_thread_id IS NOT NULL AND t.deleted_at IS NULL \
       AND (t.created_at, t.thread_id) > (?2, ?3) \
     ORDER BY t.created_at, t.thread_id LIMIT ?4"
);

pub(super) fn relatives(
    db: &Connection,
    tree: TreeId,
    after: ForkCursor,
    limit: usize,
) -> Result<Vec<Relative>> {
    all(
        db,
        RELATIVES,
        params![tree, after.created_at.0, after.thread, bounded(limit)],
        |row| {
            Ok(Relative {
                row: read_thread(row)?,
                parent_deleted: row.get(15)?,
            })
        },
    )
}

pub(in super::super) const RELATIVE_SIZES: &str = "\
     SELECT octet_length(t.metadata) + coalesce(octet_length(t.fork_anchor), 0) \
     FROM threads t INDEXED BY threads_forks \
     WHERE t.tree_id = ?1 AND t.parent_thread_id IS NOT NULL AND t.deleted_at IS NULL \
       AND (t.created_at, t.thread_id) > (?2, ?3) \
     ORDER BY t.created_at, t.thread_id LIMIT ?4";

pub(super) fn relative_sizes(
    db: &Connection,
    tree: TreeId,
    after: ForkCursor,
    limit: usize,
) -> Result<Vec<u64>> {
    let params = params![tree, after.created_at.0, after.thread, bounded(limit)];
    all(db, RELATIVE_SIZES, params, |row| {
        Ok(row.get::<_, i64>(0)?.unsigned_abs())
    })
}

pub(in super::super) const FORKS: &str = formatcp!(
    "SELECT {WITHOUT_METADATA} FROM threads t INDEXED BY threads_parent \
     WHERE t.tree_id = ?1 AND t.parent_thread_id = ?2 AND t.deleted_at IS NULL \
     ORDER BY t.created_at, t.thread_id LIMIT ?3"
);

pub(super) fn forks(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    limit: usize,
) -> Result<Vec<ThreadRow>> {
    all(
        db,
        FORKS,
        params![tree, thread, bounded(limit)],
        read_thread,
    )
}

pub(super) const ENDS: &str = "SELECT b.thread_id, b.branch_id, b.name, \
      (SELECT c.last_node_id FROM checkpoints c WHERE c.tree_id = ?1 \
         AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id), b.created_at \
     FROM branches b INDEXED BY sqlite_autoindex_branches_2 \
    WHERE b.tree_id = ?1 AND b.thread_id = ?2";

pub(super) fn ends(db: &Connection, tree: TreeId, threads: &[ThreadId]) -> Result<Vec<BranchEnd>> {
    let mut ends: Vec<(i64, BranchEnd)> = vec![];
    for thread in threads {
        let params = params![tree, thread];
        ends.extend(all(db, ENDS, params, |row| {
            let end = BranchEnd {
                thread: id(row, 0)?,
                branch: id(row, 1)?,
                name: row.get(2)?,
                last: id_if(row, 3)?,
            };
            Ok((row.get(4)?, end))
        })?);
    }
    ends.sort_by_key(|(created_at, end)| (*created_at, end.branch));
    Ok(ends.into_iter().map(|(_, end)| end).collect())
}

pub(super) fn nodes(db: &Connection, tree: TreeId, ids: &[NodeId]) -> Result<Vec<MessageNode>> {
    let mut found = Vec::with_capacity(ids.len());
    for one in ids {
        found.extend(node(db, tree, *one)?);
    }
    Ok(found)
}

pub(super) const STEP: &str = "SELECT parent_node_id, ordinal, thread_id FROM message_nodes \
     WHERE tree_id = ?1 AND node_id = ?2";

/// What several paths share is walked once.
pub(super) fn paths_to(
    db: &Connection,
    tree: TreeId,
    ends: &[NodeId],
    limit: usize,
) -> Result<Vec<PathNode>> {
    let (mut found, mut known) = (vec![], HashSet::new());
    for end in ends {
        let mut next = Some(*end);
        while let Some(at) = next.take()
            && found.len() < limit
            && known.insert(at)
        {
            let params = params![tree, at];
            let node = one(db, STEP, params, |row| {
                Ok(PathNode {
                    id: at,
                    parent: id_if(row, 0)?,
                    ordinal: row.get(1)?,
                    thread: id(row, 2)?,
                })
            })?;
            next = node.and_then(|node| node.parent);
            found.extend(node);
        }
    }
    Ok(found)
}
