//! What the tasks of a branch wait for, without the state around it.

use rusqlite::{Connection, Row, params};

use crate::{
    checkpoint::{Result, WriteRow, paths::whole, results},
    id::{BranchId, CheckpointId, TreeId},
    storage::sqlite::columns::id,
    tree::store::rows::PendingInterrupts,
};

/// Interrupts have the `idx` -3, failures that an error handler took over -6, results 0. Of bytes only the length is read:
/// of a result in the row of its checkpoint too, as long as the view of both is not asked for it.
const SIZES: &str = concat!(
    "SELECT task_id, idx, task_path, channel, type, ",
    weight!("type", "writes"),
    " FROM checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND idx IN (0, -3, -6) \
    UNION ALL \
    SELECT result_task, 0, path, NULL, type, ",
    weight!("type", "result"),
    " FROM (SELECT result_task, result, substr(result_header, 1, instr(result_header, ' ') - 1) AS type, \
        CAST(substr(CAST(result_header AS BLOB), instr(CAST(result_header AS BLOB), x'20') + 1) AS TEXT) AS path FROM checkpoints \
      WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND result_task IS NOT NULL)"
);

const BYTES: &str = "SELECT writes FROM all_checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND task_id = ?4 AND idx = ?5";

/// What a row weighs besides the bytes that are read of it.
const ROW: u64 = 384;

/// See [`tree::Store::pending_interrupts`](crate::tree::Store::pending_interrupts).
pub(in super::super) fn pending_interrupts(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    at: CheckpointId,
    most: u64,
) -> Result<PendingInterrupts> {
    let (mut rows, mut weight) = (Vec::new(), 0_u64);
    let mut statement = db.prepare_cached(SIZES)?;
    let mut found = statement.query(params![tree, at, branch])?;
    while let Some(row) = found.next()? {
        let write = write_of(row, branch, at)?;
        let bytes: i64 = row.get(5)?;
        weight += ROW;
        if is_read(&write) {
            weight = weight.saturating_add(bytes.unsigned_abs());
        }
        if weight > most {
            rows = Vec::new();
        } else {
            rows.push(write);
        }
    }
    if weight > most {
        return Ok(PendingInterrupts { weight, rows: None });
    }
    let mut bytes = db.prepare_cached(BYTES)?;
    for row in rows.iter_mut().filter(|row| is_read(row)) {
        let key = params![tree, at, branch, row.task, row.idx];
        row.bytes = bytes.query_row(key, |row| row.get(0))?;
    }
    rows.sort_by(|a, b| (&a.path, a.task, a.idx).cmp(&(&b.path, b.task, b.idx)));
    Ok(PendingInterrupts {
        weight,
        rows: Some(results::split_all(rows)?),
    })
}

/// The pending write of a row of [`SIZES`], without its bytes.
fn write_of(row: &Row<'_>, branch: BranchId, at: CheckpointId) -> Result<WriteRow> {
    let path = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(WriteRow {
        ns: "".into(),
        checkpoint: at,
        branch,
        task: id(row, 0)?,
        idx: row.get(1)?,
        path: whole(path).into(),
        channel: row.get(3)?,
        tag: row.get(4)?,
        bytes: Vec::new(),
        upsert: false,
    })
}

/// Results of several tasks name their tasks in their bytes.
fn is_read(write: &WriteRow) -> bool {
    write.idx == -3 || results::is_joined(&write.tag)
}
