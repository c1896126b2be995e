//! The final rows of runs that ended by themselves, as one statement that others can share a transaction with.

use std::collections::HashSet;

use const_format::concatcp;
use tokio_postgres::{Client, Statement, types::ToSql};
use uuid::Uuid;

use super::End;
use crate::{
    id::CheckpointId,
    runs::Finish,
    storage::postgres::{
        columns::{Json, Params, column},
        connection::{Failure, Object, prepare},
        log::{self, Chunks},
    },
    tree::event::codes::event_code,
};

/// The ends of runs of different threads, with the events of
/// [`EndedRun`](crate::runs::transitions::run_events::EndedRun): in SQL, so that they are one round trip.
/// Each is gated by its own branch and run, and by the checkpoint `c.behind` as the head if it names one:
/// one that is refused does not touch the others. A run whose thread goes with it has no log.
///
/// What the database knows of a run is in the row of `r`, so that nothing is joined behind the fence.
const ENDS: &str = concat!(
    "
WITH c AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::jsonb[], $7::text[], $8::bool[], $9::uuid[])
    WITH ORDINALITY c(tree, branch, epoch, run, outcome, error, status, has_log, behind, n)),
f AS (
  UPDATE branches b SET outcome = c.outcome, error = c.error, updated_at = now()
    FROM c WHERE b.tree_id = c.tree AND b.branch_id = c.branch AND b.writer_epoch = c.epoch
     AND (c.behind IS NULL OR b.head_checkpoint_id = c.behind)
     AND (SELECT CASE WHEN r.status = 'running' THEN r.epoch = c.epoch END FROM runs r WHERE r.tree_id = c.tree AND r.run_id = c.run)
  RETURNING c.n, c.run, c.status, c.error, c.has_log, b.tree_id, b.branch_id, b.head_checkpoint_id AS head),
r AS (
  UPDATE runs r SET status = f.status, error = f.error, last_checkpoint_id = f.head, updated_at = now()
    FROM f WHERE r.tree_id = f.tree_id AND r.run_id = f.run AND CASE WHEN r.status = 'running' THEN true END
  RETURNING f.n, r.tree_id, r.thread_id, f.branch_id, r.run_id, f.head, r.status, f.has_log, r.awaited, f.head IS DISTINCT FROM r.base_checkpoint_id AS moved),
m AS (
  UPDATE message_nodes m SET settled_checkpoint_id = k.head FROM (
      SELECT r.tree_id, r.run_id, r.head, (SELECT c.last_node_id FROM checkpoints c
        WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.head) AS node_id FROM r OFFSET 0) k
   WHERE m.tree_id = k.tree_id AND m.node_id = k.node_id AND m.run_id = k.run_id),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + 1 + r.moved::int, updated_at = clock_timestamp()
    FROM r WHERE t.thread_id = r.thread_id AND r.has_log
  RETURNING t.last_event_number AS number, r.*),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id, run_id, payload)
  SELECT e.tree_id, e.thread_id, e.number, CASE WHEN e.moved THEN ",
    event_code!(CREATED_AND_FINISHED),
    " ELSE ",
    event_code!(RUN_FINISHED),
    " END, e.branch_id, e.head, e.run_id, CASE WHEN e.status <> 'success' THEN jsonb_build_object('status', e.status) END FROM e)"
);

pub(crate) const FINISH: &str = concatcp!(
    ENDS,
    "
SELECT r.n::int AS n, r.awaited, NULL::bigint AS position FROM r"
);

/// The same with the last frames of runs, as [`append_chunks`](crate::stream::log::Log::append_chunks) has it. A chunk is read
/// from `e`, so that positions are locked after threads. One row for each chunk, in their order, or for a run without one.
const FINISH_LOGGED: &str = concatcp!(
    ENDS,
    ",
g AS (
  SELECT e.n AS of_run, e.tree_id, e.thread_id, e.run_id, x.first_seq, x.last_seq, x.checkpoint_id, x.frames, false AS temporary, x.principal, x.bytes, x.n
    FROM e JOIN unnest($10::bigint[], $11::bigint[], $12::bigint[], $13::uuid[], $14::bytea[], $15::text[], $16::bigint[])
    WITH ORDINALITY x(of_run, first_seq, last_seq, checkpoint_id, frames, principal, bytes, n) ON x.of_run = e.n),",
    log::INSERT,
    "
SELECT r.n::int AS n, r.awaited, q.position FROM r LEFT JOIN q ON q.of_run = r.n ORDER BY r.n, q.n"
);

/// Which statement ends these runs.
pub(crate) fn text<'a>(mut ends: impl Iterator<Item = &'a Finish>) -> &'static str {
    if ends.any(|finish| !finish.frames.is_empty()) {
        FINISH_LOGGED
    } else {
        FINISH
    }
}

