//! What only Postgres has: migrations by several processes, connection errors, fencing between
//! connections, leases.
use std::time::Duration;

use crate::on_postgres::{slot, store};
use crate::rows::{new_run, new_thread, superstep};
use backstitch::{
    checkpoint::{Error, Saver},
    id::{RunId, ThreadId, WorkerId},
    runs::{self, Created, Finish, LeftResult, NewRun, Recover, Status, Store as _},
    storage::postgres::{self, Options, Store},
    stream::log::Log,
    tree::{Outcome, Store as _},
    value::{Map, Value},
};
use test_support::{
    postgres::{database, empty_database},
    tables::connect,
};

/// How many migrations there are.
fn migrations() -> usize {
    std::fs::read_dir("sql/postgres").unwrap().count()
}

#[tokio::test]
async fn several_processes_may_migrate_one_database_at_once() {
    let database = empty_database().await;
    let all = (0..4).map(|_| postgres::migrate(&database.url));
    let applied = futures::future::join_all(all).await;
    let applied: usize = applied.into_iter().map(Result::unwrap).sum();
    assert_eq!(applied, migrations());
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    slot(&store).await;
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_naming_both_versions() {
    let database = database().await;
    let client = connect(&database.url).await;
    client
        .batch_execute(
            "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             SELECT 999, 'from_the_future', applied_on, '1' FROM refinery_schema_history LIMIT 1",
        )
        .await
        .unwrap();
    let error = postgres::migrate(&database.url).await.unwrap_err();
    let text = error.to_string();
    let newest = std::fs::read_dir("sql/postgres").unwrap();
    let newest = newest.map(|file| file.unwrap().file_name().into_string().unwrap());
    let newest: u32 = newest
        .map(|name| name[1..4].parse().unwrap())
        .max()
        .unwrap();
    assert!(
        text.contains("999") && text.contains(&format!("up to {newest}")),
        "{text}"
    );
}

#[tokio::test]
async fn an_unreachable_database_is_named_without_the_password() {
    let url = "postgres://someone:hunter2@127.0.0.1:1/shop";
    for error in [
        Store::connect(Options::new(url)).await.unwrap_err(),
        postgres::migrate(url).await.unwrap_err(),
    ] {
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("127.0.0.1:1") && text.contains("shop"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn required_encryption_is_an_error_and_never_plain_text() {
    for mode in ["require", "verify-full"] {
        let url = format!("postgres://someone@127.0.0.1:1/shop?sslmode={mode}");
        let text = Store::connect(Options::new(url))
            .await
            .unwrap_err()
            .to_string();
        assert!(text.contains(mode) && text.contains("TLS"), "{text}");
    }
}

#[tokio::test]
async fn commits_of_one_branch_that_are_sent_again_tell_the_same_depths() {
    let (_database, store) = store().await;
    let slot = slot(&store).await;
    let first = superstep(&slot, None, -1);
    let second = superstep(&slot, Some(first.checkpoint.id), 0);
    let both = vec![first, second];
    for _ in 0..2 {
        let depths = store.commit(both.clone()).await;
        let depths: Vec<i32> = depths.into_iter().map(Result::unwrap).collect();
        assert_eq!(depths, [0, 1]);
    }
}

#[tokio::test]
async fn runs_of_a_worker_whose_lease_lapsed_are_taken_over() {
    let (_database, store) = store().await;
    let thread = slot(&store).await.thread;
    let (dead, alive) = (WorkerId::mint(), WorkerId::mint());
    store.renew(dead, Duration::from_secs(3600)).await.unwrap();
    store.renew(alive, Duration::from_secs(3600)).await.unwrap();
    let run = NewRun {
        claim: Some(dead),
        ..new_run(thread)
    };
    let Created::Started(run, slot) = store.create_run(run).await.unwrap() else {
        panic!("the slot was free");
    };
    let recover = async |busy: &[RunId]| {
        let by = Recover {
            worker: alive,
            busy: busy.to_vec(),
            limit: 10,
            slots: Default::default(),
            failed: vec![],
        };
        let found = store.recover(by).await.unwrap();
        assert!(found.ended.is_empty());
        found.taken
    };
    assert!(recover(&[]).await.is_empty());
    store.renew(dead, Duration::ZERO).await.unwrap();
    let taken = recover(&[]).await;
    assert_eq!((taken.len(), taken[0].run.id), (1, run.id));
    let row = store.run(thread, run.id).await.unwrap().unwrap();
    assert_eq!((row.status, row.attempt), (Status::Running, 2));
    let refused = store
        .commit(vec![superstep(&slot, None, -1)])
        .await
        .remove(0);
    assert!(matches!(refused, Err(Error::Fenced)));
}

#[tokio::test]
async fn a_run_whose_claim_had_no_answer_is_found_again() {
    let (_database, store) = store().await;
    let thread = slot(&store).await.thread;
    let me = WorkerId::mint();
    store.renew(me, Duration::from_secs(3600)).await.unwrap();
    let run = NewRun {
        claim: Some(me),
        ..new_run(thread)
    };
    let Created::Started(run, _) = store.create_run(run).await.unwrap() else {
        panic!("the slot was free");
    };
    let recover = async |busy: &[RunId]| {
        let by = Recover {
            worker: me,
            busy: busy.to_vec(),
            limit: 10,
            slots: Default::default(),
            failed: vec![],
        };
        store.recover(by).await.unwrap().taken
    };
    assert!(
        recover(&[]).await.is_empty(),
        "its answer may be on its way"
    );
    store.renew(me, Duration::ZERO).await.unwrap();
    assert!(recover(&[run.id]).await.is_empty(), "it is being executed");
    let taken = recover(&[]).await;
    assert_eq!((taken.len(), taken[0].run.id), (1, run.id));
    assert!(recover(&[run.id]).await.is_empty());
}

#[tokio::test]
async fn lost_connections_are_replaced_without_the_writer_noticing() {
    let (database, store) = store().await;
    let slot = slot(&store).await;
    let client = connect(&database.url).await;
    let mut parent = None;
    for step in 0..3 {
        let ended = client
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()",
                &[],
            )
            .await
            .unwrap();
        assert!(!ended.is_empty());
        let next = superstep(&slot, parent, step);
        parent = Some(next.checkpoint.id);
        let depth = store.commit(vec![next]).await.remove(0).unwrap();
        assert_eq!(i64::from(depth), step);
    }
    assert!(store.thread(slot.thread).await.unwrap().unwrap().head == parent);
}

#[tokio::test]
async fn a_request_to_cancel_reaches_the_process_that_executes_the_run_while_it_lives() {
    let (_database, store) = store().await;
    let worker = WorkerId::mint();
    store.renew(worker, Duration::from_secs(60)).await.unwrap();
    let slot = slot(&store).await;
    let new = NewRun {
        claim: Some(worker),
        ..new_run(slot.thread)
    };
    let run = new.id;
    assert!(matches!(
        store.create_run(new).await.unwrap(),
        Created::Started(..)
    ));
    assert_eq!(store.running(worker).await.unwrap(), [(run, None)]);
    let reason = backstitch::value!({"error": "UserInterrupt", "message": "nul \0 and ü"});
    let ask = async |run: RunId| {
        let mut tx = runs::Store::begin(&store, slot.tree).await.unwrap();
        let is_requested = tx.request_cancel(run, reason.clone()).await.unwrap();
        tx.commit().await.unwrap();
        is_requested
    };
    assert!(ask(run).await);
    assert_eq!(
        store.running(worker).await.unwrap(),
        [(run, Some(reason.clone()))]
    );
    assert!(!ask(RunId::mint()).await);
    // Nobody reads it any more.
    store.retire(worker).await.unwrap();
    assert!(!ask(run).await);
}

#[tokio::test]
async fn the_result_of_a_stateless_run_outlives_it_for_those_who_wait_elsewhere() {
    let (_database, store) = store().await;
    let log: &dyn Log = &store;
    for (is_awaited, is_foreign) in [(false, false), (true, false), (false, true)] {
        let id = ThreadId::mint();
        let new = NewRun {
            create_thread: Some(new_thread(id)),
            temporary: true,
            claim: Some(WorkerId::mint()),
            ..new_run(id)
        };
        store
            .renew(new.claim.unwrap(), Duration::from_secs(60))
            .await
            .unwrap();
        let Created::Started(run, slot) = store.create_run(new).await.unwrap() else {
            panic!("it starts at once");
        };
        if is_awaited {
            assert!(store.await_end(run.id).await.unwrap());
            assert!(
                !store.await_end(run.id).await.unwrap(),
                "it is awaited already"
            );
        }
        let body = Value::map(Map::from([("text", "a\0b".into())]));
        let end = Finish {
            slot,
            run: run.id,
            status: Status::Success,
            outcome: Outcome::Idle,
            error: None,
            delete_thread: true,
            committing: Default::default(),
            left: Some(LeftResult {
                body: body.clone(),
                is_foreign,
            }),
            frames: vec![],
        };
        store.finish(end).await.unwrap();
        assert!(!store.await_end(run.id).await.unwrap(), "it has ended");
        let ended = log.ended_run(run.id).await.unwrap();
        let left = ended.and_then(|ended| ended.result);
        assert_eq!(left, (is_awaited || is_foreign).then_some(body));
    }
    // What is not temporary is read in its row.
    let slot = slot(&store).await;
    let Created::Started(run, _) = store
        .create_run(NewRun {
            claim: Some(WorkerId::mint()),
            ..new_run(slot.thread)
        })
        .await
        .unwrap()
    else {
        panic!("it starts at once");
    };
    assert!(!store.await_end(run.id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_waits_to_be_created_for_the_branch_of_another_thread() {
    let (database, store) = store().await;
    let locked = slot(&store).await;
    let mut others = vec![];
    for _ in 0..20 {
        others.push(slot(&store).await.thread);
    }
    let session = connect(&database.url).await;
    let lock = "BEGIN; SELECT 1 FROM branches WHERE branch_id = ";
    let lock = format!("{lock}'{}' FOR UPDATE", locked.branch);
    session.batch_execute(&lock).await.unwrap();
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create_run(new_run(locked.thread)).await }
    });
    let others = others
        .into_iter()
        .map(|thread| store.create_run(new_run(thread)));
    for created in futures::future::join_all(others).await {
        assert!(matches!(created.unwrap(), Created::Started(..)));
    }
    assert!(!creating.is_finished());
    session.batch_execute("COMMIT").await.unwrap();
    let created = creating.await.unwrap().unwrap();
    assert!(matches!(created, Created::Started(..)), "{created:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_created_once_each_while_connections_are_lost() {
    let (database, store) = store().await;
    let session = connect(&database.url).await;
    for _ in 0..3 {
        let mut new = vec![];
        for _ in 0..8 {
            new.push(new_run(slot(&store).await.thread));
        }
        session
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()",
                &[],
            )
            .await
            .unwrap();
        let created = new.iter().map(|new| store.create_run(new.clone()));
        let created = futures::future::join_all(created).await;
        for (new, created) in new.iter().zip(created) {
            let Created::Started(run, _) = created.unwrap() else {
                panic!("the slot was free");
            };
            assert_eq!(run.id, new.id);
            let runs = store.runs(new.thread, None, 10, 0).await.unwrap();
            assert_eq!(runs.len(), 1);
        }
    }
}
