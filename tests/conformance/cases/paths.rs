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
