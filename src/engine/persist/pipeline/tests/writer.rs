//! The writer of a run: its lead may be closed for a while, and a graph inside may be dropped.

use super::*;
use crate::{
    checkpoint::Pending,
    engine::persist::{
        lead::Lead,
        queue::QueuedWrites,
        writer::{Durability, RunWriter},
    },
    id::TaskId,
};

#[tokio::test(start_paused = true)]
async fn who_waits_for_what_is_there_does_not_wait_for_what_comes_later() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.push([1], 10);
    let pipeline = rig.pipeline.clone();
    let mut stored = Box::pin(pipeline.stored_so_far());
    assert!((&mut stored).now_or_never().is_none());
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [1]);
    assert!((&mut stored).now_or_never().is_none());
    rig.push([2], 10);
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [2]);
    assert!(matches!(stored.now_or_never(), Some(Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lead_is_closed_waits_for_each_superstep_until_it_is_open_again() {
    let (begin, mut begun) = mpsc::unbounded_channel();
    let (ends, end) = mpsc::unbounded_channel();
    let saver = Arc::new(Slow {
        begun: begin,
        ends: tokio::sync::Mutex::new(end),
    });
    let lead = Lead::default();
    // It has not begun.
    lead.close().stored().await.unwrap();
    let (ahead, fenced) = (RunAhead::default(), CancellationToken::new());
    let writer = RunWriter::new(
        saver,
        slot(),
        None,
        Durability::Async,
        (ahead, lead.clone()),
        fenced,
    );
    let is_ahead = || matches!(writer.before_superstep().now_or_never(), Some(Ok(())));
    writer.commit(*superstep(0, 10)).await.unwrap();
    assert!(is_ahead());

    let closed = lead.close();
    let another = lead.close();
    let mut stored = Box::pin(closed.stored());
    assert!((&mut stored).now_or_never().is_none());
    assert!(!is_ahead());
    assert_eq!(begun.recv().await.unwrap(), [0]);
    assert!(!is_ahead());
    ends.send(Ok(())).unwrap();
    stored.await.unwrap();
    writer.before_superstep().await.unwrap();

    writer.commit(*superstep(1, 10)).await.unwrap();
    drop(closed);
    assert!(!is_ahead(), "another one wants it to be closed");
    drop(another);
    assert!(is_ahead());
    drop(writer);
    lead.close().stored().await.unwrap();
}

/// A node that has run out of time is dropped with the graph inside, wherever that is.
#[tokio::test(start_paused = true)]
async fn results_of_other_tasks_are_written_if_a_graph_inside_is_dropped_before_its_commit_has_room()
 {
    let (begin, mut begun) = mpsc::unbounded_channel();
    let (ends, end) = mpsc::unbounded_channel();
    let saver = Arc::new(Slow {
        begun: begin,
        ends: tokio::sync::Mutex::new(end),
    });
    let ahead = RunAhead {
        supersteps: 1,
        ..RunAhead::default()
    };
    let (lead, fenced) = (Lead::default(), CancellationToken::new());
    let durability = Durability::Async;
    let writer = RunWriter::new(saver, slot(), None, durability, (ahead, lead), fenced);
    writer.commit(*superstep(0, 10)).await.unwrap();
    assert_eq!(begun.recv().await.unwrap(), [0]);
    let result = Pending {
        task: TaskId(Uuid::nil()),
        path: "".into(),
        idx: 0,
        channel: "a".into(),
        value: crate::value::Value::Int(1),
    };
    let queued = QueuedWrites {
        ns: "".into(),
        checkpoint: CheckpointId(Uuid::nil()),
        writes: vec![result],
        barrier: None,
    };
    writer.enqueue([queued], false).await;
    let inside = writer.commit_with_queued(*superstep(1, 10), |_| vec![], None);
    assert!(inside.now_or_never().is_none());
    // Nobody else is about to write it.
    ends.send(Ok(())).unwrap();
    let flushed = tokio::time::timeout(Duration::from_secs(1), begun.recv());
    assert_eq!(flushed.await.unwrap().unwrap(), Vec::<i64>::new());
}
