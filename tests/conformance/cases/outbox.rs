//! Deliveries of webhooks: which ends of runs are reported, and who takes a delivery.

use std::{sync::Arc, time::Duration};

use backstitch::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{Finish, NewRun, Recover, Run, Status, Strategy, Undo},
    tree::Outcome,
    value,
    value::Value,
    webhooks::outbox::{FailedTry, HostPage, Key},
};

use super::backend::*;

const LEASE: Duration = Duration::from_secs(3600);

fn reported(thread: ThreadId) -> NewRun {
    to(thread, "https://Hooks.Example:8443/x?y=1")
}

fn to(thread: ThreadId, url: &str) -> NewRun {
    NewRun {
        kwargs: value!({"input": {"text": "nul \0"}, "webhook": url}),
        metadata: map(value!({"m": "ü"})),
        ..new_run(thread)
    }
}

fn stateless(url: &str) -> NewRun {
    let thread = ThreadId::mint();
    NewRun {
        create_thread: Some(new_thread(thread)),
        temporary: true,
        ..to(thread, url)
    }
}

pub(super) fn key(run: &Run) -> Key {
    Key {
        tree: run.tree,
        run: run.id,
    }
}

/// The runs whose ends are to be reported now.
async fn due(b: &Backend) -> Vec<RunId> {
    let due = b.outbox.due_deliveries(100).await.unwrap();
    due.iter().map(|due| due.key.run).collect()
}

/// Exactly this run is to be reported; afterwards nothing is.
async fn is_reported(b: &Backend, way: &str, run: &Run, status: Status) {
    assert_eq!(due(b).await, [run.id], "{way}");
    let found = b.outbox.due_deliveries(1).await.unwrap();
    assert_eq!(&*found[0].host, "hooks.example:8443", "{way}");
    let ended = b.outbox_row(run).await;
    assert_eq!((ended.id, ended.status), (run.id, status), "{way}");
    assert_eq!(
        (&ended.kwargs, &ended.metadata),
        (&run.kwargs, &run.metadata),
        "{way}"
    );
    b.outbox.delivered(key(run)).await.unwrap();
    assert_eq!(due(b).await, [], "{way}");
}

impl Backend {
    async fn outbox_row(&self, run: &Run) -> Run {
        let ended = self.runs.ended_run(run.tree, run.id).await.unwrap();
        ended.expect("the run has ended").run
    }

    async fn remove(&self, run: &Run, ended: bool) -> bool {
        let mut tx = self.runs.begin(run.tree).await.unwrap();
        let undo = Undo {
            thread: run.thread,
            run: run.id,
            ended,
            error: None,
        };
        let removed = tx.remove_run(undo).await.unwrap().is_some();
        tx.commit().await.unwrap();
        removed
    }
}

