//! Threads of a list that are looked up by what few have: a field of their metadata, or a status.

use rusqlite::{Connection, params};

use super::super::columns::{all, id};
use crate::{
    checkpoint::Result,
    tree::search::{FEW, FEW_LABELLED, ThreadFilter},
};

/// Threads with a label, of everybody or of a principal; the filter decides among them.
const OF_LABEL: &str = "SELECT * FROM (SELECT l.thread_id FROM thread_labels l \
       WHERE ?2 IS NULL AND l.label = ?1 LIMIT ?3) \
    UNION ALL \
    SELECT * FROM (SELECT l.thread_id FROM thread_labels l \
       WHERE l.label = ?1 AND l.owner = ?2 LIMIT ?3) \
    UNION ALL \
    SELECT * FROM (SELECT t.thread_id FROM tree_members m INDEXED BY tree_members_principal \
       CROSS JOIN threads t INDEXED BY threads_tree ON t.tree_id = m.tree_id \
       CROSS JOIN thread_labels l ON l.label = ?1 AND l.owner = t.owner AND l.thread_id = t.thread_id \
       WHERE m.principal = ?2 AND t.owner <> ?2 LIMIT ?3) \
    LIMIT ?3";

/// Threads with a branch of a status that few have, or with an open run; the filter decides among them.
const OF_STATUS: &str = "SELECT * FROM (SELECT r.thread_id FROM runs r INDEXED BY runs_open \
       WHERE ?1 = 'busy' AND r.status IN ('pending', 'running') LIMIT ?2) \
    UNION ALL \
    SELECT * FROM (SELECT b.thread_id FROM branches b INDEXED BY branches_outcome \
       WHERE b.outcome <> 'idle' AND b.outcome = ?1 LIMIT ?2)";

/// The filter among the threads that have what it asks for, if these are few.
pub(super) fn narrowed(db: &Connection, filter: &ThreadFilter) -> Result<Option<ThreadFilter>> {
    let principal = filter.principal.as_deref();
    for label in filter.labels() {
        let most = more_than(FEW_LABELLED);
        let ids = all(db, OF_LABEL, params![label, principal, most], |row| {
            id(row, 0)
        })?;
        if ids.len() <= FEW_LABELLED {
            return Ok(Some(filter.among(ids)));
        }
    }
    let Some(status) = filter.rare_status() else {
        return Ok(None);
    };
    let most = more_than(FEW);
    let ids = all(db, OF_STATUS, params![status.as_str(), most], |row| {
        id(row, 0)
    })?;
    Ok((ids.len() <= FEW).then(|| filter.among(ids)))
}

fn more_than(few: usize) -> i64 {
    i64::try_from(few).map_or(i64::MAX, |few| few + 1)
}
