//! Rows of the tree, read by themselves and in transactions.

use backstitch::{
    checkpoint::{Error, EventRow, Slot},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        Outcome, Read, Tx,
        store::rows::{NewEvent, Position, Tag},
        store::tx::{InsertBranch, InsertFork},
    },
    value,
};

use super::backend::*;

pub async fn begin(b: &Backend, tree: TreeId) -> Box<dyn Tx> {
    b.trees.begin(tree).await.unwrap()
}

pub async fn reader(b: &Backend) -> Box<dyn Read> {
    b.trees.reader().await.unwrap()
}

/// A branch of the slot's thread at `head`.
pub fn new_branch(slot: &Slot, name: &str, head: Option<(CheckpointId, i32)>) -> InsertBranch {
    InsertBranch {
        id: BranchId::mint(),
        tree: slot.tree,
        thread: slot.thread,
        name: name.into(),
        head: head.map(|(id, _)| id),
        head_depth: head.map_or(-1, |(_, depth)| depth),
        outcome: Outcome::Idle,
        origin: "rewind",
        source: Some(slot.branch),
    }
}

/// A fork of the slot's thread that inherits `base`, with its branch `main`.
pub async fn add_fork(tx: &mut dyn Tx, slot: &Slot, base: Option<(CheckpointId, i32)>) -> Slot {
    let id = ThreadId::mint();
    let main = InsertBranch {
        thread: id,
        origin: "fork",
        source: None,
        ..new_branch(slot, "main", base)
    };
    let parent = tx.thread_row(slot.thread).await.unwrap().unwrap();
    tx.insert_fork(InsertFork {
        id,
        tree: slot.tree,
        parent: slot.thread,
        checkpoint: main.head,
        depth: main.head_depth,
        anchor: Some("M2".into()),
        position: Some(Position::Before),
        event_number: parent.last_event_number,
        level: parent.fork_level + 1,
        active_branch: main.id,
        metadata: map(value!({"f": 1})),
    })
    .await
    .unwrap();
    let fork = Slot {
        thread: id,
        branch: main.id,
        epoch: 0,
        head: main.head,
        head_depth: main.head_depth,
        ..*slot
    };
    tx.insert_branch(main).await.unwrap();
    fork
}

pub fn tag(name: &str, checkpoint: CheckpointId, depth: i32) -> Tag {
    let now = Timestamp::now();
    Tag {
        name: name.into(),
        checkpoint,
        depth,
        message_id: Some("M2".into()),
        created_at: now,
        updated_at: now,
    }
}

/// An event that belongs to no branch.
pub fn note(kind: &'static str) -> NewEvent {
    NewEvent {
        kind,
        payload: map(value!({"a": "x\u{0}y", "n": 2})),
        message_id: Some("M1".into()),
        ..NewEvent::default()
    }
}

pub async fn a_thread_row_has_every_field(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 2).await[1];
    let mut tx = begin(b, slot.tree).await;
    tx.append(
        slot.tree,
        slot.thread,
        vec![note("TagSet"), note("TagDeleted")],
    )
    .await
    .unwrap();
    let fork = add_fork(&mut *tx, &slot, Some((base, 1))).await;
    let blank = add_fork(&mut *tx, &slot, None).await;
    tx.commit().await.unwrap();

    let mut rows = reader(b).await;
    let row = rows.thread_row(fork.thread).await.unwrap().unwrap();
    assert_eq!((row.id, row.tree), (fork.thread, slot.tree));
    assert_eq!(row.parent, Some(slot.thread));
    assert_eq!((row.fork_checkpoint, row.fork_depth), (Some(base), 1));
    assert_eq!(row.fork_anchor.as_deref(), Some("M2"));
    assert_eq!(row.fork_position, Some(Position::Before));
    assert_eq!((row.fork_event_number, row.last_event_number), (3, 3));
    assert_eq!(row.fork_level, 1);
    assert_eq!(row.active_branch, Some(fork.branch));
    assert_eq!(row.metadata, map(value!({"f": 1})));
    assert_eq!(row.deleted_at, None);
    let row = rows.thread_row(blank.thread).await.unwrap().unwrap();
    assert_eq!((row.fork_checkpoint, row.fork_depth), (None, -1));
    let root = rows.thread_row(slot.thread).await.unwrap().unwrap();
    assert_eq!((root.parent, root.fork_level), (None, 0));
    assert!(rows.thread_row(unknown()).await.unwrap().is_none());

    // The fork is a thread like any other.
    let thread = b.trees.thread(fork.thread).await.unwrap().unwrap();
    assert_eq!(
        (thread.head, thread.active_branch),
        (Some(base), fork.branch)
    );
}

