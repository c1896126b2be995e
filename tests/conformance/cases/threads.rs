//! Threads, their metadata, their slots, and their end.

use backstitch::{
    checkpoint::{At, Error, EventRow, NewBranch, NodeRow},
    id::{BranchId, ThreadId, TreeId},
    tree::{IfExists, NewThread, Outcome, Thread},
    value,
    value::Map,
};

use super::backend::*;

async fn read(b: &Backend, id: ThreadId) -> Thread {
    b.trees.thread(id).await.unwrap().unwrap()
}

pub async fn a_thread_comes_back_as_created(b: &Backend) {
    let id = ThreadId::mint();
    let metadata = map(value!({"a": {"b": [1, 2.5, null]}, "ü\0": "\u{10ffff}"}));
    let new = NewThread {
        metadata: metadata.clone(),
        ..new_thread(id)
    };
    let created = b.trees.create_thread(new).await.unwrap().unwrap();
    for thread in [created, read(b, id).await] {
        assert_eq!((thread.id, thread.tree), (id, TreeId::of_root(id)));
        assert_eq!(thread.metadata, metadata);
        assert_eq!(thread.config, Map::new());
        assert_eq!(
            (thread.head, thread.head_depth, thread.epoch),
            (None, -1, 0)
        );
        assert_eq!((thread.outcome, thread.busy), (Outcome::Idle, false));
        assert_eq!(thread.error, None);
        assert_eq!(thread.created_at, thread.updated_at);
        assert_eq!(thread.created_at, thread.state_updated_at);
    }
    assert_eq!(b.probe.branch_names(id).await, ["main"]);
    assert!(b.trees.thread(unknown()).await.unwrap().is_none());
}

pub async fn threads_that_are_created_at_one_time_are_each_their_own(b: &Backend) {
    let (raised, repeated) = (ThreadId::mint(), ThreadId::mint());
    let of = |at: i64| {
        let id = match at % 4 {
            0 => raised,
            1 => repeated,
            _ => ThreadId::mint(),
        };
        let if_exists = if at % 4 == 1 {
            IfExists::DoNothing
        } else {
            IfExists::Raise
        };
        NewThread {
            metadata: map(value!({"at": at})),
            if_exists,
            ..new_thread(id)
        }
    };
    let all: Vec<NewThread> = (0..80).map(of).collect();
    let created =
        futures::future::join_all(all.iter().map(|new| b.trees.create_thread(new.clone())));
    let created: Vec<Option<Thread>> = created.await.into_iter().map(Result::unwrap).collect();
    let mut first = None;
    for (new, created) in all.iter().zip(&created) {
        let stored = read(b, new.id).await;
        if new.id == raised {
            let Some(thread) = created else { continue };
            assert!(first.replace(new).is_none(), "one of them is the first");
            assert_eq!(
                (&thread.metadata, &stored.metadata),
                (&new.metadata, &new.metadata)
            );
        } else {
            let thread = created.as_ref().expect("there is such a thread");
            assert_eq!(
                (thread.id, thread.active_branch),
                (new.id, stored.active_branch)
            );
            assert_eq!(thread.metadata, stored.metadata);
            assert!(new.id == repeated || thread.metadata == new.metadata);
        }
        assert_eq!(b.probe.branch_names(new.id).await, ["main"]);
    }
    assert!(first.is_some());
}

pub async fn a_taken_id_is_refused_or_answered(b: &Backend) {
    let id = b.thread().await;
    let first = read(b, id).await;
    let again = NewThread {
        metadata: map(value!({"new": true})),
        ..new_thread(id)
    };
    assert!(
        b.trees
            .create_thread(again.clone())
            .await
            .unwrap()
            .is_none()
    );
    let again = NewThread {
        if_exists: IfExists::DoNothing,
        ..again
    };
    let answered = b.trees.create_thread(again).await.unwrap().unwrap();
    assert_eq!(answered.active_branch, first.active_branch);
    assert_eq!(answered.metadata, Map::new());
    assert_eq!(b.probe.branch_names(id).await.len(), 1);
}

pub async fn metadata_is_merged_by_top_level_keys(b: &Backend) {
    let id = ThreadId::mint();
    let new = NewThread {
        metadata: map(value!({"keep": 1, "change": {"a": 1}})),
        ..new_thread(id)
    };
    let before = b.trees.create_thread(new).await.unwrap().unwrap();
    let patch = map(value!({"change": {"b": 2}, "add": null}));
    let patched = b
        .trees
        .patch_thread(id, patch.clone())
        .await
        .unwrap()
        .unwrap();
    let expected = map(value!({"keep": 1, "change": {"b": 2}, "add": null}));
    assert_eq!(patched.metadata, expected);
    let after = read(b, id).await;
    assert_eq!(after.metadata, expected);
    assert!(after.updated_at > before.updated_at);
    assert_eq!(after.state_updated_at, before.state_updated_at);
    assert!(
        b.trees
            .patch_thread(unknown(), patch)
            .await
            .unwrap()
            .is_none()
    );
}

pub async fn a_slot_is_read_or_taken_over(b: &Backend) {
    let id = b.thread().await;
    let thread = read(b, id).await;
    let slot = b.trees.slot(id).await.unwrap().unwrap();
    assert_eq!((slot.tree, slot.thread), (thread.tree, id));
    assert_eq!((slot.branch, slot.epoch), (thread.active_branch, 0));
    assert_eq!((slot.head, slot.head_depth), (None, -1));
    let head = b.line(&slot, None, 2).await[1];
    let taken = b.trees.take_slot(id).await.unwrap().unwrap();
    assert_eq!((taken.head, taken.head_depth), (Some(head), 1));
    assert_eq!(taken.epoch, 1);
    assert_eq!(b.trees.slot(id).await.unwrap().unwrap(), taken);
    assert_eq!(read(b, id).await.epoch, 1);
    assert!(b.trees.slot(unknown()).await.unwrap().is_none());
    assert!(b.trees.take_slot(unknown()).await.unwrap().is_none());
}

