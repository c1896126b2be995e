//! Runs: created, claimed, ended. Each call is one transaction.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Store, purge,
    row::{id, id_if, json_if, json_map, map_text, parsed, unreadable},
    threads,
};
use crate::{
    checkpoint::{Error, Slot, codec},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId, WorkerId},
    runs::{self, Claimed, Created, Finish, NewRun, Run, Status, Strategy},
    time::Timestamp,
    value::{Map, Value},
};

macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, \
             r.metadata, r.type, r.kwargs, r.address, r.strategy, r.attempt, r.temporary, \
             r.error, r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at ",
            $($rest),+
        )
    };
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let tag = row.get_ref(7)?.as_str()?;
    let kwargs = codec::decode(tag, row.get_ref(8)?.as_blob()?)
        .map_err(|why| unreadable(8, why.to_string()))?;
    Ok(Run {
        id: id(row, 0)?,
        tree: id(row, 1)?,
        thread: id(row, 2)?,
        branch: id_if(row, 3)?,
        assistant: id(row, 4)?,
        status: parsed::<Status>(row, 5)?,
        metadata: json_map(row, 6)?,
        kwargs,
        address: id_if(row, 9)?,
        strategy: strategy(row, 10)?,
        attempt: row.get(11)?,
        temporary: row.get(12)?,
        error: json_if(row, 13)?,
        last_checkpoint: id_if(row, 14)?,
        run_at: Timestamp(row.get(15)?),
        created_at: Timestamp(row.get(16)?),
        updated_at: Timestamp(row.get(17)?),
    })
}

fn strategy(row: &Row<'_>, column: usize) -> rusqlite::Result<Strategy> {
    let word = row.get_ref(column)?.as_str()?;
    [
        Strategy::Reject,
        Strategy::Enqueue,
        Strategy::Interrupt,
        Strategy::Rollback,
    ]
    .into_iter()
    .find(|strategy| strategy.as_str() == word)
    .ok_or_else(|| unreadable(column, format!("`{word}` is not a multitask strategy")))
}

#[async_trait]
impl runs::Store for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        let kwargs = codec::encode(&new.kwargs);
        self.writer
            .submit(move |db| create(db, new, &kwargs, Timestamp::now()))
            .await
    }

    async fn claim(&self, worker: WorkerId, limit: usize) -> Result<Vec<Claimed>, Error> {
        self.writer
            .submit(move |db| claim(db, worker, limit, Timestamp::now()))
            .await
    }

    async fn finish(&self, finish: Finish) -> Result<(), Error> {
        self.writer
            .submit(move |db| end_well(db, &finish, Timestamp::now()))
            .await
    }

    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        self.readers
            .read(move |db| {
                Ok(db
                    .prepare_cached(select!(
                        "FROM runs r WHERE r.run_id = ?1 AND r.thread_id = ?2"
                    ))?
                    .query_row(params![run.0.as_bytes(), thread.0.as_bytes()], read_run)
                    .optional()?)
            })
            .await
    }

    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error> {
        self.readers
            .read(move |db| {
                let mut statement = db.prepare_cached(select!(
                    "FROM runs r WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
                     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
                ))?;
                let rows = statement.query_map(
                    params![
                        thread.0.as_bytes(),
                        status.map(Status::as_str),
                        i64::try_from(limit).unwrap_or(i64::MAX),
                        i64::try_from(offset).unwrap_or(i64::MAX),
                    ],
                    read_run,
                )?;
                rows.map(|row| row.map_err(Error::from)).collect()
            })
            .await
    }

    async fn cancel(&self, thread: ThreadId, run: Option<RunId>) -> Result<Vec<RunId>, Error> {
        self.writer
            .submit(move |db| {
                let now = Timestamp::now();
                let mut ended = Vec::new();
                for open in open_runs(db, thread, None)? {
                    if run.is_none_or(|run| run == open.run) {
                        interrupt(db, &open, true, now)?;
                        ended.push(open.run);
                    }
                }
                Ok(ended)
            })
            .await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                db.prepare_cached(
                    "INSERT INTO workers (worker_id, lease_until) VALUES (?1, ?2) \
                     ON CONFLICT DO UPDATE SET lease_until = excluded.lease_until",
                )?
                .execute(params![
                    worker.0.as_bytes(),
                    later(Timestamp::now(), lease).0
                ])?;
                Ok(())
            })
            .await
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                db.prepare_cached("DELETE FROM workers WHERE worker_id = ?1")?
                    .execute([worker.0.as_bytes()])?;
                Ok(())
            })
            .await
    }

    async fn recover(&self, me: WorkerId) -> Result<Vec<RunId>, Error> {
        self.writer
            .submit(move |db| recover(db, me, Timestamp::now()))
            .await
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp(time.0.saturating_add(micros))
}

