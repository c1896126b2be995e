//! The log of streams that can be resumed.

use std::{sync::Arc, time::Duration};

use const_format::concatcp;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    columns::{JsonText, all, column, one},
    connection::{Object, Result, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    stream::log::{ENDED_AGE, LogChunk, NewChunk, READ_BYTES, READ_CHUNKS, TemporaryRun},
    value::Value,
};

/// Marks the frames of runs `o` that died, and that no checkpoint of the run stands for: those since the
/// head of its branch `f`, and all while that is not the run's own.
macro_rules! supersede {
    () => {
        "UPDATE run_events e SET superseded = true FROM o JOIN f USING (tree_id, branch_id)
   WHERE e.run_id = o.run_id AND NOT e.superseded AND CASE WHEN o.run_id IS NOT DISTINCT FROM (
         SELECT c.run_id FROM checkpoints c WHERE c.tree_id = f.tree_id AND c.checkpoint_ns = '' AND c.checkpoint_id = f.head_checkpoint_id)
         THEN e.checkpoint_id >= f.head_checkpoint_id ELSE true END"
    };
}

pub(super) use supersede;

/// Inserts the chunks `g`, numbered by `n`: each thread takes as many positions as its chunks have frames, and `q` has
/// the chunks with theirs.
pub(super) const INSERT: &str = "
p AS (
  INSERT INTO stream_positions AS s (thread_id, tree_id, last, added, first)
  SELECT g.thread_id, g.tree_id, (extract(epoch FROM now()) * 1000000)::bigint + sum(g.last_seq - g.first_seq + 1)::bigint,
         sum(g.last_seq - g.first_seq + 1)::bigint, (extract(epoch FROM now()) * 1000000)::bigint
    FROM g GROUP BY g.thread_id, g.tree_id ORDER BY g.thread_id
  ON CONFLICT (thread_id, tree_id) DO UPDATE SET last = s.last + EXCLUDED.added, added = EXCLUDED.added
  RETURNING s.thread_id, s.last - s.added AS base),
q AS (
  SELECT g.*, (p.base + 1 + sum(g.last_seq - g.first_seq + 1) OVER (PARTITION BY g.thread_id ORDER BY g.n)
         - (g.last_seq - g.first_seq + 1))::bigint AS position FROM g JOIN p ON p.thread_id = g.thread_id),
i AS (
  INSERT INTO run_events (run_id, first_seq, tree_id, last_seq, thread_id, position, checkpoint_id, frames, temporary, principal, bytes)
  SELECT q.run_id, q.first_seq, q.tree_id, q.last_seq, q.thread_id, q.position, q.checkpoint_id, q.frames, q.temporary, q.principal, q.bytes FROM q)";

/// The rows of the runs are locked in their order, and then those of the positions, so that two
/// processes do not wait for each other. The lock of a run is shared: it only waits for whoever takes
/// the run over. What a lost reply makes its writer send again is found.
const APPEND: &str = concatcp!(
    "
WITH c AS MATERIALIZED (
  SELECT x.* FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[], $8::bytea[], $9::bool[],
              $10::text[], $11::bigint[])
         WITH ORDINALITY x(tree_id, run_id, thread_id, epoch, first_seq, last_seq, checkpoint_id, frames, temporary, principal, bytes, n)),
f AS MATERIALIZED (
  SELECT r.run_id FROM (SELECT DISTINCT c.run_id, c.epoch FROM c WHERE c.epoch IS NOT NULL) d
    JOIN runs r ON r.run_id = d.run_id AND CASE WHEN r.status = 'running' THEN r.epoch = d.epoch END
   ORDER BY r.run_id FOR SHARE OF r),
w AS MATERIALIZED (
  SELECT c.n, e.position FROM c CROSS JOIN LATERAL (
    SELECT e.position FROM run_events e WHERE e.run_id = c.run_id AND e.first_seq = c.first_seq LIMIT 1) e),
g AS MATERIALIZED (
  SELECT c.* FROM c WHERE (c.epoch IS NULL OR c.run_id IN (SELECT f.run_id FROM f)) AND c.n NOT IN (SELECT w.n FROM w)),",
    INSERT,
    "
SELECT q.n, q.position FROM q UNION ALL SELECT w.n, w.position FROM w"
);

/// The chunk that begins last before a number may have the frame behind it; those before that one end earlier.
const OF_RUN: &str = "
SELECT run_id, first_seq, last_seq, position, frames FROM (
  SELECT e.*, sum(octet_length(e.frames)) OVER (ORDER BY e.first_seq) - octet_length(e.frames) AS before FROM (
    SELECT * FROM run_events WHERE run_id = $1 AND last_seq > $2 AND NOT superseded AND first_seq >= COALESCE((
        SELECT b.first_seq FROM run_events b WHERE b.run_id = $1 AND b.first_seq <= $2::bigint ORDER BY b.first_seq DESC LIMIT 1), $2)
     ORDER BY first_seq LIMIT $3) e) x WHERE before < $4::bigint ORDER BY first_seq";

