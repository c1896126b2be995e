//! One checkpoint with its values and pending writes.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::{blobs::values_of, page::WRITTEN};
use crate::{
    checkpoint::{
        At, CheckpointRow, Error, Query, Result, Source, Stored, WriteRow, metadata::Columns,
        paths, results,
    },
    id::{BranchId, CheckpointId, TreeId},
    storage::sqlite::columns::{id, id_if, parsed},
    tree::load::AT_ONCE,
};

/// Reads a row of [`select`].
pub(super) fn read_checkpoint(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    Ok(CheckpointRow {
        ns: row.get(0)?,
        id: id(row, 1)?,
        parent: id_if(row, 2)?,
        root: id_if(row, 3)?,
        depth: row.get(4)?,
        thread: id(row, 5)?,
        branch: id(row, 6)?,
        run: id_if(row, 7)?,
        source: parsed::<Source>(row, 8)?,
        step: row.get(9)?,
        last_node: id_if(row, 10)?,
        event_number: row.get(11)?,
        envelope: row.get_ref(12)?.as_bytes()?.to_vec(),
        blob_versions: row.get(16)?,
        metadata: metadata_of(row)?,
        created_at: crate::time::Timestamp(row.get(14)?),
        run_supersteps: row.get(15)?,
    })
}

/// The metadata of a row of [`select`], of which columns have a part.
pub(super) fn metadata_of(row: &Row<'_>) -> rusqlite::Result<String> {
    let columns = Columns {
        graph: row.get_ref(17)?.as_str_or_null()?,
        assistant: id_if(row, 18)?,
        rest: row.get_ref(13)?.as_str()?.into(),
    };
    Ok(columns.text())
}

/// One checkpoint with values and pending writes.
pub(crate) fn load(db: &Connection, query: &Query) -> Result<Option<Stored>> {
    let Some(row) = find(db, query)? else {
        return Ok(None);
    };
    stored(db, query.tree, row, query.values).map(Some)
}

/// Adds to a checkpoint its pending writes and, with `values`, its blobs.
pub(super) fn stored(
    db: &Connection,
    tree: TreeId,
    row: CheckpointRow,
    values: bool,
) -> Result<Stored> {
    let blobs = if values {
        values_of(db, tree, &row)?
    } else {
        Vec::new()
    };
    let writes = writes_at(db, tree, &row.ns, row.id)?;
    Ok(Stored { row, blobs, writes })
}

/// A checkpoint of the root graph with its pending writes, unless those are more than is read at once.
pub(in super::super) fn without_values(
    db: &Connection,
    tree: TreeId,
    id: CheckpointId,
) -> Result<Option<Stored>> {
    let mut find = db.prepare_cached(BY_ID)?;
    let row = find.query_row(params![tree, "", id], read_checkpoint);
    let Some(row) = row.optional()? else {
        return Ok(None);
    };
    let written: i64 = db
        .prepare_cached(WRITTEN)?
        .query_row(params![tree, "", id], |row| row.get(0))?;
    if written.unsigned_abs() > AT_ONCE {
        return Ok(None);
    }
    stored(db, tree, row, false).map(Some)
}

pub(super) const BY_ID: &str = select!(
    "FROM checkpoints c \
     WHERE c.tree_id = ?1 AND c.checkpoint_ns = ?2 AND c.checkpoint_id = ?3"
);

pub(super) const OF_HEAD: &str = select!(
    "FROM branches b JOIN checkpoints c ON c.tree_id = b.tree_id \
     AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id \
     WHERE b.tree_id = ?1 AND b.branch_id = ?2"
);

pub(super) const OF_ACTIVE_HEAD: &str = select!(
    "FROM threads t JOIN branches b ON b.tree_id = t.tree_id \
     AND b.branch_id = t.active_branch_id \
     JOIN checkpoints c ON c.tree_id = b.tree_id \
     AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id \
     WHERE t.thread_id = ?2 AND t.tree_id = ?1"
);

pub(crate) const NEWEST: &str = select!(
    "FROM checkpoints c INDEXED BY checkpoints_thread \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = ?3 \
     ORDER BY c.checkpoint_id DESC LIMIT 1"
);

fn find(db: &Connection, query: &Query) -> Result<Option<CheckpointRow>> {
    let tree = query.tree;
    let thread = query.thread;
    let found = match &query.at {
        At::Id(checkpoint_id) => db
            .prepare_cached(BY_ID)?
            .query_row(params![tree, query.ns, checkpoint_id], read_checkpoint),
        At::Head(branch) => db
            .prepare_cached(OF_HEAD)?
            .query_row(params![tree, branch], read_checkpoint),
        At::ActiveHead => db
            .prepare_cached(OF_ACTIVE_HEAD)?
            .query_row(params![tree, thread], read_checkpoint),
        At::Newest => db
            .prepare_cached(NEWEST)?
            .query_row(params![tree, thread, query.ns], read_checkpoint),
        At::Subgraph {
            start,
            branch,
            before,
        } => return subgraph(db, query, *start, *branch, *before),
    };
    Ok(found.optional()?)
}

