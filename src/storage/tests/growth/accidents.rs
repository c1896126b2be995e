//! What requests seldom do to a tree: replies are lost, processes die over their runs, times are over. The server is not there
//! meanwhile.

use std::time::Duration;

use super::{
    acts::thread_of,
    claims,
    requests::Tree,
    rooms::{Rooms, ann, chunk},
};
use crate::{
    checkpoint::{At, CheckpointRow, Commit, Error, List, NewBranch, Query, Saver, Slot},
    id::{AssistantId, BranchId, CheckpointId, RunId, ThreadId, TreeId, WorkerId},
    runs::{
        self, Created, Finish, LeftResult, NewRun, OpenPage, Recover, RequestSlots, Run, Status,
        Strategy, Undo,
    },
    tree::{
        self, IfExists, NewThread, Outcome,
        members::Access,
        projection::{self, Progress, Projection, ProjectionStep},
        store::tx::{InsertBranch, SharedInside},
    },
    value::{Map, Value},
};

pub(super) fn new_thread(id: ThreadId) -> NewThread {
    NewThread {
        id,
        metadata: Map::new(),
        owner: "ann".to_owned(),
        if_exists: IfExists::Raise,
        ttl: None,
    }
}

/// A run that waits on the active branch of a thread.
pub(super) fn waiting(thread: ThreadId) -> NewRun {
    NewRun {
        id: RunId::mint(),
        thread,
        create_thread: None,
        assistant: AssistantId::of_graph("agent"),
        metadata: Map::new(),
        kwargs: Value::Null,
        address: None,
        branch: None,
        strategy: Strategy::Enqueue,
        after: Duration::ZERO,
        temporary: false,
        claim: None,
        own_metadata: None,
        thread_metadata: Map::new(),
        thread_config: Map::new(),
        inherits_user: false,
        max_queued: 100,
        access: Access::unrestricted(),
        unchanged_since: None,
    }
}

pub(super) async fn start<S: Rooms>(store: &S, new: NewRun) -> (Run, Slot) {
    match store.create_run(new).await.unwrap() {
        Created::Started(run, slot) => (*run, slot),
        other => panic!("{other:?}"),
    }
}

/// The run has succeeded.
fn end_of(run: &Run, slot: Slot) -> Finish {
    Finish {
        slot,
        run: run.id,
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: false,
        committing: Default::default(),
        left: None,
        frames: vec![],
    }
}

/// All of it.
pub(super) async fn happen<S: Rooms>(store: &S, tree: &Tree) {
    let thread = thread_of(&tree.thread);
    let middle = CheckpointId(tree.middle.parse().unwrap());
    let of = TreeId(thread.0);
    slots(store, thread).await;
    changes(store, of, thread, middle).await;
    expires(store, of, thread).await;
    loads(store, of, thread_of(&tree.short[0])).await;
    few_are_listed(store, of, thread).await;
    temporary(store).await;
    replies_are_lost(store, of, thread).await;
    a_stream_ends_with_its_run(store, thread).await;
    a_new_branch_goes(store, of, thread).await;
    processes_die(store, waiting(thread)).await;
    processes_die(store, stateless()).await;
    claims::another_branch_is_active(store, of, thread).await;
    claims::runs_are_behind_others(store, tree.messages).await;
    one_table_is_made_anew(store, thread).await;
}

