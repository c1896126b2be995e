//! The log of streams that can be resumed.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, Row, params};

use super::columns::{all, id, json_if, one};
use crate::{
    checkpoint::{Result, Slot},
    id::{RunId, ThreadId},
    stream::log::{ENDED_AGE, LogChunk, NewChunk, READ_BYTES, READ_CHUNKS, TemporaryRun},
    time::Timestamp,
};

/// A run that is executed under this epoch.
const OWNED: &str = "SELECT 1 FROM runs WHERE run_id = ?1 AND status = 'running' AND epoch = ?2";

const WRITTEN: &str = "SELECT position FROM run_events WHERE run_id = ?1 AND first_seq = ?2";

const ADVANCE: &str = "INSERT INTO stream_positions (thread_id, tree_id, last, added, first) \
     VALUES (?1, ?2, ?3 + ?4, ?4, ?3) ON CONFLICT (thread_id, tree_id) DO UPDATE \
     SET last = last + excluded.added, added = excluded.added RETURNING last";

const APPEND: &str = "INSERT INTO run_events (run_id, first_seq, tree_id, last_seq, thread_id, \
     position, checkpoint_id, frames, temporary, created_at, principal, bytes) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// The chunk that begins last before a number may have the frame behind it; those before that one end earlier.
pub(super) const OF_RUN: &str = "SELECT run_id, first_seq, last_seq, position, frames FROM ( \
     SELECT e.*, sum(length(frames)) OVER (ORDER BY first_seq) - length(frames) AS before FROM ( \
     SELECT * FROM run_events WHERE run_id = ?1 AND last_seq > ?2 AND NOT superseded \
     AND first_seq >= coalesce((SELECT b.first_seq FROM run_events b \
       WHERE b.run_id = ?1 AND b.first_seq <= ?2 ORDER BY b.first_seq DESC LIMIT 1), ?2) ORDER BY first_seq LIMIT ?3) e) WHERE before < ?4 ORDER BY first_seq";

pub(super) const OF_THREAD: &str = "SELECT run_id, first_seq, last_seq, position, frames FROM ( \
     SELECT e.*, sum(length(frames)) OVER (ORDER BY position) - length(frames) AS before FROM ( \
     SELECT * FROM run_events INDEXED BY run_events_thread WHERE thread_id = ?1 \
     AND position + last_seq - first_seq > ?2 AND NOT superseded \
     AND position >= coalesce((SELECT b.position FROM run_events b INDEXED BY run_events_thread \
       WHERE b.thread_id = ?1 AND b.position <= ?2 ORDER BY b.position DESC LIMIT 1), ?2) ORDER BY position LIMIT ?3) e) WHERE before < ?4 ORDER BY position";

const END_OF_RUN: &str =
    "SELECT last_seq FROM run_events WHERE run_id = ?1 ORDER BY first_seq DESC LIMIT 1";

const POSITION: &str = "SELECT last FROM stream_positions WHERE thread_id = ?1";

const START: &str = "SELECT first FROM stream_positions WHERE thread_id = ?1";

const TRIM: &str = "DELETE FROM run_events WHERE run_id = ?1 AND last_seq < ?2";

/// From the oldest chunk on until what the others have is no more than the share.
const TRIM_PRINCIPAL: &str = "DELETE FROM run_events WHERE rowid IN ( \
     SELECT x.id FROM ( \
       SELECT c.id, c.excess, sum(c.bytes) OVER (ORDER BY c.created_at, c.bytes ROWS UNBOUNDED PRECEDING) - c.bytes AS before FROM ( \
         SELECT n.rowid AS id, n.created_at, n.bytes, o.excess \
           FROM (SELECT sum(s.total) - ?2 AS excess FROM row_counts s WHERE s.kind = 'run_events' AND s.owner = ?1) o \
          CROSS JOIN run_events n INDEXED BY run_events_principal ON o.excess > 0 AND n.principal = ?1 \
          ORDER BY n.created_at LIMIT ?3) c) x \
      WHERE x.before < x.excess)";

const SWEEP: &str = "DELETE FROM run_events WHERE rowid IN ( \
     SELECT rowid FROM run_events INDEXED BY run_events_age WHERE created_at < ?1 LIMIT ?2)";

/// Of runs that have gone with their threads, some time after their end.
const SWEEP_ENDED: &str = "DELETE FROM run_events WHERE rowid IN ( \
     SELECT e.rowid FROM run_events e INDEXED BY run_events_temporary \
      WHERE e.temporary AND e.created_at < ?1 \
      AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = e.run_id) \
      AND (SELECT n.created_at FROM run_events n WHERE n.run_id = e.run_id \
           ORDER BY n.first_seq DESC LIMIT 1) < ?1 LIMIT ?2)";

const ENDED: &str = "SELECT thread_id, principal, error FROM ended_runs WHERE run_id = ?1";

const SWEEP_RUNS: &str = "DELETE FROM ended_runs WHERE (run_id, tree_id) IN ( \
     SELECT run_id, tree_id FROM ended_runs INDEXED BY ended_runs_age WHERE ended_at < ?1 LIMIT ?2)";

/// Frames of an attempt that died and that no checkpoint of the run stands for: those since the head,
/// and all while the head is not the run's own.
const SUPERSEDE: &str = "UPDATE run_events SET superseded = 1 WHERE run_id = ?1 AND NOT superseded \
     AND (?2 IS NULL OR checkpoint_id >= ?2 OR ?1 IS NOT (SELECT c.run_id FROM checkpoints c \
          WHERE c.tree_id = ?3 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?2))";

