//! What a new run does to others of its slot.

use std::sync::Arc;

use backstitch::{
    checkpoint::{At, Error, Slot},
    id::{CheckpointId, RunId, ThreadId},
    runs::{Created, NewRun, Run, Status, Strategy},
    tree::Outcome,
};

use super::backend::*;

fn with(thread: ThreadId, strategy: Strategy) -> NewRun {
    NewRun {
        strategy,
        ..new_run(thread)
    }
}

/// Commits one superstep of a run after `parent`, and ends it.
async fn step_and_end(b: &Backend, run: &Run, slot: Slot, parent: Option<CheckpointId>) {
    let head = Some(b.line(&slot, parent, 1).await[0]);
    b.finish(run.id, Slot { head, ..slot }).await;
}

pub async fn reject_refuses_while_another_run_is_open(b: &Backend) {
    let thread = b.thread().await;
    let refused = async || {
        let new = with(thread, Strategy::Reject);
        let id = new.id;
        let busy = matches!(b.runs.create_run(new).await.unwrap(), Created::Busy);
        assert_eq!(busy, b.runs.run(thread, id).await.unwrap().is_none());
        busy
    };
    let (run, slot) = b.start(with(thread, Strategy::Reject)).await;
    assert!(refused().await, "one is running");
    let waiting = b.queue(new_run(thread)).await;
    b.finish(run.id, slot).await;
    assert!(refused().await, "one is pending");
    b.cancel(thread, Some(waiting.id)).await;
    assert!(!refused().await);
}

