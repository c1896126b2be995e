//! Several checkpoints, newest first.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{
    load::{metadata_of, read_checkpoint, stored},
    narrow::label_of,
};
use crate::{
    checkpoint::{List, Result, Stored, filter::MetadataFilter},
    id::{CheckpointId, RunId},
    storage::sqlite::columns::{id, id_if, map_of},
    value::contains_map,
};

pub(crate) const LIST_OF_NAMESPACE: &str = select!(
    "FROM checkpoints c INDEXED BY checkpoints_thread \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = ?3 AND c.checkpoint_id < ?4 \
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id \
       AND d.run_id = c.run_id) \
     ORDER BY c.checkpoint_id DESC"
);

/// Those of the root graph that have a label, and those that have more labels than are stored: two ranges of one index,
/// merged in its order. A checkpoint may be in both, since a label ends before NUL.
pub(crate) const LIST_OF_LABEL: &str = select!(
    "FROM (SELECT checkpoint_id FROM checkpoint_labels \
       WHERE thread_id = ?2 AND label = ?3 AND checkpoint_id < ?4 AND checkpoint_id >= ?5 AND tree_id = ?1 \
     UNION SELECT checkpoint_id FROM checkpoint_labels \
       WHERE thread_id = ?2 AND label = '' AND checkpoint_id < ?4 AND checkpoint_id >= ?5 AND tree_id = ?1 \
     ORDER BY checkpoint_id DESC LIMIT -1) k \
     CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = k.checkpoint_id \
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id AND d.run_id = c.run_id)"
);

pub(super) const LIST_ALL: &str = select!(
    "FROM (SELECT checkpoint_ns, checkpoint_id FROM checkpoints \
     INDEXED BY checkpoints_thread \
     WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_id < ?3 \
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d \
       WHERE d.tree_id = checkpoints.tree_id AND d.run_id = checkpoints.run_id) \
     ORDER BY checkpoint_id DESC, checkpoint_ns LIMIT -1) k \
     CROSS JOIN checkpoints c ON c.tree_id = ?1 \
     AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id"
);

/// Several checkpoints, newest first.
pub(crate) fn list(db: &Connection, list: &List) -> Result<Vec<Stored>> {
    let mut found = Vec::new();
    each(db, list, |row| {
        found.push(stored(db, list.tree, read_checkpoint(row)?, true)?);
        Ok(())
    })?;
    Ok(found)
}

/// Calls `visit` with the row of every checkpoint that a list selects, newest first.
pub(super) fn each(
    db: &Connection,
    list: &List,
    mut visit: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    if list.limit == 0 {
        return Ok(());
    }
    let Some(filter) = MetadataFilter::of(list.metadata.as_ref()) else {
        return Ok(());
    };
    let (tree, thread) = (list.tree, list.thread);
    // Beyond every id.
    let before = list.before.unwrap_or(CheckpointId(Uuid::max()));
    let first = list.id.unwrap_or(CheckpointId(Uuid::nil()));
    let label = label_of(db, list, &filter)?;
    let mut all;
    let mut one;
    // The key would walk past the rows of every relative.
    let mut rows = match &list.ns {
        Some(_) if label.is_some() => {
            one = db.prepare_cached(LIST_OF_LABEL)?;
            one.query(params![tree, thread, label, before, first])?
        }
        Some(ns) => {
            one = db.prepare_cached(LIST_OF_NAMESPACE)?;
            one.query(params![tree, thread, ns, before])?
        }
        None => {
            // Sorts keys, not rows.
            all = db.prepare_cached(LIST_ALL)?;
            all.query(params![tree, thread, before])?
        }
    };
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if let Some(wanted) = list.id {
            let here: CheckpointId = id(row, 1)?;
            if here < wanted {
                break;
            }
            if here > wanted {
                continue;
            }
        }
        if !is_accepted(&filter, row)? {
            continue;
        }
        visit(row)?;
        count += 1;
        if count == list.limit {
            break;
        }
    }
    Ok(())
}

/// Whether the row of a checkpoint passes a filter.
fn is_accepted(filter: &MetadataFilter, row: &Row<'_>) -> rusqlite::Result<bool> {
    if let Some(source) = filter.source
        && row.get_ref(8)?.as_str()? != source.as_str()
    {
        return Ok(false);
    }
    if let Some(step) = filter.step
        && row.get::<_, i64>(9)? != step
    {
        return Ok(false);
    }
    if filter.run.is_some() && id_if::<RunId>(row, 7)? != filter.run {
        return Ok(false);
    }
    Ok(filter.rest.is_empty() || contains_map(&map_of(&metadata_of(row)?, 13)?, &filter.rest))
}