/// Whether this end was written before and only its reply was lost.
const FINISHED: &str = "
SELECT 1 FROM runs WHERE tree_id = $1 AND run_id = $2 AND epoch = $3 AND status = $4";

/// An end with the checkpoint that it is to find as the head, if it names one.
pub(crate) type BoundEnd<'a> = (&'a Finish, Option<CheckpointId>);

/// An end that the fence did not refuse.
pub(crate) struct Ended {
    /// Which one of those that were sent.
    pub(crate) at: usize,
    /// Whether somebody waits for the result.
    pub(crate) is_awaited: bool,
    /// Where its last frames are in the log of the thread.
    pub(crate) positions: Vec<i64>,
}

/// Which ends share one statement, and which follow, each in its own: the events of a thread are numbered
/// one after the other. Those with frames come first, so that few positions are locked by statements of their own.
pub(super) fn divide(ends: &[End]) -> (Vec<usize>, Vec<usize>) {
    let mut threads = HashSet::new();
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by_key(|&at| ends[at].0.frames.is_empty());
    let (mut shared, apart): (Vec<_>, Vec<_>) = order
        .into_iter()
        .partition(|&at| threads.insert(ends[at].0.slot.thread));
    // In the order of their branches.
    shared.sort_unstable();
    (shared, apart)
}

/// The ends that share a statement, as one array per column.
#[derive(Default)]
struct Columns<'a> {
    trees: Vec<Uuid>,
    branches: Vec<Uuid>,
    epochs: Vec<i64>,
    runs: Vec<Uuid>,
    outcomes: Vec<&'static str>,
    errors: Vec<Option<Json<'static>>>,
    statuses: Vec<&'static str>,
    have_logs: Vec<bool>,
    heads: Vec<Option<Uuid>>,
    /// The last frames of the runs, and the numbers of the ends that they belong to.
    frames: Chunks<'a>,
    of_runs: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, (finish, head): BoundEnd<'a>) {
        self.trees.push(finish.slot.tree.0);
        self.branches.push(finish.slot.branch.0);
        self.epochs.push(finish.slot.epoch);
        self.runs.push(finish.run.0);
        self.outcomes.push(finish.outcome.as_str());
        self.errors.push(finish.error.as_ref().map(Json::of_value));
        self.statuses.push(finish.status.as_str());
        self.have_logs.push(!finish.delete_thread);
        self.heads.push(head.map(|id| id.0));
        for chunk in &finish.frames {
            let number = i64::try_from(self.runs.len()).unwrap_or(i64::MAX);
            self.of_runs.push(number);
            self.frames.add(chunk);
        }
    }
}

/// Sends the ends of runs of different threads.
///
/// The request leaves when this future is first polled.
pub(crate) async fn send<'a>(
    client: &Client,
    statement: &Statement,
    ends: impl Iterator<Item = BoundEnd<'a>>,
) -> Result<Vec<Ended>, Failure> {
    let mut columns = Columns::default();
    ends.for_each(|end| columns.add(end));
    if columns.runs.is_empty() {
        return Ok(vec![]);
    }
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &columns.trees,
        &columns.branches,
        &columns.epochs,
        &columns.runs,
        &columns.outcomes,
        &columns.errors,
        &columns.statuses,
        &columns.have_logs,
        &columns.heads,
    ];
    if statement.params().len() > params.len() {
        let frames = &columns.frames;
        params.extend([
            &columns.of_runs as &(dyn ToSql + Sync),
            &frames.firsts,
            &frames.lasts,
            &frames.checkpoints,
            &frames.frames,
            &frames.principals,
            &frames.bytes,
        ]);
    }
    let mut ended: Vec<Ended> = Vec::with_capacity(columns.runs.len());
    for row in client.query(statement, &params).await? {
        let number: i32 = column(&row, "n")?;
        let Ok(at) = usize::try_from(number - 1) else {
            continue;
        };
        let position: Option<i64> = column(&row, "position")?;
        match ended.last_mut().filter(|last| last.at == at) {
            Some(last) => last.positions.extend(position),
            None => ended.push(Ended {
                at,
                is_awaited: column(&row, "awaited")?,
                positions: position.into_iter().collect(),
            }),
        }
    }
    Ok(ended)
}

/// Whether a run that the fence refused to end has ended so: an earlier attempt took effect and its reply was lost, or
/// somebody else ended it. The positions of its last frames are not known then.
pub(crate) async fn was_written(db: &Object, finish: &Finish) -> Result<bool, Failure> {
    let statement = prepare(db, FINISHED).await?;
    let (tree, run) = (finish.slot.tree.0, finish.run.0);
    let status = finish.status.as_str();
    let params: Params<'_, 4> = [&tree, &run, &finish.slot.epoch, &status];
    Ok(db.query_opt(&statement, &params).await?.is_some())
}

statements!(FINISH, FINISH_LOGGED, FINISHED);
