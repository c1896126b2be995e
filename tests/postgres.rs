//! What only Postgres has: migrations by several processes, connection errors, fencing between
//! connections, leases.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::{sync::Arc, time::Duration};

use backstitch::{
    checkpoint::{
        At, BlobRow, CheckpointRow, Commit, Error, Flush, List, NewBranch, Query, Saver, Slot,
        Source, Version, WriteRow,
    },
    id::{AssistantId, BranchId, CheckpointId, RunId, TaskId, ThreadId, WorkerId},
    runs::{Created, Finish, NewRun, Status, Store as _, Strategy},
    storage::postgres::{self, Options, Store},
    time::Timestamp,
    tree::{IfExists, NewThread, Outcome, Store as _},
    value::{Map, Value},
};
use support::postgres::{Database, database, empty_database};

async fn store() -> (Database, Store) {
    let database = database().await;
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    (database, store)
}

fn new_thread(id: ThreadId) -> NewThread {
    NewThread {
        id,
        metadata: Map::from([("kind", Value::str("test"))]),
        owner: "local".to_owned(),
        if_exists: IfExists::Raise,
    }
}

async fn slot(store: &Store) -> Slot {
    let id = ThreadId::mint();
    store.create_thread(new_thread(id)).await.unwrap().unwrap();
    store.take_slot(id).await.unwrap().unwrap()
}

fn new_run(thread: ThreadId, strategy: Strategy, claim: Option<WorkerId>) -> NewRun {
    NewRun {
        id: RunId::mint(),
        thread,
        create_thread: None,
        assistant: AssistantId::of_graph("agent"),
        metadata: Map::new(),
        kwargs: Value::str("input"),
        address: None,
        strategy,
        after: Duration::ZERO,
        temporary: false,
        claim,
        thread_metadata: Map::from([("graph_id", Value::str("agent"))]),
        thread_config: Map::new(),
    }
}

fn version(counter: u64) -> Version {
    Version {
        counter,
        salt: 0xabcdef,
    }
}

fn blob(counter: u64, base: Option<u64>) -> BlobRow {
    BlobRow {
        ns: Arc::from(""),
        channel: Arc::from("log"),
        version: version(counter),
        base: base.map(version),
        chain_bytes: 3,
        tag: Arc::from("bincode"),
        bytes: vec![0, 1, counter as u8],
    }
}

fn write(slot: &Slot, at: CheckpointId, task: TaskId, path: &str, idx: i32) -> WriteRow {
    WriteRow {
        ns: Arc::from(""),
        checkpoint: at,
        branch: slot.branch,
        task,
        idx,
        path: Arc::from(path),
        channel: (idx < 0).then(|| Arc::from("__interrupt__")),
        tag: Arc::from("bincode"),
        bytes: vec![7],
        upsert: false,
    }
}

/// The superstep after the slot's head; `log` is a chain of deltas.
fn commit(slot: &Slot, step: i64) -> Commit {
    let counter = (step + 2) as u64;
    Commit {
        slot: *slot,
        open: None,
        checkpoint: CheckpointRow {
            ns: Arc::from(""),
            id: CheckpointId::mint(step, slot.head),
            parent: slot.head,
            root: None,
            depth: slot.head_depth + 1,
            thread: slot.thread,
            branch: slot.branch,
            run: None,
            source: if step < 0 {
                Source::Input
            } else {
                Source::Loop
            },
            step,
            last_node: None,
            event_number: 0,
            envelope: format!(
                r#"{{"channel_versions":{{"log":"{}"}},"channel_values":{{"n":{step}}}}}"#,
                version(counter)
            ),
            metadata: r#"{"user":"ada"}"#.to_owned(),
            created_at: Timestamp::now(),
        },
        blobs: vec![blob(counter, (counter > 1).then_some(counter - 1))],
        writes: slot
            .head
            .map(|head| write(slot, head, TaskId::of_update(head, 0), "~a", 0))
            .into_iter()
            .collect(),
        nodes: Vec::new(),
        events: Vec::new(),
    }
}

