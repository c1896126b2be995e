//! What is read along paths: checkpoints, questions, messages.

use backstitch::{checkpoint::NodeRow, id::NodeId, tree::store::rows::MessageChange};

use super::{backend::*, sessions::*};

fn add(message: &str, parent: Option<NodeId>, ordinal: i32) -> NodeRow {
    NodeRow {
        role: Some("human".into()),
        ..added(message, parent, ordinal)
    }
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

pub async fn what_tasks_wait_for_is_read_without_their_results(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let read = async |branch, most| {
        let pending = b.trees.pending_interrupts(slot.tree, branch, base, most);
        let pending = pending.await.unwrap();
        (pending.weight, pending.rows.map(|rows| shape(&rows)))
    };
    let none = (0, Some(vec![]));
    assert_eq!(read(slot.branch, 0).await, none);
    let source = (-6, "__error_source_node__");
    let rows = vec![
        control(base, 1, INTERRUPT, &[b'q'; 1000]),
        control(base, 1, RESUME, b"answers"),
        control(base, 2, source, b"node"),
        control(base, 2, ERROR, b"error"),
        result(base, 3, &[b'r'; 5000]),
        result(base, 4, b"s"),
        control(base, 4, INTERRUPT, b"p"),
    ];
    b.saver.flush(flush(&slot, rows)).await.unwrap();
    let read_of = |task_number, idx, bytes: &[u8]| (task(task_number), idx, bytes.to_vec());
    let expected = vec![
        read_of(1, -3, &[b'q'; 1000]),
        read_of(2, -6, b""),
        read_of(3, 0, b""),
        read_of(4, -3, b"p"),
        read_of(4, 0, b""),
    ];
    // Two interrupts, and 384 bytes for each of five rows.
    let weight = 1001 + 5 * 384;
    assert_eq!(read(slot.branch, weight).await, (weight, Some(expected)));
    assert_eq!(read(slot.branch, weight - 1).await, (weight, None));
    assert_eq!(read(unknown(), weight).await, none, "another branch's");
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
    assert_eq!((node.ordinal, node.change), (2, MessageChange::Add));
    assert_eq!((&*node.message_id, node.edit_of), ("M\u{0}2", None));
    assert_eq!((node.checkpoint, node.depth, node.seq), (at, 0, 1));
    assert_eq!((node.thread, node.branch), (slot.thread, slot.branch));
    assert_eq!((node.turn_end, node.run, node.role), (None, None, None));
    assert_eq!(node.event_number, Some(7));
    assert!(rows.node(tree, unknown()).await.unwrap().is_none());

    let ids = |nodes: Vec<backstitch::tree::store::rows::MessageNode>| -> Vec<_> {
        nodes.into_iter().map(|node| node.id).collect()
    };
    let wanted = vec!["M1".into(), "M\u{0}2".into(), "M1".into(), "no".into()];
    let found = rows.nodes_of(tree, wanted).await.unwrap();
    assert_eq!(found[1].edit_of.as_deref(), Some("M0"));
    assert_eq!(found[1].change, MessageChange::Edit);
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
