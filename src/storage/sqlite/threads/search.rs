//! Searching and counting the threads that are not deleted.

use std::collections::HashSet;

use rusqlite::{Connection, Row, params};

use super::{
    super::columns::{id, json_map},
    rows::read_thread,
};
use crate::{
    checkpoint::Error,
    id::ThreadId,
    tree::{
        Thread,
        search::{ThreadFilter, ThreadPage},
    },
    value::contains_map,
};

/// Threads in one order. What SQL cannot decide (ids, containment) is decided row by row.
macro_rules! threads {
    ($order:literal) => {
        concat!(
            "WITH x AS ( \
               SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, t.updated_at, \
                (SELECT max(s.updated_at) FROM branches s \
                 INDEXED BY sqlite_autoindex_branches_2 \
                  WHERE s.tree_id = t.tree_id AND s.thread_id = t.thread_id) AS state_updated_at, \
                b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, \
                b.error, \
                EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id \
                  AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running') \
                  AND coalesce(r.branch_id, t.active_branch_id) = t.active_branch_id) AS busy, \
                t.parent_thread_id \
               FROM threads t JOIN branches b \
                 ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id \
               WHERE t.deleted_at IS NULL \
                 AND (?1 IS NULL \
                   OR EXISTS (SELECT 1 FROM trees o WHERE o.tree_id = t.tree_id AND o.owner = ?1) \
                   OR EXISTS (SELECT 1 FROM tree_members m \
                     WHERE m.tree_id = t.tree_id AND m.principal = ?1))), \
             y AS ( \
               SELECT x.*, max(x.updated_at, x.state_updated_at) AS changed_at, \
                CASE WHEN x.busy THEN 'busy' ELSE x.outcome END AS status FROM x), \
             z AS ( \
               SELECT y.*, row_number() OVER (PARTITION BY y.tree_id \
                 ORDER BY y.changed_at DESC, y.thread_id DESC) AS place FROM y) \
             SELECT * FROM z WHERE (?2 IS NULL OR z.status = ?2) \
               AND (?3 <> 'roots' OR z.parent_thread_id IS NULL) \
               AND (?3 <> 'latest-fork' OR z.place = 1) \
             ORDER BY CASE ?4 WHEN 'thread_id' THEN z.thread_id WHEN 'status' THEN z.status \
               WHEN 'created_at' THEN z.created_at WHEN 'updated_at' THEN z.changed_at \
               ELSE z.state_updated_at END ",
            $order,
            ", z.thread_id ",
            $order
        )
    };
}

pub(super) const ASCENDING: &str = threads!("ASC");
pub(super) const DESCENDING: &str = threads!("DESC");

/// A page of living threads.
pub(super) fn search(db: &Connection, page: &ThreadPage) -> Result<Vec<Thread>, Error> {
    let mut found = Vec::new();
    let mut skip = page.offset;
    each(db, page, |row| {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        if found.len() < page.limit {
            found.push(read_thread(row)?);
        }
        Ok(found.len() < page.limit)
    })?;
    Ok(found)
}

/// How many living threads there are.
pub(super) fn count(db: &Connection, filter: &ThreadFilter) -> Result<u64, Error> {
    let page = ThreadPage {
        filter: filter.clone(),
        ..ThreadPage::default()
    };
    let mut count = 0;
    each(db, &page, |_| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}

/// Calls `visit` with every row that passes the filter, until `visit` returns false.
fn each(
    db: &Connection,
    page: &ThreadPage,
    mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
) -> Result<(), Error> {
    let filter = &page.filter;
    let ids: Option<HashSet<ThreadId>> = filter.ids.clone().map(HashSet::from_iter);
    let text = if page.ascending {
        ASCENDING
    } else {
        DESCENDING
    };
    let mut statement = db.prepare_cached(text)?;
    let mut rows = statement.query(params![
        filter.principal.as_deref(),
        filter.status.map(|status| status.as_str()),
        filter.mode.as_str(),
        page.sort_by.as_str(),
    ])?;
    while let Some(row) = rows.next()? {
        if let Some(ids) = &ids
            && !ids.contains(&id::<ThreadId>(row, 0)?)
        {
            continue;
        }
        if !filter.metadata.is_empty() && !contains_map(&json_map(row, 2)?, &filter.metadata) {
            continue;
        }
        if !visit(row)? {
            break;
        }
    }
    Ok(())
}