pub async fn of_many_rejecting_runs_one_starts(b: &Backend) {
    let thread = b.thread().await;
    let mut posts = Vec::new();
    for _ in 0..16 {
        let runs = Arc::clone(&b.runs);
        let new = with(thread, Strategy::Reject);
        posts.push(tokio::spawn(
            async move { runs.create_run(new).await.unwrap() },
        ));
    }
    let mut started = 0;
    for post in posts {
        match post.await.unwrap() {
            Created::Started(..) => started += 1,
            Created::Busy => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(started, 1);
}

pub async fn enqueue_waits_behind_others(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(with(thread, Strategy::Enqueue)).await;
    let second = b.queue(with(thread, Strategy::Enqueue)).await;
    assert_eq!(second.branch, None);
    b.finish(run.id, slot).await;
    // Also behind one that only waits.
    let third = b.queue(with(thread, Strategy::Enqueue)).await;
    assert_eq!(b.run(&third).await.status, Status::Pending);
    assert_eq!(
        b.trees.slot(thread).await.unwrap().unwrap().epoch,
        slot.epoch
    );
}

/// A thread whose first run made one checkpoint and ended, and whose second one made two more
/// and goes on, with a third one waiting.
struct Scene {
    thread: ThreadId,
    base: CheckpointId,
    ids: Vec<CheckpointId>,
    running: Run,
    slot: Slot,
    waiting: Run,
}

async fn scene(b: &Backend) -> Scene {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let base = b.line(&slot, None, 1).await[0];
    b.finish(run.id, slot).await;
    let (running, slot) = b.start(new_run(thread)).await;
    let ids = b.line(&slot, Some(base), 2).await;
    let waiting = b.queue(new_run(thread)).await;
    Scene {
        thread,
        base,
        ids,
        running,
        slot,
        waiting,
    }
}

async fn assert_ended(b: &Backend, scene: &Scene) {
    for run in [&scene.running, &scene.waiting] {
        assert_eq!(b.run(run).await.status, Status::Interrupted);
    }
    assert_fenced(b, scene).await;
}

async fn assert_fenced(b: &Backend, scene: &Scene) {
    for parent in [scene.ids[1], scene.base] {
        let late = b.try_commit(superstep(&scene.slot, Some(parent), 5)).await;
        assert!(matches!(late, Err(Error::Fenced)), "{late:?}");
    }
}

pub async fn interrupt_ends_others_and_keeps_what_they_did(b: &Backend) {
    let scene = scene(b).await;
    let (run, slot) = b.start(with(scene.thread, Strategy::Interrupt)).await;
    assert_eq!((slot.head, slot.head_depth), (Some(scene.ids[1]), 2));
    assert_ended(b, &scene).await;
    step_and_end(b, &run, slot, slot.head).await;
    assert_eq!(b.rows(&slot).await["checkpoints"], 4);

    // Without a worker it waits, alone.
    let (other, _) = b.start(new_run(scene.thread)).await;
    let waits = NewRun {
        claim: None,
        ..with(scene.thread, Strategy::Interrupt)
    };
    let waits = b.queue(waits).await;
    assert_eq!(b.run(&other).await.status, Status::Interrupted);
    assert_eq!(b.run(&waits).await.status, Status::Pending);
}

pub async fn rollback_undoes_what_the_others_did(b: &Backend) {
    let scene = scene(b).await;
    // Values, results and subgraph rows of the run go too.
    let version = version_after(9);
    let mut commit = superstep(&scene.slot, Some(scene.ids[1]), 3);
    let last = commit.checkpoint.id;
    commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
    commit.blobs = vec![blob("c", version, None, b"x")];
    commit.writes = vec![result(scene.ids[1], 1, b"x")];
    b.commit(commit).await;
    let sub = substep(&scene.slot, "sub", last, None);
    let sub_id = sub.checkpoint.id;
    b.commit(sub).await;
    let mut in_sub = result(sub_id, 1, b"x");
    in_sub.ns = "sub".into();
    b.saver
        .flush(flush(&scene.slot, vec![in_sub]))
        .await
        .unwrap();

    let (run, slot) = b.start(with(scene.thread, Strategy::Rollback)).await;
    assert_eq!((slot.head, slot.head_depth), (Some(scene.base), 0));
    for run in [&scene.running, &scene.waiting] {
        let row = b.runs.run(scene.thread, run.id).await.unwrap();
        assert!(row.is_none(), "{row:?}");
    }
    assert_fenced(b, &scene).await;
    let rows = b.rows(&slot).await;
    assert_eq!(rows["checkpoints"], 1, "{rows:?}");
    assert!(!rows.contains_key("checkpoint_blobs"), "{rows:?}");
    assert!(!rows.contains_key("checkpoint_writes"), "{rows:?}");
    let state = b.trees.thread(scene.thread).await.unwrap().unwrap();
    assert_eq!(state.outcome, Outcome::Idle);
    step_and_end(b, &run, slot, Some(scene.base)).await;

    // The first run of a thread goes back to nothing.
    let thread = b.thread().await;
    let (_, slot) = b.start(new_run(thread)).await;
    b.line(&slot, None, 2).await;
    let (_, slot) = b.start(with(thread, Strategy::Rollback)).await;
    assert_eq!((slot.head, slot.head_depth), (None, -1));
    assert!(!b.rows(&slot).await.contains_key("checkpoints"));
}

pub async fn rollback_keeps_what_a_branch_stands_on(b: &Backend) {
    let scene = scene(b).await;
    let version = version_after(9);
    let (mut open, btw) = fork(&scene.slot, Some((scene.ids[0], 1)));
    open.activate = false;
    let mut commit = superstep(&btw, Some(scene.ids[0]), 2);
    commit.open = Some(open);
    commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
    commit.blobs = vec![blob("c", version, None, b"kept")];
    let kept = commit.checkpoint.id;
    b.commit(commit).await;
    let (_, slot) = b.start(with(scene.thread, Strategy::Rollback)).await;
    assert_eq!(slot.head, Some(scene.base));
    let mut expected = vec![kept, scene.ids[0], scene.base];
    expected.sort_by(|a, b| b.cmp(a));
    assert_eq!(b.list(list_all(&slot)).await, expected);
    let head = b.load(&slot, "", At::Head(btw.branch)).await.unwrap();
    assert_eq!(head.blobs[0].bytes, b"kept");
    b.line(&btw, Some(kept), 1).await;
}

pub async fn rollback_removes_a_branch_the_run_opened(b: &Backend) {
    let thread = b.thread().await;
    let (first, slot) = b.start(new_run(thread)).await;
    let ids = b.line(&slot, None, 3).await;
    b.finish(first.id, slot).await;
    let (run, source) = b.start(new_run(thread)).await;
    let (mut open, branch) = fork(&source, Some((ids[0], 0)));
    open.run = Some(run.id);
    let mut commit = superstep(&branch, Some(ids[0]), 1);
    commit.open = Some(open);
    let mut interrupt = result(ids[0], 1, b"?");
    (interrupt.idx, interrupt.channel) = (-3, Some("__interrupt__".into()));
    commit.writes = vec![result(ids[0], 2, b"x"), interrupt];
    b.commit(commit).await;
    let id: RunId = run.id;
    let (next, slot) = b.start(with(thread, Strategy::Rollback)).await;
    assert_ne!(next.id, id);
    assert_eq!(slot.branch, source.branch, "the source is active again");
    assert_eq!(slot.head, Some(ids[2]));
    assert_eq!(b.probe.branch_names(thread).await, ["main"]);
    let rows = b.rows(&slot).await;
    assert_eq!(rows["checkpoints"], 3);
    assert!(!rows.contains_key("checkpoint_writes"), "{rows:?}");
    b.line(&slot, Some(ids[2]), 1).await;
}

pub async fn the_log_of_a_rollback_ends_every_run_before_it_resets_the_head(b: &Backend) {
    let scene = scene(b).await;
    let before = b.probe.events(scene.thread).await.len();
    b.start(with(scene.thread, Strategy::Rollback)).await;
    let events = b.probe.events(scene.thread).await;
    let kinds: Vec<&str> = events[before..].iter().map(|(_, kind)| &**kind).collect();
    let ended = ["RunFinished", "RunFinished", "BranchHeadReset"];
    assert_eq!(kinds[..3], ended, "{kinds:?}");
}

pub async fn a_run_that_ends_others_is_created_only_while_its_thread_has_not_changed(b: &Backend) {
    for strategy in [Strategy::Interrupt, Strategy::Rollback] {
        let thread = b.thread().await;
        let last = async || {
            let mut rows = b.trees.reader().await.unwrap();
            let row = rows.thread_row(thread).await.unwrap().unwrap();
            row.last_event_number
        };
        let before = last().await;
        let (open, _) = b.start(new_run(thread)).await;
        let since = |number| NewRun {
            unchanged_since: Some(number),
            strategy,
            ..new_run(thread)
        };
        // Somebody began a run meanwhile, and it goes on.
        let created = b.runs.create_run(since(before)).await.unwrap();
        assert!(matches!(created, Created::Changed), "{created:?}");
        assert_eq!(b.run(&open).await.status, Status::Running);
        // Of many at once one is created, and what it ends is no change.
        let now = last().await;
        let all = (0..6).map(|_| b.runs.create_run(since(now)));
        let all = futures::future::join_all(all).await;
        let is_created = |one: &&Result<Created, Error>| matches!(one, Ok(Created::Started(..)));
        assert_eq!(all.iter().filter(is_created).count(), 1, "{all:?}");
        let gone = b.runs.run(thread, open.id).await.unwrap();
        assert!(gone.is_none_or(|run| run.status == Status::Interrupted));
    }
}
