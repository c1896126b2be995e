//! When groups begin, and what they have.

use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

use super::*;

/// Groups that take so many milliseconds, and the sizes of those that have begun.
fn groups(millis: u64) -> (Groups<usize>, mpsc::UnboundedReceiver<Vec<usize>>) {
    let (begun, sizes) = mpsc::unbounded_channel();
    let groups = Groups::new(move |group: Vec<usize>| {
        begun.send(group).unwrap();
        Box::pin(async move {
            sleep(Duration::from_millis(millis)).await;
            Ended::Continue(())
        })
    });
    (groups, sizes)
}

fn so_far(begun: &mut mpsc::UnboundedReceiver<Vec<usize>>) -> Vec<Vec<usize>> {
    std::iter::from_fn(|| begun.try_recv().ok()).collect()
}

/// Lets every task do what it can without time going by.
async fn settle() {
    for _ in 0..5 * YIELDS {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_group_is_under_way_is_the_next_one() {
    let (groups, mut begun) = groups(4);
    groups.add(0);
    sleep(Duration::from_millis(1)).await;
    for job in 1..4 {
        groups.add(job);
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(so_far(&mut begun), [vec![0]]);
    sleep(Duration::from_millis(4)).await;
    assert_eq!(so_far(&mut begun), [vec![1, 2, 3]]);
    sleep(Duration::from_millis(20)).await;
    groups.add(4);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(so_far(&mut begun), [vec![4]], "alone it begins at once");
}

#[tokio::test(start_paused = true)]
async fn what_tasks_add_that_are_ready_comes_along() {
    let (groups, mut begun) = groups(4);
    groups.add(0);
    for job in 1..6 {
        let groups = groups.clone();
        tokio::spawn(async move {
            yield_now().await;
            groups.add(job);
        });
    }
    settle().await;
    let mut first = so_far(&mut begun).concat();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2, 3, 4, 5]);
    sleep(Duration::from_millis(20)).await;
    assert!(so_far(&mut begun).is_empty(), "nothing waits any more");
}

#[tokio::test(start_paused = true)]
async fn another_group_begins_beside_one_when_many_wait() {
    let (groups, mut begun) = groups(4);
    let add = |jobs: std::ops::Range<usize>| {
        jobs.for_each(|job| groups.add(job));
        settle()
    };
    add(0..1).await;
    add(1..4).await;
    assert_eq!(so_far(&mut begun), [vec![0]], "three wait");
    add(4..5).await;
    assert_eq!(so_far(&mut begun), [vec![1, 2, 3, 4]]);
    add(5..11).await;
    assert_eq!(so_far(&mut begun), [vec![5, 6, 7, 8, 9, 10]]);
    add(11..17).await;
    assert!(so_far(&mut begun).is_empty(), "three are under way");
    sleep(Duration::from_millis(5)).await;
    assert_eq!(so_far(&mut begun), [vec![11, 12, 13, 14, 15, 16]]);
}

#[tokio::test(start_paused = true)]
async fn another_group_begins_beside_one_that_takes_long() {
    let (groups, mut begun) = groups(100);
    for job in 0..3 {
        groups.add(job);
        settle().await;
    }
    sleep(Duration::from_millis(4)).await;
    assert_eq!(so_far(&mut begun), [vec![0]]);
    sleep(Duration::from_millis(2)).await;
    assert_eq!(so_far(&mut begun), [vec![1, 2]]);
    sleep(Duration::from_millis(5)).await;
    groups.add(3);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(so_far(&mut begun), [vec![3]], "nothing fast is under way");
    groups.add(4);
    sleep(Duration::from_millis(60)).await;
    assert!(so_far(&mut begun).is_empty(), "three are under way");
    sleep(Duration::from_millis(60)).await;
    assert_eq!(so_far(&mut begun), [vec![4]]);
}

#[tokio::test(start_paused = true)]
async fn groups_go_on_after_a_panic() {
    let (begun, mut jobs) = mpsc::unbounded_channel();
    let groups = Groups::new(move |group: Vec<usize>| {
        begun.send(group.clone()).unwrap();
        Box::pin(async move {
            assert!(group[0] > 5);
            Ended::Continue(())
        })
    });
    for job in 0..8 {
        groups.add(job);
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(so_far(&mut jobs).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_group_has_so_many_jobs_and_no_more() {
    let (groups, mut begun) = groups(4);
    for job in 0..100 {
        groups.add(job);
    }
    sleep(Duration::from_millis(5)).await;
    let sizes: Vec<usize> = so_far(&mut begun).iter().map(Vec::len).collect();
    assert_eq!(sizes, [32, 32, 32, 4]);
}

#[tokio::test(start_paused = true)]
async fn one_by_one_no_group_begins_beside_another() {
    let (begun, mut jobs) = mpsc::unbounded_channel();
    let groups = Groups::one_by_one(move |group: Vec<usize>| {
        begun.send(group).unwrap();
        Box::pin(async {
            sleep(Duration::from_millis(100)).await;
            Ended::Continue(())
        })
    });
    for job in 0..20 {
        groups.add(job);
        if job == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(so_far(&mut jobs), [vec![0]]);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(so_far(&mut jobs), [(1..20).collect::<Vec<_>>()]);
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_are_let_go_when_a_group_tells_that_nothing_can_be_done() {
    let (begun, mut jobs) = mpsc::unbounded_channel();
    let groups = Groups::new(move |group: Vec<oneshot::Sender<()>>| {
        begun.send(group.len()).unwrap();
        Box::pin(async move {
            sleep(Duration::from_millis(4)).await;
            Ended::Break(())
        })
    });
    let add = || {
        let (job, done) = oneshot::channel();
        groups.add(job);
        done
    };
    let mut waiting = vec![add()];
    sleep(Duration::from_millis(1)).await;
    waiting.extend((0..3).map(|_| add()));
    for one in waiting {
        one.await.unwrap_err();
    }
    assert_eq!(jobs.try_recv(), Ok(1), "the others were not tried");
    jobs.try_recv().unwrap_err();
    add().await.unwrap_err();
    assert_eq!(jobs.try_recv(), Ok(1), "what comes later is");
}

#[test]
fn groups_that_end_with_their_runtime_let_the_waiting_go_and_begin_on_another() {
    let groups = Groups::new(move |group: Vec<(bool, oneshot::Sender<()>)>| {
        Box::pin(async move {
            for (hangs, job) in group {
                if hangs {
                    std::future::pending::<()>().await;
                }
                job.send(()).unwrap();
            }
            Ended::Continue(())
        })
    });
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap()
    };
    let add = |hangs| {
        let (job, done) = oneshot::channel();
        groups.add((hangs, job));
        done
    };
    for lanes in 1..=AT_ONCE {
        let first = runtime();
        let waiting: Vec<_> = first.block_on(async {
            let mut waiting = vec![];
            for _ in 0..lanes {
                waiting.push(add(true));
                sleep(2 * SLOW).await;
            }
            waiting.extend((0..FULL * AT_ONCE * lanes).map(|_| add(true)));
            sleep(2 * SLOW).await;
            waiting
        });
        drop(first);
        runtime().block_on(async {
            for one in waiting {
                one.await.unwrap_err();
            }
            add(false).await.unwrap();
        });
        let state = groups.shared.state.lock();
        assert_eq!((state.under_way, state.fast), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_group_are_no_larger_together_than_its_bound_and_a_larger_one_goes_alone() {
    let (begun, mut sizes) = mpsc::unbounded_channel();
    let work = move |group: Vec<usize>| {
        begun.send(group).unwrap();
        Box::pin(async {
            sleep(Duration::from_millis(1)).await;
            Ended::Continue(())
        }) as BoxFuture<'static, Ended>
    };
    let groups = Groups::sized(|job| *job, 10, work);
    for job in [4, 6, 1, 25, 9, 2] {
        groups.add(job);
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(
        so_far(&mut sizes),
        [vec![4, 6], vec![1], vec![25], vec![9], vec![2]]
    );
}