/// A run that is pending or running, and the slot it contends for.
struct Open {
    run: RunId,
    running: bool,
    tree: TreeId,
    thread: ThreadId,
    branch: BranchId,
    base: Option<CheckpointId>,
}

/// Pending and running runs of a thread, or of one slot of it, in order of creation.
fn open_runs(
    db: &Connection,
    thread: ThreadId,
    branch: Option<BranchId>,
) -> Result<Vec<Open>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT r.run_id, r.status = 'running', r.tree_id, \
                coalesce(r.branch_id, t.active_branch_id), r.base_checkpoint_id \
           FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id \
            AND r.status IN ('pending', 'running') \
          WHERE t.thread_id = ?1 \
            AND (?2 IS NULL OR coalesce(r.branch_id, t.active_branch_id) = ?2) \
          ORDER BY r.seq",
    )?;
    let rows = statement.query_map(
        params![
            thread.0.as_bytes(),
            branch.as_ref().map(|id| id.0.as_bytes())
        ],
        |row| {
            Ok(Open {
                run: id(row, 0)?,
                running: row.get(1)?,
                tree: id(row, 2)?,
                thread,
                branch: id(row, 3)?,
                base: id_if(row, 4)?,
            })
        },
    )?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

/// Ends a run from outside. Its worker, if it has one, is fenced off. The branch is marked
/// interrupted when the run moved it and its work is kept.
fn interrupt(db: &Connection, open: &Open, keep: bool, now: Timestamp) -> Result<(), Error> {
    let head: Option<CheckpointId> = if open.running {
        db.prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1, updated_at = ?3, \
             error = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN error END, \
             outcome = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN outcome \
               ELSE 'interrupted' END \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING head_checkpoint_id",
        )?
        .query_row(
            params![
                open.tree.0.as_bytes(),
                open.branch.0.as_bytes(),
                now.0,
                open.base.as_ref().map(|id| id.0.as_bytes()),
                keep,
            ],
            |row| id_if(row, 0),
        )?
    } else {
        None
    };
    db.prepare_cached(
        "UPDATE runs SET status = 'interrupted', last_checkpoint_id = ?2, updated_at = ?3 \
         WHERE run_id = ?1 AND status IN ('pending', 'running')",
    )?
    .execute(params![
        open.run.0.as_bytes(),
        head.as_ref().map(|id| id.0.as_bytes()),
        now.0,
    ])?;
    Ok(())
}

/// Ends the run that holds a slot, if one does.
pub(super) fn end_running(db: &Connection, slot: &Slot, now: Timestamp) -> Result<(), Error> {
    for open in open_runs(db, slot.thread, Some(slot.branch))? {
        if open.running {
            interrupt(db, &open, true, now)?;
        }
    }
    Ok(())
}