const OF_THREAD: &str = "
SELECT run_id, first_seq, last_seq, position, frames FROM (
  SELECT e.*, sum(octet_length(e.frames)) OVER (ORDER BY e.position) - octet_length(e.frames) AS before FROM (
    SELECT * FROM run_events WHERE thread_id = $1 AND position + last_seq - first_seq > $2 AND NOT superseded AND position >= COALESCE((
        SELECT b.position FROM run_events b WHERE b.thread_id = $1 AND b.position <= $2::bigint ORDER BY b.position DESC LIMIT 1), $2)
     ORDER BY position LIMIT $3) e) x WHERE before < $4::bigint ORDER BY position";

const END_OF_RUN: &str =
    "SELECT last_seq FROM run_events WHERE run_id = $1 ORDER BY first_seq DESC LIMIT 1";

const POSITION: &str = "SELECT last FROM stream_positions WHERE thread_id = $1";

const START: &str = "SELECT first FROM stream_positions WHERE thread_id = $1";

const TRIM: &str = "DELETE FROM run_events WHERE run_id = $1 AND last_seq < $2";

/// From the oldest chunk on until what the others have is no more than the share.
const TRIM_PRINCIPAL: &str = "
DELETE FROM run_events WHERE ctid = ANY (ARRAY(
  SELECT e.ctid FROM run_events e WHERE e.ctid = ANY (ARRAY(
    SELECT x.ctid FROM (
      SELECT c.ctid, o.excess, sum(c.bytes) OVER (ORDER BY c.created_at, c.bytes ROWS UNBOUNDED PRECEDING) - c.bytes AS before
        FROM (SELECT sum(s.total) - $2::bigint AS excess FROM row_counts s WHERE s.kind = 'run_events' AND s.owner = $1) o
       CROSS JOIN LATERAL (
         SELECT n.ctid, n.created_at, n.bytes FROM run_events n WHERE n.principal = $1 AND o.excess > 0 ORDER BY n.created_at LIMIT $3) c) x
     WHERE x.before < x.excess))
   FOR UPDATE SKIP LOCKED))";

const SWEEP: &str = "
DELETE FROM run_events WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM run_events WHERE created_at < now() - make_interval(secs => $1) LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// Of runs that have gone with their threads, some time after their end.
const SWEEP_ENDED: &str = "
DELETE FROM run_events WHERE ctid = ANY (ARRAY(
  SELECT e.ctid FROM run_events e WHERE e.temporary AND e.created_at < now() - make_interval(secs => $1)
     AND (SELECT 1 FROM runs r WHERE r.run_id = e.run_id) IS NULL
     AND (SELECT n.created_at FROM run_events n WHERE n.run_id = e.run_id ORDER BY n.first_seq DESC LIMIT 1) < now() - make_interval(secs => $1)
   LIMIT $2 FOR UPDATE OF e SKIP LOCKED))";

const ENDED: &str = "SELECT thread_id, principal, error, result FROM ended_runs WHERE run_id = $1";

const SWEEP_RUNS: &str = "
DELETE FROM ended_runs WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM ended_runs WHERE ended_at < now() - make_interval(secs => $1) LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) async fn append_chunks(db: &Object, chunks: &[NewChunk]) -> Result<Vec<Option<i64>>> {
    let mut rows = Chunks::default();
    chunks.iter().for_each(|chunk| rows.add(chunk));
    let statement = prepare(db, APPEND).await?;
    let params: [&(dyn ToSql + Sync); 11] = [
        &rows.trees,
        &rows.runs,
        &rows.threads,
        &rows.epochs,
        &rows.firsts,
        &rows.lasts,
        &rows.checkpoints,
        &rows.frames,
        &rows.temporary,
        &rows.principals,
        &rows.bytes,
    ];
    let mut positions = vec![None; chunks.len()];
    for row in db.query(&statement, &params).await? {
        let number: i64 = column(&row, "n")?;
        let index = usize::try_from(number - 1).ok();
        if let Some(position) = index.and_then(|index| positions.get_mut(index)) {
            *position = Some(column(&row, "position")?);
        }
    }
    Ok(positions)
}

/// Columns of chunks.
#[derive(Default)]
pub(super) struct Chunks<'a> {
    trees: Vec<Uuid>,
    runs: Vec<Uuid>,
    threads: Vec<Uuid>,
    epochs: Vec<Option<i64>>,
    pub(super) firsts: Vec<i64>,
    pub(super) lasts: Vec<i64>,
    pub(super) checkpoints: Vec<Option<Uuid>>,
    pub(super) frames: Vec<&'a [u8]>,
    temporary: Vec<bool>,
    pub(super) principals: Vec<Option<&'a str>>,
    pub(super) bytes: Vec<i64>,
}

