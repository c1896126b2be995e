//! Waiting runs, and runs that others end.

use std::{sync::Arc, time::Duration};

use backstitch::{
    checkpoint::Error,
    id::{RunId, ThreadId, WorkerId},
    runs::{Created, NewRun, QueueClaim, Recover, Recovered, RequestSlots, Slice, Status},
    tree::Outcome,
    value,
    value::Value,
};

use super::backend::*;

/// A claim of runs of any thread by a process that executes none.
pub(super) fn anything(limit: usize) -> QueueClaim {
    QueueClaim {
        worker: WorkerId::mint(),
        limit,
        slots: Default::default(),
        busy: vec![],
        most: usize::MAX,
        freed: vec![],
        search: Some(Slice::first(1000)),
    }
}

/// The runs of a claim, for one thread or a few.
async fn claim(b: &Backend, limit: usize) -> Vec<RunId> {
    let claimed = b.runs.claim(anything(limit)).await.unwrap().runs;
    claimed.iter().map(|claimed| claimed.run.id).collect()
}

pub async fn runs_of_a_slot_are_claimed_one_by_one_in_order(b: &Backend) {
    let thread = b.thread().await;
    let (first, slot) = b.start(new_run(thread)).await;
    let second = b.queue(new_run(thread)).await;
    let third = b.queue(new_run(thread)).await;
    assert!(claim(b, 10).await.is_empty(), "the slot is taken");
    let head = b.line(&slot, None, 1).await[0];
    b.finish(first.id, slot).await;

    let [next] = b
        .runs
        .claim(anything(10))
        .await
        .unwrap()
        .runs
        .try_into()
        .unwrap();
    assert_eq!(next.run.id, second.id);
    assert_eq!((next.run.status, next.run.attempt), (Status::Running, 1));
    assert_eq!(next.run.branch, Some(slot.branch));
    assert_eq!(next.slot.branch, slot.branch);
    assert!(next.slot.epoch > slot.epoch);
    assert_eq!((next.slot.head, next.slot.head_depth), (Some(head), 0));
    let stored = b.run(&second).await;
    assert_eq!((stored.status, stored.attempt), (Status::Running, 1));
    assert_eq!(stored.branch, next.run.branch);
    b.line(&next.slot, Some(head), 1).await;
    b.finish(second.id, next.slot).await;
    assert!(b.trees.thread(thread).await.unwrap().unwrap().busy);
    assert_eq!(claim(b, 10).await, [third.id]);
}

pub async fn a_run_is_claimed_once_however_many_ask(b: &Backend) {
    let mut expected = Vec::new();
    for _ in 0..20 {
        let thread = b.thread().await;
        for _ in 0..2 {
            let new = NewRun {
                claim: None,
                ..new_run(thread)
            };
            expected.push(b.queue(new).await.id);
        }
    }
    let mut claimers = Vec::new();
    for _ in 0..8 {
        let runs = Arc::clone(&b.runs);
        claimers.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claimed = runs.claim(anything(3)).await.unwrap().runs;
                if claimed.is_empty() {
                    return mine;
                }
                for claimed in claimed {
                    mine.push(claimed.run.id);
                    runs.finish(finish(claimed.run.id, claimed.slot))
                        .await
                        .unwrap();
                }
            }
        }));
    }
    let mut claimed = Vec::new();
    for claimer in claimers {
        claimed.extend(claimer.await.unwrap());
    }
    // A claimer may leave while the last ones are still in other hands.
    claimed.extend(claim(b, 100).await);
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}

pub async fn a_claim_takes_no_more_than_asked(b: &Backend) {
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let new = NewRun {
            claim: None,
            ..new_run(b.thread().await)
        };
        waiting.push(b.queue(new).await.id);
    }
    assert!(claim(b, 0).await.is_empty());
    assert_eq!(claim(b, 2).await, waiting[..2]);
    assert_eq!(claim(b, 2).await, waiting[2..]);
}

