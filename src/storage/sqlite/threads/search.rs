//! Searching and counting the threads that are not deleted.

use const_format::formatcp;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{super::columns::json_map, narrow::narrowed, rows::read_listed};
use crate::{
    checkpoint::Result,
    id::ThreadId,
    tree::search::{Columns, Listed, Room, SortBy, ThreadFilter, ThreadPage},
    value::contains_map,
};

/// What is read of the metadata and of the config of a thread.
const METADATA: &str = "CASE WHEN ?6 THEN t.metadata \
     WHEN ?7 THEN json_object('graph_id', json_extract(t.metadata, '$.graph_id')) ELSE json_object() END";
const CONFIG: &str = "CASE WHEN ?8 THEN t.config ELSE json_object() END";

/// The columns of [`read_listed`] and those that follow: the key of a page.
macro_rules! columns {
    ($at:literal) => {
        formatcp!(
            "t.thread_id, t.tree_id, {METADATA}, {CONFIG}, t.created_at, t.updated_at, \
             b.updated_at, b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, \
             b.outcome, CASE WHEN ?9 THEN b.error END, \
             EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id \
               AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running') \
               AND coalesce(r.branch_id, t.active_branch_id) = t.active_branch_id) AS busy, \
             {at} AS at, t.thread_id AS id",
            at = $at
        )
    };
}

const BRANCH: &str =
    "CROSS JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id";

/// Threads with a run that is executed: the times of their branches move on while their own stay.
const ACTIVE: &str = "act AS MATERIALIZED ( \
           SELECT DISTINCT t.thread_id, t.tree_id, max(t.updated_at, b.updated_at) AS at \
             FROM runs r INDEXED BY one_running_per_branch \
             CROSS JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
             CROSS JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id \
            WHERE r.status = 'running')";

/// What SQL decides: `?2` is a status and `?3` says which of a family of forks. Its newest is the
/// first one by the index of the tree, or one that has a running run.
const PASSES: &str = "t.deleted_at IS NULL \
         AND (?2 IS NULL OR CASE WHEN busy THEN 'busy' ELSE b.outcome END = ?2) \
         AND (?3 <> 'roots' OR t.parent_thread_id IS NULL) \
         AND (?3 <> 'latest-fork' OR t.thread_id = (SELECT n.thread_id FROM ( \
           SELECT * FROM (SELECT o.thread_id, o.updated_at AS at FROM threads o INDEXED BY threads_tree \
             WHERE o.tree_id = t.tree_id AND o.deleted_at IS NULL \
             ORDER BY o.updated_at DESC, o.thread_id DESC LIMIT 1) \
           UNION ALL \
           SELECT a.thread_id, a.at FROM act a WHERE a.tree_id = t.tree_id) n \
           ORDER BY n.at DESC, n.thread_id DESC LIMIT 1))";

const MAY_SEE: &str = "(?1 IS NULL OR t.owner = ?1 OR EXISTS (SELECT 1 FROM tree_members m \
           WHERE m.tree_id = t.tree_id AND m.principal = ?1))";

/// Threads that were shared with the principal, in front of others.
macro_rules! shared {
    ($behind:literal) => {
        formatcp!(
            "SELECT {columns} FROM tree_members m INDEXED BY tree_members_principal \
               CROSS JOIN threads t INDEXED BY threads_tree ON t.tree_id = m.tree_id {BRANCH} \
              WHERE m.principal = ?1 AND t.owner <> ?1 \
                AND (t.updated_at, t.thread_id) {behind} (?4, ?5) \
                AND t.thread_id NOT IN (SELECT a.thread_id FROM act a) AND {PASSES} UNION ALL",
            columns = columns!("t.updated_at"),
            behind = $behind
        )
    };
}

/// By the last change, in the order of an index, behind `(?4, ?5)`.
macro_rules! recent {
    ($index:literal, $own:literal, $shared:expr, $behind:literal, $order:literal) => {
        formatcp!(
            "WITH {ACTIVE} \
             SELECT {columns} FROM threads t INDEXED BY {index} {BRANCH} \
              WHERE {own} (t.updated_at, t.thread_id) {behind} (?4, ?5) \
                AND t.thread_id NOT IN (SELECT a.thread_id FROM act a) AND {PASSES} UNION ALL \
             {shared} \
             SELECT {active} FROM act a CROSS JOIN threads t ON t.thread_id = a.thread_id {BRANCH} \
              WHERE (a.at, a.thread_id) {behind} (?4, ?5) AND {MAY_SEE} AND {PASSES} \
             ORDER BY at {order}, id {order}",
            columns = columns!("t.updated_at"),
            index = $index,
            own = $own,
            behind = $behind,
            shared = $shared,
            active = columns!("a.at"),
            order = $order
        )
    };
}

