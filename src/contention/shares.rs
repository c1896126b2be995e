//! Shares of what there is a limited number of: one principal gets at most so many percent, half unless a setting says
//! otherwise, so that something is left for the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    permits::{Permit, Permits, Priority},
    unlimited::{inherited, within, without_limit},
};
use crate::fail_point;

/// In whose name a task works, and for what.
#[derive(Clone)]
struct Name {
    principal: Arc<str>,
    /// Whether the request that it carries out has had a share; none where it works for no request.
    has_begun: Option<Arc<AtomicBool>>,
}

impl Name {
    fn priority(&self) -> Priority {
        let has_begun = self.has_begun.as_ref();
        if has_begun.is_some_and(|begun| begun.load(Ordering::Relaxed)) {
            Priority::Begun
        } else {
            Priority::New
        }
    }

    /// Marks that its request has had a share; whether this was the first one.
    fn begin(&self) -> bool {
        let begun = self.has_begun.as_ref();
        begun.is_some_and(|begun| !begun.swap(true, Ordering::Relaxed))
    }
}

tokio::task_local! {
    static NAME: Name;
}

/// Marks that the request of this task has begun without a share: it has changed something.
#[cfg(feature = "sqlite")]
pub fn begin() {
    let _ = NAME.try_with(Name::begin);
}

/// Carries out one request in the name of a principal, up to the head of its response: what it takes in turn counts
/// for that one. Without one there is nobody else to leave anything to.
///
/// Once it has had a share it goes before the principal's requests that have had none: else each of its reads would
/// queue behind all of theirs, everything would go on at once and nothing end. It is over soon, so that they need not
/// wait for long.
pub async fn on_behalf_of<T>(principal: Option<Arc<str>>, request: impl Future<Output = T>) -> T {
    match principal {
        Some(principal) => {
            let name = Name {
                principal,
                has_begun: Some(Arc::default()),
            };
            NAME.scope(name, request).await
        }
        None => request.await,
    }
}

/// Work in the name in which the caller works that may take as long as it likes: what follows events, on a task of its
/// own or not, or polls for what others do. It goes before no request, however long ago it has begun: many of its kind
/// would leave no share to new ones. A new task without this would work in nobody's name.
pub fn in_this_name<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let principal = NAME.try_with(|name| name.principal.clone());
    async move {
        match principal {
            Ok(principal) => {
                let name = Name {
                    principal,
                    has_begun: None,
                };
                NAME.scope(name, work).await
            }
            Err(_) => work.await,
        }
    }
}

/// Carries out a run in the name of the principal who created it: what it reads counts for that one, and waits as long
/// as it takes for a share, since a run cannot be refused any more. It goes before no request, as in [`in_this_name`].
/// What it writes is written by tasks that work for several runs, in nobody's name.
pub async fn run_on_behalf_of<T>(principal: Option<Arc<str>>, run: impl Future<Output = T>) -> T {
    match principal {
        Some(principal) => {
            let name = Name {
                principal,
                has_begun: None,
            };
            NAME.scope(name, without_limit(run)).await
        }
        None => without_limit(run).await,
    }
}

/// What a run does on a task of its own, in the name in which the caller works and with its patience.
pub fn in_this_run<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    inherited(in_this_name(work))
}

/// Calls `step` in the name of a principal: one of the many by which a body is written. As its client may take it as
/// slowly as it likes, and streams do not end, it goes before no request.
pub fn step_on_behalf_of<T>(principal: &Arc<str>, step: impl FnOnce() -> T) -> T {
    let name = Name {
        principal: principal.clone(),
        has_begun: None,
    };
    NAME.sync_scope(name, step)
}

/// How much of what there is one principal may have at a time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(usize);

impl Percent {
    /// From 1 to 100 of a hundred.
    pub fn new(percent: usize) -> Self {
        Self(percent.clamp(1, 100))
    }

    /// So much of a number of things or bytes: at least one of them.
    pub fn of(self, number: usize) -> usize {
        // The product could be too large for a number.
        let share = number / 100 * self.0 + number % 100 * self.0 / 100;
        share.max(1)
    }
}

impl Default for Percent {
    /// Half.
    fn default() -> Self {
        Self(50)
    }
}

/// The principal has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other requests of the same principal use its share of the connections to the database")]
pub struct Full;

/// The shares of principals in a number of things.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Permits>);

/// One of the things, as long as this lives; nothing without a principal.
#[derive(Debug)]
pub struct Share {
    _permit: Option<Permit>,
}

impl Shares {
    /// Each principal has at most so many, and may have one.
    pub fn of_each(most: usize) -> Self {
        Self(Permits::new(most))
    }

    /// Of a number of things each principal has at most half.
    #[cfg(test)]
    pub fn of(number: usize) -> Self {
        Self::of_each(Percent::default().of(number))
    }

    /// One more for a principal.
    ///
    /// # Errors
    /// It has its share.
    pub fn take(&self, principal: Option<&Arc<str>>) -> Result<Share, Full> {
        let permit = principal.map(|principal| self.0.try_take(principal).ok_or(Full));
        Ok(Share {
            _permit: permit.transpose()?,
        })
    }

    /// One more for the principal in whose name this task works, when it has less than its share.
    ///
    /// # Errors
    /// It had its share for as long as `limit`, where [`within`] ends the wait.
    pub async fn wait(&self, limit: Duration) -> Result<Share, Full> {
        let Ok(name) = NAME.try_with(Name::clone) else {
            return Ok(Share { _permit: None });
        };
        let permit = self.0.wait(&name.principal, name.priority());
        let permit = within(limit, permit).await.ok_or(Full)?;
        if name.begin() {
            fail_point!(async "shares::begun");
        }
        Ok(Share {
            _permit: Some(permit),
        })
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn who_works_for_nobody_takes_all() {
        let shares = Shares::of(2);
        let mut all = vec![];
        for _ in 0..5 {
            all.push(shares.wait(LIMIT).await.unwrap());
            all.push(shares.take(None).unwrap());
        }
    }
}