pub async fn a_run_is_created_only_while_its_thread_has_not_changed(b: &Backend) {
    let thread = b.thread().await;
    let last = async || {
        let mut rows = b.trees.reader().await.unwrap();
        let row = rows.thread_row(thread).await.unwrap().unwrap();
        row.last_event_number
    };
    let before = last().await;
    let since = |number| NewRun {
        unchanged_since: Some(number),
        ..new_run(thread)
    };
    let created = b.runs.create_run(since(before)).await.unwrap();
    assert!(matches!(created, Created::Started(..)), "{created:?}");
    let refused = since(before);
    let (id, now) = (refused.id, last().await);
    let created = b.runs.create_run(refused).await.unwrap();
    assert!(matches!(created, Created::Changed), "{created:?}");
    assert!(b.runs.run(thread, id).await.unwrap().is_none());
    assert_eq!(last().await, now, "what was refused changes nothing");
    let created = b.runs.create_run(since(now)).await.unwrap();
    assert!(matches!(created, Created::Queued(_)), "{created:?}");
    // Of many at once one is created.
    let now = last().await;
    let all = (0..8).map(|_| b.runs.create_run(since(now)));
    let all = futures::future::join_all(all).await;
    let is_created = |one: &&Result<Created, Error>| matches!(one, Ok(Created::Queued(_)));
    assert_eq!(all.iter().filter(is_created).count(), 1, "{all:?}");
}

pub async fn a_run_waits_for_its_time(b: &Backend) {
    let thread = b.thread().await;
    let run = b
        .queue(NewRun {
            after: Duration::from_secs(3600),
            ..new_run(thread)
        })
        .await;
    assert_eq!(run.run_at.0 - run.created_at.0, 3_600_000_000);
    assert!(claim(b, 10).await.is_empty());
    let soon = NewRun {
        after: Duration::from_micros(1),
        ..new_run(b.thread().await)
    };
    let soon = b.queue(soon).await;
    assert_eq!(claim(b, 10).await, [soon.id]);
}

pub async fn a_cancelled_run_is_fenced_off(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let waiting = b.queue(new_run(thread)).await;
    let head = b.line(&slot, None, 1).await[0];
    let ended = b.cancel(thread, None).await;
    assert_eq!(ended, [run.id, waiting.id]);
    for run in [&run, &waiting] {
        assert_eq!(b.run(run).await.status, Status::Interrupted);
    }
    assert_eq!(b.run(&run).await.last_checkpoint, Some(head));
    let late = b.try_commit(superstep(&slot, Some(head), 1)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.busy, state.head), (false, Some(head)));
    assert_eq!(state.outcome, Outcome::Interrupted);
    assert!(b.cancel(thread, None).await.is_empty());
    assert!(b.cancel(unknown(), None).await.is_empty());
    assert!(claim(b, 10).await.is_empty());
}

pub async fn cancelling_one_run_leaves_the_others(b: &Backend) {
    let thread = b.thread().await;
    let (running, slot) = b.start(new_run(thread)).await;
    let second = b.queue(new_run(thread)).await;
    let third = b.queue(new_run(thread)).await;
    assert_eq!(b.cancel(thread, Some(second.id)).await, [second.id]);
    assert!(b.cancel(thread, Some(second.id)).await.is_empty());
    assert!(b.cancel(thread, Some(unknown())).await.is_empty());
    assert_eq!(b.run(&running).await.status, Status::Running);
    b.line(&slot, None, 1).await;
    b.finish(running.id, slot).await;
    assert_eq!(claim(b, 10).await, [third.id]);
    // Nothing was done yet: the branch stays as the run before left it.
    assert_eq!(b.cancel(thread, Some(third.id)).await, [third.id]);
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.busy, state.outcome), (false, Outcome::Idle));
}

/// A worker whose lease has lapsed: the last renewal counts.
pub(super) async fn dead(b: &Backend) -> WorkerId {
    let dead = WorkerId::mint();
    b.runs.renew(dead, Duration::from_secs(60)).await.unwrap();
    b.runs.renew(dead, Duration::ZERO).await.unwrap();
    dead
}

pub(super) async fn recover(b: &Backend, worker: WorkerId, limit: usize) -> Recovered {
    b.runs.renew(worker, Duration::from_secs(60)).await.unwrap();
    let by = Recover {
        worker,
        busy: vec![],
        limit,
        slots: Default::default(),
        failed: vec![],
    };
    b.runs.recover(by).await.unwrap()
}

fn by(worker: WorkerId, thread: ThreadId) -> NewRun {
    NewRun {
        claim: Some(worker),
        ..new_run(thread)
    }
}

