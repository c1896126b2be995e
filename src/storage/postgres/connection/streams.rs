//! Turns of those who read stored streams: after a cut all of them come back at once, and would take
//! every connection from requests of other kinds.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    checkpoint::Error,
    contention::shares::{Share, Shares},
};

/// As many turns as half of the reading connections; the others wait in line here. One principal has at most half of
/// the turns, beside its share of the connections: its streams do not keep its other requests waiting.
#[derive(Clone)]
pub(crate) struct ReaderTurns {
    turns: Arc<Semaphore>,
    shares: Shares,
    limit: Duration,
}

impl ReaderTurns {
    /// Half of so many connections, and the longest wait.
    pub(crate) fn new(connections: usize, limit: Duration) -> Self {
        let turns = (connections / 2).max(1);
        Self {
            turns: Arc::new(Semaphore::new(turns)),
            shares: Shares::of(turns),
            limit,
        }
    }

    /// One turn, first come first served.
    ///
    /// # Errors
    /// `ShareUsed` when others of the principal, and `Unavailable` when those before take too long.
    pub(crate) async fn turn(&self) -> Result<(Share, OwnedSemaphorePermit), Error> {
        // Whoever waits for its share must not have a turn meanwhile that others could use.
        let share = self.shares.wait(self.limit).await?;
        let turn = self.turns.clone().acquire_owned();
        match tokio::time::timeout(self.limit, turn).await {
            Ok(Ok(turn)) => Ok((share, turn)),
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
    use crate::contention::shares::on_behalf_of;

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

    #[tokio::test(start_paused = true)]
    async fn streams_of_one_principal_leave_turns_to_others() {
        let turns = ReaderTurns::new(8, Duration::from_secs(10));
        let of = |name: &str| on_behalf_of(Some(name.into()), turns.turn());
        let _two = (of("ann").await.unwrap(), of("ann").await.unwrap());
        assert!(matches!(of("ann").await, Err(Error::ShareUsed(_))));
        assert!(of("bob").await.is_ok());
    }
}