/// Undoes what an interrupted run wrote. A branch it created goes, and the branch it came from
/// is active again.
fn undo(db: &Connection, open: &Open) -> Result<(), Error> {
    let tree = open.tree.0.as_bytes();
    let branch = open.branch.0.as_bytes();
    let created: Option<(BranchId, Option<[u8; 16]>)> = db
        .prepare_cached(
            "SELECT s.branch_id, b.head_checkpoint_id FROM branches b JOIN branches s \
               ON s.tree_id = b.tree_id AND s.branch_id = b.source_branch_id \
             WHERE b.tree_id = ?1 AND b.branch_id = ?2 AND b.run_id = ?3",
        )?
        .query_row(params![tree, branch, open.run.0.as_bytes()], |row| {
            Ok((id(row, 0)?, row.get(1)?))
        })
        .optional()?;
    let Some((source, head)) = created else {
        return purge::roll_back(db, open.tree, open.branch, open.base);
    };
    db.prepare_cached(
        "UPDATE threads SET active_branch_id = ?1 WHERE thread_id = ?2 AND active_branch_id = ?3",
    )?
    .execute(params![
        source.0.as_bytes(),
        open.thread.0.as_bytes(),
        branch
    ])?;
    // Runs that waited behind it on the new branch float again.
    db.prepare_cached(
        "UPDATE runs SET branch_id = NULL WHERE tree_id = ?1 AND branch_id = ?2 \
         AND status = 'pending' AND thread_id = ?3",
    )?
    .execute(params![tree, branch, open.thread.0.as_bytes()])?;
    db.prepare_cached("DELETE FROM branches WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, branch])?;
    let base = open.base.as_ref().map(|id| id.0.as_bytes());
    if head.as_ref() == base {
        return Ok(());
    }
    purge::unpinned(db, open.tree, head, base)
}

fn create(db: &Connection, new: NewRun, kwargs: &[u8], now: Timestamp) -> Result<Created, Error> {
    let exists = db
        .prepare_cached("SELECT 1 FROM runs WHERE run_id = ?1")?
        .exists([new.id.0.as_bytes()])?;
    if exists {
        return Ok(Created::Exists);
    }
    let mut slot = match threads::slot(db, new.thread)? {
        Some(slot) => slot,
        None => {
            let Some(thread) = &new.create_thread else {
                return Ok(Created::NoThread);
            };
            if threads::is_taken(db, new.thread)? {
                // The tombstone of a deleted thread.
                return Ok(Created::NoThread);
            }
            threads::insert(db, new.thread, thread, now)?;
            match threads::slot(db, new.thread)? {
                Some(slot) => slot,
                None => return Ok(Created::NoThread),
            }
        }
    };
    let mut others = open_runs(db, new.thread, Some(slot.branch))?;
    match new.strategy {
        Strategy::Reject if !others.is_empty() => return Ok(Created::Busy),
        Strategy::Reject | Strategy::Enqueue => {}
        Strategy::Interrupt | Strategy::Rollback => {
            // Undoing a run may change which slot is meant.
            while !others.is_empty() {
                let keep = new.strategy == Strategy::Interrupt;
                for open in &others {
                    interrupt(db, open, keep, now)?;
                    if open.running && !keep {
                        undo(db, open)?;
                    }
                }
                match threads::slot(db, new.thread)? {
                    Some(next) => slot = next,
                    None => return Ok(Created::NoThread),
                }
                others = open_runs(db, new.thread, Some(slot.branch))?;
            }
        }
    }
    merge_into_thread(db, &new, now)?;
    let claim = new
        .claim
        .filter(|_| others.is_empty() && new.after.is_zero());
    let mut run = Run {
        id: new.id,
        tree: slot.tree,
        thread: new.thread,
        branch: None,
        assistant: new.assistant,
        status: Status::Pending,
        metadata: new.metadata,
        kwargs: new.kwargs,
        address: new.address,
        strategy: new.strategy,
        attempt: 0,
        temporary: new.temporary,
        error: None,
        last_checkpoint: None,
        run_at: later(now, new.after),
        created_at: now,
        updated_at: now,
    };
    if claim.is_some() {
        slot.epoch = threads::raise_epoch(db, slot.tree, slot.branch)?;
        run.branch = Some(slot.branch);
        run.status = Status::Running;
        run.attempt = 1;
    }
    let held = claim.map(|worker| (worker, &slot));
    insert(db, &run, kwargs, held)?;
    Ok(match claim {
        Some(_) => Created::Started(Box::new(run), slot),
        None => Created::Queued(Box::new(run)),
    })
}

fn insert(
    db: &Connection,
    run: &Run,
    kwargs: &[u8],
    held: Option<(WorkerId, &Slot)>,
) -> Result<(), Error> {
    let base = held.and_then(|(_, slot)| slot.head);
    db.prepare_cached(
        "INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, \
         temporary, address, base_checkpoint_id, epoch, worker_id, attempt, run_at, created_at, \
         updated_at, metadata, type, kwargs) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16, ?17, \
         ?18)",
    )?
    .execute(params![
        run.tree.0.as_bytes(),
        run.id.0.as_bytes(),
        run.thread.0.as_bytes(),
        run.branch.as_ref().map(|id| id.0.as_bytes()),
        run.assistant.0.as_bytes(),
        run.status.as_str(),
        run.strategy.as_str(),
        run.temporary,
        run.address.as_ref().map(|id| id.0.as_bytes()),
        base.as_ref().map(|id| id.0.as_bytes()),
        held.map(|(_, slot)| slot.epoch),
        held.as_ref().map(|(worker, _)| worker.0.as_bytes()),
        run.attempt,
        run.run_at.0,
        run.created_at.0,
        map_text(&run.metadata),
        codec::BINCODE,
        kwargs,
    ])?;
    Ok(())
}

/// Top level keys; nothing is written when nothing changes.
fn merge_into_thread(db: &Connection, new: &NewRun, now: Timestamp) -> Result<(), Error> {
    if new.thread_metadata.is_empty() && new.thread_config.is_empty() {
        return Ok(());
    }
    let (mut metadata, mut config) = db
        .prepare_cached("SELECT metadata, config FROM threads WHERE thread_id = ?1")?
        .query_row([new.thread.0.as_bytes()], |row| {
            Ok((json_map(row, 0)?, json_map(row, 1)?))
        })?;
    let changed =
        merge(&mut metadata, &new.thread_metadata) | merge(&mut config, &new.thread_config);
    if changed {
        db.prepare_cached(
            "UPDATE threads SET metadata = ?1, config = ?2, updated_at = ?3 WHERE thread_id = ?4",
        )?
        .execute(params![
            map_text(&metadata),
            map_text(&config),
            now.0,
            new.thread.0.as_bytes()
        ])?;
    }
    Ok(())
}

fn merge(into: &mut Map, from: &Map) -> bool {
    let mut changed = false;
    for (key, value) in from {
        if into.get(key) != Some(value) {
            into.insert(key.clone(), value);
            changed = true;
        }
    }
    changed
}

fn claim(
    db: &Connection,
    worker: WorkerId,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Claimed>, Error> {
    let waiting: Vec<(Run, Slot)> = db
        .prepare_cached(select!(
            ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth FROM runs r \
             JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
             JOIN branches b ON b.tree_id = r.tree_id \
              AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
             WHERE r.status = 'pending' AND r.run_at <= ?1 AND NOT EXISTS ( \
               SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id \
                  AND o.status IN ('pending', 'running') \
                  AND coalesce(o.branch_id, t.active_branch_id) = b.branch_id \
                  AND (o.status = 'running' OR o.seq < r.seq)) \
             ORDER BY r.run_at, r.seq LIMIT ?2"
        ))?
        .query_map(
            params![now.0, i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| {
                let run = read_run(row)?;
                let slot = Slot {
                    tree: run.tree,
                    thread: run.thread,
                    branch: id(row, 18)?,
                    epoch: row.get(19)?,
                    head: id_if(row, 20)?,
                    head_depth: row.get(21)?,
                };
                Ok((run, slot))
            },
        )?
        .collect::<Result<_, _>>()?;
    let mut claimed = Vec::with_capacity(waiting.len());
    for (mut run, mut slot) in waiting {
        slot.epoch = threads::raise_epoch(db, slot.tree, slot.branch)?;
        db.prepare_cached(
            "UPDATE runs SET status = 'running', branch_id = ?2, epoch = ?3, worker_id = ?4, \
             attempt = attempt + 1, base_checkpoint_id = coalesce(base_checkpoint_id, ?5), \
             updated_at = ?6 WHERE run_id = ?1",
        )?
        .execute(params![
            run.id.0.as_bytes(),
            slot.branch.0.as_bytes(),
            slot.epoch,
            worker.0.as_bytes(),
            slot.head.as_ref().map(|id| id.0.as_bytes()),
            now.0,
        ])?;
        run.status = Status::Running;
        run.branch = Some(slot.branch);
        run.attempt += 1;
        run.updated_at = now;
        claimed.push(Claimed { run, slot });
    }
    Ok(claimed)
}

fn end_well(db: &Connection, finish: &Finish, now: Timestamp) -> Result<(), Error> {
    let slot = &finish.slot;
    threads::settle(db, slot, finish.outcome, finish.error.as_ref(), now)?;
    let ended = db
        .prepare_cached(
            "UPDATE runs SET status = ?2, last_checkpoint_id = ?3, error = ?4, updated_at = ?5 \
             WHERE run_id = ?1 AND status = 'running' AND epoch = ?6",
        )?
        .execute(params![
            finish.run.0.as_bytes(),
            finish.status.as_str(),
            slot.head.as_ref().map(|id| id.0.as_bytes()),
            finish.error.as_ref().map(Value::to_json),
            now.0,
            slot.epoch,
        ])?;
    if ended == 0 {
        return Err(Error::Fenced);
    }
    if finish.delete_thread {
        return purge::thread(db, slot.tree, slot.thread);
    }
    if let Some(head) = slot.head {
        db.prepare_cached(
            "UPDATE message_nodes SET settled_checkpoint_id = ?2 WHERE tree_id = ?1 \
             AND node_id = (SELECT last_node_id FROM checkpoints \
               WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2) \
             AND run_id = ?3",
        )?
        .execute(params![
            slot.tree.0.as_bytes(),
            head.0.as_bytes(),
            finish.run.0.as_bytes(),
        ])?;
    }
    Ok(())
}

/// One process uses a database, so whatever another one left `running` is dead.
fn recover(db: &Connection, me: WorkerId, now: Timestamp) -> Result<Vec<RunId>, Error> {
    let error = Value::map(Map::from([
        ("error", Value::str("WorkerLost")),
        (
            "message",
            Value::str("the process that executed this run ended before the run did"),
        ),
    ]))
    .to_json();
    db.prepare_cached(
        "UPDATE branches SET writer_epoch = writer_epoch + 1, outcome = 'error', error = ?2, \
         updated_at = ?3 WHERE (tree_id, branch_id) IN (SELECT tree_id, branch_id FROM runs \
           WHERE status = 'running' AND worker_id IS NOT ?1)",
    )?
    .execute(params![me.0.as_bytes(), error, now.0])?;
    let lost = db
        .prepare_cached(
            "UPDATE runs SET status = 'error', error = ?2, updated_at = ?3, \
             last_checkpoint_id = (SELECT b.head_checkpoint_id FROM branches b \
               WHERE b.tree_id = runs.tree_id AND b.branch_id = runs.branch_id) \
             WHERE status = 'running' AND worker_id IS NOT ?1 RETURNING run_id",
        )?
        .query_map(params![me.0.as_bytes(), error, now.0], |row| id(row, 0))?
        .collect::<Result<_, _>>()?;
    db.prepare_cached("DELETE FROM workers WHERE worker_id <> ?1")?
        .execute([me.0.as_bytes()])?;
    Ok(lost)
}