async fn slots<S: Rooms>(store: &S, thread: ThreadId) {
    assert!(store.slot(thread).await.unwrap().is_some());
    let slot = store.take_slot(thread).await.unwrap().unwrap();
    let idle = store.record_outcome(slot, Outcome::Idle, None);
    idle.await.unwrap();
    let patched = store.patch_thread(thread, Map::new()).await.unwrap();
    assert!(patched.is_some());
    let last = store.runs(thread, None, 1, 0).await.unwrap()[0].clone();
    let weights = store.metadata_weights(thread, None, 1, 0).await.unwrap();
    assert_eq!(weights[0].0, last.id);
    let metadata = store.runs_with_metadata(thread, None, 1, 0).await.unwrap();
    assert_eq!(metadata[0].metadata, last.metadata);
    let one = store.run_with_metadata(thread, last.id).await.unwrap();
    assert_eq!(one.unwrap().metadata, last.metadata);
    let ended = runs::Store::ended_run(store, last.tree, last.id);
    ended.await.unwrap().unwrap();
    // The row of this one has gone with its thread.
    let gone = runs::Store::ended_run(store, last.tree, RunId::mint());
    assert!(gone.await.unwrap().is_none());
    let of = runs::Store::thread_of_run(store, last.id).await.unwrap();
    assert_eq!(of, Some(thread));
    let open = store.is_open(thread, vec![last.id]).await.unwrap();
    assert_eq!(open, [(last.id, false)]);
    let page = OpenPage {
        status: None,
        writer: Some(ann()),
        after: None,
        limit: 10,
    };
    store.open(page).await.unwrap();
    store.open_states(10).await.unwrap();
    // A tombstone makes room for a thread of the same id.
    let id = ThreadId::mint();
    for _ in 0..2 {
        let created = store.create_thread(new_thread(id)).await.unwrap();
        assert!(created.is_some());
        assert!(store.delete_thread(id).await.unwrap());
    }
}

/// Nothing of it stays.
async fn changes<S: Rooms>(store: &S, of: TreeId, thread: ThreadId, base: CheckpointId) {
    let mut tx = tree::Store::begin(store, of).await.unwrap();
    let branches = tx.branches(of, thread).await.unwrap();
    let from = branches.iter().find(|branch| &*branch.name == "b1");
    let from = from.unwrap().id;
    let new = InsertBranch {
        id: BranchId::mint(),
        tree: of,
        thread,
        name: "of accidents".into(),
        head: Some(base),
        head_depth: 1,
        outcome: Outcome::Idle,
        origin: "rewind",
        source: Some(from),
    };
    let to = new.id;
    tx.insert_branch(new).await.unwrap();
    tx.copy_writes(of, base, from, to).await.unwrap();
    tx.inside(of, base, from).await.unwrap();
    let shared = SharedInside {
        source: from,
        creation: base,
    };
    tx.share_inside(of, to, shared).await.unwrap();
    let first = tx.children(of, None).await.unwrap();
    assert!(!first.is_empty());
    let followers = tx.followers(of, vec![first[0].id]).await.unwrap();
    assert!(!followers.is_empty());
    tx.set_owner(of, "bob".into()).await.unwrap();
}

async fn expires<S: Rooms>(store: &S, of: TreeId, thread: ThreadId) {
    store.expiry(thread).await.unwrap().unwrap();
    let mut tx = tree::Store::begin(store, of).await.unwrap();
    tx.expired(of, thread).await.unwrap();
    tx.commit().await.unwrap();
}

async fn loads<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId) {
    // Where the subgraph has stored a state.
    let all = List {
        tree,
        thread,
        ns: None,
        before: None,
        id: None,
        metadata: None,
        limit: 100,
    };
    let all = Saver::list(store, all).await.unwrap();
    // The oldest one: there is none before it.
    let inner = all.iter().rfind(|one| !one.row.ns.is_empty()).unwrap();
    let inner = &inner.row;
    let of = store.thread(thread).await.unwrap().unwrap();
    let subgraph = |before| At::Subgraph {
        start: of.head.unwrap(),
        branch: of.active_branch,
        before,
    };
    for (at, ns, is_there) in [
        (At::Head(of.active_branch), "", true),
        (At::ActiveHead, "", true),
        (At::Newest, "", true),
        (subgraph(None), &*inner.ns, true),
        (subgraph(Some(inner.id)), &*inner.ns, false),
    ] {
        let query = Query {
            tree,
            thread,
            ns: ns.into(),
            at,
            values: true,
        };
        let found = Saver::load(store, query).await.unwrap();
        assert_eq!(found.is_some(), is_there);
    }
}

