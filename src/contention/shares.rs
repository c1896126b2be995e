//! Shares of what there is a limited number of: one principal gets at most half, so that something is
//! left for the others.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

tokio::task_local! {
    static PRINCIPAL: Arc<str>;
}

/// Does `work` in the name of a principal: what it takes in turn counts for that one. Without one
/// there is nobody else to leave anything to.
pub async fn on_behalf_of<T>(principal: Option<Arc<str>>, work: impl Future<Output = T>) -> T {
    match principal {
        Some(principal) => PRINCIPAL.scope(principal, work).await,
        None => work.await,
    }
}

/// The work in the name in which the caller works: a new task would do it in nobody's.
pub fn in_this_name<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    on_behalf_of(PRINCIPAL.try_with(Arc::clone).ok(), work)
}

/// Calls `step` in the name of a principal: one of the many by which a body is written.
pub fn step_on_behalf_of<T>(principal: &Arc<str>, step: impl FnOnce() -> T) -> T {
    PRINCIPAL.sync_scope(principal.clone(), step)
}

/// The principal has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other requests of the same principal use its share of the connections to the database")]
pub struct Full;

/// The shares of principals in a number of things.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Semaphores>);

/// How many semaphores are stored before the unused ones are removed.
const KNOWN: usize = 1024;

/// A semaphore for each name. Unused ones are removed, so that the number of names that ever came does not
/// matter.
#[derive(Debug)]
pub struct Semaphores {
    permits: usize,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    of: HashMap<Arc<str>, Arc<Semaphore>>,
    /// The number of semaphores at which the unused ones are removed next.
    full: usize,
}

impl Semaphores {
    /// Semaphores of so many permits each.
    pub fn new(permits: usize) -> Self {
        let used = Used {
            of: HashMap::new(),
            full: KNOWN,
        };
        Self {
            permits,
            used: Mutex::new(used),
        }
    }

    /// The semaphore of a name, a new one if there is none.
    pub fn of(&self, name: &Arc<str>) -> Arc<Semaphore> {
        let mut used = self.used.lock();
        if let Some(semaphore) = used.of.get(name) {
            return semaphore.clone();
        }
        if used.of.len() >= used.full {
            // Permits and those who wait for one have the semaphore too.
            used.of
                .retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
            used.full = KNOWN.max(2 * used.of.len());
        }
        let semaphore = Arc::new(Semaphore::new(self.permits));
        used.of.insert(name.clone(), semaphore.clone());
        semaphore
    }
}

/// One of the things, as long as this lives; nothing without a principal.
#[derive(Debug)]
pub struct Share {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// Halves of a number of things; of a single one each principal may have it.
    pub fn of(number: usize) -> Self {
        Self(Arc::new(Semaphores::new(number.div_ceil(2).max(1))))
    }

    /// One more for a principal.
    ///
    /// # Errors
    /// It has its share.
    pub fn take(&self, principal: Option<&Arc<str>>) -> Result<Share, Full> {
        let permit = principal.map(|principal| self.0.of(principal).try_acquire_owned());
        Ok(Share {
            _permit: permit.transpose().map_err(|_| Full)?,
        })
    }

    /// One more for the principal in whose name this task works, when it has less than its share.
    ///
    /// # Errors
    /// It had its share for as long as `limit`.
    pub async fn wait(&self, limit: Duration) -> Result<Share, Full> {
        let Ok(principal) = PRINCIPAL.try_with(Arc::clone) else {
            return Ok(Share { _permit: None });
        };
        let permit = tokio::time::timeout(limit, self.0.of(&principal).acquire_owned()).await;
        match permit {
            Ok(Ok(permit)) => Ok(Share {
                _permit: Some(permit),
            }),
            Ok(Err(_)) | Err(_) => Err(Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn names_of_nobody_are_forgotten_and_permits_are_not() {
        let semaphores = Semaphores::new(1);
        let name = |number: usize| Arc::<str>::from(format!("p{number}"));
        let permit = semaphores.of(&name(0)).try_acquire_owned().unwrap();
        for number in 1..10 * KNOWN {
            semaphores.of(&name(number));
        }
        assert!(semaphores.used.lock().of.len() <= KNOWN);
        assert!(semaphores.of(&name(0)).try_acquire().is_err());
        drop(permit);
        assert!(semaphores.of(&name(0)).try_acquire().is_ok());
    }

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
