//! Pending writes that a new branch takes over.

use backstitch::{
    checkpoint::{At, Slot},
    id::{BranchId, CheckpointId},
    tree::Tx,
};

use super::{backend::*, sessions::*};

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

/// A branch at `base` that goes on from what graphs inside have stored there, as `from` does.
async fn sharing(b: &Backend, from: &Slot, name: &str, base: CheckpointId) -> Slot {
    let copy = new_branch(from, name, Some((base, 0)));
    let branch = copy.id;
    let mut tx = begin(b, from.tree).await;
    tx.insert_branch(copy).await.unwrap();
    if let Some(shared) = tx.inside(from.tree, base, from.branch).await.unwrap() {
        tx.share_inside(from.tree, branch, shared).await.unwrap();
    }
    tx.commit().await.unwrap();
    let epoch = 0;
    Slot {
        branch,
        epoch,
        ..*from
    }
}

pub async fn what_was_stored_inside_at_the_head_is_shared_with_new_branches(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let find = async |slot: &Slot| {
        let at = At::Subgraph {
            start: base,
            branch: slot.branch,
            before: None,
        };
        b.load(&main, "sub", at).await.map(|stored| stored.row.id)
    };
    let store = async |slot: &Slot| {
        let commit = substep(slot, "sub", base, None);
        let id = commit.checkpoint.id;
        b.commit(commit).await;
        Some(id)
    };
    let before = sharing(b, &main, "before", base).await;
    let first = store(&main).await;
    let child = sharing(b, &main, "child", base).await;
    let second = store(&main).await;
    let grandchild = sharing(b, &child, "grandchild", base).await;
    let later = sharing(b, &main, "later", base).await;
    for (slot, expected) in [
        (&main, second),
        (&before, None),
        (&child, first),
        (&grandchild, first),
        (&later, second),
    ] {
        assert_eq!(find(slot).await, expected);
    }
    // What it stores itself counts before what it shares, and for those that go on from it.
    let own = store(&child).await;
    let last = sharing(b, &child, "last", base).await;
    for (slot, expected) in [(&child, own), (&last, own), (&grandchild, first)] {
        assert_eq!(find(slot).await, expected);
    }
}
