//! What is shown once it is durable, and what results of tasks count for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{checkpoint::WriteRow, id::TaskId};

/// A barrier, and how many of them were passed.
fn barrier(passed: &Arc<AtomicUsize>) -> Vec<Barrier> {
    let passed = passed.clone();
    vec![Barrier::new(move || {
        passed.fetch_add(1, Ordering::Relaxed);
    })]
}

#[tokio::test(start_paused = true)]
async fn barriers_are_passed_with_the_transaction_of_their_superstep() {
    let mut rig = Rig::new(RunAhead::default());
    let passed = Arc::default();
    for step in 0..4 {
        let write = Write::Commit(superstep(step, 10));
        rig.pipeline.push(write, barrier(&passed));
        if step == 0 {
            assert_eq!(rig.next().await, [0]);
        }
    }
    assert_eq!(passed.load(Ordering::Relaxed), 0);
    rig.end(Ok(())).await;
    assert_eq!(passed.load(Ordering::Relaxed), 1);
    assert_eq!(rig.next().await, [1, 2, 3]);
    assert_eq!(passed.load(Ordering::Relaxed), 1);
    rig.end(Ok(())).await;
    assert_eq!(passed.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn barriers_of_what_is_never_written_are_not_passed() {
    let mut rig = Rig::new(RunAhead::default());
    let passed = Arc::default();
    let pipeline = rig.pipeline.clone();
    let push = |step| pipeline.push(Write::Commit(superstep(step, 10)), barrier(&passed));
    push(0);
    assert_eq!(rig.begun.recv().await.unwrap(), [0]);
    push(1);
    rig.end(Err(Error::Fenced)).await;
    push(2);
    drop((pipeline, rig));
    assert_eq!(passed.load(Ordering::Relaxed), 0);
}

/// The end of the run, which they are stored with or not, shows what is behind them.
#[tokio::test(start_paused = true)]
async fn barriers_of_the_rest_are_left_to_the_end_of_the_run() {
    let rig = Rig::new(RunAhead::default());
    let passed = Arc::default();
    rig.pipeline.defer();
    let write = Write::Commit(superstep(0, 10));
    rig.pipeline.push(write, barrier(&passed));
    let rest = rig.pipeline.take_rest().await.unwrap().unwrap();
    assert_eq!(rest.commits().len(), 1);
    drop(rest);
    assert_eq!(passed.load(Ordering::Relaxed), 0);
}

/// A run is not ahead of large results by another superstep either.
#[tokio::test(start_paused = true)]
async fn results_that_are_written_ahead_of_their_superstep_count_with_their_bytes() {
    let memory = Arc::new(AheadMemory::new(1 << 20));
    let mut rig = Rig::within(RunAhead::default(), memory.clone());
    let row = WriteRow {
        ns: "".into(),
        checkpoint: CheckpointId(Uuid::nil()),
        branch: slot().branch,
        task: TaskId(Uuid::nil()),
        path: "".into(),
        idx: 0,
        channel: None,
        tag: "".into(),
        bytes: vec![0; 600 << 10],
        upsert: false,
    };
    let flush = Flush {
        slot: slot(),
        open: None,
        writes: vec![row],
    };
    rig.pipeline.push(Write::Flush(Box::new(flush)), vec![]);
    assert!(rig.next().await.is_empty());
    assert!(rig.has_room(400 << 10));
    assert!(!rig.has_room(500 << 10));
    assert!(!memory.has_room(500 << 10));
    rig.end(Ok(())).await;
    assert!(rig.has_room(500 << 10) && memory.has_room(1 << 20));
}
