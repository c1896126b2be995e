//! What was pending where a run began is restored when the run is rolled back: the interrupts that were open are open
//! again, and nothing that the run has answered or done there counts.

use std::{collections::BTreeMap, sync::Arc};

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    super::super::{
        checkpoints::commit::arrays::Writes,
        columns::{Params, column, name, unname},
        connection::Failure,
        threads::blobs::forget_results,
    },
    RolledBack,
};
use crate::{
    checkpoint::{Error, WriteRow, earlier, frame, paths::whole},
    id::{BranchId, CheckpointId, RunId, TaskId},
};

/// Where nothing of a task says what the run has found: what it decided there. And the record of the run's command.
const DECIDED: &str = "
DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.branch_id = $2 AND w.checkpoint_ns = '' AND w.checkpoint_id = $3
   AND (w.task_id = $5 OR (
     NOT EXISTS (SELECT 1 FROM checkpoint_writes e WHERE e.tree_id = $1 AND e.branch_id = $2
          AND e.checkpoint_ns = '' AND e.checkpoint_id = $3 AND e.task_id = w.task_id AND e.idx = $6)
     AND (w.task_id = $4 OR (w.idx IN (0, -4) AND EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.branch_id = $2
          AND o.checkpoint_ns = '' AND o.checkpoint_id = $3 AND o.task_id = w.task_id AND o.idx = 0) AND EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.branch_id = $2
          AND o.checkpoint_ns = '' AND o.checkpoint_id = $3 AND o.task_id = w.task_id AND o.idx = -3)))))";

/// Checkpoints of graphs inside that a run has stored where it began.
const INSIDE: &str = "
SELECT s.checkpoint_ns, s.checkpoint_id, s.parent_checkpoint_id FROM checkpoints s
 WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = $2 AND s.run_id = $3";

const DROP_INSIDE: &str = "
WITH s AS (DELETE FROM checkpoints s WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = $2 AND s.run_id = $3
  RETURNING s.checkpoint_id)
DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns <> '' AND w.checkpoint_id = ANY (ARRAY(SELECT s.checkpoint_id FROM s))";

/// Whether others than a branch go on from a checkpoint, or from one behind it: what descends from it has a greater id. A
/// tag there shows what was there when it was set.
const IS_SHARED: &str = "
WITH RECURSIVE others AS (
  SELECT b.head_checkpoint_id AS id FROM threads t CROSS JOIN LATERAL (
    SELECT b.head_checkpoint_id FROM branches b WHERE b.tree_id = $1 AND b.thread_id = t.thread_id AND b.branch_id <> $2 OFFSET 0) b
   WHERE t.tree_id = $1 AND t.deleted_at IS NULL AND b.head_checkpoint_id >= $3
  UNION
  SELECT t.fork_checkpoint_id FROM threads t WHERE t.tree_id = $1 AND t.deleted_at IS NULL AND t.fork_checkpoint_id >= $3
  UNION
  SELECT g.checkpoint_id FROM threads t CROSS JOIN LATERAL (
    SELECT g.checkpoint_id FROM tags g WHERE g.tree_id = $1 AND g.thread_id = t.thread_id OFFSET 0) g
   WHERE t.tree_id = $1 AND t.deleted_at IS NULL AND g.checkpoint_id > $3),
path AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM others o CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = o.id LIMIT 1) c
  UNION
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM path p CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = p.parent_checkpoint_id LIMIT 1) c
   WHERE p.parent_checkpoint_id >= $3)
SELECT EXISTS (SELECT 1 FROM path WHERE checkpoint_id = $3) AS is_shared";

/// What runs have found of tasks there, in the graph and in those inside.
const FOUND: &str = "
SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.type, w.writes FROM checkpoint_writes w
 WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = $2 AND w.branch_id = $3 AND w.idx = $4
UNION ALL
SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.type, w.writes FROM (
    SELECT c.checkpoint_ns, c.checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = $2 OFFSET 0) c
 CROSS JOIN LATERAL (SELECT w.* FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns
     AND w.checkpoint_id = c.checkpoint_id AND w.branch_id = $3 AND w.idx = $4 OFFSET 0) w";

/// The same at checkpoints inside.
const FOUND_AT: &str = "
SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.type, w.writes FROM unnest($5::text[], $2::uuid[]) x(ns, at)
 CROSS JOIN LATERAL (SELECT w.* FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = x.ns
     AND w.checkpoint_id = x.at AND w.branch_id = $3 AND w.idx = $4 OFFSET 0) w";

const DROP_TASKS: &str = "
DELETE FROM checkpoint_writes WHERE ctid = ANY (ARRAY(
  SELECT w.ctid FROM unnest($3::text[], $4::uuid[], $5::uuid[]) x(ns, at, task) CROSS JOIN LATERAL (
    SELECT w.ctid FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = x.ns AND w.checkpoint_id = x.at
       AND w.branch_id = $2 AND w.task_id = x.task OFFSET 0) w))";

