//! A database that any number of processes share: its connections, and what waits for them.

use std::{fmt, sync::Arc};

use super::{
    checkpoints::commit::queue::CommitQueue,
    connection::{Options, Pools, hot::Hot, streams::ReaderTurns, transaction::Turns},
    error::Error,
    link::DatabaseLinker,
    runs::create::queue::CreationQueue,
    threads::create::group::ThreadQueue,
};
use crate::checkpoint::codec::Format;

/// Everything that is stored, in one Postgres database. Cloning shares the connections.
#[derive(Clone)]
pub struct Store {
    pub(super) pools: Pools,
    pub(super) commits: CommitQueue,
    pub(super) creations: CreationQueue,
    pub(super) new_threads: ThreadQueue,
    pub(super) turns: Turns,
    pub(super) hot: Hot,
    pub(super) streams: ReaderTurns,
    /// In which form values are written.
    pub(super) format: Format,
    /// Reaches the other processes.
    pub(super) linker: Option<Arc<DatabaseLinker>>,
}

impl Store {
    /// Connects, without changing the schema: see [`migrate`](super::migrate()).
    ///
    /// # Errors
    ///
    /// Within a few seconds, when the database does not answer or the URL cannot be used.
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let pools = Pools::connect(&options).await?;
        let hot = Hot::new(options.patience);
        Ok(Self {
            commits: CommitQueue::new(&pools.critical, hot.clone()),
            creations: CreationQueue::new(&pools.critical),
            new_threads: ThreadQueue::new(&pools.reads),
            turns: Turns::new(pools.trees.clone(), hot.clone()),
            hot,
            streams: ReaderTurns::new(options.reads, pools.reads.shares(), options.request_wait),
            pools,
            format: options.format,
            linker: options
                .notifications
                .then(|| Arc::new(DatabaseLinker { url: options.url })),
        })
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
