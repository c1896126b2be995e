//! The outbox: one row per run that has ended and whose webhook was not delivered yet. A trigger of each
//! database inserts it in whatever transaction makes the status of a run with a webhook final.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    checkpoint::Error,
    id::{RunId, TreeId},
};

/// What identifies a delivery. To the receiver it is the id of the run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The tree of the run's thread.
    pub tree: TreeId,
    /// The run.
    pub run: RunId,
}

/// A delivery whose time has come.
#[derive(Clone, Debug)]
pub struct Due {
    /// Which one.
    pub key: Key,
    /// Host and port of the receiver, as its URL names them.
    pub host: Arc<str>,
    /// On whose behalf the run was executed; empty while nobody authenticates.
    pub principal: Arc<str>,
}

/// A delivery that one process has taken for a limited time.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which one.
    pub key: Key,
    /// The receiver.
    pub url: Arc<str>,
    /// The number of this try, counted from 1.
    pub attempt: i32,
}

/// A slice of the receivers, in the order of their hosts.
#[derive(Clone, Debug)]
pub struct HostPage {
    /// Those behind this host; empty for the first ones.
    pub after: Arc<str>,
    /// The most hosts.
    pub hosts: usize,
    /// The most deliveries of one host.
    pub per_host: usize,
}

/// Deliveries of a slice of the receivers.
#[derive(Clone, Debug, Default)]
pub struct DueByHost {
    /// Those whose time has come, oldest first per host.
    pub due: Vec<Due>,
    /// The last host of the slice; `None` when it was the last slice.
    pub last: Option<Arc<str>>,
}

/// A try that did not succeed.
#[derive(Clone, Debug)]
pub struct FailedTry {
    /// The delivery.
    pub key: Key,
    /// Which of its tries. Nothing is written when a later one has begun.
    pub attempt: i32,
    /// What went wrong.
    pub error: String,
    /// The pause until the next try; `None` when there is none.
    pub pause: Option<Duration>,
}

/// Stores deliveries. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The deliveries that have been due for longest.
    async fn due_deliveries(&self, limit: usize) -> Result<Vec<Due>, Error>;

    /// Deliveries that are due, by host: what one reads when most are for hosts that must wait.
    async fn due_by_host(&self, page: HostPage) -> Result<DueByHost, Error>;

    /// Takes those of the deliveries that are still due. They are due once more after `lease`, so that a
    /// process that dies delays them and loses none.
    async fn take_deliveries(
        &self,
        keys: Vec<Key>,
        lease: Duration,
    ) -> Result<Vec<Delivery>, Error>;

    /// Removes a delivery that has reached its receiver, or that has nothing to report any more.
    async fn delivered(&self, key: Key) -> Result<(), Error>;

    /// Records that a try failed. Without a pause the row stays for some time and is not tried any more.
    async fn delivery_failed(&self, failed: FailedTry) -> Result<(), Error>;

    /// Returns deliveries that were taken and not tried, with the numbers of their tries.
    async fn release_deliveries(&self, taken: Vec<(Key, i32)>) -> Result<(), Error>;

    /// Removes rows whose last try failed longer ago than `age`; how many they were.
    async fn sweep_deliveries(&self, age: Duration, limit: usize) -> Result<u64, Error>;
}
