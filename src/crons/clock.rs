//! The clock that decides what is due.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use super::Store;
use crate::{checkpoint, time::Timestamp};

/// The clock that decides what is due: the database's, so that all replicas agree.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// A clock that stands still until its owner moves it: microseconds since the Unix epoch.
    #[allow(dead_code, reason = "tests move time with it")]
    pub fn moved_by(owner: Arc<AtomicI64>) -> Self {
        Self(Some(owner))
    }

    /// The time now.
    pub(super) async fn now(&self, store: &dyn Store) -> Result<Timestamp, checkpoint::Error> {
        match &self.0 {
            Some(time) => Ok(Timestamp(time.load(Ordering::SeqCst))),
            None => store.clock().await,
        }
    }
}
