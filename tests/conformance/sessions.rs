//! Rows of the tree, read by themselves and in transactions.

use std::time::Duration;

use backstitch::{
    checkpoint::{Error, EventRow, NodeRow, Slot},
    id::{BranchId, CheckpointId, NodeId, ThreadId, TreeId},
    runs::{Created, Status},
    time::Timestamp,
    tree::{
        Outcome, Read, Tx,
        rows::{Change, NewEvent, Position, Tag},
        session::{InsertBranch, InsertFork},
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

fn note(kind: &'static str) -> NewEvent {
    NewEvent {
        kind,
        payload: map(value!({"a": "x\u{0}y", "n": 2})),
        message_id: Some("M1".into()),
        ..NewEvent::default()
    }
}

fn add(message: &str, parent: Option<NodeId>, ordinal: i32) -> NodeRow {
    NodeRow {
        role: Some("human".into()),
        ..added(message, parent, ordinal)
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

    let family = rows.relatives(slot.tree).await.unwrap();
    let mut ids: Vec<_> = family.iter().map(|row| row.id).collect();
    assert_eq!(ids[0], slot.thread);
    ids.sort();
    let mut wanted = vec![slot.thread, fork.thread, blank.thread];
    wanted.sort();
    assert_eq!(ids, wanted);
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
    assert_eq!((side.creation, side.run, side.error), (None, None, None));

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
    assert_eq!((side.run, side.epoch), (Some(run.id), 1));
    assert_eq!(main.run, None);
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

pub async fn paths_are_walked_across_branches_and_forks(b: &Backend) {
    let main = b.slot().await;
    let ids = b.line(&main, None, 4).await;
    let (open, side) = fork(&main, Some((ids[1], 1)));
    let mut commit = superstep(&side, Some(ids[1]), 9);
    commit.open = Some(open);
    let off = commit.checkpoint.id;
    b.commit(commit).await;
    let mut tx = begin(b, main.tree).await;
    let child = add_fork(&mut *tx, &main, Some((ids[2], 2))).await;
    tx.commit().await.unwrap();
    let own = b.line(&child, Some(ids[2]), 2).await;

    let mut rows = reader(b).await;
    let path = rows.path(main.tree, own[1], 100).await.unwrap();
    let walked: Vec<_> = path.iter().map(|point| point.id).collect();
    assert_eq!(walked, [own[1], own[0], ids[2], ids[1], ids[0]]);
    assert_eq!(
        (path[0].thread, path[4].thread),
        (child.thread, main.thread)
    );
    assert_eq!((path[0].depth, path[0].step), (4, 1));
    assert_eq!(path[0].parent, Some(own[0]));
    assert_eq!(path[0].branch, child.branch);
    let page = rows.path(main.tree, own[1], 2).await.unwrap();
    assert_eq!(page.len(), 2);
    assert!(rows.path(main.tree, own[1], 0).await.unwrap().is_empty());
    assert!(rows.path(main.tree, unknown(), 9).await.unwrap().is_empty());
    let point = rows.point(main.tree, own[0]).await.unwrap().unwrap();
    assert_eq!((point.id, point.depth), (own[0], 3));
    assert!(rows.point(unknown(), own[0]).await.unwrap().is_none());

    for (thread, at, expected) in [
        (main.thread, ids[3], true),
        (main.thread, off, true),
        (main.thread, own[0], false),
        (child.thread, own[1], true),
        (child.thread, ids[2], true),
        (child.thread, ids[0], true),
        (child.thread, ids[3], false),
        (child.thread, off, false),
        (child.thread, unknown(), false),
        (unknown(), ids[0], false),
    ] {
        let visible = rows.visible(main.tree, thread, at).await.unwrap();
        assert_eq!(visible, expected, "{at} in {thread}");
    }
    for (start, at, expected) in [
        (own[1], own[1], true),
        (own[1], ids[0], true),
        (own[1], ids[3], false),
        (off, ids[1], true),
        (off, ids[2], false),
        (ids[0], ids[1], false),
        (ids[0], unknown(), false),
    ] {
        let on = rows.on_path(main.tree, start, at).await.unwrap();
        assert_eq!(on, expected, "{at} from {start}");
    }
}

pub async fn a_question_is_open_until_its_task_has_a_result(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let mut rows = reader(b).await;
    let (tree, branch) = (slot.tree, slot.branch);
    assert!(!rows.is_interrupted(tree, branch, base).await.unwrap());
    let asked = vec![control(base, 1, INTERRUPT, b"q"), result(base, 2, b"done")];
    b.saver.flush(flush(&slot, asked)).await.unwrap();
    assert!(rows.is_interrupted(tree, branch, base).await.unwrap());
    assert!(!rows.is_interrupted(tree, unknown(), base).await.unwrap());
    let answered = vec![result(base, 1, b"a")];
    b.saver.flush(flush(&slot, answered)).await.unwrap();
    assert!(!rows.is_interrupted(tree, branch, base).await.unwrap());
}

pub async fn the_message_index_is_read_by_id_chain_and_parent(b: &Backend) {
    let slot = b.slot().await;
    let mut first = superstep(&slot, None, 0);
    let (m1, m2) = (add("M1", None, 1), add("M\u{0}2", None, 2));
    let m2 = NodeRow {
        parent: Some(m1.id),
        seq: 1,
        event_number: Some(7),
        role: None,
        ..m2
    };
    first.nodes = vec![m1.clone(), m2.clone()];
    let at = first.checkpoint.id;
    b.commit(first).await;
    let mut second = superstep(&slot, Some(at), 1);
    let edit = NodeRow {
        kind: "edit",
        edit_of: Some("M0".into()),
        ..add("M1", None, 1)
    };
    let twin = add("M1", Some(m2.id), 3);
    second.nodes = vec![
        edit.clone(),
        NodeRow {
            seq: 1,
            ..twin.clone()
        },
    ];
    b.commit(second).await;

    let mut rows = reader(b).await;
    let tree = slot.tree;
    let node = rows.node(tree, m2.id).await.unwrap().unwrap();
    assert_eq!(node.parent, Some(m1.id));
    assert_eq!((node.ordinal, node.change), (2, Change::Add));
    assert_eq!((&*node.message_id, node.edit_of), ("M\u{0}2", None));
    assert_eq!((node.checkpoint, node.depth, node.seq), (at, 0, 1));
    assert_eq!((node.thread, node.branch), (slot.thread, slot.branch));
    assert_eq!((node.settled, node.run, node.role), (None, None, None));
    assert_eq!(node.event_number, Some(7));
    assert!(rows.node(tree, unknown()).await.unwrap().is_none());

    let ids = |nodes: Vec<backstitch::tree::rows::Node>| -> Vec<_> {
        nodes.into_iter().map(|node| node.id).collect()
    };
    let wanted = vec!["M1".into(), "M\u{0}2".into(), "M1".into(), "no".into()];
    let found = rows.nodes_of(tree, wanted).await.unwrap();
    assert_eq!(found[1].edit_of.as_deref(), Some("M0"));
    assert_eq!(found[1].change, Change::Edit);
    assert_eq!(ids(found), [twin.id, edit.id, m2.id, m1.id]);
    assert!(rows.nodes_of(tree, vec![]).await.unwrap().is_empty());
    let chain = rows.chain(tree, twin.id, 100).await.unwrap();
    assert_eq!(ids(chain), [twin.id, m2.id, m1.id]);
    let chain = rows.chain(tree, twin.id, 2).await.unwrap();
    assert_eq!(ids(chain), [twin.id, m2.id]);
    let roots = rows.children(tree, None).await.unwrap();
    assert_eq!(ids(roots), [m1.id]);
    let after = rows.children(tree, Some(m1.id)).await.unwrap();
    assert_eq!(ids(after), [m2.id]);
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

/// A transaction in which a branch at `base` was made and took the writes of the slot's over.
async fn copying(
    b: &Backend,
    slot: &Slot,
    name: &str,
    base: CheckpointId,
) -> (BranchId, Box<dyn Tx>) {
    let copy = new_branch(slot, name, Some((base, 0)));
    let id = copy.id;
    let mut tx = begin(b, slot.tree).await;
    tx.insert_branch(copy).await.unwrap();
    tx.copy_writes(slot.tree, base, slot.branch, id)
        .await
        .unwrap();
    (id, tx)
}

pub async fn writes_are_copied_as_they_are_at_the_head(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let writes = vec![
        control(base, 1, INTERRUPT, b"answered"),
        control(base, 1, RESUME, b"answer"),
        result(base, 1, b"result"),
        control(base, 2, INTERRUPT, b"open"),
        control(base, 3, ERROR, b"failed"),
        control(base, 0, RESUME, b"of the client"),
    ];
    b.saver.flush(flush(&slot, writes)).await.unwrap();
    let (id, mut tx) = copying(b, &slot, "btw", base).await;
    assert!(tx.is_interrupted(slot.tree, id, base).await.unwrap());
    tx.commit().await.unwrap();
    let own = |stored: backstitch::checkpoint::Stored| {
        let mut writes = stored.writes;
        writes.retain(|write| write.branch == id);
        shape(&writes)
    };
    assert_eq!(
        own(b.by_id(&slot, base).await.unwrap()),
        [
            (task(1), -4, b"answer".to_vec()),
            (task(1), -3, b"answered".to_vec()),
            (task(1), 0, b"result".to_vec()),
            (task(2), -3, b"open".to_vec()),
        ]
    );
    let row = reader(b).await.branch(slot.tree, id).await.unwrap();
    assert!(row.unwrap().creation.unwrap() > base);
}

pub async fn an_answered_checkpoint_is_copied_as_interrupted(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let asked = substep(&slot, "sub", base, None);
    let asked_id = asked.checkpoint.id;
    b.commit(asked).await;
    let mut in_sub = control(asked_id, 7, INTERRUPT, b"in sub");
    in_sub.ns = "sub".into();
    let writes = vec![
        control(base, 1, INTERRUPT, b"question"),
        result(base, 1, b"result"),
        control(base, 1, RESUME, b"answer"),
        control(base, 1, (-5, "__step__"), b"memo"),
        result(base, 2, b"sibling"),
        in_sub,
    ];
    b.saver.flush(flush(&slot, writes)).await.unwrap();
    let after = substep(&slot, "sub", base, Some(asked_id));
    let after_id = after.checkpoint.id;
    b.commit(after).await;
    b.line(&slot, Some(base), 1).await;

    let (id, tx) = copying(b, &slot, "again", base).await;
    tx.commit().await.unwrap();
    let mut stored = b.by_id(&slot, base).await.unwrap();
    stored.writes.retain(|write| write.branch == id);
    assert_eq!(
        shape(&stored.writes),
        [
            (task(1), -5, b"memo".to_vec()),
            (task(1), -3, b"question".to_vec()),
            (task(2), 0, b"sibling".to_vec()),
        ]
    );
    // What the source did in its subgraph after the answer is not the copy's.
    let row = reader(b).await.branch(slot.tree, id).await.unwrap();
    assert_eq!(row.unwrap().creation, Some(after_id));
}

pub async fn open_runs_are_told_pinned_and_cancelled(b: &Backend) {
    let thread = b.thread().await;
    let (running, slot) = b.start(new_run(thread)).await;
    let first = b.queue(new_run(thread)).await;
    let second = b.queue(new_run(thread)).await;
    let mut tx = begin(b, slot.tree).await;
    let open = tx.open_runs(slot.tree, thread).await.unwrap();
    let told: Vec<_> = open
        .iter()
        .map(|run| (run.id, run.branch, run.running))
        .collect();
    assert_eq!(
        told,
        [
            (running.id, Some(slot.branch), true),
            (first.id, None, false),
            (second.id, None, false),
        ]
    );
    tx.pin_runs(vec![first.id, running.id], slot.branch)
        .await
        .unwrap();
    tx.cancel_runs(thread, vec![running.id, second.id])
        .await
        .unwrap();
    let left = tx.open_runs(slot.tree, thread).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].id, left[0].branch), (first.id, Some(slot.branch)));
    tx.commit().await.unwrap();
    assert_eq!(b.run(&running).await.status, Status::Interrupted);
    assert_eq!(b.run(&second).await.status, Status::Interrupted);
    assert_eq!(b.run(&first).await.status, Status::Pending);
    let late = b.try_commit(superstep(&slot, None, 0)).await;
    assert!(matches!(late, Err(Error::Fenced)), "its worker is fenced");
}

pub async fn a_run_and_what_it_follows_are_one_transaction(b: &Backend) {
    let slot = b.slot().await;
    for commit in [false, true] {
        let mut tx = b.runs.begin(slot.tree).await.unwrap();
        tx.put(superstep(&slot, None, 0)).await.unwrap();
        let new = new_run(slot.thread);
        let id = new.id;
        let Created::Started(run, held) = tx.create_run(new).await.unwrap() else {
            panic!("the slot is free");
        };
        assert_eq!((run.id, held.epoch), (id, slot.epoch + 1));
        assert_eq!(held.head_depth, 0);
        let mut waiting = new_run(slot.thread);
        waiting.claim = None;
        assert!(matches!(
            tx.create_run(waiting).await.unwrap(),
            Created::Queued(_)
        ));
        if commit {
            tx.commit().await.unwrap();
        } else {
            drop(tx);
        }
        // Behind the drop.
        drop(begin(b, slot.tree).await);
        let runs = b.runs.runs(slot.thread, None, 10, 0).await.unwrap();
        assert_eq!(runs.len(), if commit { 2 } else { 0 });
        if commit {
            b.finish(id, held).await;
        }
    }
}

pub async fn fifty_transactions_on_one_tree_queue(b: &Backend) {
    let slot = b.slot().await;
    let append = async || {
        let mut tx = begin(b, slot.tree).await;
        let branch = tx.lock_branch(slot.tree, slot.branch).await.unwrap();
        let branch = branch.unwrap();
        // A load in between, by other connections.
        reader(b).await.thread_row(slot.thread).await.unwrap();
        tx.put(superstep(&branch.slot(), branch.head, 0))
            .await
            .unwrap();
        tx.append(slot.tree, slot.thread, vec![note("TagSet")])
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    futures::future::join_all((0..50).map(|_| append())).await;
    let mut rows = reader(b).await;
    let branch = rows.branch(slot.tree, slot.branch).await.unwrap().unwrap();
    assert_eq!((branch.head_depth, branch.version), (49, 50));
    let row = rows.thread_row(slot.thread).await.unwrap().unwrap();
    assert_eq!(row.last_event_number, 51);
}

pub async fn a_run_starts_behind_a_locked_branch_and_sees_its_head(b: &Backend) {
    let slot = b.slot().await;
    let mut tx = begin(b, slot.tree).await;
    let branch = tx.lock_branch(slot.tree, slot.branch).await.unwrap();
    let branch = branch.unwrap();
    let mut start = std::pin::pin!(b.start(new_run(slot.thread)));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut start).await;
    assert!(early.is_err(), "the branch is locked");
    let commit = superstep(&branch.slot(), branch.head, 0);
    let head = commit.checkpoint.id;
    tx.put(commit).await.unwrap();
    tx.commit().await.unwrap();
    let (_, held) = start.await;
    assert_eq!((held.head, held.head_depth), (Some(head), 0));
}