pub(super) const RECENT: [&str; 4] = [
    recent!("threads_recent", "", "", ">", "ASC"),
    recent!("threads_recent", "", "", "<", "DESC"),
    recent!(
        "threads_of_owner",
        "t.owner = ?1 AND",
        shared!(">"),
        ">",
        "ASC"
    ),
    recent!(
        "threads_of_owner",
        "t.owner = ?1 AND",
        shared!("<"),
        "<",
        "DESC"
    ),
];

/// By what never changes, in the order of an index, behind `?4` and `?5`.
macro_rules! in_order {
    ($from:literal, $behind:literal, $by:literal) => {
        formatcp!(
            "WITH {ACTIVE} SELECT {columns} FROM {from} {BRANCH} \
              WHERE {behind} AND ?1 IS NULL AND {PASSES} ORDER BY {by}",
            columns = columns!("t.created_at"),
            from = $from,
            behind = $behind,
            by = $by
        )
    };
}

/// The same of a principal: its own threads and those that were shared with it.
macro_rules! in_order_of {
    ($index:literal, $behind:literal, $by:literal) => {
        formatcp!(
            "WITH {ACTIVE} SELECT {columns} FROM threads t INDEXED BY {index} {BRANCH} \
              WHERE t.owner = ?1 AND {behind} AND {PASSES} UNION ALL \
             SELECT {columns} FROM tree_members m INDEXED BY tree_members_principal \
               CROSS JOIN threads t INDEXED BY threads_tree ON t.tree_id = m.tree_id {BRANCH} \
              WHERE m.principal = ?1 AND t.owner <> ?1 AND {behind} AND {PASSES} \
             ORDER BY {by}",
            columns = columns!("t.created_at"),
            index = $index,
            behind = $behind,
            by = $by
        )
    };
}

pub(super) const CREATED: [&str; 4] = [
    in_order!(
        "threads t INDEXED BY threads_created",
        "(t.created_at, t.thread_id) > (?4, ?5)",
        "t.created_at, t.thread_id"
    ),
    in_order!(
        "threads t INDEXED BY threads_created",
        "(t.created_at, t.thread_id) < (?4, ?5)",
        "t.created_at DESC, t.thread_id DESC"
    ),
    in_order_of!(
        "threads_created_of_owner",
        "(t.created_at, t.thread_id) > (?4, ?5)",
        "at, id"
    ),
    in_order_of!(
        "threads_created_of_owner",
        "(t.created_at, t.thread_id) < (?4, ?5)",
        "at DESC, id DESC"
    ),
];
pub(super) const BY_ID: [&str; 4] = [
    in_order!(
        "threads t",
        "?4 IS NOT NULL AND t.thread_id >= ?5",
        "t.thread_id"
    ),
    in_order!(
        "threads t",
        "?4 IS NOT NULL AND t.thread_id <= ?5",
        "t.thread_id DESC"
    ),
    in_order_of!(
        "threads_ids_of_owner",
        "?4 IS NOT NULL AND t.thread_id >= ?5",
        "id"
    ),
    in_order_of!(
        "threads_ids_of_owner",
        "?4 IS NOT NULL AND t.thread_id <= ?5",
        "id DESC"
    ),
];

/// In any order: all are read. `?4` is the order, and `?5` the ids, if only those are wanted.
macro_rules! sorted {
    ($source:expr, $order:literal) => {
        formatcp!(
            "WITH {ACTIVE} SELECT {columns} FROM {source} {BRANCH} WHERE ?5 IS NOT 0 \
             AND {MAY_SEE} AND {PASSES} ORDER BY CASE ?4 WHEN 'thread_id' THEN t.thread_id \
             WHEN 'status' THEN CASE WHEN busy THEN 'busy' ELSE b.outcome END \
             WHEN 'created_at' THEN t.created_at WHEN 'updated_at' THEN at \
             ELSE b.updated_at END {order}, t.thread_id {order}",
            columns = columns!("max(t.updated_at, b.updated_at)"),
            source = $source,
            order = $order
        )
    };
}

