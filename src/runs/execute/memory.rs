//! The memory for states of runs that are executed: a run waits for that of its state before it reads it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    budget::{Budget, Reservation},
    contention::shares::Percent,
    runs::listing::IN_MEMORY,
};

/// The least that a run waits for.
const LEAST: usize = 4 << 10;
/// Runs with small states have so much beside the memory for states: that part of it.
const BESIDE: usize = 8;
/// That part of the memory no principal may take alone, and no state counts more: so the first run of another one never waits for
/// those of one principal.
const OTHERS: usize = 4;
/// What the largest of the small states takes, which weighs 1 MiB.
const SMALL: usize = (IN_MEMORY as usize) << 20;

/// The memory for states of runs, apart from what requests read: neither takes the other's.
#[derive(Debug)]
pub struct RunMemory {
    states: Arc<Budget>,
    /// For small states, where nothing is left: no large state, and none that grew, keeps small ones waiting.
    small: Arc<Budget>,
    /// For runs that were cancelled while they waited, one after the other: all are of one payer, who may have
    /// what one of them takes.
    cancelled: Arc<Budget>,
}

impl RunMemory {
    /// So many bytes. One principal may have three quarters of them, and this share of what small states have beside them.
    pub fn with_share(bytes: usize, share: Percent) -> Self {
        let small = bytes / BESIDE;
        Self {
            states: Budget::with_share(bytes, bytes - bytes / OTHERS),
            small: Budget::with_share(small, share.of(small)),
            cancelled: Budget::with_share(LEAST, LEAST),
        }
    }

    /// So many bytes, of which one principal may have half of what small states have beside them.
    #[cfg(test)]
    pub fn new(bytes: usize) -> Self {
        Self::with_share(bytes, Percent::default())
    }

    /// All of it, in bytes.
    pub fn total(&self) -> usize {
        self.states.total()
    }

    /// How much runs have, also beyond all of it.
    pub fn reserved(&self) -> usize {
        let budgets = [&self.states, &self.small, &self.cancelled];
        budgets.iter().map(|budget| budget.reserved()).sum()
    }

    /// Where a run of a principal gets memory for its state from.
    pub(super) fn room<'a>(&'a self, payer: Arc<str>, cancel: &'a CancellationToken) -> Room<'a> {
        Room {
            memory: self,
            payer,
            cancel,
        }
    }
}

/// Where one run gets memory for its state from.
pub(super) struct Room<'a> {
    memory: &'a RunMemory,
    payer: Arc<str>,
    cancel: &'a CancellationToken,
}

