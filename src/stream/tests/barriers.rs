//! What comes behind a barrier is in the log at once, and is shown when the barrier is passed.

use std::pin::pin;

use futures::FutureExt;

use crate::engine::{Barrier, Sink};

use super::ending::{EPOCH, Rig, numbers};

impl Rig {
    /// One whose reader has been shown a first event.
    async fn begun() -> Self {
        let rig = Self::new();
        rig.send(1);
        rig.stored().await;
        rig
    }

    /// All that was sent is in the log.
    async fn stored(&self) {
        self.taken().await;
        self.write(true).await;
    }

    fn barrier(&self) -> Barrier {
        self.publisher.barrier().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_a_barrier_waits_and_what_is_before_it_does_not() {
    let mut rig = Rig::new();
    rig.send(1);
    rig.send(2);
    let first = rig.barrier();
    rig.send(3);
    let second = rig.barrier();
    rig.send(4);
    rig.stored().await;
    assert_eq!(rig.log(), [(1, 5, Some(EPOCH))]);
    assert_eq!((rig.shown(), rig.publisher.last()), (vec![1, 2], 3));
    // The order of events is that in which they came, whichever is stored first.
    drop(second);
    assert!(rig.shown().is_empty());
    let third = rig.barrier();
    rig.send(5);
    drop(first);
    assert_eq!(rig.shown(), [3, 4]);
    drop(third);
    assert!(rig.shown().is_empty(), "it is not in the log");
    rig.write(true).await;
    assert_eq!(rig.shown(), [5]);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_that_is_kept_up_lets_nothing_pass_until_the_run_is_over() {
    let mut rig = Rig::new();
    rig.barrier().keep_up();
    rig.send(1);
    rig.stored().await;
    assert_eq!(rig.log(), [(1, 2, Some(EPOCH))]);
    assert!(rig.shown().is_empty());
    rig.publisher.flushed().await;
    assert!(rig.shown().is_empty(), "it may go on elsewhere");
    assert!(rig.publisher.log_end(None));
    assert_eq!(rig.shown(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_barriers_is_shown_with_the_end() {
    let mut rig = Rig::begun().await;
    let barrier = rig.barrier();
    rig.send(2);
    rig.stored().await;
    rig.send(3);
    let mut last = rig.last().await;
    assert_eq!(numbers(&last), [(4, 4), (5, 5)]);
    assert_eq!(rig.shown(), [1]);
    barrier.keep_up();
    last.stored_at(vec![4, 5]);
    assert!(rig.publisher.ended(last));
    assert_eq!(rig.shown(), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_shows_all_that_is_in_the_log() {
    let mut rig = Rig::new();
    let barrier = rig.barrier();
    rig.send(1);
    rig.stored().await;
    assert!(rig.shown().is_empty());
    rig.publisher.close();
    assert_eq!((rig.shown(), rig.publisher.last()), (vec![1], 2));
    drop(barrier);
}

#[tokio::test(start_paused = true)]
async fn another_attempt_waits_for_no_barrier_of_the_one_before() {
    let mut rig = Rig::begun().await;
    rig.barrier().keep_up();
    let earlier = rig.barrier();
    rig.publisher.begin_attempt(2, 1_000);
    rig.own(EPOCH + 1);
    let own = rig.barrier();
    rig.send(3);
    drop(earlier);
    rig.stored().await;
    assert!(!rig.shown().contains(&3));
    drop(own);
    assert!(rig.shown().contains(&3));
}

#[tokio::test(start_paused = true)]
async fn who_watches_the_thread_learns_which_frame_waits_and_when_it_waits_no_longer() {
    let rig = Rig::begun().await;
    let publisher = &rig.publisher;
    let passes = |number| publisher.passes(number).now_or_never().is_some();
    assert_eq!(publisher.first_behind_barrier(), None);
    let barrier = rig.barrier();
    rig.send(2);
    let next = rig.barrier();
    rig.send(3);
    let first = publisher.first_behind_barrier().unwrap();
    assert!(passes(first - 1) && !passes(first) && !passes(first + 1));
    let mut waits = pin!(publisher.passes(first));
    assert!(waits.as_mut().now_or_never().is_none());
    drop(barrier);
    waits.await;
    assert!(passes(first) && !passes(first + 1));
    next.keep_up();
    assert!(!passes(first + 1), "the storage may have lost it");
    publisher.fence();
    assert!(passes(first + 1), "somebody else executes the run");
}

#[tokio::test(start_paused = true)]
async fn what_an_attempt_has_left_behind_a_barrier_is_for_the_log_to_tell() {
    let rig = Rig::begun().await;
    rig.barrier().keep_up();
    rig.send(2);
    rig.stored().await;
    let publisher = &rig.publisher;
    let waits = publisher.first_behind_barrier().unwrap();
    assert!(publisher.is_current(waits));
    publisher.begin_attempt(2, 1_000);
    rig.own(EPOCH + 1);
    assert!(publisher.passes(waits).now_or_never().is_some());
    assert!(!publisher.is_current(waits) && publisher.is_current(1_001));
    publisher.fence();
    assert!(!publisher.is_current(1_001), "it is executed elsewhere");
}
