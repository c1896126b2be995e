//! The sweep of threads whose time to live is over.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::{Result, Service};
use crate::{
    id::{ThreadId, TreeId},
    tree::ttl::TtlStrategy,
};

/// Most threads that are taken at once, and in one sweep.
const BATCH: usize = 100;
const MOST: usize = 1000;

impl Service {
    /// Sweeps threads that have expired, each time after a pause, until the server drains.
    pub(super) async fn sweep_threads(self, pause: Duration) {
        let mut sweeps = tokio::time::interval(pause);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shared.drain.cancelled() => return,
                _ = sweeps.tick() => {}
            }
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "threads that have expired could not be swept");
            }
        }
    }

    /// One sweep. What one process has taken no other one takes meanwhile; of a process that dies it is due again
    /// after a while.
    async fn sweep_once(&self) -> Result<()> {
        let (mut read, mut swept) = (0, 0);
        while read < MOST && !self.shared.drain.is_cancelled() {
            let taken = self.shared.parts.tree.take_expired(BATCH).await?;
            for (tree, thread) in &taken {
                match self.expire(*tree, *thread).await {
                    Ok(was_expired) => swept += usize::from(was_expired),
                    Err(error) => {
                        tracing::warn!(%thread, %error, "a thread that has expired could not be swept");
                    }
                }
            }
            read += taken.len();
            if taken.len() < BATCH {
                break;
            }
        }
        if swept > 0 {
            tracing::info!(swept, "threads had expired");
        }
        Ok(())
    }

    /// Deletes or prunes a thread, if it still is expired in the transaction that does so: it may have changed since
    /// it was found, or have a run.
    async fn expire(&self, tree: TreeId, id: ThreadId) -> Result<bool> {
        let mut tx = self.shared.parts.tree.begin(tree).await?;
        let row = tx.thread_row(id).await?;
        if row.is_none_or(|row| row.deleted_at.is_some() || row.tree != tree) {
            return Ok(false);
        }
        let expired = tx.expired(tree, id).await?;
        match expired {
            Some(TtlStrategy::Delete) => tx.delete_thread(tree, id).await?,
            Some(TtlStrategy::KeepLatest) => {
                tx.prune_thread(tree, id).await?;
            }
            None => {}
        }
        tx.commit().await?;
        Ok(expired.is_some())
    }
}