pub async fn every_end_of_a_run_with_a_webhook_is_reported_once(b: &Backend) {
    for (status, outcome) in [
        (Status::Success, Outcome::Idle),
        (Status::Success, Outcome::Interrupted),
        (Status::Error, Outcome::Error),
        (Status::Timeout, Outcome::Error),
        (Status::Interrupted, Outcome::Interrupted),
    ] {
        for is_temporary in [false, true] {
            let new = if is_temporary {
                stateless("https://hooks.example:8443")
            } else {
                reported(b.thread().await)
            };
            let (run, slot) = b.start(new).await;
            assert_eq!(due(b).await, []);
            let finish = Finish {
                status,
                outcome,
                error: Some(value!({"error": "E", "message": "m"})),
                delete_thread: is_temporary,
                ..finish(run.id, slot)
            };
            b.runs.finish(finish.clone()).await.unwrap();
            // Its reply may be lost.
            let second = b.runs.finish(finish).await;
            assert!(matches!(second, Ok(_) | Err(Error::Fenced)), "{second:?}");
            is_reported(b, "finished", &run, status).await;
        }
    }
    let cancelled = b.thread().await;
    let (run, _) = b.start(reported(cancelled)).await;
    let waiting = b.queue(reported(cancelled)).await;
    assert_eq!(b.cancel(cancelled, Some(waiting.id)).await, [waiting.id]);
    is_reported(
        b,
        "cancelled while it waited",
        &waiting,
        Status::Interrupted,
    )
    .await;
    assert_eq!(b.cancel(cancelled, None).await, [run.id]);
    is_reported(
        b,
        "cancelled while it was executed",
        &run,
        Status::Interrupted,
    )
    .await;
    assert!(b.cancel(cancelled, None).await.is_empty());

    let (run, _) = b.start(stateless("https://hooks.example:8443/")).await;
    b.cancel(run.thread, None).await;
    assert!(b.trees.delete_thread(run.thread).await.unwrap());
    is_reported(b, "cancelled with its thread", &run, Status::Interrupted).await;

    let superseded = b.thread().await;
    let (run, _) = b.start(reported(superseded)).await;
    let waiting = b.queue(reported(superseded)).await;
    let strategy = Strategy::Interrupt;
    let next = NewRun {
        strategy,
        ..new_run(superseded)
    };
    let (next, slot) = b.start(next).await;
    let mut both = due(b).await;
    both.sort();
    assert_eq!(both, [run.id, waiting.id]);
    b.outbox.delivered(key(&waiting)).await.unwrap();
    is_reported(b, "superseded", &run, Status::Interrupted).await;

    b.finish(next.id, slot).await;

    let taken = b.thread().await;
    let (run, _) = b.start(reported(taken)).await;
    b.trees.take_slot(taken).await.unwrap().unwrap();
    is_reported(
        b,
        "ended by a change of the state",
        &run,
        Status::Interrupted,
    )
    .await;

    for new in [
        reported(b.thread().await),
        stateless("http://hooks.example:8443/?"),
    ] {
        let (run, _) = b.start(lost(b, new).await).await;
        let mut ended = vec![];
        for _ in 0..4 {
            let worker = WorkerId::mint();
            let by = Recover {
                worker,
                busy: vec![],
                limit: 10,
                slots: Default::default(),
                failed: vec![],
            };
            ended.extend(b.runs.recover(by).await.unwrap().ended);
            assert_eq!(due(b).await, ended, "one that goes on is not reported");
            b.runs.renew(worker, Duration::ZERO).await.unwrap();
        }
        assert_eq!(ended, [run.id]);
        is_reported(b, "lost too often", &run, Status::Error).await;
    }
}

/// Executed by a worker that is dead.
async fn lost(b: &Backend, new: NewRun) -> NewRun {
    let worker = WorkerId::mint();
    b.runs.renew(worker, Duration::ZERO).await.unwrap();
    NewRun {
        claim: Some(worker),
        ..new
    }
}

pub async fn what_is_rolled_back_or_deleted_is_not_reported(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    b.finish(run.id, slot).await;
    assert_eq!(due(b).await, [], "without a webhook");

    let (run, _) = b.start(reported(thread)).await;
    let waiting = b.queue(reported(thread)).await;
    let next = NewRun {
        strategy: Strategy::Rollback,
        ..reported(thread)
    };
    let (next, slot) = b.start(next).await;
    for gone in [&run, &waiting] {
        assert!(b.runs.run(thread, gone.id).await.unwrap().is_none());
    }
    assert_eq!(due(b).await, [], "rolled back by another run");
    let queued = b.queue(reported(thread)).await;
    assert!(b.remove(&queued, false).await);
    assert!(b.remove(&next, false).await);
    assert!(b.try_finish(next.id, slot).await.is_err());
    assert_eq!(due(b).await, [], "rolled back by request");
    let (run, _) = b.start(stateless("http://hooks.example")).await;
    assert!(b.remove(&run, false).await);
    assert_eq!(due(b).await, [], "rolled back without a thread of its own");

    let (run, slot) = b.start(reported(thread)).await;
    b.finish(run.id, slot).await;
    assert_eq!(due(b).await, [run.id]);
    assert!(b.remove(&run, true).await);
    assert_eq!(due(b).await, [], "deleted before its delivery");

    let (run, slot) = b.start(reported(thread)).await;
    b.finish(run.id, slot).await;
    b.start(reported(thread)).await;
    assert_eq!(due(b).await, [run.id]);
    assert!(b.trees.delete_thread(thread).await.unwrap());
    assert_eq!(due(b).await, [], "deleted with its thread");
    assert_eq!(b.rows(&slot).await.get("outbox"), None);
}

