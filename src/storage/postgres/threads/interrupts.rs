//! What the tasks of a branch wait for, without the state around it.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::{
    checkpoint::{Error, WriteRow, paths::whole, results},
    id::{BranchId, CheckpointId, TaskId, TreeId},
    storage::postgres::{
        columns::{all, column, unname},
        connection::{Object, Result},
    },
    tree::store::rows::PendingInterrupts,
};

/// Interrupts have the `idx` -3, failures that an error handler took over -6, results 0. Bytes are read of interrupts, if
/// all of them weigh at most `$4`, and of results of several tasks, which name their tasks. The first column of each row
/// is what all of them weigh.
const INTERRUPTS: &str = concat!(
    "
WITH found AS MATERIALIZED (
  SELECT s.task_id, s.idx, s.task_path, s.channel, s.type, s.idx = -3 OR s.type LIKE 'results%' AS is_read,
         CASE WHEN s.idx = -3 OR s.type LIKE 'results%' THEN s.writes ELSE '' END AS writes, ",
    weight!("s.type", "s.writes"),
    " AS weight
    FROM all_checkpoint_writes s
   WHERE s.tree_id = $1 AND s.checkpoint_ns = '' AND s.checkpoint_id = $3 AND s.branch_id = $2 AND s.idx IN (0, -3, -6)),
fit AS (SELECT COALESCE(sum(384 + CASE WHEN f.is_read THEN f.weight ELSE 0 END), 0)::bigint AS weight FROM found f)
SELECT f.weight, k.task_id, k.idx, k.task_path, k.channel, k.type, k.writes
  FROM fit f LEFT JOIN found k ON f.weight <= $4::bigint
 ORDER BY k.task_path, k.task_id, k.idx"
);

/// See [`tree::Store::pending_interrupts`](crate::tree::Store::pending_interrupts).
pub(in super::super) async fn pending_interrupts(
    db: &Object,
    tree: TreeId,
    branch: BranchId,
    at: CheckpointId,
    most: u64,
) -> Result<PendingInterrupts> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let read = |row: &Row| {
        let weight: i64 = column(row, "weight")?;
        Ok::<_, Error>((weight, write_of(row, branch, at)?))
    };
    let found = all(db, INTERRUPTS, &[&tree.0, &branch.0, &at.0, &most], read).await?;
    let weight = found.first().map_or(0, |(weight, _)| *weight);
    let rows = found.into_iter().filter_map(|(_, row)| row).collect();
    Ok(PendingInterrupts {
        weight: weight.unsigned_abs(),
        rows: if weight <= most {
            Some(results::split_all(rows)?)
        } else {
            None
        },
    })
}

/// The pending write of a row; `None` if the row has only the weight.
fn write_of(row: &Row, branch: BranchId, at: CheckpointId) -> Result<Option<WriteRow>, Error> {
    let Some(task) = column(row, "task_id")? else {
        return Ok(None);
    };
    let channel: Option<&str> = column(row, "channel")?;
    Ok(Some(WriteRow {
        ns: "".into(),
        checkpoint: at,
        branch,
        task: TaskId(task),
        idx: column(row, "idx")?,
        path: unname(&whole(column(row, "task_path")?)),
        channel: channel.filter(|name| !name.is_empty()).map(unname),
        tag: Arc::from(column::<&str>(row, "type")?),
        bytes: column(row, "writes")?,
        upsert: false,
    }))
}

statements!(INTERRUPTS);
