//! A run that cannot be created for several reasons: the first of them counts.

use backstitch::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    runs::{Created, NewRun, Strategy},
    tree::{
        NewThread,
        members::{Access, Level},
    },
};

use super::backend::*;

/// What `create_run` returns, and so does the same in a transaction of the tree, in one word.
async fn reason(b: &Backend, new: NewRun) -> &'static str {
    let word = |created: Result<Created, Error>| match created {
        Err(Error::Pruned(_)) => "pruned",
        Ok(Created::NoThread) => "no thread",
        Ok(Created::Denied(_)) => "denied",
        Ok(Created::Exists) => "exists",
        Ok(Created::Changed) => "changed",
        Ok(Created::Busy) => "busy",
        Ok(Created::QueueFull(_)) => "queue full",
        other => panic!("{other:?}"),
    };
    let alone = word(b.runs.create_run(new.clone()).await);
    if let Some(slot) = b.trees.slot(new.thread).await.unwrap() {
        let mut tx = b.runs.begin(slot.tree).await.unwrap();
        assert_eq!(word(tx.create_run(new).await), alone);
    }
    alone
}

pub async fn the_first_of_several_reasons_against_a_run_counts(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 3).await;
    let thread = slot.thread;
    let running = b.start(new_run(thread)).await.0;
    b.trees.prune_thread(thread).await.unwrap();
    // Everything is wrong with it.
    let mut new = NewRun {
        id: running.id,
        access: Access::of("bob".into(), "request".into(), Level::Writer),
        address: Some(ids[0]),
        unchanged_since: Some(0),
        strategy: Strategy::Reject,
        ..new_run(ThreadId::mint())
    };
    assert_eq!(reason(b, new.clone()).await, "no thread");
    let with_thread = NewRun {
        create_thread: Some(NewThread {
            owner: "bob".into(),
            ..new_thread(new.thread)
        }),
        ..new.clone()
    };
    assert_eq!(reason(b, with_thread).await, "exists");
    assert!(b.trees.thread(new.thread).await.unwrap().is_none());
    new.thread = thread;
    assert_eq!(reason(b, new.clone()).await, "denied");
    new.access = new_run(thread).access;
    assert_eq!(reason(b, new.clone()).await, "exists");
    new.id = RunId::mint();
    assert_eq!(reason(b, new.clone()).await, "changed");
    new.unchanged_since = None;
    assert_eq!(reason(b, new.clone()).await, "pruned");
    new.address = None;
    assert_eq!(reason(b, new.clone()).await, "busy");
    b.queue(new_run(thread)).await;
    new.strategy = Strategy::Enqueue;
    new.max_queued = 1;
    assert_eq!(reason(b, new.clone()).await, "queue full");
    assert!(b.runs.run(thread, new.id).await.unwrap().is_none());
}