pub async fn a_run_of_a_dead_process_is_taken_over(b: &Backend) {
    let (dead, me) = (dead(b).await, WorkerId::mint());
    b.runs.renew(me, Duration::from_secs(60)).await.unwrap();
    let (mine, my_slot) = b.start(by(me, b.thread().await)).await;
    let thread = b.thread().await;
    let (lost, slot) = b.start(by(dead, thread)).await;
    let waiting = b.queue(by(dead, thread)).await;
    let head = b.line(&slot, None, 1).await[0];

    let found = recover(b, me, 10).await;
    assert!(found.ended.is_empty());
    let [taken] = found.taken.try_into().unwrap();
    assert_eq!((taken.run.id, taken.run.attempt), (lost.id, 2));
    assert_eq!(
        (taken.run.base, taken.run.branch),
        (None, Some(slot.branch))
    );
    assert_eq!((taken.slot.head, taken.slot.head_depth), (Some(head), 0));
    assert!(taken.slot.epoch > slot.epoch);
    let row = b.run(&lost).await;
    assert_eq!((row.status, row.attempt), (Status::Running, 2));
    let kinds: Vec<String> = b
        .probe
        .events(thread)
        .await
        .into_iter()
        .map(|e| e.1)
        .collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "RunStarted").count(), 2);

    // What the dead one still writes counts for nothing, whatever it is.
    let late = b.try_commit(superstep(&slot, Some(head), 1)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    let late = b.runs.finish(finish(lost.id, slot)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    assert!(claim(b, 10).await.is_empty(), "its slot is taken");
    assert!(recover(b, me, 10).await.taken.is_empty(), "it is ours now");

    b.line(&taken.slot, Some(head), 1).await;
    b.finish(lost.id, taken.slot).await;
    assert_eq!(b.run(&lost).await.status, Status::Success);
    assert_eq!(claim(b, 10).await, [waiting.id]);
    assert_eq!(b.run(&mine).await.status, Status::Running);
    b.line(&my_slot, None, 1).await;
    b.finish(mine.id, my_slot).await;
    b.runs.retire(me).await.unwrap();
    b.runs.retire(me).await.unwrap();
}

pub async fn a_run_that_cannot_be_recovered_leaves_the_others(b: &Backend) {
    let dead = dead(b).await;
    let (bad, _) = b.start(by(dead, b.thread().await)).await;
    let (good, _) = b.start(by(dead, b.thread().await)).await;
    b.probe.spoil(bad.id).await;
    let me = WorkerId::mint();
    let found = recover(b, me, 10).await;
    let taken: Vec<_> = found.taken.iter().map(|taken| taken.run.id).collect();
    assert_eq!(taken, [good.id]);
    let failed: Vec<_> = found.failed.iter().map(|(run, _)| *run).collect();
    assert_eq!(failed, [bad.id]);
    let row = b.run(&bad).await;
    assert_eq!((row.status, row.attempt), (Status::Running, 1));

    // Even if there is room for one alone.
    let (next, _) = b.start(by(dead, b.thread().await)).await;
    let found = recover(b, me, 1).await;
    assert!(found.taken.is_empty() && found.failed[0].0 == bad.id);
    let by = Recover {
        worker: me,
        busy: vec![],
        limit: 1,
        slots: Default::default(),
        failed: vec![bad.id],
    };
    let found = b.runs.recover(by).await.unwrap();
    assert_eq!(found.taken[0].run.id, next.id);
}

pub async fn as_many_runs_are_taken_over_as_there_is_room_for(b: &Backend) {
    let (dead, me) = (dead(b).await, WorkerId::mint());
    let mut lost = vec![];
    for _ in 0..3 {
        lost.push(b.start(by(dead, b.thread().await)).await.0.id);
    }
    let taken = async |limit| -> Vec<RunId> {
        let found = recover(b, me, limit).await;
        found.taken.iter().map(|taken| taken.run.id).collect()
    };
    assert!(taken(0).await.is_empty());
    assert_eq!(taken(2).await, lost[..2]);
    assert_eq!(taken(2).await, lost[2..]);
}

pub async fn lost_runs_are_taken_over_until_their_requests_take_all_slots(b: &Backend) {
    let (dead, me) = (dead(b).await, WorkerId::mint());
    let mut lost = vec![];
    for items in [0, 50_000, 50_000, 0] {
        let items = Value::list(vec![Value::Null; items]);
        let new = NewRun {
            kwargs: value!({ "input": items }),
            ..by(dead, b.thread().await)
        };
        lost.push(b.start(new).await.0.id);
    }
    let taken = async || -> Vec<RunId> {
        let by = Recover {
            worker: me,
            busy: vec![],
            limit: 3,
            slots: RequestSlots {
                bytes: 64 << 10,
                most: 3,
            },
            failed: vec![],
        };
        let found = b.runs.recover(by).await.unwrap();
        found.taken.iter().map(|taken| taken.run.id).collect()
    };
    assert_eq!(taken().await, lost[..2]);
    assert_eq!(taken().await, lost[2..3]);
    assert_eq!(taken().await, lost[3..]);
    assert!(taken().await.is_empty());
}

pub async fn a_run_is_taken_over_by_one_of_those_who_try(b: &Backend) {
    let dead = dead(b).await;
    let mut lost = vec![];
    for _ in 0..20 {
        lost.push(b.start(by(dead, b.thread().await)).await.0.id);
    }
    let all = (0..2).map(async |_| recover(b, WorkerId::mint(), 20).await.taken);
    let found = futures::future::join_all(all).await;
    // One process uses an SQLite file: there each one takes what the one before it had.
    let mut ended = vec![];
    for claimed in found.into_iter().flatten() {
        match b.runs.finish(finish(claimed.run.id, claimed.slot)).await {
            Ok(_) => ended.push(claimed.run.id),
            Err(error) => assert!(matches!(error, Error::Fenced), "{error:?}"),
        }
    }
    ended.sort();
    lost.sort();
    assert_eq!(ended, lost);
}

pub async fn a_run_that_is_lost_three_times_ends_as_error(b: &Backend) {
    let thread = b.thread().await;
    let (lost, slot) = b.start(by(dead(b).await, thread)).await;
    let waiting = b.queue(by(WorkerId::mint(), thread)).await;
    let head = b.line(&slot, None, 1).await[0];
    let mut last = slot;
    for attempt in 2..=3 {
        let worker = WorkerId::mint();
        let [taken] = recover(b, worker, 10).await.taken.try_into().unwrap();
        assert_eq!(taken.run.attempt, attempt);
        last = taken.slot;
        b.runs.renew(worker, Duration::ZERO).await.unwrap();
    }
    let found = recover(b, WorkerId::mint(), 10).await;
    assert!(found.taken.is_empty());
    assert_eq!(found.ended, [lost.id]);
    let ended = b.run(&lost).await;
    assert_eq!(
        (ended.status, ended.last_checkpoint),
        (Status::Error, Some(head))
    );
    let error = ended.error.unwrap();
    assert_eq!(error.get("error"), Some(&value!("WorkerLost")));
    assert!(error.get("message").unwrap().as_str().is_some());
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.outcome, state.error), (Outcome::Error, Some(error)));
    let late = b.try_commit(superstep(&last, Some(head), 1)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    assert_eq!(found.freed, [thread]);
    let told = QueueClaim {
        freed: found.freed,
        search: None,
        ..anything(10)
    };
    let claimed = b.runs.claim(told).await.unwrap().runs;
    let claimed: Vec<RunId> = claimed.iter().map(|one| one.run.id).collect();
    assert_eq!(claimed, [waiting.id]);
}