const RESTORE: &str = "
INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
SELECT $1, x.ns, x.cp, $2, x.task, x.idx, x.path, x.channel, x.type, x.writes
  FROM unnest($3::text[], $4::uuid[], $5::uuid[], $6::int[], $7::text[], $8::text[], $9::text[], $10::bytea[])
    x(ns, cp, task, idx, path, channel, type, writes)";

/// Restores what was pending at the base of a run.
pub(super) async fn restore(
    client: &Client,
    run_id: Uuid,
    run: &RolledBack,
    base: Uuid,
) -> Result<(), Failure> {
    let (tree, branch) = (run.tree, run.branch);
    client
        .execute(
            DECIDED,
            &[
                &tree,
                &branch,
                &base,
                &TaskId::NULL.0,
                &run_id,
                &earlier::IDX,
            ],
        )
        .await?;
    let inside = client.query(INSIDE, &[&tree, &base, &run_id]).await?;
    let mut found = vec![];
    // Others may need what the graphs inside have stored there.
    if !inside.is_empty() && !is_shared(client, run, base).await? {
        client
            .execute(DROP_INSIDE, &[&tree, &base, &run_id])
            .await?;
        // A graph that keeps its state may have stopped at a checkpoint before the base.
        let mut stopped = vec![];
        for row in &inside {
            if let Some(at) = column::<Option<Uuid>>(row, "parent_checkpoint_id")? {
                stopped.push((column::<&str>(row, "checkpoint_ns")?, at));
            }
        }
        for stopped in stopped.chunks(AT_ONCE) {
            forget_results(client, tree, branch, stopped).await?;
        }
        if !stopped.is_empty() {
            let (nss, ats): (Vec<&str>, Vec<Uuid>) = stopped.into_iter().unzip();
            let at: Params<'_, 5> = [&tree, &ats, &branch, &earlier::IDX, &nss];
            found.append(&mut client.query(FOUND_AT, &at).await?);
        }
    }
    let at: Params<'_, 4> = [&tree, &base, &branch, &earlier::IDX];
    found.append(&mut client.query(FOUND, &at).await?);
    for rows in found.chunks(AT_ONCE) {
        restore_tasks(client, run_id, run, rows).await?;
    }
    Ok(())
}

/// Checkpoints and tasks whose rows one statement reads or restores, which bounds its size.
const AT_ONCE: usize = 500;

/// Restores what the run has found of tasks, out of the rows in which it says so.
async fn restore_tasks(
    client: &Client,
    run_id: Uuid,
    run: &RolledBack,
    found: &[Row],
) -> Result<(), Failure> {
    let mut tasks = BTreeMap::new();
    for row in found {
        let row = row_of(row, BranchId(run.branch))?;
        if let Some(rows) = frame::rows_found_by(RunId(run_id), &row) {
            tasks.insert(
                (name(&row.ns).into_owned(), row.checkpoint.0, row.task.0),
                rows,
            );
        }
    }
    if tasks.is_empty() {
        return Ok(());
    }
    let (mut nss, mut ats, mut ids) = (vec![], vec![], vec![]);
    for (ns, at, task) in tasks.keys() {
        nss.push(ns);
        ats.push(at);
        ids.push(task);
    }
    let dropped: Params<'_, 5> = [&run.tree, &run.branch, &nss, &ats, &ids];
    client.execute(DROP_TASKS, &dropped).await?;
    let rows: Vec<_> = tasks.into_values().flatten().collect();
    let writes = Writes::of(&rows);
    let restored: Params<'_, 10> = [
        &run.tree,
        &run.branch,
        &writes.nss,
        &writes.checkpoints,
        &writes.tasks,
        &writes.idxs,
        &writes.paths,
        &writes.channels,
        &writes.tags,
        &writes.bytes,
    ];
    client.execute(RESTORE, &restored).await?;
    Ok(())
}

async fn is_shared(client: &Client, run: &RolledBack, base: Uuid) -> Result<bool, Failure> {
    let of: Params<'_, 3> = [&run.tree, &run.branch, &base];
    let row = client.query_one(IS_SHARED, &of).await?;
    Ok(column(&row, "is_shared")?)
}

fn row_of(row: &Row, branch: BranchId) -> Result<WriteRow, Error> {
    Ok(WriteRow {
        ns: unname(column(row, "checkpoint_ns")?),
        checkpoint: CheckpointId(column(row, "checkpoint_id")?),
        branch,
        task: TaskId(column(row, "task_id")?),
        idx: earlier::IDX,
        path: unname(&whole(column(row, "task_path")?)),
        channel: Some(earlier::CHANNEL.into()),
        tag: Arc::from(column::<&str>(row, "type")?),
        bytes: column(row, "writes")?,
        upsert: true,
    })
}

statements!(
    DECIDED,
    INSIDE,
    DROP_INSIDE,
    IS_SHARED,
    FOUND,
    FOUND_AT,
    DROP_TASKS,
    RESTORE
);
