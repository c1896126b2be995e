//! Shares of principals: how many one has, who goes first, and in whose name what works.

use futures::FutureExt;
use tokio::time::Instant;

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_principal_waits_at_its_half_and_others_do_not() {
    let shares = Shares::of(4);
    let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
    let take = |principal: &Arc<str>| {
        let shares = shares.clone();
        on_behalf_of(
            Some(principal.clone()),
            async move { shares.wait(LIMIT).await },
        )
    };
    let first = take(&ann).await.unwrap();
    let _second = take(&ann).await.unwrap();
    assert_eq!(take(&ann).await.unwrap_err(), Full);
    assert_eq!(shares.take(Some(&ann)).unwrap_err(), Full);
    take(&bob).await.unwrap();
    drop(first);
    take(&ann).await.unwrap();
}

#[test]
fn the_share_is_so_many_percent_and_never_nothing() {
    let ann: Arc<str> = "ann".into();
    for percent in [1, 25, 50, 100] {
        for number in 1..=50 {
            let shares = Shares::of_each(Percent::new(percent).of(number));
            let taken: Vec<_> = std::iter::from_fn(|| shares.take(Some(&ann)).ok()).collect();
            let most = (number * percent / 100).max(1);
            assert_eq!(taken.len(), most, "{percent} % of {number}");
        }
    }
    assert_eq!(Percent::new(100).of(usize::MAX), usize::MAX);
    assert_eq!(Percent::default().of(usize::MAX), usize::MAX / 2);
}

/// Waits for a share and has it for a second, as often as it is told; when each time ended.
async fn reads(shares: Shares, times: usize) -> Vec<u64> {
    let mut ends = vec![];
    for _ in 0..times {
        let share = shares.wait(10 * LIMIT).await.unwrap();
        tokio::time::sleep(LIMIT).await;
        drop(share);
        ends.push(START.with(|start| start.elapsed().as_secs()));
    }
    ends
}