/// Those that a label finds.
async fn few_are_listed<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId) {
    let few = List {
        tree,
        thread,
        ns: Some("".into()),
        before: None,
        id: None,
        metadata: Some(Map::from([("user", Value::str("rare"))])),
        limit: 100,
    };
    let found = Saver::list(store, few).await.unwrap();
    assert!((1..9).contains(&found.len()), "{}", found.len());
}

/// A run whose thread goes with it.
fn stateless() -> NewRun {
    let thread = ThreadId::mint();
    NewRun {
        create_thread: Some(new_thread(thread)),
        temporary: true,
        ..waiting(thread)
    }
}

/// Such a run whose result is awaited elsewhere.
async fn temporary<S: Rooms>(store: &S) {
    let new = NewRun {
        claim: Some(WorkerId::mint()),
        ..stateless()
    };
    let (run, slot) = start(store, new).await;
    store.await_end(run.id).await.unwrap();
    let left = LeftResult {
        body: Value::Null,
        is_foreign: true,
    };
    let finish = Finish {
        delete_thread: true,
        left: Some(left),
        ..end_of(&run, slot)
    };
    store.finish(finish.clone()).await.unwrap();
    // As after a lost reply, which SQLite has not.
    if let Err(error) = store.finish(finish).await {
        assert!(matches!(error, Error::Fenced), "{error}");
    }
}

async fn replies_are_lost<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId) {
    let worker = WorkerId::mint();
    store.renew(worker, Duration::from_secs(60)).await.unwrap();
    let new = NewRun {
        claim: Some(worker),
        ..waiting(thread)
    };
    let (run, slot) = start(store, new.clone()).await;
    let again = store.create_run(new).await.unwrap();
    assert!(matches!(again, Created::Exists), "{again:?}");
    let query = Query {
        tree,
        thread,
        ns: "".into(),
        at: At::ActiveHead,
        values: false,
    };
    let head = Saver::load(store, query).await.unwrap().unwrap();
    let commit = Commit {
        slot: Slot {
            epoch: slot.epoch - 1,
            ..slot
        },
        open: None,
        checkpoint: head.row,
        blobs: vec![],
        writes: vec![],
        nodes: vec![],
        events: vec![],
    };
    assert!(store.commit(vec![commit]).await[0].is_err());
    let mut tx = runs::Store::begin(store, tree).await.unwrap();
    tx.request_cancel(run.id, Value::Null).await.unwrap();
    tx.commit().await.unwrap();
    let claimed = store.reclaim(worker, run.id).await.unwrap().unwrap();
    assert_eq!(claimed.run.id, run.id);
    let changed = NewRun {
        strategy: Strategy::Interrupt,
        unchanged_since: Some(-1),
        ..waiting(thread)
    };
    let refused = store.create_run(changed).await.unwrap();
    assert!(matches!(refused, Created::Changed), "{refused:?}");
    end(store, tree, thread, &[run.id]).await;
    store.retire(worker).await.unwrap();
}

/// The last frames come with the final row, of which the reply is lost.
async fn a_stream_ends_with_its_run<S: Rooms>(store: &S, thread: ThreadId) {
    let new = NewRun {
        claim: Some(WorkerId::mint()),
        ..waiting(thread)
    };
    let (run, slot) = start(store, new).await;
    let finish = Finish {
        frames: vec![chunk(thread, run.id, 1, false)],
        ..end_of(&run, slot)
    };
    let positions = store.finish(finish.clone()).await.unwrap();
    assert_eq!(positions.len(), 1);
    match store.finish(finish).await {
        Ok(again) => assert!(again.is_empty(), "{again:?}"),
        // SQLite loses no reply.
        Err(error) => assert!(matches!(error, Error::Fenced), "{error}"),
    }
}