/// Commits `count` supersteps and moves the slot along.
async fn advance(store: &Store, slot: &mut Slot, count: i64) -> Vec<CheckpointId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let next = commit(slot, i64::from(slot.head_depth));
        slot.head = Some(next.checkpoint.id);
        slot.head_depth += 1;
        ids.push(next.checkpoint.id);
        let depth = store.commit(vec![next]).await.remove(0).unwrap();
        assert_eq!(depth, slot.head_depth);
    }
    ids
}

fn at(slot: &Slot, at: At) -> Query {
    Query {
        tree: slot.tree,
        thread: slot.thread,
        ns: Arc::from(""),
        at,
        values: true,
    }
}

#[tokio::test]
async fn several_processes_may_migrate_one_database_at_once() {
    let database = empty_database().await;
    let all = (0..4).map(|_| postgres::migrate(&database.url));
    let applied = futures::future::join_all(all).await;
    let applied: usize = applied.into_iter().map(Result::unwrap).sum();
    assert_eq!(applied, 1);
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    slot(&store).await;
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_naming_both_versions() {
    let database = database().await;
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(
            "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             SELECT 999, 'from_the_future', applied_on, '1' FROM refinery_schema_history LIMIT 1",
        )
        .await
        .unwrap();
    let error = postgres::migrate(&database.url).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("999") && text.contains("up to 1"), "{text}");
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
async fn a_checkpoint_loads_with_its_chain_and_its_writes_in_order() {
    let (_database, store) = store().await;
    let mut slot = slot(&store).await;
    let ids = advance(&store, &mut slot, 4).await;
    let head = ids[3];
    let (a, b) = (TaskId::of_update(head, 1), TaskId::of_update(head, 2));
    let writes = vec![
        write(&slot, head, b, "~b", 0),
        write(&slot, head, a, "~a", 0),
        write(&slot, head, a, "~a", -3),
    ];
    let flush = Flush {
        slot,
        open: None,
        writes,
    };
    store.flush(flush).await.unwrap();
    for query in [
        at(&slot, At::Id(head)),
        at(&slot, At::Head(slot.branch)),
        at(&slot, At::ActiveHead),
        at(&slot, At::Newest),
    ] {
        let stored = store.load(query).await.unwrap().unwrap();
        assert_eq!(stored.row.id, head);
        assert_eq!(stored.row.parent, Some(ids[2]));
        assert_eq!(stored.row.depth, 3);
        let mut versions: Vec<u64> = stored.blobs.iter().map(|b| b.version.counter).collect();
        versions.sort_unstable();
        assert_eq!(versions, [1, 2, 3, 4]);
        let order: Vec<_> = stored.writes.iter().map(|w| (w.task, w.idx)).collect();
        assert_eq!(order, [(a, -3), (a, 0), (b, 0)]);
    }
    let bare = Query {
        values: false,
        ..at(&slot, At::ActiveHead)
    };
    assert!(store.load(bare).await.unwrap().unwrap().blobs.is_empty());
    let wanted = vec![
        (Arc::from("log"), version(3)),
        (Arc::from("log"), version(2)),
    ];
    let blobs = store.blobs(slot.tree, Arc::from(""), wanted).await.unwrap();
    assert_eq!(blobs.len(), 3);
}

#[tokio::test]
async fn a_page_gives_every_row_its_own_blobs() {
    let (_database, store) = store().await;
    let mut slot = slot(&store).await;
    let ids = advance(&store, &mut slot, 5).await;
    let list = |metadata: Option<Map>, before: Option<CheckpointId>, ns: Option<Arc<str>>| List {
        tree: slot.tree,
        thread: slot.thread,
        ns,
        before,
        id: None,
        metadata,
        limit: 3,
    };
    let root = Some(Arc::from(""));
    for ns in [None, root.clone()] {
        let page = store.list(list(None, Some(ids[4]), ns)).await.unwrap();
        let found: Vec<_> = page.iter().map(|stored| stored.row.id).collect();
        assert_eq!(found, [ids[3], ids[2], ids[1]]);
        let chains: Vec<_> = page.iter().map(|stored| stored.blobs.len()).collect();
        assert_eq!(chains, [4, 3, 2]);
        assert_eq!(page[0].writes.len(), 1);
    }
    let filter = Map::from([("source", Value::str("input")), ("user", Value::str("ada"))]);
    let page = store
        .list(list(Some(filter), None, root.clone()))
        .await
        .unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].row.id, ids[0]);
    let filter = Map::from([("user", Value::str("bob"))]);
    let page = store.list(list(Some(filter), None, root)).await.unwrap();
    assert!(page.is_empty());
}

