//! Pages of a tree: its forks, and the paths of many branches at once.

use backstitch::{
    checkpoint::NodeRow,
    id::{NodeId, ThreadId},
    tree::{
        Read,
        store::rows::{ForkCursor, Relative},
    },
};

use super::{backend::*, sessions::*};

fn add(message: &str, parent: Option<NodeId>, ordinal: i32) -> NodeRow {
    NodeRow {
        role: Some("human".into()),
        ..added(message, parent, ordinal)
    }
}

fn behind(relative: &Relative) -> ForkCursor {
    ForkCursor {
        created_at: relative.row.created_at,
        thread: relative.row.id,
    }
}

pub async fn forks_of_a_tree_are_read_page_by_page(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let mut forks = vec![];
    for _ in 0..4 {
        let mut tx = begin(b, slot.tree).await;
        forks.push(add_fork(&mut *tx, &slot, Some((base, 0))).await);
        tx.commit().await.unwrap();
    }
    let mut tx = begin(b, slot.tree).await;
    let inner = add_fork(&mut *tx, &forks[0], Some((base, 0))).await;
    tx.commit().await.unwrap();
    // It becomes a tombstone, because another one was forked from it.
    let mut tx = begin(b, slot.tree).await;
    tx.delete_thread(slot.tree, forks[0].thread).await.unwrap();
    tx.commit().await.unwrap();

    let mut rows = reader(b).await;
    let mut found: Vec<Relative> = vec![];
    let mut after = ForkCursor::START;
    loop {
        let page = rows.relatives(slot.tree, after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = behind(last);
        found.extend(page);
    }
    let times: Vec<_> = found.iter().map(behind).collect();
    assert!(
        times
            .windows(2)
            .all(|two| (two[0].created_at, two[0].thread) < (two[1].created_at, two[1].thread))
    );
    let mut living: Vec<ThreadId> = found.iter().map(|one| one.row.id).collect();
    living.sort();
    let mut wanted: Vec<ThreadId> = forks[1..].iter().map(|fork| fork.thread).collect();
    wanted.push(inner.thread);
    wanted.sort();
    assert_eq!(living, wanted);
    for one in &found {
        assert_eq!(one.parent_deleted, one.row.id == inner.thread);
    }
    let none = rows.relatives(unknown(), ForkCursor::START, 9);
    assert!(none.await.unwrap().is_empty());
    let sizes = rows.relative_sizes(slot.tree, behind(&found[0]), 2).await;
    // Of their metadata and anchor, with a space in it or without.
    assert!(matches!(*sizes.unwrap(), [9..=10, 9..=10]));
    let none = rows.relative_sizes(unknown(), ForkCursor::START, 9);
    assert!(none.await.unwrap().is_empty());

    let all = rows.forks(slot.tree, slot.thread, 9).await.unwrap();
    assert_eq!(all.len(), 3);
    let first = rows.forks(slot.tree, slot.thread, 1).await.unwrap();
    assert_eq!(first[0].id, all[0].id);
    let of_deleted = rows.forks(slot.tree, forks[0].thread, 9).await.unwrap();
    assert_eq!(of_deleted[0].id, inner.thread);
    assert!(
        rows.forks(unknown(), slot.thread, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn what_several_paths_share_is_read_once(b: &Backend) {
    let slot = b.slot().await;
    let (m1, m2) = (add("M1", None, 1), add("M2", None, 2));
    let m2 = NodeRow {
        parent: Some(m1.id),
        seq: 1,
        ..m2
    };
    let mut first = superstep(&slot, None, 0);
    first.nodes = vec![m1.clone(), m2.clone()];
    first.checkpoint.last_node = Some(m2.id);
    let at = first.checkpoint.id;
    b.commit(first).await;
    let mut tx = begin(b, slot.tree).await;
    let child = add_fork(&mut *tx, &slot, Some((at, 0))).await;
    let blank = add_fork(&mut *tx, &slot, None).await;
    tx.commit().await.unwrap();
    let mut next = superstep(&slot, Some(at), 1);
    let ours = add("M3", Some(m2.id), 1);
    next.nodes = vec![ours.clone()];
    next.checkpoint.last_node = Some(ours.id);
    b.commit(next).await;
    let mut other = superstep(&child, Some(at), 1);
    let theirs = add("M4", Some(m2.id), 1);
    other.nodes = vec![theirs.clone()];
    other.checkpoint.last_node = Some(theirs.id);
    b.commit(other).await;

    let mut rows = reader(b).await;
    let tree = slot.tree;
    let threads = vec![slot.thread, child.thread, blank.thread, unknown()];
    let ends = rows.ends(tree, threads).await.unwrap();
    let last = |thread: ThreadId| {
        let mut of = ends.iter().filter(|end| end.thread == thread);
        (of.next().unwrap().last, of.next().is_none())
    };
    assert_eq!(last(slot.thread), (Some(ours.id), true));
    assert_eq!(last(child.thread), (Some(theirs.id), true));
    assert_eq!(last(blank.thread), (None, true));
    assert_eq!((ends.len(), &*ends[0].name), (3, "main"));
    assert!(
        rows.ends(unknown(), vec![slot.thread])
            .await
            .unwrap()
            .is_empty()
    );

    let wanted = vec![ours.id, theirs.id, unknown()];
    let mut paths = rows.paths_to(tree, wanted.clone(), 100).await.unwrap();
    paths.sort_by_key(|node| (node.ordinal, node.thread != slot.thread));
    let shown: Vec<_> = paths
        .iter()
        .map(|node| (node.id, node.parent, node.ordinal, node.thread))
        .collect();
    assert_eq!(
        shown,
        [
            (m1.id, None, 1, slot.thread),
            (m2.id, Some(m1.id), 2, slot.thread),
            (ours.id, Some(m2.id), 3, slot.thread),
            (theirs.id, Some(m2.id), 3, child.thread),
        ]
    );
    let few = rows.paths_to(tree, wanted, 3).await.unwrap();
    assert_eq!(few.len(), 3);
    let mut nodes = rows.nodes(tree, vec![m1.id, theirs.id]).await.unwrap();
    nodes.sort_by_key(|node| node.ordinal);
    assert_eq!((nodes.len(), &*nodes[1].message_id), (2, "M4"));
    assert!(rows.nodes(tree, vec![]).await.unwrap().is_empty());
}

pub async fn a_thread_is_outlined_by_depth_from_any_depth_on(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 6).await;
    let mut rows = reader(b).await;
    let depths = async |rows: &mut dyn Read, below, limit| -> Vec<i32> {
        let found = rows
            .own_points(slot.tree, slot.thread, below, limit)
            .await
            .unwrap();
        found.iter().map(|point| point.depth).collect()
    };
    assert_eq!(depths(&mut *rows, -1, 3).await, [0, 1, 2]);
    assert_eq!(depths(&mut *rows, 3, 9).await, [4, 5]);
    assert!(depths(&mut *rows, 5, 9).await.is_empty());
    let all = rows
        .own_points(slot.tree, slot.thread, -1, 9)
        .await
        .unwrap();
    let found: Vec<_> = all.iter().map(|point| point.id).collect();
    assert_eq!(found, ids);
    let elsewhere = rows.own_points(unknown(), slot.thread, -1, 9).await;
    assert!(elsewhere.unwrap().is_empty());

    let inherited = async |rows: &mut dyn Read, base, below, limit| -> Vec<i32> {
        let found = rows.inherited_points(slot.tree, base, below, limit).await;
        found.unwrap().iter().map(|point| point.depth).collect()
    };
    assert_eq!(inherited(&mut *rows, ids[4], -1, 3).await, [0, 1, 2]);
    assert_eq!(inherited(&mut *rows, ids[4], 1, 9).await, [2, 3, 4]);
    assert!(inherited(&mut *rows, ids[4], 4, 9).await.is_empty());
    assert!(inherited(&mut *rows, ids[4], -1, 0).await.is_empty());
    assert!(inherited(&mut *rows, unknown(), -1, 9).await.is_empty());
}