/// A run that is executed is rolled back with the branch that it has opened.
async fn a_new_branch_goes<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId) {
    let new = NewRun {
        claim: Some(WorkerId::mint()),
        ..waiting(thread)
    };
    let (run, source) = start(store, new).await;
    let query = Query {
        tree,
        thread,
        ns: "".into(),
        at: At::ActiveHead,
        values: false,
    };
    let head = Saver::load(store, query).await.unwrap().unwrap().row;
    let opened = NewBranch {
        id: BranchId::mint(),
        base: Some(head.id),
        base_depth: head.depth,
        source,
        origin: "checkpoint",
        activate: true,
        copy_writes: false,
        writes_of: None,
        name: None,
        run: Some(run.id),
    };
    let commit = Commit {
        slot: Slot {
            branch: opened.id,
            head: Some(head.id),
            head_depth: head.depth,
            ..source
        },
        checkpoint: CheckpointRow {
            id: CheckpointId::mint(0, [head.id]),
            parent: Some(head.id),
            branch: opened.id,
            run: Some(run.id),
            ..head
        },
        open: Some(opened),
        blobs: vec![],
        writes: vec![],
        nodes: vec![],
        events: vec![],
    };
    let depths = store.commit(vec![commit]).await;
    assert!(depths[0].is_ok(), "{depths:?}");
    let undo = Undo {
        thread,
        run: run.id,
        ended: false,
        error: Some(Undo::lost()),
    };
    let mut tx = runs::Store::begin(store, tree).await.unwrap();
    assert!(tx.remove_run(undo).await.unwrap().is_some());
    tx.commit().await.unwrap();
}

pub(super) async fn end<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId, runs: &[RunId]) {
    let mut tx = tree::Store::begin(store, tree).await.unwrap();
    tx.cancel_runs(thread, runs.to_vec()).await.unwrap();
    tx.commit().await.unwrap();
}

/// Every process that takes a run over dies, until it ends.
async fn processes_die<S: Rooms>(store: &S, new: NewRun) {
    let short = Duration::from_millis(1);
    let first = WorkerId::mint();
    store.renew(first, short).await.unwrap();
    let new = NewRun {
        claim: Some(first),
        ..new
    };
    let (run, _) = start(store, new).await;
    for _ in 0..100 {
        let worker = WorkerId::mint();
        store.renew(worker, short).await.unwrap();
        let by = Recover {
            worker,
            busy: vec![],
            limit: 10,
            slots: RequestSlots::default(),
            failed: vec![],
        };
        if store.recover(by).await.unwrap().ended.contains(&run.id) {
            return;
        }
    }
    panic!("the run has not ended");
}

async fn one_table_is_made_anew<S: Rooms>(store: &S, thread: ThreadId) {
    let heads = Some(Projection::Heads);
    let reset = projection::Store::reset(store, heads, Some(thread));
    reset.await.unwrap();
    for _ in 0..2 {
        steps(store, vec![thread]).await;
    }
}

/// The rows of all threads go.
pub(super) async fn tables_go<S: Rooms>(store: &S) {
    let reset = projection::Store::reset(store, Some(Projection::Heads), None);
    reset.await.unwrap();
}

/// Nothing is left for the server to derive.
pub(super) async fn tables_are_made_anew<S: Rooms>(store: &S) {
    let (behind, _) = projection::Store::behind(store, None, 1000).await.unwrap();
    steps(store, behind).await;
}

async fn steps<S: Rooms>(store: &S, threads: Vec<ThreadId>) {
    let progress = store.progress(threads).await.unwrap();
    let step = |one: &Progress| ProjectionStep {
        tree: one.tree,
        thread: one.thread,
        from: one.offsets[0],
        to: one.last,
        head: one.head.clone().unwrap_or_default(),
    };
    store
        .apply(progress.iter().map(step).collect())
        .await
        .unwrap();
}