pub async fn a_host_of_any_length_keeps_no_run_from_ending(b: &Backend) {
    // Nothing that a page of an index could compress.
    let host: String = (0..250)
        .map(|_| uuid::Uuid::new_v4().simple().to_string())
        .collect();
    let url = format!("http://{host}.example/hook");
    let thread = b.thread().await;
    let (run, slot) = b.start(to(thread, &url)).await;
    b.finish(run.id, slot).await;
    assert_eq!(due(b).await, [run.id]);
    let found = b.outbox.due_deliveries(1).await.unwrap();
    assert_eq!(*found[0].host, host[..300]);
    let taken = b
        .outbox
        .take_deliveries(vec![key(&run)], LEASE)
        .await
        .unwrap();
    assert_eq!(*taken[0].url, url);
}

impl Backend {
    async fn try_finish(
        &self,
        run: RunId,
        slot: backstitch::checkpoint::Slot,
    ) -> Result<(), Error> {
        self.runs.finish(finish(run, slot)).await.map(drop)
    }

    /// A run that has ended and is to be reported to `url`.
    pub(super) async fn owed(&self, url: &str) -> Run {
        let (run, slot) = self.start(to(self.thread().await, url)).await;
        self.finish(run.id, slot).await;
        run
    }

    pub(super) async fn take(&self, run: &Run, lease: Duration) -> Option<i32> {
        let taken = self.outbox.take_deliveries(vec![key(run)], lease).await;
        let taken = taken.unwrap();
        assert!(taken.len() <= 1);
        taken.first().map(|delivery| {
            assert_eq!(delivery.key, key(run));
            delivery.attempt
        })
    }
}

pub async fn a_delivery_is_taken_by_one_and_due_after_its_lease(b: &Backend) {
    let run = b.owed("http://hooks.example").await;
    let mut takes = vec![];
    for _ in 0..8 {
        let (outbox, key) = (Arc::clone(&b.outbox), key(&run));
        let take = async move { outbox.take_deliveries(vec![key], LEASE).await.unwrap() };
        takes.push(tokio::spawn(take));
    }
    let mut taken = vec![];
    for take in takes {
        taken.extend(take.await.unwrap());
    }
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(
        (&*taken[0].url, taken[0].attempt),
        ("http://hooks.example/", 1)
    );
    assert_eq!(due(b).await, []);
    // It was not tried: the next one is the first try still.
    b.outbox
        .release_deliveries(vec![(key(&run), 1)])
        .await
        .unwrap();
    assert_eq!(b.take(&run, Duration::ZERO).await, Some(1));
    // Its lease has lapsed: the process is dead.
    assert_eq!(b.take(&run, Duration::ZERO).await, Some(2));
    b.outbox
        .release_deliveries(vec![(key(&run), 1)])
        .await
        .unwrap();
    assert_eq!(
        b.take(&run, LEASE).await,
        Some(3),
        "a return that came late changes nothing"
    );
    assert_eq!(b.take(&run, LEASE).await, None);
    b.outbox.delivered(key(&run)).await.unwrap();
    b.outbox
        .release_deliveries(vec![(key(&run), 3)])
        .await
        .unwrap();
    assert_eq!(due(b).await, []);
    let unknown = Key {
        tree: unknown::<TreeId>(),
        run: run.id,
    };
    b.outbox.delivered(unknown).await.unwrap();
}

