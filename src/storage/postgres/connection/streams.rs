//! Turns of those who read stored streams: after a cut all of them come back at once, and would take
//! every connection from requests of other kinds.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    checkpoint::Error,
    contention::shares::{Full, Share, Shares},
};

/// As many turns as half of the reading connections; the others wait in line here. One principal has at most half of
/// the turns, out of its share of the connections: its streams leave the rest of that to its other requests.
#[derive(Clone)]
pub(crate) struct ReaderTurns {
    turns: Arc<Semaphore>,
    shares: Shares,
    /// The shares of the connections.
    of_all: Shares,
    limit: Duration,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReaderTurn {
    _share: Share,
    _of_all: Share,
    _turn: OwnedSemaphorePermit,
}

impl ReaderTurns {
    /// Half of so many connections, of which principals have these shares, and the longest wait.
    pub(crate) fn new(connections: usize, of_all: &Shares, limit: Duration) -> Self {
        let turns = (connections / 2).max(1);
        Self {
            turns: Arc::new(Semaphore::new(turns)),
            shares: Shares::of_each(turns / 2),
            of_all: of_all.clone(),
            limit,
        }
    }

    /// One turn, first come first served. All that it waits for takes no longer than the limit together.
    ///
    /// # Errors
    /// `ShareUsed` when others of the principal take too long, and `Unavailable` when those of others do; where both
    /// were waited for, the one that it waited for longer.
    pub(crate) async fn turn(&self) -> Result<ReaderTurn, Error> {
        // Whoever waits for its share must not have a turn meanwhile that others could use.
        let begin = Instant::now();
        let left = || self.limit.saturating_sub(begin.elapsed());
        let share = self.shares.wait(left()).await?;
        let of_all = self.of_all.wait(left()).await?;
        let of_own = begin.elapsed();
        let turn = self.turns.clone().acquire_owned();
        match tokio::time::timeout(left(), turn).await {
            Ok(Ok(turn)) => Ok(ReaderTurn {
                _share: share,
                _of_all: of_all,
                _turn: turn,
            }),
            // Its own others took most of the time.
            _ if 2 * of_own > self.limit => Err(Full.into()),
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

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn half_of_the_connections_are_for_readers_of_streams_and_nobody_waits_for_ever() {
        let turns = ReaderTurns::new(5, &Shares::of(5), LIMIT);
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
        let turns = ReaderTurns::new(8, &Shares::of(8), LIMIT);
        let of = |name: &str| on_behalf_of(Some(name.into()), turns.turn());
        let _two = (of("ann").await.unwrap(), of("ann").await.unwrap());
        assert!(matches!(of("ann").await, Err(Error::ShareUsed(_))));
        assert!(of("bob").await.is_ok());
    }

    /// The error of a reader that waits so long for its principal's share, and then for the only turn, which another
    /// principal has.
    async fn refusal_after(of_own: Duration) -> Error {
        let turns = ReaderTurns::new(3, &Shares::of(3), LIMIT);
        let held = on_behalf_of(Some("ann".into()), turns.turn())
            .await
            .unwrap();
        let waiting = tokio::spawn({
            let turns = turns.clone();
            on_behalf_of(Some("ann".into()), async move {
                let begun = Instant::now();
                (turns.turn().await, begun.elapsed())
            })
        });
        tokio::time::sleep(of_own).await;
        // Its share is free, and the only turn is another principal's.
        let other = tokio::spawn({
            let turns = turns.clone();
            on_behalf_of(Some("bob".into()), async move { turns.turn().await })
        });
        tokio::task::yield_now().await;
        drop(held);
        let _other = other.await.unwrap().unwrap();
        let (turn, waited) = waiting.await.unwrap();
        assert!(waited <= LIMIT + Duration::from_millis(10), "{waited:?}");
        turn.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_of_one_reader_have_one_limit_and_those_it_waited_for_longer_are_the_cause() {
        let (short, long) = (LIMIT * 2 / 5, LIMIT * 3 / 5);
        assert!(matches!(refusal_after(short).await, Error::Unavailable(_)));
        assert!(matches!(refusal_after(long).await, Error::ShareUsed(_)));
    }

    #[tokio::test]
    async fn requests_and_streams_of_one_principal_take_half_of_the_connections_together() {
        for connections in 2..=50 {
            let requests = Shares::of(connections);
            let streams = ReaderTurns::new(connections, &requests, LIMIT);
            for streams_first in [true, false] {
                let (mut shares, mut turns) = (vec![], vec![]);
                for take_turns in [streams_first, !streams_first] {
                    if take_turns {
                        let turn = || on_behalf_of(Some("ann".into()), streams.turn());
                        turns.extend(std::iter::from_fn(|| turn().now_or_never()));
                    } else {
                        let share = || requests.take(Some(&"ann".into())).ok();
                        shares.extend(std::iter::from_fn(share));
                    }
                }
                let taken = shares.len() + turns.len();
                assert_eq!(taken, connections / 2, "of {connections}");
                assert!(requests.take(Some(&"bob".into())).is_ok());
            }
        }
    }
}