#[tokio::test]
async fn of_many_writers_on_one_head_one_wins_and_only_its_rows_are_there() {
    let (_database, store) = store().await;
    let mut slot = slot(&store).await;
    advance(&store, &mut slot, 1).await;
    let all = (0..8).map(|_| store.commit(vec![commit(&slot, 0)]));
    let results: Vec<_> = futures::future::join_all(all)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(results.iter().filter(|r| matches!(r, Ok(1))).count(), 1);
    let fenced = results.iter().filter(|r| matches!(r, Err(Error::Fenced)));
    assert_eq!(fenced.count(), 7);
    let stored = store
        .load(at(&slot, At::ActiveHead))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.row.depth, 1);
}

#[tokio::test]
async fn a_commit_that_is_sent_again_tells_the_same_depth() {
    let (_database, store) = store().await;
    let slot = slot(&store).await;
    let first = commit(&slot, -1);
    let mut second = commit(
        &Slot {
            head: Some(first.checkpoint.id),
            head_depth: 0,
            ..slot
        },
        0,
    );
    second.slot = slot;
    let both = vec![first, second];
    for _ in 0..2 {
        let depths: Vec<_> = store.commit(both.clone()).await;
        let depths: Vec<i32> = depths.into_iter().map(Result::unwrap).collect();
        assert_eq!(depths, [0, 1]);
    }
}

#[tokio::test]
async fn a_writer_whose_epoch_was_raised_changes_nothing() {
    let (_database, store) = store().await;
    let mut old = slot(&store).await;
    advance(&store, &mut old, 1).await;
    store.take_slot(old.thread).await.unwrap().unwrap();
    let refused = store.commit(vec![commit(&old, 0)]).await.remove(0);
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    let flush = Flush {
        slot: old,
        open: None,
        writes: vec![write(&old, old.head.unwrap(), TaskId::NULL, "~", 0)],
    };
    assert!(matches!(store.flush(flush).await, Err(Error::Fenced)));
    let settled = store.settle(old, Outcome::Error, None).await;
    assert!(matches!(settled, Err(Error::Fenced)));
    let thread = store.thread(old.thread).await.unwrap().unwrap();
    assert_eq!(thread.head, old.head);
    assert_eq!(thread.outcome, Outcome::Idle);
}

#[tokio::test]
async fn of_many_runs_that_reject_others_one_starts() {
    let (_database, store) = store().await;
    let thread = slot(&store).await.thread;
    let me = WorkerId::mint();
    let all = (0..12).map(|n| {
        let claim = (n % 2 == 0).then_some(me);
        store.create_run(new_run(thread, Strategy::Reject, claim))
    });
    let results = futures::future::join_all(all).await;
    let taken = results
        .iter()
        .filter(|r| matches!(r, Ok(Created::Started(..) | Created::Queued(_))));
    assert_eq!(taken.count(), 1);
    let busy = results.iter().filter(|r| matches!(r, Ok(Created::Busy)));
    assert_eq!(busy.count(), 11);
    assert!(store.thread(thread).await.unwrap().unwrap().busy);
}

