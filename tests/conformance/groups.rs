//! Writes that come at one time, on Postgres: what happens to one of a group does not keep the others waiting, and a
//! reply that is lost makes nothing happen twice.

use std::time::Duration;

use backstitch::{
    checkpoint::{Error, Saver, Slot},
    failpoint::{Action, hits, set, set_at},
    id::{RunId, ThreadId},
    runs::{Created, CreatedBatch, Finish, NewRun, Status, Store as _, Strategy},
    storage::postgres::{Options, Store},
    tree::{Outcome, Store as _},
};
use futures::future::join_all;
use test_support::{
    postgres::{Database, database},
    tables::connect,
};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::{
    lossy::Lossy,
    on_postgres::{slot, store},
    rows::{new_run, new_thread, superstep},
};

/// A store whose connections may be lost and whose statements wait long, and a session past it.
async fn lossy(database: &Database) -> (Lossy, Store, Client) {
    let lossy = Lossy::before(database).await;
    let patient = "options=-c%20lock_timeout%3D60000%20-c%20statement_timeout%3D60000";
    let url = format!("{}?{patient}", lossy.url);
    let store = Store::connect(Options::new(&url)).await.unwrap();
    (lossy, store, connect(&database.url).await)
}

/// Waits until the condition holds.
async fn until(session: &Client, condition: &str) {
    let text = format!("SELECT {condition}");
    while !session
        .query_one(&text, &[])
        .await
        .unwrap()
        .get::<_, bool>(0)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until so many connections wait for locks.
async fn until_locks_are_waited_for(session: &Client, number: usize) {
    let condition = format!(
        "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock') = {number}"
    );
    until(session, &condition).await;
}

async fn lock_branch(session: &Client, slot: &Slot) {
    let text = format!(
        "SELECT 1 FROM branches WHERE branch_id = '{}' FOR UPDATE",
        slot.branch
    );
    session.batch_execute(&text).await.unwrap();
}

#[tokio::test]
async fn commits_that_are_tried_again_keep_no_others_waiting() {
    let (database, store) = store().await;
    let (locker, session) = (connect(&database.url).await, connect(&database.url).await);
    locker.batch_execute("BEGIN").await.unwrap();
    let mut stuck = vec![];
    for number in 1..=3 {
        let slot = slot(&store).await;
        lock_branch(&locker, &slot).await;
        let store = store.clone();
        let commit = superstep(&slot, None, -1);
        stuck.push(tokio::spawn(
            async move { store.commit(vec![commit]).await },
        ));
        until_locks_are_waited_for(&session, number).await;
    }
    let free = slot(&store).await;
    let written = store.commit(vec![superstep(&free, None, -1)]).await;
    assert_eq!(*written[0].as_ref().unwrap(), 0);
    assert!(stuck.iter().all(|one| !one.is_finished()));
    locker.batch_execute("COMMIT").await.unwrap();
    for one in stuck {
        assert_eq!(*one.await.unwrap()[0].as_ref().unwrap(), 0);
    }
}

#[tokio::test]
async fn a_deletion_and_a_commit_of_its_thread_do_not_wait_for_each_other() {
    let (database, store) = store().await;
    let (locker, session) = (connect(&database.url).await, connect(&database.url).await);
    let slot = slot(&store).await;
    locker.batch_execute("BEGIN").await.unwrap();
    lock_branch(&locker, &slot).await;
    let deleting = tokio::spawn(async move { store.delete_thread(slot.thread).await });
    until_locks_are_waited_for(&session, 1).await;
    // What a commit does next.
    let events = format!(
        "SET lock_timeout = 100; UPDATE threads SET last_event_number = last_event_number + 1 WHERE thread_id = '{}'; COMMIT",
        slot.thread
    );
    locker.batch_execute(&events).await.unwrap();
    assert!(deleting.await.unwrap().unwrap());
}

#[tokio::test]
async fn no_new_run_waits_for_the_locked_thread_of_another() {
    let (database, store) = store().await;
    let locker = connect(&database.url).await;
    let locked = slot(&store).await.thread;
    let mut others = vec![];
    for _ in 0..20 {
        others.push(new_run(slot(&store).await.thread));
    }
    let text =
        format!("BEGIN; UPDATE threads SET metadata = metadata WHERE thread_id = '{locked}'");
    locker.batch_execute(&text).await.unwrap();
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create_run(new_run(locked)).await }
    });
    for created in join_all(others.into_iter().map(|new| store.create_run(new))).await {
        assert!(matches!(created.unwrap(), Created::Started(..)));
    }
    assert!(!creating.is_finished());
    locker.batch_execute("COMMIT").await.unwrap();
    let created = creating.await.unwrap().unwrap();
    assert!(matches!(created, Created::Started(..)), "{created:?}");
}

