//! The events that runs log. The decision is a function that all storages share; one that takes it inside a statement,
//! since only there the facts are known, has to log the same.

use std::time::Duration;

use backstitch::{
    id::{BranchId, CheckpointId, ThreadId, TreeId, WorkerId},
    runs::{
        DEATHS, Finish, NewRun, QueueClaim, Recover, Slice, Status, Strategy,
        transitions::run_events::{EndedRun, enqueued, started},
    },
    tree::{Outcome, store::rows::NewEvent},
    value::{Map, Value},
};

use super::backend::*;

/// Type, payload, branch and checkpoint of an event.
type Logged = (String, Map, Option<BranchId>, Option<CheckpointId>);

/// The log of a thread, read from where it was read last.
struct Log<'a> {
    b: &'a Backend,
    thread: ThreadId,
    tree: TreeId,
    after: i64,
}

impl<'a> Log<'a> {
    async fn of(b: &'a Backend, thread: ThreadId) -> Self {
        let row = b.trees.thread(thread).await.unwrap().unwrap();
        let (tree, after) = (row.tree, 0);
        let mut log = Self {
            b,
            thread,
            tree,
            after,
        };
        log.next().await;
        log
    }

    async fn next(&mut self) -> Vec<Logged> {
        let mut reader = self.b.trees.reader().await.unwrap();
        let events = reader.events(self.tree, self.thread, self.after, 100).await;
        let events = events.unwrap();
        self.after = events.last().map_or(self.after, |last| last.number);
        let logged = events.into_iter().map(|event| {
            let kind = event.kind.to_string();
            (kind, event.payload, event.branch, event.checkpoint)
        });
        logged.collect()
    }

    /// What was logged since the last time is exactly this.
    async fn has(&mut self, events: impl IntoIterator<Item = NewEvent>) {
        let events = events.into_iter().map(|event| {
            let kind = event.kind.to_owned();
            (kind, event.payload, event.branch, event.checkpoint)
        });
        assert_eq!(self.next().await, events.collect::<Vec<_>>());
    }
}

pub async fn runs_log_what_is_decided_for_all_storages(b: &Backend) {
    let thread = b.thread().await;
    let mut log = Log::of(b, thread).await;
    let (run, slot) = b.start(new_run(thread)).await;
    let branch = slot.branch;
    let starts = |id| [enqueued(id, Some(branch)), started(id, branch)];
    log.has(starts(run.id)).await;
    let waiting = b.queue(new_run(thread)).await;
    log.has([enqueued(waiting.id, None)]).await;

    // It did not move its branch.
    b.finish(run.id, slot).await;
    let ended = EndedRun {
        id: run.id,
        branch,
        base: None,
        head: None,
        status: Status::Success,
    };
    log.has(ended.events()).await;
    let claim = QueueClaim {
        worker: WorkerId::mint(),
        limit: 1,
        slots: Default::default(),
        busy: vec![],
        most: 1,
        freed: vec![],
        search: Some(Slice::first(1000)),
    };
    let [claimed] = b.runs.claim(claim).await.unwrap().runs.try_into().unwrap();
    log.has([started(waiting.id, branch)]).await;

    let head = Some(b.line(&claimed.slot, None, 1).await[0]);
    let finish = Finish {
        status: Status::Error,
        outcome: Outcome::Error,
        error: Some(Value::from("why")),
        ..finish(
            waiting.id,
            backstitch::checkpoint::Slot {
                head,
                ..claimed.slot
            },
        )
    };
    b.runs.finish(finish).await.unwrap();
    let ended = EndedRun {
        id: waiting.id,
        head,
        status: Status::Error,
        ..ended
    };
    log.has(ended.events()).await;

    // Cancelled: one that has moved its branch, and one that waits.
    let (run, slot) = b.start(new_run(thread)).await;
    let later = Some(b.line(&slot, head, 1).await[0]);
    let waiting = b.queue(new_run(thread)).await;
    log.next().await;
    b.cancel(thread, None).await;
    let (base, status) = (head, Status::Interrupted);
    let moved = EndedRun {
        id: run.id,
        branch,
        base,
        head: later,
        status,
    };
    let waited = EndedRun {
        id: waiting.id,
        branch,
        base: None,
        head: None,
        status,
    };
    let ends = moved.events().into_iter().chain(waited.events());
    log.has(ends).await;

    // Ended by a run that takes their slot.
    let (run, slot) = b.start(new_run(thread)).await;
    let last = Some(b.line(&slot, later, 1).await[0]);
    let waiting = b.queue(new_run(thread)).await;
    log.next().await;
    let new = NewRun {
        strategy: Strategy::Interrupt,
        ..new_run(thread)
    };
    let (next, _) = b.start(new).await;
    let moved = EndedRun {
        id: run.id,
        base: later,
        head: last,
        ..moved
    };
    let waited = EndedRun {
        id: waiting.id,
        ..waited
    };
    let ends = moved.events().into_iter().chain(waited.events());
    log.has(ends.chain(starts(next.id))).await;
}

pub async fn lost_runs_log_what_is_decided_for_all_storages(b: &Backend) {
    let thread = b.thread().await;
    let mut log = Log::of(b, thread).await;
    let (mut worker, long) = (WorkerId::mint(), Duration::from_secs(60));
    b.runs.renew(worker, long).await.unwrap();
    let new = NewRun {
        claim: Some(worker),
        ..new_run(thread)
    };
    let (run, slot) = b.start(new).await;
    log.next().await;
    let head = Some(b.line(&slot, None, 1).await[0]);
    for deaths in 1..=DEATHS {
        b.runs.renew(worker, Duration::ZERO).await.unwrap();
        worker = WorkerId::mint();
        b.runs.renew(worker, long).await.unwrap();
        let by = Recover {
            worker,
            busy: vec![],
            limit: 10,
            slots: Default::default(),
            failed: vec![],
        };
        let recovered = b.runs.recover(by).await.unwrap();
        if deaths < DEATHS {
            assert_eq!(recovered.taken.len(), 1);
            log.has([started(run.id, slot.branch)]).await;
        } else {
            assert_eq!(recovered.ended, [run.id]);
        }
    }
    let ended = EndedRun {
        id: run.id,
        branch: slot.branch,
        base: None,
        head,
        status: Status::Error,
    };
    log.has(ended.events()).await;
}