impl Room<'_> {
    /// Whether there are so many bytes at once; they are in `reserved` then.
    pub fn has(&self, reserved: &mut Option<Reservation>, bytes: usize) -> bool {
        let is_small = self.is_small(bytes);
        let bytes = self.counted(bytes);
        match reserved {
            Some(reserved) if reserved.is_of(&self.memory.cancelled) => true,
            // A large one has no place among the small ones.
            Some(reserved) if !is_small && reserved.is_of(&self.memory.small) => false,
            Some(reserved) => bytes <= reserved.bytes() || reserved.resize(bytes).is_ok(),
            none => {
                *none = self.memory.states.reserve_first(&self.payer, bytes);
                none.is_some()
            }
        }
    }

    /// Whether a state may be one of the small ones: of what they have, one payer's share has room for it.
    fn is_small(&self, bytes: usize) -> bool {
        bytes <= SMALL.min(self.memory.small.share())
    }

    fn counted(&self, bytes: usize) -> usize {
        bytes.clamp(LEAST, (self.memory.total() / OTHERS).max(LEAST))
    }

    /// Waits for so many bytes. Where nothing is left, small states wait for each other beside it, and one run after the
    /// other that is cancelled meanwhile goes on: the engine ends it before it does anything.
    pub async fn wait(&self, bytes: usize) -> Reservation {
        let is_small = self.is_small(bytes);
        let bytes = self.counted(bytes);
        let small = async {
            if !is_small {
                std::future::pending::<()>().await;
            }
            self.memory.small.wait(&self.payer, bytes).await
        };
        let cancelled = async {
            self.cancel.cancelled().await;
            self.memory.cancelled.wait(&"".into(), LEAST).await
        };
        tokio::select! {
            biased;
            reserved = self.memory.states.wait(&self.payer, bytes) => reserved,
            reserved = small => reserved,
            reserved = cancelled => reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    const MIB: usize = 1 << 20;

    fn room<'a>(memory: &'a RunMemory, cancel: &'a CancellationToken) -> Room<'a> {
        memory.room("ann".into(), cancel)
    }

    /// What two other principals have: all of it.
    fn full(memory: &RunMemory) -> [Reservation; 2] {
        let payers = [("bob", 120 * MIB), ("carol", 40 * MIB)];
        payers.map(|(payer, bytes)| memory.states.charge(&payer.into(), bytes))
    }

    /// It would get less than it needs there, read its state, and wait again at once.
    #[tokio::test]
    async fn a_state_for_which_small_ones_never_have_room_waits_until_the_memory_is_free() {
        let (memory, cancel) = (RunMemory::new(16 * MIB), CancellationToken::new());
        let room = room(&memory, &cancel);
        let full = full(&memory);
        let mut waits = pin!(room.wait(3 * MIB));
        assert!(poll!(waits.as_mut()).is_pending());
        let mut small = Some(room.wait(MIB).await);
        assert!(room.has(&mut small, MIB));
        drop(full);
        let mut reserved = Some(waits.await);
        assert!(room.has(&mut reserved, 3 * MIB));
    }

    #[tokio::test]
    async fn a_run_takes_the_memory_of_its_state_at_once_or_waits_for_all_of_it() {
        let (memory, cancel) = (RunMemory::new(160 * MIB), CancellationToken::new());
        let room = room(&memory, &cancel);
        let (mut first, mut second) = (None, None);
        assert!(room.has(&mut first, 10));
        assert_eq!(memory.reserved(), LEAST);
        assert!(room.has(&mut first, 30 * MIB), "with what it refers to");
        assert_eq!(memory.reserved(), 30 * MIB);
        let grown = memory.states.charge(&"ann".into(), 70 * MIB);
        assert!(!room.has(&mut second, 25 * MIB), "one has three quarters");
        assert!(second.is_none());
        let mut waits = pin!(room.wait(25 * MIB));
        assert!(poll!(waits.as_mut()).is_pending());
        assert!(!room.has(&mut second, 10), "somebody was there before");
        drop(first);
        second = Some(waits.await);
        assert_eq!(memory.reserved(), 95 * MIB);
        drop(grown);
        // More than a quarter counts as that.
        assert!(room.has(&mut second, 1000 * MIB));
        assert_eq!(memory.reserved(), 40 * MIB);
    }

    #[tokio::test]
    async fn the_first_run_of_a_principal_never_waits_for_those_of_another_one() {
        let (memory, cancel) = (RunMemory::new(160 * MIB), CancellationToken::new());
        let room = room(&memory, &cancel);
        let _all = memory.states.charge(&"bob".into(), 1000 * MIB);
        let mut reserved = None;
        assert!(room.has(&mut reserved, 1000 * MIB));
    }

    #[tokio::test]
    async fn where_nothing_is_left_small_states_wait_for_each_other_beside_it() {
        let (memory, cancel) = (RunMemory::new(160 * MIB), CancellationToken::new());
        let room = room(&memory, &cancel);
        let all = full(&memory);
        let first = room.wait(6 * MIB).await;
        let mut grown = Some(first);
        assert!(!room.has(&mut grown, 7 * MIB), "it is no small one");
        let first = grown;
        let mut second = pin!(room.wait(6 * MIB));
        assert!(poll!(second.as_mut()).is_pending());
        let mut large = pin!(room.wait(7 * MIB));
        assert!(poll!(large.as_mut()).is_pending());
        drop(first);
        let second = second.await;
        assert_eq!(memory.small.reserved(), 6 * MIB);
        assert!(poll!(large.as_mut()).is_pending(), "it is no small one");
        drop((second, all));
        drop(large.await);
        assert_eq!(memory.reserved(), 0);
    }

    #[tokio::test]
    async fn runs_that_are_cancelled_while_they_wait_go_on_one_after_the_other() {
        let (memory, cancel) = (RunMemory::new(160 * MIB), CancellationToken::new());
        let room = room(&memory, &cancel);
        let _all = full(&memory);
        let mut first = pin!(room.wait(20 * MIB));
        let mut second = pin!(room.wait(30 * MIB));
        assert!(poll!(first.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_pending());
        cancel.cancel();
        let mut first = Some(first.await);
        assert!(room.has(&mut first, 20 * MIB), "it goes on with its state");
        assert!(poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await);
        assert_eq!(memory.reserved(), 160 * MIB);
    }
}
