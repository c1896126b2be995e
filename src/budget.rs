//! Memory that many clients share: how much of it is reserved, and by whom.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A number of bytes that reservations are made from. One payer may reserve at most a share of it, so that there is
/// something left for the others.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    share: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reserved: usize,
    /// The same with at most its share of each payer: what one has beyond it is not taken from the others.
    taken: usize,
    share: usize,
    /// Only payers with reservations.
    payers: HashMap<Arc<str>, usize>,
    /// Who came first is first.
    waiting: VecDeque<Waiter>,
    /// The number of the last waiter.
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    payer: Arc<str>,
    bytes: usize,
    turn: oneshot::Sender<Reservation>,
}

/// Somebody in the line; out of it once this is dropped.
struct InLine<'a> {
    budget: &'a Arc<Budget>,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.waiting.retain(|waiter| waiter.number != self.number);
        drop(state);
        // Those behind may have waited for this one alone.
        self.budget.serve();
    }
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
    /// A budget of so many bytes, of which one payer may reserve half.
    #[cfg(test)]
    pub fn new(total: usize) -> Arc<Self> {
        Self::with_share(total, total / 2)
    }

    /// A budget of so many bytes, and the most of them that one payer may reserve.
    pub fn with_share(total: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            share,
            state: Mutex::new(State {
                share,
                ..State::default()
            }),
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
        self.share
    }

    /// How much a payer has reserved.
    pub fn used_by(&self, payer: &Arc<str>) -> usize {
        self.state.lock().payers.get(payer).copied().unwrap_or(0)
    }

    /// Whether a payer has reserved more than this percentage of its share, or all payers together of the whole, of which
    /// what one has beyond its share is no part. What is [charged](Self::charge) may be more than either.
    pub fn is_beyond(&self, percent: usize, payer: &Arc<str>) -> bool {
        let state = self.state.lock();
        let of_payer = state.payers.get(payer).copied().unwrap_or(0);
        of_payer > self.share / 100 * percent || state.taken > self.total / 100 * percent
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

    /// Reserves memory for a payer that is in use already, also beyond what is left. Up to the payer's share others wait for
    /// it or are refused.
    pub fn charge(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) -> Reservation {
        let mut reservation = Reservation {
            budget: self.clone(),
            payer: payer.clone(),
            bytes: 0,
        };
        reservation.charge(bytes);
        reservation
    }

    /// Reserves memory for a payer as soon as there is enough, first come first served: for work
    /// that was accepted and must not fail. More than one payer may have counts as that. Who waits
    /// for what the same payer has reserved holds no other payer up.
    pub async fn wait(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.share());
        if let Some(reservation) = self.reserve_first(payer, bytes) {
            return reservation;
        }
        loop {
            let (turn, reserved) = oneshot::channel();
            let number = {
                let mut state = self.state.lock();
                state.last += 1;
                let waiter = Waiter {
                    number: state.last,
                    payer: payer.clone(),
                    bytes,
                    turn,
                };
                state.waiting.push_back(waiter);
                state.last
            };
            let _in_line = InLine {
                budget: self,
                number,
            };
            self.serve();
            // Nobody but this future takes it out of the line without a reservation.
            if let Ok(reservation) = reserved.await {
                return reservation;
            }
        }
    }

    /// Reserves memory for a payer if there is enough and nobody waits for it.
    pub fn reserve_first(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) -> Option<Reservation> {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || !self.fits(&state, payer, bytes) {
            return None;
        }
        state.add(payer, bytes);
        Some(Reservation {
            budget: self.clone(),
            payer: payer.clone(),
            bytes,
        })
    }

    /// Gives those who wait what there is. Who needs more than is left holds up all behind, so that
    /// small ones do not take it for ever; who needs more of its payer's share those of that payer.
    fn serve(self: &Arc<Self>) {
        let mut served = vec![];
        let mut state = self.state.lock();
        let mut delayed = HashSet::new();
        let mut at = 0;
        while let Some(waiter) = state.waiting.get(at) {
            let of_payer = state.payers.get(&waiter.payer).copied().unwrap_or(0);
            if delayed.contains(&waiter.payer) || of_payer + waiter.bytes > self.share() {
                delayed.insert(waiter.payer.clone());
                at += 1;
                continue;
            }
            if state.taken + waiter.bytes > self.total {
                break;
            }
            let Some(waiter) = state.waiting.remove(at) else {
                break;
            };
            state.add(&waiter.payer, waiter.bytes);
            let reservation = Reservation {
                budget: self.clone(),
                payer: waiter.payer,
                bytes: waiter.bytes,
            };
            served.push((waiter.turn, reservation));
        }
        drop(state);
        for (turn, reservation) in served {
            // Who has left meanwhile gives it back.
            drop(turn.send(reservation));
        }
    }

    fn add(&self, payer: &Arc<str>, bytes: usize) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if !self.fits(&state, payer, bytes) {
            return Err(Refusal::Exhausted);
        }
        state.add(payer, bytes);
        Ok(())
    }

    fn fits(&self, state: &State, payer: &Arc<str>, bytes: usize) -> bool {
        let of_payer = state.payers.get(payer).copied().unwrap_or(0);
        state.taken + bytes <= self.total && of_payer + bytes <= self.share
    }

    fn release(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) {
        let mut state = self.state.lock();
        state.remove(payer, bytes);
        let somebody_waits = !state.waiting.is_empty();
        drop(state);
        if somebody_waits {
            self.serve();
        }
    }
}