pub async fn a_writer_says_how_it_left_the_branch(b: &Backend) {
    let slot = b.slot().await;
    let error = value!({"error": "Oops", "message": "a \"quoted\" ü"});
    let failed = b
        .trees
        .record_outcome(slot, Outcome::Error, Some(error.clone()));
    failed.await.unwrap();
    let thread = read(b, slot.thread).await;
    assert_eq!(
        (thread.outcome, thread.error),
        (Outcome::Error, Some(error))
    );
    b.trees
        .record_outcome(slot, Outcome::Interrupted, None)
        .await
        .unwrap();
    let thread = read(b, slot.thread).await;
    assert_eq!((thread.outcome, thread.error), (Outcome::Interrupted, None));
    b.trees.take_slot(slot.thread).await.unwrap();
    let late = b.trees.record_outcome(slot, Outcome::Idle, None).await;
    assert!(matches!(late, Err(Error::Fenced)));
    assert_eq!(read(b, slot.thread).await.outcome, Outcome::Interrupted);
}

pub async fn the_time_of_the_state_is_that_of_the_active_branch(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let before = read(b, slot.thread).await;
    let (mut open, aside) = fork(&slot, Some((base, 0)));
    open.activate = false;
    let mut commit = superstep(&aside, Some(base), 1);
    commit.open = Some(open);
    b.commit(commit).await;
    let after = read(b, slot.thread).await;
    assert_eq!(after.state_updated_at, before.state_updated_at);
}

pub async fn state_changes_move_the_times(b: &Backend) {
    let slot = b.slot().await;
    let before = read(b, slot.thread).await;
    let id = b.line(&slot, None, 1).await[0];
    let after = read(b, slot.thread).await;
    assert_eq!((after.head, after.head_depth), (Some(id), 0));
    assert!(after.state_updated_at > before.state_updated_at);
    assert!(after.updated_at >= after.state_updated_at);
    assert_eq!(after.created_at, before.created_at);
}

/// A thread with a row in every table.
async fn full_thread(b: &Backend) -> backstitch::checkpoint::Slot {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let version = version_after(0);
    let mut commit = superstep(&slot, None, 0);
    let root = commit.checkpoint.id;
    commit.checkpoint.run = Some(run.id);
    commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
    commit.blobs = vec![blob("c", version, None, b"x")];
    commit.events = vec![EventRow {
        kind: "MessageAdded",
        ..EventRow::default()
    }];
    commit.nodes = vec![NodeRow {
        event_offset: Some(1),
        ..added("m", None, 1)
    }];
    b.commit(commit).await;
    b.commit(substep(&slot, "sub", root, None)).await;
    let (open, fork): (NewBranch, _) = fork(&slot, Some((root, 0)));
    let mut first = flush(&fork, vec![result(root, 1, b"x")]);
    first.open = Some(open);
    b.saver.flush(first).await.unwrap();
    let rows = b.rows(&slot).await;
    for table in [
        "trees",
        "threads",
        "branches",
        "checkpoints",
        "checkpoint_blobs",
        "checkpoint_writes",
        "message_nodes",
        "events",
        "runs",
    ] {
        assert!(rows.contains_key(table), "{table}: {rows:?}");
    }
    slot
}

pub async fn a_deleted_thread_leaves_a_tombstone_without_content(b: &Backend) {
    let slot = full_thread(b).await;
    let other = full_thread(b).await;
    let others_rows = b.rows(&other).await;
    assert!(b.trees.delete_thread(slot.thread).await.unwrap());
    let left = b.rows(&slot).await;
    assert_eq!(left, [("threads".to_owned(), 1)].into());
    assert_eq!(b.rows(&other).await, others_rows);
    assert!(b.trees.thread(slot.thread).await.unwrap().is_none());
    assert!(!b.trees.delete_thread(slot.thread).await.unwrap());
    assert!(!b.trees.delete_thread(unknown()).await.unwrap());
    // The id is free.
    let again = b.trees.create_thread(new_thread(slot.thread)).await;
    assert_eq!(again.unwrap().unwrap().head, None);
    assert!(b.load(&slot, "", At::Newest).await.is_none());
}

pub async fn nobody_writes_to_a_deleted_thread(b: &Backend) {
    let slot = b.slot().await;
    let head = b.line(&slot, None, 1).await[0];
    assert!(b.trees.delete_thread(slot.thread).await.unwrap());
    let fenced = |result: Result<(), Error>| matches!(result, Err(Error::Fenced));
    let commit = b.try_commit(superstep(&slot, Some(head), 1)).await;
    assert!(fenced(commit.map(drop)));
    let commit = b.try_commit(substep(&slot, "sub", head, None)).await;
    assert!(fenced(commit.map(drop)));
    let late = flush(&slot, vec![result(head, 1, b"x")]);
    assert!(fenced(b.saver.flush(late).await));
    let (open, branch) = fork(&slot, Some((head, 0)));
    let mut commit = superstep(&branch, Some(head), 1);
    commit.open = Some(open);
    assert!(fenced(b.try_commit(commit).await.map(drop)));
    assert!(fenced(
        b.trees.record_outcome(slot, Outcome::Idle, None).await
    ));
    let stranger = backstitch::checkpoint::Slot {
        branch: BranchId::mint(),
        ..slot
    };
    assert!(fenced(
        b.try_commit(superstep(&stranger, None, 0)).await.map(drop)
    ));
    let left = b.rows(&slot).await;
    assert_eq!(left, [("threads".to_owned(), 1)].into());
}
