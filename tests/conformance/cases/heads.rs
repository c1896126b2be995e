//! What is read of a thread on behalf of who remembers its head.

use backstitch::tree::members::Level;

use super::{backend::*, sessions::*};

pub async fn a_thread_is_read_with_the_level_of_a_principal(b: &Backend) {
    let slot = b.slot().await;
    b.line(&slot, None, 2).await;
    let mut tx = begin(b, slot.tree).await;
    let reader = Some(Level::Reader);
    tx.put_member(slot.tree, "bob".into(), reader)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let alone = b.trees.thread(slot.thread).await.unwrap().unwrap();
    for (principal, level) in [
        (Some("local"), Some(Level::Owner)),
        (Some("bob"), Some(Level::Reader)),
        (Some("eve"), None),
        (None, None),
    ] {
        let principal = principal.map(Into::into);
        let found = b.trees.thread_with_level(slot.thread, principal);
        let found = found.await.unwrap().unwrap();
        assert_eq!(found.level, level);
        assert_eq!(format!("{:?}", found.thread), format!("{alone:?}"));
    }
    b.trees.delete_thread(slot.thread).await.unwrap();
    for gone in [slot.thread, unknown()] {
        let found = b.trees.thread_with_level(gone, None).await.unwrap();
        assert!(found.is_none());
    }
}

pub async fn pruning_marks_a_head_to_which_it_gives_another_parent(b: &Backend) {
    let slot = b.slot().await;
    let is_marked = async || {
        let found = b.trees.thread_with_level(slot.thread, None).await.unwrap();
        found.unwrap().is_head_reparented
    };
    let parent = async |id| b.by_id(&slot, id).await.unwrap().row.parent;
    let prune = async || b.trees.prune_thread(slot.thread).await.unwrap().unwrap();
    assert!(!is_marked().await, "without a head");
    let first = b.line(&slot, None, 1).await[0];
    assert_eq!(prune().await, 0);
    assert!(!is_marked().await, "nothing has changed");

    let line = b.line(&slot, Some(first), 2).await;
    assert_eq!(prune().await, 2);
    assert_eq!(parent(line[1]).await, None);
    assert!(is_marked().await);

    // The next head is as it was written, though its parent is not.
    let next = b.line(&slot, Some(line[1]), 1).await[0];
    assert!(!is_marked().await);
    let mut tx = begin(b, slot.tree).await;
    tx.put_tag(slot.tree, slot.thread, tag("t", line[1], 2))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(prune().await, 0);
    assert!(!is_marked().await, "its parent has stayed");

    // What another branch stands on is no head of the branch that wrote it.
    let end = b.line(&slot, Some(next), 2).await[1];
    let mut tx = begin(b, slot.tree).await;
    let side = new_branch(&slot, "side", Some((next, 3)));
    tx.insert_branch(side).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(prune().await, 1);
    assert_eq!(parent(end).await, Some(next));
    assert!(is_marked().await);
    b.tables.check(true).await;
}
