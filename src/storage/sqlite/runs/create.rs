//! A new run: what it does to others of its slot, and whether it starts at once.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::{
    super::{
        branches::has_checkpoint,
        columns::{json_map, map_text},
        events,
        threads::{
            create::{insert as insert_thread, is_free},
            slots::{raise_epoch, slot as slot_of},
        },
        tree::level,
    },
    cancel::interrupt,
    open_runs::open_runs,
    undo::roll_back,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{ThreadId, WorkerId},
    runs::{
        Created, CreatedBatch, NewRun, Run, Status, Strategy,
        request::{
            codec::{self as request_codec, Encoded},
            identity,
        },
        transitions::run_events,
    },
    time::Timestamp,
    value::{Map, Value},
};

/// A thread on which nothing has happened after an event.
const UNCHANGED: &str = "SELECT 1 FROM threads WHERE thread_id = ?1 AND last_event_number = ?2";

pub(in super::super) fn create(
    db: &Connection,
    new: NewRun,
    kwargs: &Encoded,
    now: Timestamp,
) -> Result<Created, Error> {
    let exists = db
        .prepare_cached("SELECT 1 FROM runs WHERE run_id = ?1")?
        .exists([new.id.0.as_bytes()])?;
    let mut slot = match slot_of(db, new.thread, new.branch)? {
        Some(slot) => slot,
        None => {
            let Some(thread) = &new.create_thread else {
                return Ok(Created::NoThread);
            };
            if exists {
                return Ok(Created::Exists);
            }
            if !is_free(db, new.thread)? {
                // The tombstone of a deleted thread whose rows others need.
                return Ok(Created::NoThread);
            }
            insert_thread(db, new.thread, thread, !new.temporary, now)?;
            match slot_of(db, new.thread, new.branch)? {
                Some(slot) => slot,
                None => return Ok(Created::NoThread),
            }
        }
    };
    if let Some(principal) = new.access.principal() {
        let level = level(db, slot.tree, principal)?;
        if let Err(denied) = new.access.check(new.thread, level) {
            return Ok(Created::Denied(denied));
        }
    }
    if exists {
        return Ok(Created::Exists);
    }
    // The ends of others will change the thread.
    if let Some(number) = new.unchanged_since
        && !db
            .prepare_cached(UNCHANGED)?
            .exists(params![new.thread.0.as_bytes(), number])?
    {
        return Ok(Created::Changed);
    }
    if matches!(new.strategy, Strategy::Interrupt | Strategy::Rollback) {
        match end_others(db, &new, slot, now)? {
            Some(next) => slot = next,
            None => return Ok(Created::NoThread),
        }
    }
    // From here on the run's row keeps the checkpoint from being pruned.
    if let Some(id) = new.address
        && !has_checkpoint(db, slot.tree, id)?
    {
        return Err(Error::Pruned(id));
    }
    let (executes, queued) = queue_of(db, new.thread, &slot, new.max_queued)?;
    let taken = executes || queued > 0;
    if taken && new.strategy == Strategy::Reject {
        return Ok(Created::Busy);
    }
    if queued >= new.max_queued {
        return Ok(Created::QueueFull(new.max_queued));
    }
    let (inherited, thread_user) = merge_into_thread(db, &new, now)?;
    let added = if inherited.is_empty() {
        request_codec::own_metadata(&new.metadata, &new.kwargs)
    } else {
        Some(&inherited)
    };
    let stored = request_codec::stored_metadata(added, &new.kwargs, kwargs.bytes.len()).to_json();
    let webhook = new.webhook();
    let claim = new.claim.filter(|_| !taken && new.after.is_zero());
    let (mut metadata, mut request) = (new.metadata, new.kwargs);
    if !inherited.is_empty() {
        metadata = request_codec::metadata(&Value::map(inherited), &mut request);
    }
    let user = thread_user.as_ref().map(Value::to_json);
    if let Some(user) = thread_user {
        identity::inherit_user(&mut request, user);
    }
    let mut run = Run {
        id: new.id,
        tree: slot.tree,
        thread: new.thread,
        branch: new.branch,
        assistant: new.assistant,
        status: Status::Pending,
        metadata,
        kwargs: request,
        address: new.address,
        base: None,
        strategy: new.strategy,
        attempt: 0,
        temporary: new.temporary,
        principal: new.access.principal().cloned(),
        error: None,
        last_checkpoint: None,
        run_at: later(now, new.after),
        created_at: now,
        updated_at: now,
    };
    if claim.is_some() {
        slot.epoch = raise_epoch(db, slot.tree, slot.branch)?;
        run.branch = Some(slot.branch);
        run.status = Status::Running;
        run.base = slot.head;
        run.attempt = 1;
    }
    let claimed = claim.map(|worker| (worker, &slot));
    insert(db, &run, (stored, kwargs, user), webhook, claimed, taken)?;
    if !run.temporary {
        let mut events = vec![run_events::enqueued(run.id, run.branch)];
        if claim.is_some() {
            events.push(run_events::started(run.id, slot.branch));
        }
        events::append(db, run.tree, run.thread, &events, now)?;
    }
    Ok(match claim {
        Some(_) => Created::Started(Box::new(run), slot),
        None => Created::Queued(Box::new(run)),
    })
}

