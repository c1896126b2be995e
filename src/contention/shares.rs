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

/// The principal has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the principal uses its share already")]
pub struct Full;

/// The shares of principals in a number of things. Who they are is configured, so they are few.
#[derive(Clone, Debug)]
pub struct Shares {
    most: usize,
    used: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
}

/// One of the things, as long as this lives; nothing without a principal.
#[derive(Debug)]
pub struct Share {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// Halves of a number of things; of a single one each principal may have it.
    pub fn of(number: usize) -> Self {
        Self {
            most: number.div_ceil(2).max(1),
            used: Arc::default(),
        }
    }

    /// One more for a principal.
    ///
    /// # Errors
    /// It has its share.
    pub fn take(&self, principal: Option<&Arc<str>>) -> Result<Share, Full> {
        let permit = principal.map(|principal| self.used(principal).try_acquire_owned());
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
        let permit = tokio::time::timeout(limit, self.used(&principal).acquire_owned()).await;
        match permit {
            Ok(Ok(permit)) => Ok(Share {
                _permit: Some(permit),
            }),
            Ok(Err(_)) | Err(_) => Err(Full),
        }
    }

    fn used(&self, principal: &Arc<str>) -> Arc<Semaphore> {
        let mut used = self.used.lock();
        let new = || Arc::new(Semaphore::new(self.most));
        used.entry(principal.clone()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
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