#[tokio::test]
async fn no_new_thread_waits_for_one_whose_id_another_has_and_that_is_locked() {
    let (database, store) = store().await;
    let locker = connect(&database.url).await;
    let taken = slot(&store).await.thread;
    let text = format!("BEGIN; UPDATE threads SET metadata = metadata WHERE thread_id = '{taken}'");
    locker.batch_execute(&text).await.unwrap();
    let create = |id| {
        let store = store.clone();
        tokio::spawn(async move { store.create_thread(new_thread(id)).await })
    };
    let first = create(ThreadId::mint());
    let again = create(taken);
    let others: Vec<_> = (0..20).map(|_| create(ThreadId::mint())).collect();
    for created in join_all(others.into_iter().chain([first])).await {
        assert!(created.unwrap().unwrap().is_some());
    }
    assert!(!again.is_finished());
    locker.batch_execute("COMMIT").await.unwrap();
    assert!(again.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn new_runs_are_created_together_again_after_a_panic() {
    let (_database, store) = store().await;
    let panic = set_at("creations::group", Action::Panic, 1);
    for _ in 0..3 {
        let new = new_run(slot(&store).await.thread);
        let created = store.create_run(new).await.unwrap();
        assert!(matches!(created, Created::Started(..)), "{created:?}");
    }
    assert_eq!(hits("creations::group"), 3);
    drop(panic);
}

#[tokio::test]
async fn runs_that_are_written_do_not_wait_for_the_reasons_of_those_that_are_refused() {
    let (_database, store) = store().await;
    let mut new = vec![];
    for number in 0..8 {
        let thread = slot(&store).await.thread;
        new.push(new_run(thread));
        if number % 2 == 1 {
            store.create_run(new_run(thread)).await.unwrap();
            new[number].strategy = Strategy::Reject;
        }
    }
    let never = set(
        "creations::refused",
        Action::Sleep(Duration::from_secs(3600)),
    );
    let creating: Vec<_> = new
        .into_iter()
        .map(|new: NewRun| {
            let (store, is_refused) = (store.clone(), new.strategy == Strategy::Reject);
            let creating = tokio::spawn(async move { store.create_run(new).await });
            (is_refused, creating)
        })
        .collect();
    for (is_refused, creating) in creating {
        if !is_refused {
            let created = creating.await.unwrap().unwrap();
            assert!(matches!(created, Created::Started(..)), "{created:?}");
        }
    }
    assert_eq!(
        hits("creations::refused"),
        4,
        "all of them at the same time"
    );
    drop(never);
}

#[tokio::test]
async fn those_who_wait_to_create_threads_learn_at_once_that_the_database_is_away() {
    let database = database().await;
    let (lossy, store, _session) = lossy(&database).await;
    lossy.go_away();
    let creating = (0..512).map(|_| store.create_thread(new_thread(ThreadId::mint())));
    for created in join_all(creating).await {
        created.unwrap_err();
    }
    let groups = hits("new_threads::group");
    assert!(groups <= 3, "{groups} groups were tried");
}

/// Has inserts into the table of runs wait for a lock that the session takes: at once or when they are committed.
async fn hold_new_runs(session: &Client, when: &str) {
    let text = format!(
        "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER held AFTER INSERT ON runs DEFERRABLE INITIALLY {when}
         FOR EACH ROW EXECUTE FUNCTION held();
         SELECT pg_advisory_lock(1)"
    );
    session.batch_execute(&text).await.unwrap();
}

const RELEASE: &str = "SELECT pg_advisory_unlock(1)";

#[tokio::test]
async fn a_run_that_is_written_after_its_connection_was_lost_is_told_as_created() {
    for when in ["IMMEDIATE", "DEFERRED"] {
        let database = database().await;
        let (lossy, store, session) = lossy(&database).await;
        let thread = slot(&store).await.thread;
        hold_new_runs(&session, when).await;
        let new = new_run(thread);
        let id = new.id;
        let creating = tokio::spawn(async move { store.create_run(new).await });
        until_locks_are_waited_for(&session, 1).await;
        lossy.cut();
        // The second try waits for the first one.
        until_locks_are_waited_for(&session, 2).await;
        session.batch_execute(RELEASE).await.unwrap();
        let created = creating.await.unwrap().unwrap();
        let Created::Started(run, slot) = created else {
            panic!("{created:?}");
        };
        assert_eq!((run.id, slot.thread), (id, thread));
    }
}

fn batch() -> Vec<NewRun> {
    let new = |_| {
        let thread = ThreadId::mint();
        NewRun {
            create_thread: Some(new_thread(thread)),
            temporary: true,
            ..new_run(thread)
        }
    };
    (0..5).map(new).collect()
}

fn ids(created: CreatedBatch) -> Vec<RunId> {
    let CreatedBatch::All(all) = created else {
        panic!("{created:?}");
    };
    let id = |created| match created {
        Created::Started(run, _) => run.id,
        other => panic!("{other:?}"),
    };
    all.into_iter().map(id).collect()
}

/// A batch of new runs whose creation waits at its end until [`RELEASE`].
struct HeldBatch {
    lossy: Lossy,
    session: Client,
    /// The runs, in their order.
    expected: Vec<RunId>,
    creating: JoinHandle<Result<CreatedBatch, Error>>,
}

async fn held_batch(database: &Database) -> HeldBatch {
    let (lossy, store, session) = lossy(database).await;
    hold_new_runs(&session, "DEFERRED").await;
    let new = batch();
    let expected = new.iter().map(|new| new.id).collect();
    let creating = tokio::spawn(async move { store.create_runs(new).await });
    until_locks_are_waited_for(&session, 1).await;
    HeldBatch {
        lossy,
        session,
        expected,
        creating,
    }
}

#[tokio::test]
async fn a_batch_whose_reply_was_lost_is_told_as_created() {
    let database = database().await;
    let held = held_batch(&database).await;
    held.lossy.mute();
    held.session.batch_execute(RELEASE).await.unwrap();
    until(&held.session, "(SELECT count(*) FROM runs) = 5").await;
    held.lossy.cut();
    assert_eq!(ids(held.creating.await.unwrap().unwrap()), held.expected);
}

#[tokio::test]
async fn a_batch_that_is_written_after_its_connection_was_lost_is_told_as_created() {
    let database = database().await;
    let held = held_batch(&database).await;
    held.lossy.cut();
    until_locks_are_waited_for(&held.session, 2).await;
    held.session.batch_execute(RELEASE).await.unwrap();
    assert_eq!(ids(held.creating.await.unwrap().unwrap()), held.expected);
}

#[tokio::test]
async fn the_end_of_a_run_that_is_sent_twice_at_once_is_one() {
    let (database, store) = store().await;
    let other = Store::connect(Options::new(&database.url)).await.unwrap();
    let (locker, session) = (connect(&database.url).await, connect(&database.url).await);
    let thread = slot(&store).await.thread;
    let Created::Started(run, slot) = store.create_run(new_run(thread)).await.unwrap() else {
        panic!("the slot was free");
    };
    locker.batch_execute("BEGIN").await.unwrap();
    lock_branch(&locker, &slot).await;
    let end = Finish {
        slot,
        run: run.id,
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: false,
        committing: Default::default(),
        left: None,
        frames: vec![],
    };
    let ending: Vec<_> = [store, other]
        .into_iter()
        .map(|store| {
            let end = end.clone();
            tokio::spawn(async move { store.finish(end).await })
        })
        .collect();
    until_locks_are_waited_for(&session, 2).await;
    locker.batch_execute("COMMIT").await.unwrap();
    for ended in ending {
        ended.await.unwrap().unwrap();
    }
    let text = "SELECT event_number, kind FROM events ORDER BY event_number";
    let events = session.query(text, &[]).await.unwrap();
    let rows: Vec<(i64, i16)> = events.iter().map(|row| (row.get(0), row.get(1))).collect();
    // Its creation and start share a row, with the number of the second.
    assert_eq!(rows, [(1, 1), (3, 19), (4, 18)]);
}
