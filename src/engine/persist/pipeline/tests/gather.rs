//! How long writes wait for others that may share their transaction.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_supersteps_wait_a_moment_for_others_and_for_the_end() {
    let mut rig = Rig::new(RunAhead::default());
    rig.pipeline.defer_first();
    rig.push([0], 10);
    tokio::time::sleep(GATHER_FIRST / 2).await;
    rig.push([1, 2], 10);
    assert!(rig.begun.try_recv().is_err());
    tokio::time::sleep(GATHER_FIRST).await;
    assert_eq!(rig.next().await, [0, 1, 2]);
    // From here on as ever.
    rig.end(Ok(())).await;
    rig.push([3], 10);
    assert_eq!(rig.next().await, [3]);

    let mut rig = Rig::new(RunAhead::default());
    rig.pipeline.defer_first();
    rig.push([0, 1], 10);
    let rest = rig.pipeline.take_rest().await.unwrap().unwrap();
    assert_eq!(rest.commits().len(), 2);
    tokio::time::sleep(2 * GATHER_FIRST).await;
    assert!(rig.begun.try_recv().is_err());

    let mut rig = Rig::new(RunAhead {
        supersteps: 1,
        ..RunAhead::default()
    });
    rig.pipeline.defer_first();
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_begins_a_moment_after_the_one_before_unless_somebody_waits_for_it() {
    let mut rig = Rig::new(RunAhead::default());
    let begin = Instant::now();
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.end(Ok(())).await;
    rig.push([1], 10);
    advance(GATHER / 2).await;
    rig.push([2], 10);
    assert_eq!(rig.next().await, [1, 2]);
    assert!(begin.elapsed() >= GATHER);

    // One that takes longer is followed at once.
    rig.push([3], 10);
    advance(2 * GATHER).await;
    let ended = Instant::now();
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [3]);
    assert_eq!(ended.elapsed(), Duration::ZERO);

    rig.end(Ok(())).await;
    rig.push([4], 10);
    let pipeline = rig.pipeline.clone();
    let drained = tokio::spawn(async move { pipeline.drained().await });
    assert_eq!(rig.next().await, [4]);
    assert_eq!(ended.elapsed(), Duration::ZERO, "somebody waits");
    rig.end(Ok(())).await;
    drained.await.unwrap().unwrap();

    // Nobody waits any more who waited for the one before alone.
    let pipeline = rig.pipeline.clone();
    rig.push([5], 10);
    let drained = tokio::spawn(async move { pipeline.drained().await });
    assert_eq!(rig.next().await, [5]);
    yield_now().await;
    let begin = Instant::now();
    rig.end(Ok(())).await;
    drained.await.unwrap().unwrap();
    rig.push([6], 10);
    assert_eq!(rig.next().await, [6]);
    assert!(begin.elapsed() >= GATHER);

    // Not as long as a short age allows, nor longer where a long one does.
    for (age, gather) in [(5, Duration::from_millis(1)), (60_000, GATHER)] {
        let mut rig = Rig::new(RunAhead {
            age: Duration::from_millis(age),
            ..RunAhead::default()
        });
        rig.push([0], 10);
        assert_eq!(rig.next().await, [0]);
        let begin = Instant::now();
        rig.end(Ok(())).await;
        rig.push([1], 10);
        assert_eq!(rig.next().await, [1]);
        // The clock of the runtime counts milliseconds.
        let waited = begin.elapsed();
        assert!(waited >= gather && waited <= gather + Duration::from_millis(2));
    }

    // A superstep at a time, the next one as soon as it is there.
    let mut rig = Rig::new(RunAhead {
        supersteps: 1,
        ..RunAhead::default()
    });
    let begin = Instant::now();
    for step in 0..3 {
        rig.push([step], 10);
        assert_eq!(rig.next().await, [step]);
        rig.end(Ok(())).await;
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn results_of_tasks_wait_for_nothing_else_to_be_written() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.end(Ok(())).await;
    let begin = Instant::now();
    rig.push([1], 10);
    rig.pipeline.push(flush(), vec![]);
    assert_eq!(rig.next().await, [1]);
    rig.end(Ok(())).await;
    assert!(rig.next().await.is_empty(), "the flush");
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn supersteps_wait_for_no_others_once_they_are_half_of_what_may_be_ahead() {
    for (first, rest, bytes) in [(7, 8, 10), (1, 2, 300_000)] {
        let mut rig = Rig::new(RunAhead::default());
        rig.push([0], 10);
        assert_eq!(rig.next().await, [0]);
        rig.end(Ok(())).await;
        let begin = Instant::now();
        rig.push(1..=first, bytes);
        yield_now().await;
        assert!(rig.begun.try_recv().is_err());
        rig.push([rest], bytes);
        assert_eq!(rig.next().await, (1..=rest).collect::<Vec<_>>());
        assert_eq!(begin.elapsed(), Duration::ZERO);

        // Also those that came while it was under way.
        rig.push(1..=rest, bytes);
        rig.end(Ok(())).await;
        assert_eq!(rig.next().await, (1..=rest).collect::<Vec<_>>());
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
