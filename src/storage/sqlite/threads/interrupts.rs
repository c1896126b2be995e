//! What the tasks of a branch wait for, without the state around it.

use rusqlite::{Connection, params};

use crate::{
    checkpoint::{Result, WriteRow, paths::whole, results},
    id::{BranchId, CheckpointId, TreeId},
    storage::sqlite::columns::{all, id},
    tree::store::rows::PendingInterrupts,
};

/// Interrupts have the `idx` -3, failures that an error handler took over -6, results 0. Of the bytes only the length is
/// read, and nothing of a result that stands in the row of its checkpoint but whose it is.
const SIZES: &str = concat!(
    "SELECT task_id, idx, task_path, channel, type, ",
    weight!("type", "writes"),
    " FROM checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND idx IN (0, -3, -6) \
    UNION ALL \
    SELECT result_task, 0, substr(result_header, instr(result_header, ' ') + 1), NULL, \
      substr(result_header, 1, instr(result_header, ' ') - 1), octet_length(result) FROM checkpoints \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND result_task IS NOT NULL"
);

const BYTES: &str = "SELECT writes FROM all_checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 AND branch_id = ?3 AND task_id = ?4 AND idx = ?5";

/// What a row weighs besides the bytes that are read of it.
const ROW: u64 = 128;

/// See [`tree::Store::pending_interrupts`](crate::tree::Store::pending_interrupts).
pub(in super::super) fn pending_interrupts(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    at: CheckpointId,
    most: u64,
) -> Result<PendingInterrupts> {
    let found = all(db, SIZES, params![tree, at, branch], |row| {
        let weight: i64 = row.get(5)?;
        let write = WriteRow {
            ns: "".into(),
            checkpoint: at,
            branch,
            task: id(row, 0)?,
            idx: row.get(1)?,
            path: whole(row.get_ref(2)?.as_str()?).into(),
            channel: row.get(3)?,
            tag: row.get(4)?,
            bytes: Vec::new(),
            upsert: false,
        };
        Ok((write, weight.unsigned_abs()))
    })?;
    let weights = found.iter().map(
        |(write, weight)| {
            if is_read(write) { ROW + weight } else { ROW }
        },
    );
    let weight = weights.sum();
    if weight > most {
        return Ok(PendingInterrupts { weight, rows: None });
    }
    let mut bytes = db.prepare_cached(BYTES)?;
    let mut rows: Vec<WriteRow> = found.into_iter().map(|(write, _)| write).collect();
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

/// Results of several tasks name their tasks in their bytes.
fn is_read(write: &WriteRow) -> bool {
    write.idx == -3 || results::is_joined(&write.tag)
}