/// Ends the other runs of the slot, and returns the slot that the run has then: rolling a run back
/// may make another branch active.
fn end_others(
    db: &Connection,
    new: &NewRun,
    mut slot: Slot,
    now: Timestamp,
) -> Result<Option<Slot>, Error> {
    loop {
        let others = open_runs(db, new.thread, Some(slot.branch))?;
        if others.is_empty() {
            return Ok(Some(slot));
        }
        let keep = new.strategy == Strategy::Interrupt;
        for open in &others {
            interrupt(db, open, keep, now)?;
        }
        for open in others.iter().filter(|_| !keep) {
            if open.is_running() {
                roll_back(db, open, now)?;
            }
            db.prepare_cached("DELETE FROM runs WHERE run_id = ?1")?
                .execute([open.id.0.as_bytes()])?;
        }
        match slot_of(db, new.thread, new.branch)? {
            Some(next) => slot = next,
            None => return Ok(None),
        }
    }
}

/// [`create`], of which nothing stays where the run is refused: neither a thread that was made for it, nor the ends of
/// other runs.
pub(in super::super) fn create_or_nothing(
    db: &Connection,
    new: NewRun,
    kwargs: &Encoded,
    now: Timestamp,
) -> Result<Created, Error> {
    let execute = |sql| -> Result<usize, Error> { Ok(db.prepare_cached(sql)?.execute([])?) };
    execute("SAVEPOINT run")?;
    let created = create(db, new, kwargs, now)?;
    if !matches!(created, Created::Started(..) | Created::Queued(_)) {
        execute("ROLLBACK TO run")?;
    }
    execute("RELEASE run")?;
    Ok(created)
}

/// See [`runs::Store::create_runs`](crate::runs::Store::create_runs).
pub(in super::super) fn create_all(
    db: &Connection,
    new: Vec<(Encoded, NewRun)>,
    now: Timestamp,
) -> Result<CreatedBatch, Error> {
    let mut all = Vec::with_capacity(new.len());
    db.execute_batch("SAVEPOINT batch")?;
    for (at, (kwargs, new)) in new.into_iter().enumerate() {
        match create(db, new, &kwargs, now)? {
            created @ (Created::Started(..) | Created::Queued(_)) => all.push(created),
            refused => {
                // Those before it go too.
                db.execute_batch("ROLLBACK TO batch; RELEASE batch")?;
                return Ok(CreatedBatch::None(at, refused));
            }
        }
    }
    db.execute_batch("RELEASE batch")?;
    Ok(CreatedBatch::All(all))
}