#[tokio::test]
async fn runs_of_one_thread_are_claimed_one_after_the_other() {
    let (_database, store) = store().await;
    let thread = slot(&store).await.thread;
    let (me, other) = (WorkerId::mint(), WorkerId::mint());
    let first = new_run(thread, Strategy::Enqueue, Some(me));
    let Created::Started(run, slot) = store.create_run(first.clone()).await.unwrap() else {
        panic!("the slot was free");
    };
    assert_eq!(run.kwargs, Value::str("input"));
    assert_eq!(run.attempt, 1);
    assert!(matches!(
        store.create_run(first).await.unwrap(),
        Created::Exists
    ));
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let next = new_run(thread, Strategy::Enqueue, Some(me));
        let Created::Queued(run) = store.create_run(next).await.unwrap() else {
            panic!("the slot was taken");
        };
        waiting.push(run.id);
    }
    assert!(store.claim(other, 10).await.unwrap().is_empty());
    let finish = Finish {
        slot,
        run: run.id,
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: false,
    };
    store.finish(finish.clone()).await.unwrap();
    // A lost reply makes the caller say it again.
    store.finish(finish).await.unwrap();
    let both = futures::join!(store.claim(other, 10), store.claim(me, 10));
    let claimed: Vec<_> = [both.0.unwrap(), both.1.unwrap()].concat();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].run.id, waiting[0]);
    assert_eq!(claimed[0].slot.epoch, slot.epoch + 1);
    let ended = store.cancel(thread, None).await.unwrap();
    assert_eq!(ended, waiting);
    let late = Finish {
        slot: claimed[0].slot,
        run: waiting[0],
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: false,
    };
    assert!(matches!(store.finish(late).await, Err(Error::Fenced)));
    let runs = store.runs(thread, None, 10, 0).await.unwrap();
    let states: Vec<_> = runs.iter().map(|run| run.status).collect();
    assert_eq!(
        states,
        [Status::Interrupted, Status::Interrupted, Status::Success]
    );
    assert!(!store.thread(thread).await.unwrap().unwrap().busy);
}

#[tokio::test]
async fn a_rollback_undoes_the_running_run() {
    let (_database, store) = store().await;
    let mut slot = slot(&store).await;
    let ids = advance(&store, &mut slot, 2).await;
    let me = WorkerId::mint();
    let first = new_run(slot.thread, Strategy::Enqueue, Some(me));
    let Created::Started(run, mut slot) = store.create_run(first).await.unwrap() else {
        panic!("the slot was free");
    };
    let undone = advance(&store, &mut slot, 2).await;
    let second = new_run(slot.thread, Strategy::Rollback, Some(me));
    let Created::Started(_, next) = store.create_run(second).await.unwrap() else {
        panic!("the slot was cleared");
    };
    assert_eq!(next.head, Some(ids[1]));
    assert_eq!(next.head_depth, 1);
    assert!(next.epoch > slot.epoch);
    let gone = store.load(at(&slot, At::Id(undone[0]))).await.unwrap();
    assert!(gone.is_none());
    let run = store.run(slot.thread, run.id).await.unwrap().unwrap();
    assert_eq!(run.status, Status::Interrupted);
    let refused = store.commit(vec![commit(&slot, 4)]).await.remove(0);
    assert!(matches!(refused, Err(Error::Fenced)));
}

