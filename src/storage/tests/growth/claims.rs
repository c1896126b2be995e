//! Claims of runs that wait behind others of their branch.

use std::time::Duration;

use super::{
    accidents::{end, new_thread, start, waiting},
    rooms::Rooms,
};
use crate::{
    id::{ThreadId, TreeId, WorkerId},
    runs::{Created, NewRun, QueueClaim, RequestSlots, Slice},
    tree,
};

fn claim_of_any() -> QueueClaim {
    QueueClaim {
        worker: WorkerId::mint(),
        limit: 10,
        slots: RequestSlots::default(),
        busy: vec![],
        most: 100,
        freed: vec![],
        search: Some(Slice::first(1000)),
    }
}

/// A run that waits for none finds its turn taken when it is claimed, since another branch has become the active one.
pub(super) async fn another_branch_is_active<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId) {
    let mut read = tree::Store::reader(store).await.unwrap();
    let branches = read.branches(tree, thread).await.unwrap();
    drop(read);
    let named = |name: &str| branches.iter().find(|one| &*one.name == name).unwrap().id;
    let (main, other) = (named("main"), named("b2"));
    let floating = NewRun {
        after: Duration::from_micros(1),
        ..waiting(thread)
    };
    let floating_id = floating.id;
    let created = store.create_run(floating).await.unwrap();
    assert!(matches!(created, Created::Queued(_)), "{created:?}");
    let pinned = NewRun {
        branch: Some(other),
        claim: Some(WorkerId::mint()),
        ..waiting(thread)
    };
    let (run, _) = start(store, pinned).await;
    let activate = async |branch| {
        let mut tx = tree::Store::begin(store, tree).await.unwrap();
        tx.activate(thread, branch).await.unwrap();
        tx.commit().await.unwrap();
    };
    activate(other).await;
    let claimed = store.claim(claim_of_any()).await.unwrap();
    assert!(claimed.runs.is_empty(), "{claimed:?}");
    let mut tx = tree::Store::begin(store, tree).await.unwrap();
    tx.pin_runs(vec![floating_id], other).await.unwrap();
    tx.commit().await.unwrap();
    end(store, tree, thread, &[floating_id, run.id]).await;
    activate(main).await;
}

/// Some of the runs that wait behind others are searched, of the more the larger the tree is.
pub(super) async fn runs_are_behind_others<S: Rooms>(store: &S, messages: usize) {
    let mut threads = vec![];
    for _ in 0..messages / 10 {
        let thread = ThreadId::mint();
        let created = store.create_thread(new_thread(thread)).await.unwrap();
        assert!(created.is_some());
        for _ in 0..2 {
            let later = NewRun {
                after: Duration::from_secs(3600),
                ..waiting(thread)
            };
            store.create_run(later).await.unwrap();
        }
        threads.push(thread);
    }
    let claim = QueueClaim {
        search: Some(Slice::first(5)),
        ..claim_of_any()
    };
    let claimed = store.claim(claim).await.unwrap();
    assert!(claimed.searched.next.is_some());
    for thread in threads {
        assert!(store.delete_thread(thread).await.unwrap());
    }
}
