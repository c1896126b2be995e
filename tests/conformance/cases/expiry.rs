//! Threads with a time to live.

use backstitch::{
    id::ThreadId,
    tree::{
        NewThread,
        ttl::{Ttl, TtlStrategy},
    },
};

use super::backend::*;

fn ttl(minutes: f64) -> Ttl {
    Ttl::of(minutes, TtlStrategy::KeepLatest).unwrap()
}

/// A thread that lives so long.
async fn thread(b: &Backend, minutes: f64) -> ThreadId {
    let new = NewThread {
        ttl: Some(ttl(minutes)),
        ..new_thread(unknown())
    };
    let created = b.trees.create_thread(new).await.unwrap();
    created.unwrap().id
}

/// A moment after every thread with the shortest of times has expired.
async fn a_moment() {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
}

pub async fn a_thread_expires_some_time_after_its_last_change(b: &Backend) {
    let without = b.slot().await.thread;
    assert_eq!(b.trees.expiry(without).await.unwrap(), None);
    assert_eq!(b.trees.expiry(unknown()).await.unwrap(), None);
    let id = thread(b, 10.0).await;
    let first = b.trees.expiry(id).await.unwrap().unwrap();
    assert_eq!(first.ttl, ttl(10.0));
    let row = b.trees.thread(id).await.unwrap().unwrap();
    assert_eq!(first.at.0, row.updated_at.0 + 600_000_000);
    a_moment().await;
    b.trees.patch_thread(id, Default::default()).await.unwrap();
    let moved = b.trees.expiry(id).await.unwrap().unwrap();
    assert!(moved.at > first.at, "{moved:?} {first:?}");
    let mut tx = b.trees.begin(row.tree).await.unwrap();
    tx.set_ttl(id, ttl(0.5)).await.unwrap();
    assert_eq!(tx.expired(row.tree, id).await.unwrap(), None);
    tx.commit().await.unwrap();
    let sooner = b.trees.expiry(id).await.unwrap().unwrap();
    assert_eq!(sooner.ttl, ttl(0.5));
    assert!(b.trees.delete_thread(id).await.unwrap());
    assert_eq!(b.trees.expiry(id).await.unwrap(), None);
}

pub async fn an_expired_thread_is_taken_once_and_looked_at_in_a_transaction(b: &Backend) {
    let short = 1e-5;
    let mut expired = vec![thread(b, short).await, thread(b, short).await];
    let lives = thread(b, 10.0).await;
    let deleted = thread(b, short).await;
    assert!(b.trees.delete_thread(deleted).await.unwrap());
    a_moment().await;
    let first = b.trees.take_expired(1).await.unwrap();
    let rest = b.trees.take_expired(10).await.unwrap();
    let mut taken: Vec<ThreadId> = first.iter().chain(&rest).map(|(_, id)| *id).collect();
    taken.sort();
    expired.sort();
    assert_eq!((first.len(), taken), (1, expired.clone()));
    assert_eq!(b.trees.take_expired(10).await.unwrap(), []);
    for (id, what) in [
        (expired[0], Some(TtlStrategy::KeepLatest)),
        (lives, None),
        (deleted, None),
    ] {
        let tree = backstitch::id::TreeId::of_root(id);
        let mut tx = b.trees.begin(tree).await.unwrap();
        assert_eq!(tx.expired(tree, id).await.unwrap(), what);
        tx.commit().await.unwrap();
    }
    // It stays, and is due again once it has not changed for as long again.
    let mut again = vec![];
    for _ in 0..1_000 {
        a_moment().await;
        again = b.trees.take_expired(10).await.unwrap();
        if !again.is_empty() {
            break;
        }
    }
    assert_eq!(
        again.iter().map(|(_, id)| *id).collect::<Vec<_>>(),
        [expired[0]]
    );
}

pub async fn a_thread_with_an_open_run_does_not_expire(b: &Backend) {
    let id = thread(b, 1e-5).await;
    let tree = backstitch::id::TreeId::of_root(id);
    let run = new_run(id);
    b.runs.create_run(run).await.unwrap();
    a_moment().await;
    let mut tx = b.trees.begin(tree).await.unwrap();
    assert_eq!(tx.expired(tree, id).await.unwrap(), None);
    tx.commit().await.unwrap();
}