pub async fn branches_are_inserted_renamed_activated_and_deleted(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let new = new_branch(&slot, "side", Some((base, 0)));
    let id = new.id;
    let mut tx = begin(b, slot.tree).await;
    tx.insert_branch(new).await.unwrap();
    tx.insert_branch(InsertBranch {
        outcome: Outcome::Interrupted,
        ..new_branch(&slot, "waits", None)
    })
    .await
    .unwrap();
    tx.rename_branch(slot.tree, id, "a/b.c-1".into())
        .await
        .unwrap();
    tx.activate(slot.thread, id).await.unwrap();
    tx.set_outcome(slot.tree, slot.branch, Outcome::Interrupted)
        .await
        .unwrap();
    // The transaction sees what it wrote, others do not yet.
    assert_eq!(tx.branches(slot.tree, slot.thread).await.unwrap().len(), 3);
    let mut rows = reader(b).await;
    assert_eq!(
        rows.branches(slot.tree, slot.thread).await.unwrap().len(),
        1
    );
    tx.commit().await.unwrap();

    let all = rows.branches(slot.tree, slot.thread).await.unwrap();
    let names: Vec<_> = all.iter().map(|branch| &*branch.name).collect();
    assert_eq!(names, ["main", "a/b.c-1", "waits"]);
    assert_eq!(all[0].outcome, Outcome::Interrupted);
    assert_eq!(all[2].outcome, Outcome::Interrupted);
    assert_eq!((all[2].head, all[2].head_depth), (None, -1));
    let side = rows.branch(slot.tree, id).await.unwrap().unwrap();
    assert_eq!((side.tree, side.thread), (slot.tree, slot.thread));
    assert_eq!((side.head, side.head_depth), (Some(base), 0));
    assert_eq!((side.epoch, side.version), (0, 0));
    assert_eq!(side.outcome, Outcome::Idle);
    assert_eq!((&*side.origin, side.source), ("rewind", Some(slot.branch)));
    let active = b.trees.slot(slot.thread).await.unwrap().unwrap();
    assert_eq!(active, side.slot());
    assert_eq!((side.creation, side.error), (None, None));

    let mut tx = begin(b, slot.tree).await;
    tx.delete_branch(slot.tree, slot.branch).await.unwrap();
    tx.commit().await.unwrap();
    assert!(rows.branch(slot.tree, slot.branch).await.unwrap().is_none());
    assert!(
        b.by_id(&slot, base).await.is_some(),
        "only the pointer goes"
    );
}

pub async fn the_head_moves_and_the_run_of_a_branch_are_told(b: &Backend) {
    let thread = b.thread().await;
    let writer = b.trees.take_slot(thread).await.unwrap().unwrap();
    let base = b.line(&writer, None, 2).await[0];
    let (run, source) = b.start(new_run(thread)).await;
    let (mut open, slot) = fork(&source, Some((base, 0)));
    open.run = Some(run.id);
    let mut commit = superstep(&slot, Some(base), 1);
    commit.open = Some(open);
    b.commit(commit).await;
    let mut rows = reader(b).await;
    let main = rows
        .branch(slot.tree, writer.branch)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((main.version, main.head_depth), (2, 1));
    let side = rows.branch(slot.tree, slot.branch).await.unwrap().unwrap();
    assert_eq!(side.epoch, source.epoch);
}

pub async fn a_tag_is_set_moved_and_deleted(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 2).await;
    let (tree, thread) = (slot.tree, slot.thread);
    let mut tx = begin(b, tree).await;
    let first = tag("b", ids[0], 0);
    assert!(tx.put_tag(tree, thread, first.clone()).await.unwrap());
    assert!(tx.put_tag(tree, thread, tag("a", ids[0], 0)).await.unwrap());
    let mut moved = tag("b", ids[1], 1);
    moved.message_id = None;
    assert!(!tx.put_tag(tree, thread, moved.clone()).await.unwrap());
    tx.commit().await.unwrap();
    let mut rows = reader(b).await;
    let names: Vec<_> = rows.tags(tree, thread).await.unwrap();
    let names: Vec<_> = names.iter().map(|tag| &*tag.name).collect();
    assert_eq!(names, ["a", "b"]);
    let found = rows.tag(tree, thread, "b".into()).await.unwrap().unwrap();
    assert_eq!((found.checkpoint, found.depth), (ids[1], 1));
    assert_eq!(found.message_id, None);
    assert_eq!(found.created_at, first.created_at);
    assert_eq!(found.updated_at, moved.updated_at);
    let mut tx = begin(b, tree).await;
    assert!(tx.delete_tag(tree, thread, "b".into()).await.unwrap());
    assert!(!tx.delete_tag(tree, thread, "b".into()).await.unwrap());
    tx.commit().await.unwrap();
    assert!(rows.tag(tree, thread, "b".into()).await.unwrap().is_none());
}