impl<'a> Chunks<'a> {
    pub(super) fn add(&mut self, chunk: &'a NewChunk) {
        self.trees.push(chunk.tree.0);
        self.runs.push(chunk.run.0);
        self.threads.push(chunk.thread.0);
        self.epochs.push(chunk.epoch);
        self.firsts.push(chunk.first);
        self.lasts.push(chunk.last);
        self.checkpoints.push(chunk.checkpoint.map(|id| id.0));
        self.frames.push(&chunk.frames);
        self.temporary.push(chunk.temporary);
        self.principals.push(chunk.principal.as_deref());
        self.bytes.push(chunk.bytes());
    }
}

pub(super) async fn chunks_of_run(db: &Object, run: RunId, after: i64) -> Result<Vec<LogChunk>> {
    let params: [&(dyn ToSql + Sync); 4] = [&run.0, &after, &READ_CHUNKS, &READ_BYTES];
    all(db, OF_RUN, &params, chunk_of).await
}

pub(super) async fn chunks_of_thread(
    db: &Object,
    thread: ThreadId,
    after: i64,
) -> Result<Vec<LogChunk>> {
    let params: [&(dyn ToSql + Sync); 4] = [&thread.0, &after, &READ_CHUNKS, &READ_BYTES];
    all(db, OF_THREAD, &params, chunk_of).await
}

pub(super) async fn ended_run(db: &Object, run: RunId) -> Result<Option<TemporaryRun>> {
    let key: [&(dyn ToSql + Sync); 1] = [&run.0];
    one(db, ENDED, &key, |row| {
        Ok(TemporaryRun {
            thread: ThreadId(column(row, "thread_id")?),
            principal: column::<Option<&str>>(row, "principal")?.map(Into::into),
            error: column::<Option<JsonText>>(row, "error")?
                .map(|json| json.value())
                .transpose()?,
            result: column::<Option<&str>>(row, "result")?
                .map(stored_result)
                .transpose()?,
        })
    })
    .await
}

fn stored_result(text: &str) -> Result<Value, Error> {
    Value::from_json_slice(text.as_bytes())
        .map_err(|error| Error::Corrupt(format!("the result of a run: {error}")))
}

pub(super) async fn end_of_run(db: &Object, run: RunId) -> Result<i64> {
    let key: [&(dyn ToSql + Sync); 1] = [&run.0];
    let last = one(db, END_OF_RUN, &key, |row| column(row, "last_seq"));
    Ok(last.await?.unwrap_or(0))
}

pub(super) async fn thread_position(db: &Object, thread: ThreadId) -> Result<i64> {
    let key: [&(dyn ToSql + Sync); 1] = [&thread.0];
    let last = one(db, POSITION, &key, |row| column(row, "last"));
    Ok(last.await?.unwrap_or(0))
}

pub(super) async fn thread_start(db: &Object, thread: ThreadId) -> Result<i64> {
    let key: [&(dyn ToSql + Sync); 1] = [&thread.0];
    let first = one(db, START, &key, |row| column(row, "first"));
    Ok(first.await?.unwrap_or(0))
}

pub(super) async fn trim_run(db: &Object, run: RunId, before: i64) -> Result<()> {
    let statement = prepare(db, TRIM).await?;
    db.execute(&statement, &[&run.0, &before]).await?;
    Ok(())
}

pub(super) async fn trim_principal(
    db: &Object,
    principal: &Arc<str>,
    most: i64,
    limit: usize,
) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let statement = prepare(db, TRIM_PRINCIPAL).await?;
    let params: [&(dyn ToSql + Sync); 3] = [&&**principal, &most, &limit];
    Ok(db.execute(&statement, &params).await?)
}

pub(super) async fn sweep_log(db: &Object, age: Duration, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sweep = prepare(db, SWEEP).await?;
    let old = db.execute(&sweep, &[&age.as_secs_f64(), &limit]).await?;
    let sweep = prepare(db, SWEEP_ENDED).await?;
    let params: [&(dyn ToSql + Sync); 2] = [&ENDED_AGE.as_secs_f64(), &limit];
    let ended = db.execute(&sweep, &params).await?;
    let runs = prepare(db, SWEEP_RUNS).await?;
    db.execute(&runs, &params).await?;
    Ok(old + ended)
}

fn chunk_of(row: &Row) -> Result<LogChunk, Error> {
    Ok(LogChunk {
        run: RunId(column(row, "run_id")?),
        first: column(row, "first_seq")?,
        last: column(row, "last_seq")?,
        position: column(row, "position")?,
        frames: column(row, "frames")?,
    })
}

statements!(
    APPEND,
    OF_RUN,
    OF_THREAD,
    END_OF_RUN,
    POSITION,
    START,
    TRIM,
    TRIM_PRINCIPAL,
    SWEEP,
    SWEEP_ENDED,
    ENDED,
    SWEEP_RUNS
);