pub(super) const IN_SUBGRAPH: &str = select!(
    ", p.depth AS at FROM (WITH RECURSIVE path AS ( \
       SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, c.branch_id, \
              :branch AS owner, 1 AS n \
         FROM checkpoints c WHERE c.tree_id = :tree AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = :start \
       UNION ALL \
       SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, c.branch_id, p.branch_id, \
              p.n + 1 \
         FROM path p CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = p.parent_checkpoint_id WHERE p.n < :step) \
       SELECT * FROM path) p \
     CROSS JOIN checkpoints c INDEXED BY checkpoints_sub \
      ON c.tree_id = :tree AND c.root_checkpoint_id = p.checkpoint_id \
      AND c.checkpoint_ns = :ns AND c.checkpoint_ns <> '' \
     LEFT JOIN branches o ON o.tree_id = :tree AND o.branch_id = p.owner \
     WHERE (:before IS NULL OR c.checkpoint_id < :before) \
       AND (c.branch_id = p.owner \
            OR (c.branch_id = p.branch_id AND c.checkpoint_id < p.checkpoint_id) \
            OR (c.checkpoint_id < o.creation_id AND (EXISTS (WITH RECURSIVE above AS ( \
                SELECT o.source_branch_id AS id, o.creation_id AS creation \
                UNION ALL \
                SELECT s.source_branch_id, min(a.creation, s.creation_id) FROM above a CROSS JOIN branches s \
                  ON s.tree_id = :tree AND s.branch_id = a.id AND s.creation_id IS NOT NULL) \
                SELECT 1 FROM above WHERE id = c.branch_id AND c.checkpoint_id < creation) \
              OR EXISTS (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = :tree \
                  AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id \
                  AND w.branch_id = p.owner AND w.idx = -3)))) \
     ORDER BY p.depth DESC, c.checkpoint_id DESC LIMIT 1"
);

pub(super) const END_OF_STEP: &str = "WITH RECURSIVE path AS ( \
      SELECT parent_checkpoint_id, branch_id, 1 AS n FROM checkpoints \
       WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 \
      UNION ALL \
      SELECT c.parent_checkpoint_id, c.branch_id, p.n + 1 \
        FROM path p CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = p.parent_checkpoint_id WHERE p.n < ?3) \
    SELECT parent_checkpoint_id, branch_id FROM path WHERE n = ?3";

/// The newest checkpoint of a subgraph that belongs to the path of `start`.
///
/// Walks the path in steps; the owner of rows below a checkpoint is the branch of its child on
/// the path. Rows that belong to it besides are those which a run that stores at its exit had made before the root
/// checkpoint, those that the branch shares with the one it was made from, and that one with its own, and those at which the
/// owner's copy of an interrupt stands.
fn subgraph(
    db: &Connection,
    query: &Query,
    start: CheckpointId,
    branch: BranchId,
    before: Option<CheckpointId>,
) -> Result<Option<CheckpointRow>> {
    // A graph that is resumed has stored its state at the head: a step is read whole, so that the first is short.
    const FIRST_STEP: i64 = 4;
    const STEP: i64 = 256;
    let tree = query.tree;
    // Most namespaces name their task and were never written: no walk for those.
    let any = db
        .prepare_cached("SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = ?2")?
        .exists(params![tree, query.ns])?;
    if !any {
        return Ok(None);
    }
    let mut hit = db.prepare_cached(IN_SUBGRAPH)?;
    let mut walk = db.prepare_cached(END_OF_STEP)?;
    let (mut start, mut owner, mut step) = (start, branch, FIRST_STEP);
    loop {
        let found = hit
            .query_row(
                named_params! {
                    ":tree": tree,
                    ":ns": query.ns,
                    ":start": start,
                    ":branch": owner,
                    ":before": before,
                    ":step": step,
                },
                read_checkpoint,
            )
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
        let last = walk
            .query_row(params![tree, start, step], |row| {
                Ok((id_if::<CheckpointId>(row, 0)?, id::<BranchId>(row, 1)?))
            })
            .optional()?;
        match last {
            Some((Some(parent), branch)) => (start, owner, step) = (parent, branch, STEP),
            _ => return Ok(None),
        }
    }
}

pub(super) const WRITES: &str = "SELECT branch_id, task_id, idx, task_path, channel, type, writes FROM all_checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3";

/// The pending writes at a checkpoint, in the order of their tasks: sorted here, since SQLite would copy their bytes to
/// sort the rows.
pub(super) fn writes_at(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    checkpoint: CheckpointId,
) -> Result<Vec<WriteRow>> {
    let mut statement = db.prepare_cached(WRITES)?;
    let rows = statement.query_map(params![tree, ns, checkpoint], |row| {
        let idx = row.get(2)?;
        Ok(WriteRow {
            ns: Arc::clone(ns),
            checkpoint,
            branch: id(row, 0)?,
            task: id(row, 1)?,
            idx,
            path: paths::whole(row.get_ref(3)?.as_str()?).into(),
            channel: row.get(4)?,
            tag: row.get(5)?,
            bytes: row.get(6)?,
            // How a retry would write it: control rows are replaced.
            upsert: idx < 0,
        })
    })?;
    let rows: Result<Vec<WriteRow>> = rows.map(|row| row.map_err(Error::from)).collect();
    let mut rows = rows?;
    rows.sort_by(|a, b| {
        (&*a.path, a.task, a.idx, a.branch).cmp(&(&*b.path, b.task, b.idx, b.branch))
    });
    results::split_all(rows)
}
