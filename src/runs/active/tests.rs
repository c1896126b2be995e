//! Runs that wait here, and the slots that runs take.

use super::*;
use crate::{
    graph::{Graph, Output, START},
    stream,
};

fn pending(run: RunId) -> PendingRun {
    let graph = Graph::untyped()
        .node("a", |_| async { Ok(Output::default()) })
        .edge(START, "a")
        .build();
    let options = stream::Options::new(run, ThreadId::mint(), graph.unwrap());
    PendingRun::new(Publisher::new(options), None, Lead::default())
}

#[tokio::test]
async fn a_run_that_begins_and_ends_between_two_reads_of_its_row_is_not_missed() {
    let (mut active, run) = (ActiveRuns::default(), RunId::mint());
    let ended = pending(run);
    let begun = active.awaited(ended.handle.publisher.thread(), run);
    let elsewhere = active.awaited(ThreadId::mint(), run);
    active.begin(run, &ended.handle);
    active.end(run);
    let result = RunResult::empty(Status::Success);
    ended.result.send_replace(Some(Arc::new(result)));
    let found = begun.await.unwrap().ended().await.unwrap();
    assert_eq!(found.status, Status::Success);
    drop(active);
    assert!(elsewhere.await.is_err(), "it is no run of that thread");
}

#[test]
fn a_run_with_a_large_request_takes_several_slots() {
    let mut active = ActiveRuns::default();
    let (small, large) = (RunId::mint(), RunId::mint());
    let of = |slots| RunHandle {
        slots,
        principal: Some("ann".into()),
        ..pending(RunId::mint()).handle
    };
    active.begin(small, &of(1));
    active.begin(large, &of(5));
    let new = RunId::mint();
    let reserved = Reserved {
        thread: ThreadId::mint(),
        principal: Some("ann".into()),
        slots: 3,
    };
    active.reserve(new, reserved);
    assert_eq!((active.taken(), active.taken_by("ann")), (9, 9));
    assert_eq!(active.principals(), [("ann".into(), 9)]);
    assert!(active.release(new));
    assert!(!active.release(new));
    active.begin(large, &of(2));
    assert_eq!(
        active.taken(),
        3,
        "an attempt after another takes the place of that one"
    );
    active.end(large);
    active.end(large);
    assert_eq!((active.taken(), active.used()), (1, 1));
}

#[tokio::test]
async fn runs_that_wait_are_known_in_order_and_those_that_went_are_forgotten() {
    let mut active = ActiveRuns::default();
    let runs: Vec<RunId> = (0..100).map(|_| RunId::mint()).collect();
    for run in &runs {
        active.pending.insert(*run, pending(*run));
        active.add_waiting(*run);
    }
    for run in &runs[..98] {
        active.pending.remove(run);
    }
    active.add_waiting(runs[98]);
    assert_eq!(active.waiting, [runs[98], runs[99], runs[98]]);
    assert_eq!(active.take_oldest_waiting(), Some(runs[98]));

    let elsewhere = ThreadId::mint();
    assert!(!active.may_wait_on(elsewhere));
    active.leave(runs[99]);
    active.leave(runs[99]);
    assert!(active.may_wait_on(elsewhere), "it may be on any thread");
    active.found_left();
    assert!(!active.may_wait_on(elsewhere));
    // A run of another process may begin here too.
    active.found_left();
    assert!(!active.may_wait_on(elsewhere));
}

#[test]
fn runs_that_were_left_while_others_were_checked_are_not_forgotten() {
    let mut active = ActiveRuns::default();
    let runs = [(); 2].map(|()| RunId::mint());
    let leave = |active: &mut ActiveRuns, run| {
        active.pending.insert(run, pending(run));
        active.leave(run);
    };
    leave(&mut active, runs[0]);
    assert!(active.check_left());
    active.found_left();
    leave(&mut active, runs[1]);
    active.forget_left();
    assert!(active.has_waiting(), "the second one waits");
    assert!(active.check_left());
    active.forget_left();
    assert!(!active.has_waiting());
}

#[test]
fn who_waits_no_longer_is_forgotten() {
    let (mut active, run) = (ActiveRuns::default(), RunId::mint());
    let thread = ThreadId::mint();
    let waits = active.awaited(thread, run);
    drop(active.awaited(thread, RunId::mint()));
    active.forget_gone();
    assert_eq!(active.awaited.keys().collect::<Vec<_>>(), [&(thread, run)]);
    drop(waits);
    active.forget_gone();
    assert!(active.awaited.is_empty());
}