impl State {
    fn add(&mut self, payer: &Arc<str>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let of_payer = self.payers.entry(payer.clone()).or_default();
        let before = (*of_payer).min(self.share);
        *of_payer += bytes;
        self.taken += (*of_payer).min(self.share) - before;
        self.reserved += bytes;
    }

    fn remove(&mut self, payer: &Arc<str>, bytes: usize) {
        let Some(of_payer) = self.payers.get_mut(payer) else {
            return;
        };
        let before = (*of_payer).min(self.share);
        *of_payer -= bytes;
        self.taken -= before - (*of_payer).min(self.share);
        self.reserved -= bytes;
        if *of_payer == 0 {
            self.payers.remove(payer);
        }
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

    /// Changes how much is reserved for what is in use already, also beyond what is left.
    pub fn charge(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let mut state = self.budget.state.lock();
            state.add(&self.payer, bytes - self.bytes);
        } else if bytes < self.bytes {
            self.budget.release(&self.payer, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Whether it is one of this budget.
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Another reservation of the same payer, for what is in use already.
    pub fn another(&self, bytes: usize) -> Self {
        self.budget.charge(&self.payer, bytes)
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

    #[test]
    fn a_payer_is_beyond_its_share_without_the_others_and_all_are_together() {
        let budget = Budget::new(200);
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(Arc::<str>::from);
        let _anns = budget.charge(&ann, 1000);
        assert!(budget.is_beyond(150, &ann) && !budget.is_beyond(1000, &ann));
        assert!(
            !budget.is_beyond(150, &bob),
            "what ann has beyond its share is its own"
        );
        let _bobs = budget.charge(&bob, 100);
        let _eves = budget.charge(&eve, 100);
        assert!(!budget.is_beyond(150, &eve));
        let _more = ["a", "b"].map(|payer| budget.charge(&payer.into(), 1));
        assert!(
            budget.is_beyond(150, &eve),
            "all have more than the whole and its half"
        );
    }

    #[tokio::test]
    async fn what_is_in_use_counts_beyond_the_budget_and_others_wait_for_it() {
        let budget = Budget::with_share(100, 100);
        let [ann, bob] = ["ann", "bob"].map(Arc::<str>::from);
        let mut first = budget.wait(&ann, 40).await;
        first.charge(120);
        let second = first.another(30);
        assert_eq!((budget.reserved(), budget.used_by(&ann)), (150, 150));
        assert_eq!(budget.reserve(&bob, 1).unwrap_err(), Refusal::Exhausted);
        let mut waits = std::pin::pin!(budget.wait(&bob, 10));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert!(budget.reserve_first(&bob, 0).is_none(), "somebody waits");
        drop(second);
        first.charge(95);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        first.charge(90);
        assert_eq!(waits.await.bytes(), 10);
        drop(first);
        assert_eq!(budget.reserved(), 0);
        assert!(budget.state.lock().payers.is_empty());
    }

    #[tokio::test]
    async fn what_a_payer_has_beyond_its_share_is_not_taken_from_others() {
        let budget = Budget::new(100);
        let [ann, bob] = ["ann", "bob"].map(Arc::<str>::from);
        let mut hers = budget.charge(&ann, 500);
        let his = budget.wait(&bob, 50).await;
        assert_eq!(budget.reserved(), 550);
        assert!(budget.reserve_first(&ann, 1).is_none());
        drop(his);
        hers.charge(60);
        let mut waits = std::pin::pin!(budget.wait(&ann, 10));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        hers.charge(40);
        drop((waits.await, hers));
        assert_eq!(budget.reserved(), 0);
        assert_eq!(budget.state.lock().taken, 0);
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

    #[tokio::test]
    async fn who_waits_for_its_own_share_holds_nobody_else_up() {
        let budget = Budget::new(100);
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let first = budget.reserve(&ann, 50).unwrap();
        let mut second = std::pin::pin!(budget.wait(&ann, 10));
        assert!(futures::poll!(second.as_mut()).is_pending());
        let of_bob = budget.wait(&bob, 50).await;
        assert_eq!(of_bob.bytes(), 50);
        drop(first);
        assert_eq!(second.await.bytes(), 10);
    }

    #[tokio::test]
    async fn who_needs_what_nobody_has_left_is_served_before_those_behind() {
        let budget = Budget::new(100);
        let names = ["ann", "bob", "cid", "dan"].map(Arc::<str>::from);
        let first = budget.reserve(&names[0], 50).unwrap();
        let second = budget.reserve(&names[1], 30).unwrap();
        let mut large = Box::pin(budget.wait(&names[2], 40));
        let mut small = Box::pin(budget.wait(&names[3], 10));
        assert!(futures::poll!(large.as_mut()).is_pending());
        assert!(futures::poll!(small.as_mut()).is_pending());
        // Nothing was released, yet nobody is in the way any more.
        drop(large);
        assert_eq!(small.await.bytes(), 10);
        drop((first, second));
        let state = budget.state.lock();
        assert_eq!((state.reserved, state.waiting.len()), (0, 0));
    }
}