#[tokio::test]
async fn a_run_from_an_old_checkpoint_opens_a_branch_with_its_first_write() {
    let (_database, store) = store().await;
    let mut old = slot(&store).await;
    let ids = advance(&store, &mut old, 3).await;
    let question = write(&old, ids[1], TaskId::of_update(ids[1], 9), "~q", -3);
    let flush = Flush {
        slot: old,
        open: None,
        writes: vec![question],
    };
    store.flush(flush).await.unwrap();
    let me = WorkerId::mint();
    let first = new_run(old.thread, Strategy::Enqueue, Some(me));
    let Created::Started(run, source) = store.create_run(first).await.unwrap() else {
        panic!("the slot was free");
    };
    let branch = BranchId::mint();
    let new = Slot {
        branch,
        epoch: 1,
        head: Some(ids[1]),
        head_depth: 1,
        ..source
    };
    let mut next = commit(&new, 1);
    next.blobs[0].version.salt = 1;
    next.writes.clear();
    next.open = Some(NewBranch {
        id: branch,
        base: Some(ids[1]),
        base_depth: 1,
        source,
        origin: "checkpoint",
        activate: true,
        copy_writes: true,
        run: Some(run.id),
    });
    assert_eq!(store.commit(vec![next.clone()]).await.remove(0).unwrap(), 2);
    assert_eq!(store.commit(vec![next]).await.remove(0).unwrap(), 2);
    let thread = store.thread(old.thread).await.unwrap().unwrap();
    assert_eq!(thread.active_branch, branch);
    assert_eq!(thread.epoch, 1);
    let base = store.load(at(&new, At::Id(ids[1]))).await.unwrap().unwrap();
    // The open question, and the result of the task that needs not run again.
    let copied = base.writes.iter().filter(|w| w.branch == branch);
    assert_eq!(copied.map(|w| w.idx).collect::<Vec<_>>(), [0, -3]);
    // Undoing it makes the old branch active again.
    let rollback = new_run(old.thread, Strategy::Rollback, Some(me));
    let Created::Started(_, back) = store.create_run(rollback).await.unwrap() else {
        panic!("the slot was cleared");
    };
    assert_eq!(back.branch, old.branch);
    assert_eq!(back.head, Some(ids[2]));
}

#[tokio::test]
async fn runs_of_a_worker_whose_lease_lapsed_are_ended() {
    let (_database, store) = store().await;
    let thread = slot(&store).await.thread;
    let (dead, alive) = (WorkerId::mint(), WorkerId::mint());
    store.renew(dead, Duration::from_secs(3600)).await.unwrap();
    store.renew(alive, Duration::from_secs(3600)).await.unwrap();
    let run = new_run(thread, Strategy::Enqueue, Some(dead));
    let Created::Started(run, slot) = store.create_run(run).await.unwrap() else {
        panic!("the slot was free");
    };
    assert!(store.recover(alive).await.unwrap().is_empty());
    store.renew(dead, Duration::ZERO).await.unwrap();
    assert_eq!(store.recover(alive).await.unwrap(), [run.id]);
    let row = store.run(thread, run.id).await.unwrap().unwrap();
    assert_eq!(row.status, Status::Error);
    let error = row.error.unwrap();
    assert_eq!(
        error.get("error").and_then(Value::as_str),
        Some("WorkerLost")
    );
    let refused = store.commit(vec![commit(&slot, -1)]).await.remove(0);
    assert!(matches!(refused, Err(Error::Fenced)));
}

#[tokio::test]
async fn a_temporary_thread_goes_with_its_run_and_leaves_no_row() {
    let (database, store) = store().await;
    let id = ThreadId::mint();
    let me = WorkerId::mint();
    let mut run = new_run(id, Strategy::Enqueue, Some(me));
    run.create_thread = Some(new_thread(id));
    run.temporary = true;
    let Created::Started(run, mut slot) = store.create_run(run).await.unwrap() else {
        panic!("the thread is new");
    };
    advance(&store, &mut slot, 2).await;
    let finish = Finish {
        slot,
        run: run.id,
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: true,
    };
    store.finish(finish).await.unwrap();
    assert!(store.thread(id).await.unwrap().is_none());
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let row = client
        .query_one(
            "SELECT (SELECT count(*) FROM threads) + (SELECT count(*) FROM trees) + (SELECT count(*) FROM branches)
                  + (SELECT count(*) FROM runs) + (SELECT count(*) FROM checkpoints) + (SELECT count(*) FROM checkpoint_blobs)
                  + (SELECT count(*) FROM checkpoint_writes)",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}