pub async fn handing_a_run_over_is_no_death(b: &Backend) {
    let (lost, slot) = b.start(by(dead(b).await, b.thread().await)).await;
    let mut attempt = 1;
    for _ in 0..5 {
        let worker = WorkerId::mint();
        let [taken] = recover(b, worker, 10).await.taken.try_into().unwrap();
        attempt += 1;
        assert_eq!((taken.run.id, taken.run.attempt), (lost.id, attempt));
        assert!(taken.slot.epoch > slot.epoch);
        b.runs.retire(worker).await.unwrap();
    }
}

pub async fn a_stateless_run_that_is_given_up_leaves_no_thread(b: &Backend) {
    let thread = ThreadId::mint();
    let new = NewRun {
        create_thread: Some(new_thread(thread)),
        temporary: true,
        ..by(dead(b).await, thread)
    };
    let (lost, slot) = b.start(new).await;
    b.line(&slot, None, 1).await;
    for _ in 0..2 {
        let worker = WorkerId::mint();
        assert_eq!(recover(b, worker, 10).await.taken.len(), 1);
        b.runs.renew(worker, Duration::ZERO).await.unwrap();
    }
    let found = recover(b, WorkerId::mint(), 10).await;
    assert_eq!(found.ended, [lost.id]);
    assert!(b.trees.thread(thread).await.unwrap().is_none());
    assert!(b.rows(&slot).await.is_empty(), "{:?}", b.rows(&slot).await);
}

pub async fn a_run_that_moves_on_between_deaths_is_not_given_up(b: &Backend) {
    let (lost, slot) = b.start(by(dead(b).await, b.thread().await)).await;
    let mut head = b.line(&slot, None, 1).await[0];
    for _ in 0..6 {
        let worker = WorkerId::mint();
        let [taken] = recover(b, worker, 10).await.taken.try_into().unwrap();
        assert_eq!(taken.run.id, lost.id);
        head = b.line(&taken.slot, Some(head), 1).await[0];
        b.runs.renew(worker, Duration::ZERO).await.unwrap();
    }
}