/// How many runs wait in a slot, and whether one is executed there.
pub(super) const QUEUE: &str = "SELECT \
     EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = ?1 AND o.thread_id = ?2 AND o.branch_id = ?3 \
       AND o.status = 'running'), \
     (SELECT count(*) FROM (SELECT 1 FROM runs o INDEXED BY runs_waiting WHERE o.thread_id = ?2 \
       AND o.branch_id = ?3 AND o.status = 'pending' LIMIT ?4)) \
     + (SELECT count(*) FROM (SELECT 1 FROM runs o INDEXED BY runs_waiting WHERE o.thread_id = ?2 \
       AND o.branch_id IS NULL AND o.status = 'pending' \
       AND ?3 = (SELECT t.active_branch_id FROM threads t WHERE t.thread_id = ?2) LIMIT ?4))";

fn queue_of(
    db: &Connection,
    thread: ThreadId,
    slot: &Slot,
    most: usize,
) -> Result<(bool, usize), Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(QUEUE)?;
    let slot = params![
        slot.tree.0.as_bytes(),
        thread.0.as_bytes(),
        slot.branch.0.as_bytes(),
        most,
    ];
    let (executes, queued): (bool, i64) =
        statement.query_row(slot, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((executes, usize::try_from(queued).unwrap_or(usize::MAX)))
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp(time.0.saturating_add(micros))
}

fn insert(
    db: &Connection,
    run: &Run,
    (metadata, kwargs, thread_user): (String, &Encoded, Option<String>),
    webhook: Option<String>,
    claimed: Option<(WorkerId, &Slot)>,
    behind: bool,
) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, \
         temporary, address, base_checkpoint_id, epoch, worker_id, attempt, run_at, created_at, \
         updated_at, metadata, type, kwargs, principal, behind, webhook, started_at, thread_user) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16, ?17, \
         ?18, ?19, ?20, ?21, ?22, ?23)",
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
        run.base.as_ref().map(|id| id.0.as_bytes()),
        claimed.map(|(_, slot)| slot.epoch),
        claimed.as_ref().map(|(worker, _)| worker.0.as_bytes()),
        run.attempt,
        run.run_at.0,
        run.created_at.0,
        metadata,
        kwargs.tag,
        kwargs.bytes,
        run.principal,
        behind,
        webhook,
        claimed.map(|_| run.created_at.0),
        thread_user,
    ])?;
    Ok(())
}

/// Merges top level keys into the thread's metadata and config; nothing is written when nothing
/// changes. Returns the metadata and the user that the run inherits from the thread.
fn merge_into_thread(
    db: &Connection,
    new: &NewRun,
    now: Timestamp,
) -> Result<(Map, Option<Value>), Error> {
    if new.thread_metadata.is_empty()
        && new.thread_config.is_empty()
        && new.own_metadata.is_none()
        && !new.inherits_user
    {
        return Ok((Map::new(), None));
    }
    let (mut metadata, mut config) = db
        .prepare_cached("SELECT metadata, config FROM threads WHERE thread_id = ?1")?
        .query_row([new.thread.0.as_bytes()], |row| {
            Ok((json_map(row, 0)?, json_map(row, 1)?))
        })?;
    let mut inherited = Map::new();
    if let Some(own) = &new.own_metadata {
        inherited.clone_from(&metadata);
        inherited.retain(|key, _| !own.contains(key));
    }
    let user = identity::user_of_thread(&config).cloned();
    let user = user.filter(|_| new.inherits_user);
    let mut collected = new.thread_config.clone();
    if let Some(own) = config.get("configurable").and_then(Value::as_map)
        && let Some(all) = collected
            .get_mut("configurable")
            .and_then(Value::make_map_mut)
    {
        all.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    let changed = merge(&mut metadata, &new.thread_metadata) | merge(&mut config, &collected);
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
    Ok((inherited, user))
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
