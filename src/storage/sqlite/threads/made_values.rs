//! Channel values that came with the checkpoints of a run that is rolled back. Those that nothing else names go with
//! them; what the rest of the tree has is not read.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::columns::{id, id_if},
    blobs::Key,
};
use crate::{
    checkpoint::{Result, frame},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
};

/// A checkpoint, and those of graphs inside that hang on it.
const ROWS: &str = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, blob_versions FROM checkpoints \
      WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 \
    UNION ALL \
    SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, blob_versions FROM checkpoints \
      WHERE tree_id = ?1 AND root_checkpoint_id = ?2 AND checkpoint_ns <> ''";

const NAMED: &str = "SELECT blob_versions FROM checkpoints \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3";

const RESULTS: &str = "SELECT branch_id, type, writes FROM all_checkpoint_writes \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 AND idx = 0";

/// Only checkpoints that descend from the one that made a version name it. Whoever descends from a deleted one was written
/// by the same thread, since the base of a fork keeps its whole path, and has a greater id than the base.
const NEWER: &str = "SELECT checkpoint_id FROM checkpoints \
     WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns = '' AND checkpoint_id >= coalesce(?3, x'')";

const BASE: &str = "SELECT base_version FROM checkpoint_blobs \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4";

const DELETE: &str = "DELETE FROM checkpoint_blobs \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4";

/// A checkpoint with the values that it names.
struct Row {
    ns: String,
    id: CheckpointId,
    parent: Option<CheckpointId>,
    named: Vec<Key>,
}

/// Values that came with checkpoints which are about to be deleted.
pub(in super::super) struct MadeValues {
    made: HashSet<Key>,
    /// Values to which results point that stay.
    retained: HashSet<Key>,
}

impl MadeValues {
    /// Of the root checkpoints. The branch loses its results at the base too.
    pub(in super::super) fn by(
        db: &Connection,
        tree: TreeId,
        checkpoints: &[CheckpointId],
        (branch, base): (BranchId, Option<CheckpointId>),
    ) -> Result<Self> {
        let mut rows = vec![];
        for checkpoint in checkpoints {
            rows.append(&mut rows_of(db, tree, *checkpoint)?);
        }
        let removed: HashSet<(&str, CheckpointId)> =
            rows.iter().map(|row| (&*row.ns, row.id)).collect();
        let (mut made, mut retained) = (HashSet::new(), HashSet::new());
        for row in &rows {
            made.extend(row.named.iter().cloned());
            made.extend(results_at(db, tree, (&row.ns, row.id), |_| true)?);
        }
        let above = rows.iter().filter_map(|row| Some((&*row.ns, row.parent?)));
        let above: HashSet<_> = above.filter(|at| !removed.contains(at)).collect();
        for (ns, parent) in above {
            for key in named_at(db, tree, (ns, parent))? {
                made.remove(&key);
            }
            let goes = |of| ns.is_empty() && of == branch && Some(parent) == base;
            retained.extend(results_at(db, tree, (ns, parent), |of| !goes(of))?);
        }
        Ok(Self { made, retained })
    }

    /// Deletes those that nothing names, once the checkpoints are gone.
    pub(in super::super) fn drop(
        self,
        db: &Connection,
        tree: TreeId,
        thread: ThreadId,
        base: Option<CheckpointId>,
    ) -> Result<()> {
        let mut live = self.retained;
        let newer: Vec<CheckpointId> = db
            .prepare_cached(NEWER)?
            .query_map(params![tree, thread, base], |row| id(row, 0))?
            .collect::<Result<_, _>>()?;
        for checkpoint in newer {
            let rows = rows_of(db, tree, checkpoint)?;
            live.extend(rows.into_iter().flat_map(|row| row.named));
        }
        // Bases are only named by deltas: follow them from what is live until nothing is added.
        let mut follow: Vec<Key> = live.iter().cloned().collect();
        let mut base_of = db.prepare_cached(BASE)?;
        while let Some((ns, channel, version)) = follow.pop() {
            let base: Option<Option<String>> = base_of
                .query_row(params![tree, ns, channel, version], |row| row.get(0))
                .optional()?;
            if let Some(base) = base.flatten() {
                let base = (ns, channel, base);
                if live.insert(base.clone()) {
                    follow.push(base);
                }
            }
        }
        let mut delete = db.prepare_cached(DELETE)?;
        for (ns, channel, version) in self.made.difference(&live) {
            delete.execute(params![tree, ns, channel, version])?;
        }
        Ok(())
    }
}

fn rows_of(db: &Connection, tree: TreeId, checkpoint: CheckpointId) -> Result<Vec<Row>> {
    let mut found = db.prepare_cached(ROWS)?;
    let mut rows = found.query(params![tree, checkpoint])?;
    let mut all = vec![];
    while let Some(row) = rows.next()? {
        let ns: String = row.get(0)?;
        all.push(Row {
            named: keys_of(
                &ns,
                row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?,
            )?,
            id: id(row, 1)?,
            parent: id_if(row, 2)?,
            ns,
        });
    }
    Ok(all)
}

fn keys_of(ns: &str, versions: &str) -> Result<Vec<Key>> {
    let mut keys = vec![];
    for (channel, version) in frame::versions_of(versions)? {
        keys.push((ns.to_owned(), channel.to_string(), version.to_string()));
    }
    Ok(keys)
}

fn named_at(db: &Connection, tree: TreeId, (ns, at): (&str, CheckpointId)) -> Result<Vec<Key>> {
    let versions: Option<String> = db
        .prepare_cached(NAMED)?
        .query_row(params![tree, ns, at], |row| row.get(0))
        .optional()?;
    versions.map_or(Ok(vec![]), |versions| keys_of(ns, &versions))
}

/// The values to which results of these branches point.
fn results_at(
    db: &Connection,
    tree: TreeId,
    (ns, at): (&str, CheckpointId),
    counts: impl Fn(BranchId) -> bool,
) -> Result<Vec<Key>> {
    let mut results = db.prepare_cached(RESULTS)?;
    let mut rows = results.query(params![tree, ns, at])?;
    let mut all = vec![];
    while let Some(row) = rows.next()? {
        if !counts(id(row, 0)?) {
            continue;
        }
        let tag = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        for (channel, version) in frame::references(tag, bytes) {
            all.push((ns.to_owned(), channel.to_string(), version.to_string()));
        }
    }
    Ok(all)
}