tokio::task_local! {
    static START: Instant;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_begun_goes_before_new_ones_and_a_stream_does_not() {
    let shares = Shares::of(1);
    let ann: Arc<str> = "ann".into();
    let request = || on_behalf_of(Some(ann.clone()), reads(shares.clone(), 2));
    let stream = || {
        let reads = reads(shares.clone(), 2);
        on_behalf_of(Some(ann.clone()), async { in_this_name(reads).await })
    };
    let requests = async { tokio::join!(biased; request(), request(), request()) };
    let ends = START.scope(Instant::now(), requests).await;
    // The share was handed on at once, and no third request begins before those two have ended.
    assert_eq!(ends, (vec![1, 3], vec![2, 4], vec![5, 6]));
    let beside = async { tokio::join!(biased; stream(), request(), stream()) };
    let ends = START.scope(Instant::now(), beside).await;
    assert_eq!(ends, (vec![1, 5], vec![2, 4], vec![3, 6]));
}

#[tokio::test]
async fn who_has_had_a_share_of_one_thing_goes_first_at_others_and_its_steps_do_not() {
    let (reads, trees) = (Shares::of(1), Shares::of(1));
    let ann: Arc<str> = "ann".into();
    let held = trees.take(Some(&ann)).unwrap();
    let of_ann = |work| on_behalf_of(Some(ann.clone()), work);
    let mut new = Box::pin(of_ann(trees.wait(LIMIT).boxed()));
    assert!((&mut new).now_or_never().is_none());
    let mut step = trees.wait(LIMIT).boxed();
    let mut poll_step = || step_on_behalf_of(&ann, || (&mut step).now_or_never());
    assert!(poll_step().is_none());
    let begun = async {
        reads.wait(LIMIT).await?;
        trees.wait(LIMIT).await
    };
    let mut begun = Box::pin(of_ann(begun.boxed()));
    assert!((&mut begun).now_or_never().is_none());
    drop(held);
    let held = begun.now_or_never().unwrap();
    assert!((&mut new).now_or_never().is_none());
    drop(held);
    let held = new.now_or_never().unwrap();
    assert!(poll_step().is_none());
    drop(held);
    assert!(poll_step().is_some());
}

#[tokio::test]
async fn a_new_task_and_each_step_of_a_body_work_in_the_name_they_are_given() {
    let shares = Shares::of(1);
    let ann: Arc<str> = "ann".into();
    let held = shares.take(Some(&ann)).unwrap();
    let wait = {
        let shares = shares.clone();
        move || {
            let shares = shares.clone();
            async move { shares.wait(Duration::ZERO).await.map(drop) }
        }
    };
    let spawn = |work| async { tokio::spawn(work).await.unwrap() };
    let of_nobody = on_behalf_of(Some(ann.clone()), async { spawn(wait().boxed()).await });
    assert_eq!(of_nobody.await, Ok(()));
    let of_ann = async { spawn(in_this_name(wait()).boxed()).await };
    assert_eq!(on_behalf_of(Some(ann.clone()), of_ann).await, Err(Full));
    let mut step = Box::pin(wait());
    let first = step_on_behalf_of(&ann, || (&mut step).now_or_never());
    assert_ne!(first, Some(Ok(())));
    drop((step, held));
    let freed = step_on_behalf_of(&ann, || wait().now_or_never());
    assert_eq!(freed, Some(Ok(())));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn while_everybody_waits_for_something_of_a_request_it_takes_beside_the_share() {
    let shares = Shares::of(2);
    let ann: Arc<str> = "ann".into();
    let held = shares.take(Some(&ann)).unwrap();
    let wait = async || shares.wait(Duration::ZERO).await;
    let request = async {
        assert_eq!(wait().await.unwrap_err(), Full);
        let blocking = (Blocking::in_this_name(), Blocking::in_this_name());
        let beside = (wait().await.unwrap(), wait().await.unwrap());
        let other = on_behalf_of(Some(ann.clone()), wait());
        assert_eq!(other.await.unwrap_err(), Full);
        drop(blocking.0);
        assert_eq!(apart_in_this_run(read(shares.clone())).await, Ok(()));
        drop(blocking.1);
        assert_eq!(wait().await.unwrap_err(), Full);
        drop(held);
        // What was beside the share counts for nothing.
        let own = wait().await.unwrap();
        drop(beside);
        assert_eq!(wait().await.unwrap_err(), Full);
        drop(own);
        wait().await.unwrap();
    };
    on_behalf_of(Some(ann.clone()), request).await;
    let of_nobody = Blocking::in_this_name();
    wait().await.unwrap();
    drop(of_nobody);
}

#[tokio::test]
async fn who_works_for_nobody_takes_all() {
    let shares = Shares::of(2);
    let mut all = vec![];
    for _ in 0..5 {
        all.push(shares.wait(LIMIT).await.unwrap());
        all.push(shares.take(None).unwrap());
    }
}

/// Waits for a share and has it for a moment.
async fn read(shares: Shares) -> Result<(), Full> {
    let _share = shares.wait(LIMIT).await?;
    tokio::task::yield_now().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_behind_the_requests_of_its_principal_and_longer_than_they_may() {
    let shares = Shares::of(1);
    let (ann, cancel): (Arc<str>, _) = ("ann".into(), CancellationToken::new());
    let held = shares.take(Some(&ann)).unwrap();
    let run = run_on_behalf_of(Some(ann.clone()), cancel.clone(), read(shares.clone()));
    let mut run = Box::pin(run);
    assert!((&mut run).now_or_never().is_none());
    tokio::time::sleep(10 * LIMIT).await;
    let request = on_behalf_of(Some(ann.clone()), shares.wait(LIMIT));
    let mut request = Box::pin(request);
    assert!((&mut request).now_or_never().is_none());
    drop(held);
    assert!((&mut run).now_or_never().is_none());
    let held = request.now_or_never().unwrap().unwrap();
    drop(held);
    assert_eq!(run.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_waits_among_those_of_its_principal_and_for_no_other() {
    let shares = Shares::of(2);
    let ann: Arc<str> = "ann".into();
    let _held = shares.take(Some(&ann)).unwrap();
    let run = || {
        let cancel = CancellationToken::new();
        let work = run_on_behalf_of(Some(ann.clone()), cancel.clone(), shares.wait(LIMIT));
        (cancel, Box::pin(work))
    };
    let ((first, mut ends), (second, mut waits)) = (run(), run());
    assert!((&mut ends).now_or_never().is_none());
    assert!((&mut waits).now_or_never().is_none());
    first.cancel();
    second.cancel();
    let share = ends.await.unwrap();
    assert!((&mut waits).now_or_never().is_none(), "one after the other");
    let of_bob = on_behalf_of(Some("bob".into()), shares.wait(LIMIT));
    assert!(of_bob.now_or_never().is_some());
    drop(share);
    waits.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn runs_without_a_principal_wait_for_no_share() {
    let shares = Shares::of(2);
    let run = async {
        (
            shares.wait(LIMIT).await,
            shares.wait(LIMIT).await,
            shares.wait(LIMIT).await,
        )
    };
    let cancel = CancellationToken::new();
    let all = run_on_behalf_of(None, cancel, run).now_or_never().unwrap();
    assert!(matches!(all, (Ok(_), Ok(_), Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn what_a_run_reads_apart_is_in_its_name_and_keeps_no_share_though_nobody_polls_it() {
    let shares = Shares::of(2);
    let ann: Arc<str> = "ann".into();
    let held = shares.take(Some(&ann)).unwrap();
    let run = async {
        let mut first = Box::pin(apart_in_this_run(read(shares.clone())));
        assert!((&mut first).now_or_never().is_none());
        // It waits, as long as the run may, for the share of its principal.
        tokio::time::sleep(10 * LIMIT).await;
        assert!((&mut first).now_or_never().is_none());
        drop(held);
        // The first one had its share meanwhile, and has it no more.
        assert_eq!(apart_in_this_run(read(shares.clone())).await, Ok(()));
        assert_eq!(first.await, Ok(()));
    };
    run_on_behalf_of(Some(ann.clone()), CancellationToken::new(), run).await;
    let gone = run_on_behalf_of(Some(ann.clone()), CancellationToken::new(), async {
        let held = shares.take(Some(&ann)).unwrap();
        let mut left = Box::pin(apart_in_this_run(read(shares.clone())));
        assert!((&mut left).now_or_never().is_none());
        tokio::task::yield_now().await;
        drop(left);
        drop(held);
        apart_in_this_run(read(shares.clone())).await
    });
    assert_eq!(gone.await, Ok(()));
}