pub async fn a_failed_delivery_waits_and_a_dead_one_is_swept(b: &Backend) {
    let run = b.owed("http://hooks.example").await;
    let failed = |attempt, pause| {
        b.outbox.delivery_failed(FailedTry {
            key: key(&run),
            attempt,
            error: "nul \0 in it".into(),
            pause,
        })
    };
    assert_eq!(b.take(&run, Duration::ZERO).await, Some(1));
    assert_eq!(b.take(&run, LEASE).await, Some(2));
    failed(1, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(
        due(b).await,
        [],
        "the failure of an earlier try counts no more"
    );
    failed(2, Some(LEASE)).await.unwrap();
    assert_eq!(due(b).await, []);
    failed(2, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(due(b).await, [run.id]);
    assert_eq!(b.take(&run, LEASE).await, Some(3));
    failed(3, None).await.unwrap();
    assert_eq!(due(b).await, []);
    b.outbox
        .release_deliveries(vec![(key(&run), 3)])
        .await
        .unwrap();
    assert_eq!(due(b).await, [], "it is not tried any more");
    assert_eq!(b.probe.rows(run.tree).await.get("outbox"), Some(&1));
    let sweep = |age| b.outbox.sweep_deliveries(age, 10);
    assert_eq!(sweep(LEASE).await.unwrap(), 0);
    // The clock of a row is as fine as a microsecond.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(sweep(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(b.probe.rows(run.tree).await.get("outbox"), None);
}

pub async fn deliveries_are_read_in_slices_of_hosts(b: &Backend) {
    let mut expected = vec![];
    for host in ["a", "b", "c", "d", "e"] {
        let mut of_host = vec![];
        for _ in 0..3 {
            of_host.push(b.owed(&format!("http://{host}.example/")).await.id);
        }
        expected.push(of_host);
    }
    let waits = b.owed("http://bb.example/").await;
    b.take(&waits, LEASE).await.unwrap();
    let slice = |after: &str| {
        b.outbox.due_by_host(HostPage {
            after: after.into(),
            hosts: 2,
            per_host: 2,
        })
    };
    let (mut after, mut slices) = (String::new(), vec![]);
    loop {
        let found = slice(&after).await.unwrap();
        slices.push(found.due.iter().map(|due| due.key.run).collect::<Vec<_>>());
        assert!(
            found
                .due
                .iter()
                .all(|due| *due.host > *after && due.principal.is_empty())
        );
        match found.last {
            Some(last) => after = last.to_string(),
            None => break,
        }
    }
    let two = |host: usize| expected[host][..2].to_vec();
    let first = [two(0), two(1)].concat();
    // The host behind `b` has nothing that is due.
    assert_eq!(slices[0], first);
    assert_eq!(slices[1], two(2));
    assert_eq!(slices[2], [two(3), two(4)].concat());
    assert!(slices[3..].concat().is_empty(), "{slices:?}");
    let all = b.outbox.due_deliveries(4).await.unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].key.run, expected[0][0], "the oldest first");
}

pub async fn what_goes_with_its_thread_is_reported_all_the_same(b: &Backend) {
    let (run, slot) = b
        .start(stateless("https://hooks.example/?x=1#fragment"))
        .await;
    let failure = value!({"error": "ValueError", "message": "boom"});
    let end = Finish {
        status: Status::Error,
        outcome: Outcome::Error,
        error: Some(failure.clone()),
        delete_thread: true,
        committing: Default::default(),
        ..finish(run.id, slot)
    };
    b.runs.finish(end).await.unwrap();
    assert!(b.runs.run(run.thread, run.id).await.unwrap().is_none());
    let rows = b.rows(&slot).await;
    assert_eq!(
        rows.into_iter().collect::<Vec<_>>(),
        [("outbox".to_owned(), 1)]
    );
    let ended = b.runs.ended_run(run.tree, run.id).await.unwrap().unwrap();
    let (row, started) = (ended.run, ended.started_at);
    assert_eq!(
        (row.id, row.thread, row.assistant),
        (run.id, run.thread, run.assistant)
    );
    assert_eq!((&row.kwargs, &row.metadata), (&run.kwargs, &run.metadata));
    assert_eq!(
        (row.status, row.strategy, row.temporary),
        (Status::Error, run.strategy, true)
    );
    assert_eq!(row.error, Some(failure));
    assert_eq!(
        (row.created_at, started),
        (run.created_at, Some(run.created_at))
    );
    assert!(row.updated_at >= run.created_at);
    let taken = b
        .outbox
        .take_deliveries(vec![key(&run)], LEASE)
        .await
        .unwrap();
    assert_eq!(&*taken[0].url, "https://hooks.example/?x=1");
    b.outbox.delivered(key(&run)).await.unwrap();
    assert!(b.rows(&slot).await.is_empty());
    assert!(b.runs.ended_run(run.tree, run.id).await.unwrap().is_none());

    // A run that has not ended has nothing to report, and one that never began no start.
    let thread = b.thread().await;
    let (open, _) = b.start(reported(thread)).await;
    let waiting = b.queue(reported(thread)).await;
    assert!(
        b.runs
            .ended_run(open.tree, open.id)
            .await
            .unwrap()
            .is_none()
    );
    b.cancel(thread, Some(waiting.id)).await;
    let ended = b.runs.ended_run(waiting.tree, waiting.id).await.unwrap();
    assert_eq!(ended.unwrap().started_at, None);
    let claimed = b.run(&open).await;
    assert_eq!(
        (
            claimed.status,
            claimed.kwargs.get("input").map(Value::is_null)
        ),
        (Status::Running, Some(false))
    );
}
