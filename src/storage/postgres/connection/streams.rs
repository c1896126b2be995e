//! Turns of those who read stored streams: after a cut all of them come back at once, and would take
//! every connection from requests of other kinds.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checkpoint::Error;

/// As many turns as half of the reading connections; the others wait in line here.
#[derive(Clone)]
pub(crate) struct ReaderTurns {
    turns: Arc<Semaphore>,
    limit: Duration,
}

impl ReaderTurns {
    /// Half of so many connections, and the longest wait.
    pub(crate) fn new(connections: usize, limit: Duration) -> Self {
        let turns = (connections / 2).max(1);
        Self {
            turns: Arc::new(Semaphore::new(turns)),
            limit,
        }
    }

    /// One turn, first come first served.
    ///
    /// # Errors
    /// `Unavailable` when those before take too long.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        let turn = self.turns.clone().acquire_owned();
        match tokio::time::timeout(self.limit, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => {
                let reason = "too many readers of streams wait for the database";
                Err(Error::Unavailable(reason.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_of_the_connections_are_for_readers_of_streams_and_nobody_waits_for_ever() {
        let turns = ReaderTurns::new(5, Duration::from_secs(10));
        let first = turns.turn().await.unwrap();
        let _second = turns.turn().await.unwrap();
        assert!(turns.turn().now_or_never().is_none());
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.turn().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        let third = waiting.await.unwrap().unwrap();
        assert!(matches!(turns.turn().await, Err(Error::Unavailable(_))));
        drop(third);
        assert!(turns.turn().await.is_ok());
    }
}
