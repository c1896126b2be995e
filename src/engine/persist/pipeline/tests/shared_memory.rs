//! Runs whose supersteps that are not durable share one bound on memory.

use super::*;

#[tokio::test(start_paused = true)]
async fn runs_share_the_memory_for_what_they_are_ahead_and_each_has_one_superstep() {
    let memory = Arc::new(AheadMemory::new(100));
    let rig = || Rig::within(RunAhead::default(), memory.clone());
    let (mut first, mut other) = (rig(), rig());
    first.push([0], 60);
    assert!(first.has_room(40) && !first.has_room(41));
    // Whatever the others have.
    assert!(other.has_room(1000));
    other.push([0], 30);
    assert!(first.has_room(10) && !first.has_room(11));
    assert!(other.has_room(10) && !other.has_room(11));
    assert_eq!(first.next().await, [0]);
    first.end(Ok(())).await;
    assert!(other.has_room(70) && !other.has_room(71));
    // What is never written is gone, of a run that has failed and of one that has ended otherwise.
    assert_eq!(other.next().await, [0]);
    other.push([1], 20);
    other.end(Err(Error::Fenced)).await;
    first.push([1], 1);
    assert!(first.has_room(99) && !first.has_room(100));
    let ended = rig();
    ended.pipeline.keep_rest();
    ended.push([0], 30);
    assert!(first.has_room(69) && !first.has_room(70));
    drop(ended.pipeline.take_rest().await);
    assert!(first.has_room(99) && !first.has_room(100));
}
