//! Deletes channel values that no checkpoint and no result names any more.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, params};

use super::super::columns::id;
use crate::{
    checkpoint::{Result, frame},
    id::{BranchId, CheckpointId, TaskId, TreeId},
};

/// Namespace, channel and version.
pub(super) type Key = (String, String, String);

/// Deletes the blobs of a tree that no remaining checkpoint or task result names, directly or by
/// a delta.
pub(in super::super) fn collect(db: &Connection, tree: TreeId) -> Result<()> {
    let mut live: HashSet<Key> = HashSet::new();
    let mut checkpoints = db.prepare_cached(
        "SELECT checkpoint_ns, blob_versions FROM checkpoints WHERE tree_id = ?1",
    )?;
    let mut rows = checkpoints.query([tree])?;
    while let Some(row) = rows.next()? {
        let ns: String = row.get(0)?;
        let versions = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        for (channel, version) in frame::versions_of(versions)? {
            live.insert((ns.clone(), channel.to_string(), version.to_string()));
        }
    }
    live.extend(named_by_results(db, tree)?);
    // Bases are only named by deltas: follow them from what is live until nothing is added.
    let mut blobs = db.prepare_cached(
        "SELECT checkpoint_ns, channel, version, base_version FROM checkpoint_blobs \
         WHERE tree_id = ?1",
    )?;
    let all: Vec<(Key, Option<String>)> = blobs
        .query_map([tree], |row| {
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?))
        })?
        .collect::<Result<_, _>>()?;
    let bases: HashMap<&Key, &str> = all
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
            delete.execute(params![tree, key.0, key.1, key.2])?;
        }
    }
    Ok(())
}

/// The values that results name whose superstep's checkpoint is deleted: it named the same values.
fn named_by_results(db: &Connection, tree: TreeId) -> Result<Vec<Key>> {
    let mut orphans = db.prepare_cached(
        "SELECT w.checkpoint_ns, w.type, w.writes FROM all_checkpoint_writes w \
          CROSS JOIN checkpoints p ON p.tree_id = ?1 AND p.checkpoint_ns = w.checkpoint_ns \
            AND p.checkpoint_id = w.checkpoint_id \
          WHERE w.tree_id = ?1 AND w.idx = 0 \
            AND (w.checkpoint_ns, w.checkpoint_id, w.branch_id, p.depth + 1) NOT IN ( \
              SELECT checkpoint_ns, parent_checkpoint_id, branch_id, depth FROM checkpoints \
               WHERE tree_id = ?1 AND parent_checkpoint_id IS NOT NULL)",
    )?;
    let mut rows = orphans.query([tree])?;
    let mut named = Vec::new();
    while let Some(row) = rows.next()? {
        let ns: String = row.get(0)?;
        let tag = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        for (channel, version) in frame::references(tag, bytes) {
            named.push((ns.clone(), channel.to_string(), version.to_string()));
        }
    }
    Ok(named)
}

/// Removes results of a branch at a checkpoint of a namespace that a superstep used which was rolled back, and
/// that name its values: their tasks are to be executed once more.
pub(in super::super) fn forget_results(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    (ns, at): (&str, CheckpointId),
) -> Result<()> {
    let results: Vec<(TaskId, String, Vec<u8>)> = db
        .prepare_cached(
            "SELECT task_id, type, writes FROM checkpoint_writes WHERE tree_id = ?1 \
             AND checkpoint_ns = ?4 AND checkpoint_id = ?2 AND branch_id = ?3 AND idx = 0",
        )?
        .query_map(params![tree, at, branch, ns], |row| {
            Ok((id(row, 0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut delete = db.prepare_cached(
        "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = ?5 \
         AND checkpoint_id = ?2 AND branch_id = ?3 AND task_id = ?4 AND idx = 0",
    )?;
    for (task, tag, bytes) in results {
        if !frame::references(&tag, &bytes).is_empty() {
            delete.execute(params![tree, at, branch, task, ns])?;
        }
    }
    Ok(())
}