/// Threads of the principal, and those that were shared with it.
const OF_PRINCIPAL: &str = "(SELECT o.thread_id AS of FROM threads o INDEXED BY threads_of_owner \
       WHERE o.owner = ?1 AND o.deleted_at IS NULL \
      UNION SELECT o.thread_id FROM tree_members m \
       CROSS JOIN threads o INDEXED BY threads_tree ON o.tree_id = m.tree_id \
       WHERE m.principal = ?1) x CROSS JOIN threads t ON t.thread_id = x.of";

const OF_IDS: &str = "(SELECT DISTINCT unhex(j.value) AS id FROM json_each(?5) j) x \
     CROSS JOIN threads t ON t.thread_id = x.id";

pub(super) const SORTED: [&str; 2] = [sorted!("threads t", "ASC"), sorted!("threads t", "DESC")];
pub(super) const SORTED_OF: [&str; 2] =
    [sorted!(OF_PRINCIPAL, "ASC"), sorted!(OF_PRINCIPAL, "DESC")];
pub(super) const SORTED_IDS: [&str; 2] = [sorted!(OF_IDS, "ASC"), sorted!(OF_IDS, "DESC")];

fn text(page: &ThreadPage) -> &'static str {
    let backwards = usize::from(!page.ascending);
    let is_of = page.filter.principal.is_some();
    if !page.is_in_order() {
        return match (&page.filter.ids, is_of) {
            (Some(_), _) => SORTED_IDS,
            (None, true) => SORTED_OF,
            (None, false) => SORTED,
        }[backwards];
    }
    let texts = match page.sort_by {
        SortBy::ThreadId => BY_ID,
        SortBy::CreatedAt => CREATED,
        _ => RECENT,
    };
    texts[2 * usize::from(is_of) + backwards]
}

/// A page of living threads.
pub(in super::super) fn search(db: &Connection, page: &ThreadPage) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    let mut room = Room::default();
    let mut skip = page.offset;
    each(db, page, |row| {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        if found.len() < page.limit {
            found.push(read_listed(row, &mut room)?);
        }
        Ok(found.len() < page.limit)
    })?;
    Ok(found)
}

/// How many living threads there are.
pub(in super::super) fn count(db: &Connection, filter: &ThreadFilter) -> Result<u64> {
    let page = ThreadPage {
        filter: filter.clone(),
        columns: Columns::NONE,
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
) -> Result<()> {
    let mut narrow = page.clone();
    if page.after.is_none()
        && let Some(filter) = narrowed(db, &page.filter)?
    {
        narrow.filter = filter;
    }
    let page = &narrow;
    let filter = &page.filter;
    let mut statement = db.prepare_cached(text(page))?;
    let principal = filter.principal.as_deref();
    let status = filter.status.map(|status| status.as_str());
    let mode = filter.mode.as_str();
    let Columns {
        graph,
        config,
        error,
        ..
    } = page.columns;
    // The filter looks at it.
    let metadata = page.columns.metadata || !filter.metadata.is_empty();
    let mut rows = if page.is_in_order() {
        let (at, id) = match &page.after {
            Some(_) if page.sort_by == SortBy::ThreadId => match page.first_id() {
                Some(id) => (i64::MIN, ThreadId(id)),
                None => return Ok(()),
            },
            Some(after) => (after.at.0, after.id),
            // Before the first of any order.
            None if page.ascending => (i64::MIN, ThreadId(Uuid::nil())),
            None => (i64::MAX, ThreadId(Uuid::max())),
        };
        statement.query(params![
            principal, status, mode, at, id, metadata, graph, config, error
        ])?
    } else {
        let ids = filter.ids.as_ref().map(|ids| {
            let ids = ids.iter().map(|id| format!("\"{}\"", id.0.simple()));
            format!("[{}]", ids.collect::<Vec<_>>().join(","))
        });
        let sort_by = page.sort_by.as_str();
        statement.query(params![
            principal, status, mode, sort_by, ids, metadata, graph, config, error
        ])?
    };
    while let Some(row) = rows.next()? {
        if !filter.metadata.is_empty() && !contains_map(&json_map(row, 2)?, &filter.metadata) {
            continue;
        }
        if !visit(row)? {
            break;
        }
    }
    Ok(())
}
