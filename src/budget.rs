//! Memory that many clients share: how much of it is reserved, and by whom.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A number of bytes that reservations are made from. One payer may reserve at most half of it, so
/// that there is something left for the others.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    state: Mutex<State>,
    /// Whoever waits first has it locked, so that those behind come later.
    waiting: tokio::sync::Mutex<()>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    reserved: usize,
    /// Only payers with reservations.
    payers: HashMap<Arc<str>, usize>,
}

/// There is not enough left for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Less is left now than was requested; later there may be more.
    Exhausted,
    /// One payer can never reserve as much.
    TooLarge,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            state: Mutex::default(),
            waiting: tokio::sync::Mutex::default(),
            released: Notify::new(),
        })
    }

    /// All of it, in bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How much is reserved.
    pub fn reserved(&self) -> usize {
        self.state.lock().reserved
    }

    /// The most that one payer may reserve.
    pub fn share(&self) -> usize {
        self.total / 2
    }

    /// Reserves memory for a payer until the reservation is dropped.
    ///
    /// # Errors
    /// The budget, or the payer's share of it, does not suffice.
    pub fn reserve(
        self: &Arc<Self>,
        payer: &Arc<str>,
        bytes: usize,
    ) -> Result<Reservation, Refusal> {
        let mut reservation = Reservation {
            budget: self.clone(),
            payer: payer.clone(),
            bytes: 0,
        };
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// Reserves memory for a payer as soon as there is enough, first come first served: for work
    /// that was accepted and must not fail. More than one payer may have counts as that.
    pub async fn wait(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.share());
        let _turn = self.waiting.lock().await;
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // From here on no release is missed.
            released.as_mut().enable();
            if let Ok(reservation) = self.reserve(payer, bytes) {
                return reservation;
            }
            released.await;
        }
    }

    fn add(&self, payer: &Arc<str>, bytes: usize) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let of_payer = state.payers.get(payer).copied().unwrap_or(0);
        let fits = state.reserved + bytes <= self.total && of_payer + bytes <= self.share();
        if !fits {
            return Err(Refusal::Exhausted);
        }
        state.reserved += bytes;
        *state.payers.entry(payer.clone()).or_default() += bytes;
        Ok(())
    }

    fn release(&self, payer: &Arc<str>, bytes: usize) {
        let mut state = self.state.lock();
        state.reserved -= bytes;
        if let Some(left) = state.payers.get_mut(payer) {
            *left -= bytes;
            if *left == 0 {
                state.payers.remove(payer);
            }
        }
        drop(state);
        self.released.notify_waiters();
    }
}

/// Reserved memory; it is free again once this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    payer: Arc<str>,
    bytes: usize,
}

impl Reservation {
    /// How much is reserved.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes how much is reserved. When that is refused, it stays as it is.
    ///
    /// # Errors
    /// The budget, or the payer's share of it, does not suffice.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes {
            if bytes > self.budget.share() {
                return Err(Refusal::TooLarge);
            }
            self.budget.add(&self.payer, bytes - self.bytes)?;
        } else if bytes < self.bytes {
            self.budget.release(&self.payer, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(&self.payer, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_payer_gets_at_most_half_and_what_is_dropped_is_free_again() {
        let budget = Budget::new(100);
        let (ann, bob, eve): (Arc<str>, Arc<str>, Arc<str>) =
            ("ann".into(), "bob".into(), "eve".into());
        let mut first = budget.reserve(&ann, 30).unwrap();
        assert_eq!(
            budget.reserve(&ann, 21).unwrap_err(),
            Refusal::Exhausted,
            "more than the share"
        );
        assert_eq!(budget.reserve(&bob, 51).unwrap_err(), Refusal::TooLarge);
        let second = budget.reserve(&bob, 50).unwrap();
        assert_eq!(
            budget.reserve(&eve, 21).unwrap_err(),
            Refusal::Exhausted,
            "more than is left"
        );
        assert_eq!(first.resize(60).unwrap_err(), Refusal::TooLarge);
        first.resize(10).unwrap();
        let third = budget.reserve(&eve, 40).unwrap();
        drop((first, second, third));
        assert_eq!(budget.state.lock().reserved, 0);
        assert!(budget.state.lock().payers.is_empty());
    }

    #[tokio::test]
    async fn who_must_not_be_refused_waits_in_turn() {
        let budget = Budget::new(100);
        let ann: Arc<str> = "ann".into();
        let first = budget.reserve(&ann, 40).unwrap();
        let (large, small) = (budget.wait(&ann, 1000), budget.wait(&ann, 10));
        let (mut large, mut small) = (std::pin::pin!(large), std::pin::pin!(small));
        assert!(futures::poll!(large.as_mut()).is_pending());
        assert!(futures::poll!(small.as_mut()).is_pending(), "it came later");
        drop(first);
        let large = large.await;
        assert_eq!(large.bytes(), 50);
        assert!(futures::poll!(small.as_mut()).is_pending());
        drop(large);
        assert_eq!(small.await.bytes(), 10);
    }
}