/// The position of each chunk; `None` where the run is not its writer's any more.
pub(super) fn append_chunks(db: &Connection, chunks: &[NewChunk]) -> Result<Vec<Option<i64>>> {
    let now = Timestamp::now();
    let mut positions = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let is_owned = match chunk.epoch {
            Some(epoch) => db
                .prepare_cached(OWNED)?
                .exists(params![chunk.run, epoch])?,
            None => true,
        };
        positions.push(if is_owned {
            Some(append(db, chunk, now)?)
        } else {
            None
        });
    }
    Ok(positions)
}

/// Appends chunks of a run that this transaction has ended; their positions.
pub(super) fn append_last(
    db: &Connection,
    chunks: &[NewChunk],
    now: Timestamp,
) -> Result<Vec<i64>> {
    chunks.iter().map(|chunk| append(db, chunk, now)).collect()
}

/// The position of a chunk.
fn append(db: &Connection, chunk: &NewChunk, now: Timestamp) -> Result<i64> {
    let run = chunk.run;
    let written = one(db, WRITTEN, params![run, chunk.first], |row| row.get(0))?;
    if let Some(position) = written {
        return Ok(position);
    }
    let count = chunk.last - chunk.first + 1;
    let (thread, tree) = (chunk.thread, chunk.tree);
    let last: i64 = db
        .prepare_cached(ADVANCE)?
        .query_row(params![thread, tree, now.0, count], |row| row.get(0))?;
    let position = last - count + 1;
    db.prepare_cached(APPEND)?.execute(params![
        run,
        chunk.first,
        tree,
        chunk.last,
        thread,
        position,
        chunk.checkpoint,
        &*chunk.frames,
        chunk.temporary,
        now.0,
        chunk.principal.as_deref(),
        chunk.bytes(),
    ])?;
    Ok(position)
}

pub(super) fn chunks_of_run(db: &Connection, run: RunId, after: i64) -> Result<Vec<LogChunk>> {
    let params = params![run, after, READ_CHUNKS, READ_BYTES];
    all(db, OF_RUN, params, read_chunk)
}

pub(super) fn chunks_of_thread(
    db: &Connection,
    thread: ThreadId,
    after: i64,
) -> Result<Vec<LogChunk>> {
    let params = params![thread, after, READ_CHUNKS, READ_BYTES];
    all(db, OF_THREAD, params, read_chunk)
}

pub(super) fn ended_run(db: &Connection, run: RunId) -> Result<Option<TemporaryRun>> {
    one(db, ENDED, [run], |row| {
        Ok(TemporaryRun {
            thread: id(row, 0)?,
            principal: row.get::<_, Option<String>>(1)?.map(Into::into),
            error: json_if(row, 2)?,
            // Nobody waits at another process.
            result: None,
        })
    })
}

pub(super) fn end_of_run(db: &Connection, run: RunId) -> Result<i64> {
    let last = one(db, END_OF_RUN, [run], |row| row.get(0))?;
    Ok(last.unwrap_or(0))
}

pub(super) fn thread_position(db: &Connection, thread: ThreadId) -> Result<i64> {
    let last = one(db, POSITION, [thread], |row| row.get(0))?;
    Ok(last.unwrap_or(0))
}

pub(super) fn thread_start(db: &Connection, thread: ThreadId) -> Result<i64> {
    let first = one(db, START, [thread], |row| row.get(0))?;
    Ok(first.unwrap_or(0))
}

pub(super) fn trim_run(db: &Connection, run: RunId, before: i64) -> Result<()> {
    db.prepare_cached(TRIM)?.execute(params![run, before])?;
    Ok(())
}

pub(super) fn trim_principal(
    db: &Connection,
    principal: &Arc<str>,
    most: i64,
    limit: usize,
) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let removed = db
        .prepare_cached(TRIM_PRINCIPAL)?
        .execute(params![&**principal, most, limit])?;
    Ok(removed as u64)
}

pub(super) fn sweep_log(db: &Connection, age: Duration, limit: usize) -> Result<u64> {
    let now = Timestamp::now();
    let oldest = now.plus_seconds(-age.as_secs_f64());
    let gone = now.plus_seconds(-ENDED_AGE.as_secs_f64());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let old = db
        .prepare_cached(SWEEP)?
        .execute(params![oldest.0, limit])?;
    let ended = db
        .prepare_cached(SWEEP_ENDED)?
        .execute(params![gone.0, limit])?;
    db.prepare_cached(SWEEP_RUNS)?
        .execute(params![gone.0, limit])?;
    Ok((old + ended) as u64)
}

/// Marks the frames that the next attempt of a run sends anew.
pub(super) fn supersede(db: &Connection, slot: &Slot, run: RunId) -> Result<()> {
    db.prepare_cached(SUPERSEDE)?
        .execute(params![run, slot.head, slot.tree])?;
    Ok(())
}

fn read_chunk(row: &Row<'_>) -> rusqlite::Result<LogChunk> {
    Ok(LogChunk {
        run: id(row, 0)?,
        first: row.get(1)?,
        last: row.get(2)?,
        position: row.get(3)?,
        frames: row.get(4)?,
    })
}
