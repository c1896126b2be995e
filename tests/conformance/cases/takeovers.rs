//! Runs that begin, wait and end inside a transaction on their tree.

use std::time::Duration;

use backstitch::{
    checkpoint::Error,
    id::WorkerId,
    runs::{Created, NewRun, RunsOfPrincipal, Status},
    tree::members::{Access, Level},
};

use super::{backend::*, sessions::*};

pub async fn executed_runs_of_a_principal_are_found_on_one_tree(b: &Backend) {
    let worker = WorkerId::mint();
    b.runs.renew(worker, Duration::from_secs(60)).await.unwrap();
    let [thread, other] = [b.thread().await, b.thread().await];
    for one in [thread, other] {
        let row = b.trees.thread(one).await.unwrap().unwrap();
        let mut tx = begin(b, row.tree).await;
        let writer = Some(Level::Writer);
        tx.put_member(row.tree, "bob".into(), writer).await.unwrap();
        tx.commit().await.unwrap();
    }
    let of_bob = |thread| NewRun {
        claim: Some(worker),
        access: Access::of("bob".into(), "request".into(), Level::Writer),
        ..new_run(thread)
    };
    let (run, slot) = b.start(of_bob(thread)).await;
    b.queue(of_bob(thread)).await;
    b.start(of_bob(other)).await;
    let mut tx = b.runs.begin(slot.tree).await.unwrap();
    let found = tx.executed_for(slot.tree, "ann".into()).await.unwrap();
    assert_eq!(found, RunsOfPrincipal::default());
    let found = tx.executed_for(slot.tree, "bob".into()).await.unwrap();
    assert_eq!(found.executed, [(thread, run.id)]);
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
