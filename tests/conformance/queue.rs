//! Waiting runs, and runs that others end.

use std::{sync::Arc, time::Duration};

use backstitch::{
    checkpoint::Error,
    id::{RunId, WorkerId},
    runs::{NewRun, Status},
    tree::Outcome,
    value,
};

use super::backend::*;

/// The runs of a claim, for one thread or a few.
async fn claim(b: &Backend, limit: usize) -> Vec<RunId> {
    let claimed = b.runs.claim(WorkerId::mint(), limit).await.unwrap();
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
        .claim(WorkerId::mint(), 10)
        .await
        .unwrap()
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
                let claimed = runs.claim(WorkerId::mint(), 3).await.unwrap();
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
    let ended = b.runs.cancel(thread, None, None).await.unwrap();
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
    assert!(b.runs.cancel(thread, None, None).await.unwrap().is_empty());
    assert!(
        b.runs
            .cancel(unknown(), None, None)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(claim(b, 10).await.is_empty());
}

pub async fn cancelling_one_run_leaves_the_others(b: &Backend) {
    let thread = b.thread().await;
    let (running, slot) = b.start(new_run(thread)).await;
    let second = b.queue(new_run(thread)).await;
    let third = b.queue(new_run(thread)).await;
    assert_eq!(
        b.runs.cancel(thread, Some(second.id), None).await.unwrap(),
        [second.id]
    );
    assert!(
        b.runs
            .cancel(thread, Some(second.id), None)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        b.runs
            .cancel(thread, Some(unknown()), None)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(b.run(&running).await.status, Status::Running);
    b.line(&slot, None, 1).await;
    b.finish(running.id, slot).await;
    assert_eq!(claim(b, 10).await, [third.id]);
    // Nothing was done yet: the branch stays as the run before left it.
    assert_eq!(
        b.runs.cancel(thread, Some(third.id), None).await.unwrap(),
        [third.id]
    );
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.busy, state.outcome), (false, Outcome::Idle));
}

pub async fn runs_of_a_dead_process_end_as_errors(b: &Backend) {
    let (dead, me) = (WorkerId::mint(), WorkerId::mint());
    b.runs.renew(me, Duration::from_secs(60)).await.unwrap();
    b.runs.renew(dead, Duration::from_secs(60)).await.unwrap();
    // The lease is given back or lapses: the last renewal counts.
    b.runs.renew(dead, Duration::ZERO).await.unwrap();
    let by = |worker, thread| NewRun {
        claim: Some(worker),
        ..new_run(thread)
    };
    let (mine, my_slot) = b.start(by(me, b.thread().await)).await;
    let thread = b.thread().await;
    let (lost, slot) = b.start(by(dead, thread)).await;
    let waiting = b.queue(by(dead, thread)).await;
    let head = b.line(&slot, None, 1).await[0];

    assert_eq!(b.runs.recover(me).await.unwrap(), [lost.id]);
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
    let late = b.try_commit(superstep(&slot, Some(head), 1)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    assert_eq!(b.run(&waiting).await.status, Status::Pending);
    assert_eq!(claim(b, 10).await, [waiting.id]);
    assert_eq!(b.run(&mine).await.status, Status::Running);
    b.line(&my_slot, None, 1).await;
    b.finish(mine.id, my_slot).await;
    b.runs.retire(me).await.unwrap();
    b.runs.retire(me).await.unwrap();
}
