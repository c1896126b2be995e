//! Shares of what there is a limited number of: one principal gets at most so many percent, half unless a setting says
//! otherwise, so that something is left for the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use super::{
    permits::{Permit, Permits, Priority},
    unlimited::{inherited, within, without_limit},
};
use crate::fail_point;

/// In whose name a task works, and for what.
#[derive(Clone)]
struct Name {
    principal: Arc<str>,
    work: Work,
    /// How many `Blocking` there are in this name: usually none.
    blocking: Arc<AtomicUsize>,
}

#[derive(Clone)]
enum Work {
    /// For a request, of which this says whether it has had a share.
    Request(Arc<AtomicBool>),
    /// For something that is shown for as long as its client likes.
    Following,
    /// For a run, until it is cancelled.
    Run(CancellationToken),
}

impl Name {
    fn new(principal: Arc<str>, work: Work) -> Self {
        Self {
            principal,
            work,
            blocking: Arc::default(),
        }
    }

    fn priority(&self) -> Priority {
        match &self.work {
            Work::Request(has_begun) if has_begun.load(Ordering::Relaxed) => Priority::Begun,
            Work::Request(_) | Work::Following => Priority::New,
            Work::Run(_) => Priority::Patient,
        }
    }

    /// Marks that its request has had a share; whether this was the first one.
    fn begin(&self) -> bool {
        match &self.work {
            Work::Request(has_begun) => !has_begun.swap(true, Ordering::Relaxed),
            Work::Following | Work::Run(_) => false,
        }
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

/// Marks that the request of a task has something for which everybody else waits, as long as this lives. Meanwhile what
/// the request takes comes beside the share of its principal and does not wait for it: else, while other requests of the
/// principal have all of its share, everybody would wait for those too.
///
/// A request does one thing after the other, so that it takes one thing at a time beside the share.
#[derive(Debug)]
#[cfg(feature = "sqlite")]
pub struct Blocking(Option<Arc<AtomicUsize>>);

#[cfg(feature = "sqlite")]
impl Blocking {
    /// In the name in which this task works, if it works in one.
    pub fn in_this_name() -> Self {
        let count = NAME.try_with(|name| name.blocking.clone()).ok();
        if let Some(count) = &count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Self(count)
    }
}

#[cfg(feature = "sqlite")]
impl Drop for Blocking {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
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
            let name = Name::new(principal, Work::Request(Arc::default()));
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
                let name = Name::new(principal, Work::Following);
                NAME.scope(name, work).await
            }
            Err(_) => work.await,
        }
    }
}

/// Carries out a run in the name of the principal who created it: what it reads counts for that one, and waits as long
/// as it takes for a share, since a run cannot be refused any more, behind the requests of its principal, to whom runs
/// leave one. Whoever cancels it waits for its end: then it also waits among the cancelled runs of its principal, of which
/// one at a time reads beside the share. Supersteps are written by tasks that work for several runs, in nobody's name.
///
/// Without a principal there is nobody else to leave anything to.
pub async fn run_on_behalf_of<T>(
    principal: Option<Arc<str>>,
    cancel: CancellationToken,
    run: impl Future<Output = T>,
) -> T {
    match principal {
        Some(principal) => {
            let name = Name::new(principal, Work::Run(cancel));
            NAME.scope(name, without_limit(run)).await
        }
        None => run.await,
    }
}

/// What a run does on a task of its own, in the name in which the caller works and with its patience.
pub fn in_this_run<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let name = NAME.try_with(Name::clone);
    let work = inherited(work);
    async move {
        match name {
            Ok(name) => NAME.scope(name, work).await,
            Err(_) => work.await,
        }
    }
}

/// The same on a new task, which ends with this future. Nodes decide themselves which of their futures they poll, and
/// one that they leave alone for a while would keep its share from all others of the run for as long.
pub async fn apart_in_this_run<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = tokio::spawn(in_this_run(work).in_current_span());
    match AbortOnDropHandle::new(task).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime stops, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

/// Calls `step` in the name of a principal: one of the many by which a body is written. As its client may take it as
/// slowly as it likes, and streams do not end, it goes before no request.
pub fn step_on_behalf_of<T>(principal: &Arc<str>, step: impl FnOnce() -> T) -> T {
    let name = Name::new(principal.clone(), Work::Following);
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
#[error(
    "other requests and runs of the same principal use its share of the connections to the database"
)]
pub struct Full;

/// The shares of principals in a number of things.
#[derive(Clone, Debug)]
pub struct Shares {
    of_each: Arc<Permits>,
    /// One more of each principal, for its runs that were cancelled.
    cancelled: Arc<Permits>,
}

/// One of the things, as long as this lives; nothing without a principal, and for what comes beside the share.
#[derive(Debug)]
pub struct Share {
    _permit: Option<Permit>,
}

impl Shares {
    /// Each principal has at most so many, and may have one.
    pub fn of_each(most: usize) -> Self {
        Self {
            of_each: Permits::new(most),
            cancelled: Permits::new(1),
        }
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
        let permit = principal.map(|principal| self.of_each.try_take(principal).ok_or(Full));
        Ok(Share {
            _permit: permit.transpose()?,
        })
    }

    /// A permit of the share, or for a run that is cancelled the one beside it, whichever is free first.
    async fn permit(&self, name: &Name) -> Permit {
        let own = self.of_each.wait(&name.principal, name.priority());
        let Work::Run(cancel) = &name.work else {
            return own.await;
        };
        let cancelled = async {
            cancel.cancelled().await;
            self.cancelled.wait(&name.principal, name.priority()).await
        };
        tokio::select! {
            permit = own => permit,
            permit = cancelled => permit,
        }
    }

    /// One more for the principal in whose name this task works, when it has less than its share; at once where the
    /// task has something that everybody waits for (`Blocking`).
    ///
    /// # Errors
    /// It had its share for as long as `limit`, where [`within`] ends the wait.
    pub async fn wait(&self, limit: Duration) -> Result<Share, Full> {
        let Ok(name) = NAME.try_with(Name::clone) else {
            return Ok(Share { _permit: None });
        };
        if name.blocking.load(Ordering::Relaxed) > 0 {
            return Ok(Share { _permit: None });
        }
        let permit = within(limit, self.permit(&name)).await.ok_or(Full)?;
        if name.begin() {
            fail_point!(async "shares::begun");
        }
        Ok(Share {
            _permit: Some(permit),
        })
    }
}

#[cfg(test)]
mod tests;