pub async fn events_are_appended_without_a_gap(b: &Backend) {
    let slot = b.slot().await;
    let (tree, thread) = (slot.tree, slot.thread);
    let mut tx = begin(b, tree).await;
    assert_eq!(tx.append(tree, thread, vec![]).await.unwrap(), 1);
    let two = vec![note("TagSet"), note("TagDeleted")];
    assert_eq!(tx.append(tree, thread, two).await.unwrap(), 3);
    let mut commit = superstep(&slot, None, 0);
    commit.events = vec![EventRow {
        kind: "MessageAdded",
        ..EventRow::default()
    }];
    let at = commit.checkpoint.id;
    assert_eq!(tx.put(commit).await.unwrap(), 0);
    let about = NewEvent {
        branch: Some(slot.branch),
        checkpoint: Some(at),
        ..NewEvent::default()
    };
    let last = tx.append(
        tree,
        thread,
        vec![NewEvent {
            kind: "BranchRenamed",
            ..about
        }],
    );
    assert_eq!(last.await.unwrap(), 5);
    assert_eq!(tx.append(tree, thread, vec![]).await.unwrap(), 5);
    assert!(
        tx.append(tree, unknown(), vec![note("TagSet")])
            .await
            .is_err()
    );
    drop(tx);
    assert_eq!(b.probe.events(thread).await.len(), 1, "its creation");

    let mut tx = begin(b, tree).await;
    let three = vec![
        note("TagSet"),
        note("TagDeleted"),
        NewEvent {
            kind: "BranchRenamed",
            ..about_branch(&slot)
        },
    ];
    tx.append(tree, thread, three).await.unwrap();
    tx.commit().await.unwrap();
    let mut rows = reader(b).await;
    let events = rows.events(tree, thread, 1, 100).await.unwrap();
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, [2, 3, 4]);
    assert_eq!((&*events[0].kind, events[0].thread), ("TagSet", thread));
    assert_eq!(events[0].payload, map(value!({"a": "x\u{0}y", "n": 2})));
    assert_eq!(events[0].message_id.as_deref(), Some("M1"));
    assert_eq!(events[2].branch, Some(slot.branch));
    let page = rows.events(tree, thread, 2, 1).await.unwrap();
    assert_eq!((page.len(), page[0].number), (1, 3));
    let row = rows.thread_row(thread).await.unwrap().unwrap();
    assert_eq!(row.last_event_number, 4);
}

fn about_branch(slot: &Slot) -> NewEvent {
    NewEvent {
        branch: Some(slot.branch),
        ..NewEvent::default()
    }
}

pub async fn a_dropped_transaction_leaves_nothing(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let before = b.rows(&slot).await;
    let mut tx = begin(b, slot.tree).await;
    tx.insert_branch(new_branch(&slot, "x", Some((base, 0))))
        .await
        .unwrap();
    add_fork(&mut *tx, &slot, Some((base, 0))).await;
    tx.put(superstep(&slot, Some(base), 1)).await.unwrap();
    tx.put_tag(slot.tree, slot.thread, tag("t", base, 0))
        .await
        .unwrap();
    tx.append(slot.tree, slot.thread, vec![note("TagSet")])
        .await
        .unwrap();
    drop(tx);
    // The next one comes after the drop is done with.
    let mut tx = begin(b, slot.tree).await;
    let head = tx.lock_branch(slot.tree, slot.branch).await.unwrap();
    assert_eq!(head.unwrap().head, Some(base));
    drop(tx);
    assert_eq!(b.rows(&slot).await, before);
    b.line(&slot, Some(base), 1).await;
}

pub async fn a_superstep_in_a_transaction_is_fenced(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 2).await;
    let now = b.trees.take_slot(slot.thread).await.unwrap().unwrap();
    let before = b.rows(&slot).await;
    let mut tx = begin(b, slot.tree).await;
    let stale = tx.put(superstep(&slot, Some(ids[1]), 2)).await;
    assert!(matches!(stale, Err(Error::Fenced)));
    let behind = tx.put(superstep(&now, Some(ids[0]), 2)).await;
    assert!(matches!(behind, Err(Error::Fenced)));
    let (open, off) = fork(&slot, Some((ids[0], 0)));
    let mut stale = superstep(&off, Some(ids[0]), 2);
    stale.open = Some(open);
    assert!(matches!(tx.put(stale).await, Err(Error::Fenced)));
    let (open, off) = fork(&now, Some((ids[0], 0)));
    let mut behind = superstep(&off, Some(ids[1]), 2);
    behind.open = Some(open);
    assert!(matches!(tx.put(behind).await, Err(Error::Fenced)));
    // A refusal ends nothing: the transaction goes on without what it was about.
    tx.put_tag(slot.tree, slot.thread, tag("t", ids[0], 0))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut after = b.rows(&slot).await;
    assert_eq!(after.remove("tags"), Some(1));
    assert_eq!(after, before);

    let mut tx = begin(b, slot.tree).await;
    let (open, off) = fork(&now, Some((ids[0], 0)));
    let mut first = superstep(&off, Some(ids[0]), 2);
    first.open = Some(open);
    let parent = first.checkpoint.id;
    assert_eq!(tx.put(first).await.unwrap(), 1);
    let second = superstep(&off, Some(parent), 3);
    let head = second.checkpoint.id;
    assert_eq!(tx.put(second).await.unwrap(), 2);
    tx.commit().await.unwrap();
    let active = b.trees.slot(slot.thread).await.unwrap().unwrap();
    assert_eq!((active.head, active.branch), (Some(head), off.branch));
}
