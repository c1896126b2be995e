//! The memory that a request takes for the states it reads: reserved before they are decoded, and until
//! the response is out.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{
    budget::{Budget, Refusal, Reservation},
    runs::listing::{BATCH_BYTES, IN_MEMORY},
    tree::error::{Error, Result},
};

/// What was reserved for the states of a response; it is free again once this is dropped.
pub type ResponseMemory = Mutex<Option<Reservation>>;

/// A reservation for a value, which ends with the last of those who share it.
pub type ReadingMemory = Arc<Reservation>;

/// Whose share of which budget a request's states take.
#[derive(Clone, Debug)]
pub struct ReadMemory {
    budget: Arc<Budget>,
    payer: Arc<str>,
    /// Of the response that is being made. Once its head is out, what a stream reads takes memory only
    /// while it is read.
    response: Weak<ResponseMemory>,
}

impl ReadMemory {
    /// The memory for a response: reservations go into it as long as it is there.
    pub fn new(budget: Arc<Budget>, payer: Arc<str>, response: &Arc<ResponseMemory>) -> Self {
        let response = Arc::downgrade(response);
        Self {
            budget,
            payer,
            response,
        }
    }

    /// Memory for a state that weighs so much; small ones take none. The largest ones, and all
    /// of one response together, take at most what one payer may have, so that there is one of them at a
    /// time. `None` also when the response has taken the reservation.
    ///
    /// # Errors
    /// There is not enough left.
    pub fn reserve(&self, weight: u64) -> Result<Option<Reservation>, Refusal> {
        let Some(bytes) = self.bytes(weight) else {
            return Ok(None);
        };
        let Some(response) = self.response.upgrade() else {
            return self.budget.reserve(&self.payer, bytes).map(Some);
        };
        let mut reserved = response.lock();
        match &mut *reserved {
            Some(memory) => memory.resize((memory.bytes() + bytes).min(self.budget.share()))?,
            none => *none = Some(self.budget.reserve(&self.payer, bytes)?),
        }
        Ok(None)
    }

    /// As [`reserve`](Self::reserve), for a state that the response shows. One that takes more alone than one payer
    /// may have is refused; `instead` says what else its client can do.
    ///
    /// # Errors
    /// 413 for such a state, 503 when there is not enough left.
    pub fn reserve_state(&self, weight: u64, instead: &str) -> Result<Option<Reservation>> {
        self.check_state(weight, instead)?;
        self.reserve(weight).map_err(|_| Error::no_memory())
    }

    /// Checks that a state does not take more than one payer may have, as [`reserve_state`](Self::reserve_state).
    ///
    /// # Errors
    /// 413: it does.
    pub fn check_state(&self, weight: u64, instead: &str) -> Result<()> {
        let most = BATCH_BYTES.max(self.budget.share() as u64 / IN_MEMORY);
        if weight > most {
            return Err(Error::state_too_large(weight, most, instead));
        }
        Ok(())
    }

    /// As [`reserve`](Self::reserve), but of what the response has none.
    ///
    /// # Errors
    /// There is not enough left.
    pub fn reserve_apart(&self, weight: u64) -> Result<Option<Reservation>, Refusal> {
        let bytes = self.bytes(weight);
        bytes
            .map(|bytes| self.budget.reserve(&self.payer, bytes))
            .transpose()
    }

    /// As [`reserve`](Self::reserve), as soon as there is enough, for a response whose head is out.
    pub async fn wait(&self, weight: u64) -> Option<Reservation> {
        let bytes = self.bytes(weight)?;
        Some(self.wait_for(bytes).await)
    }

    /// Memory of so many bytes, as soon as there is enough; more than one payer may have counts as that.
    pub async fn wait_for(&self, bytes: usize) -> Reservation {
        self.budget.wait(&self.payer, bytes).await
    }

    fn bytes(&self, weight: u64) -> Option<usize> {
        let bytes = usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
        (weight > BATCH_BYTES).then(|| bytes.min(self.budget.share()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_states_take_nothing_and_of_the_largest_there_is_one_at_a_time() {
        let budget = Budget::new(100 << 20);
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &Arc::default());
        assert!(memory.reserve(1 << 20).unwrap().is_none());
        let large = memory.reserve(2 << 20).unwrap();
        assert_eq!(budget.reserved(), 12 << 20);
        drop(large);
        let largest = memory.reserve(1 << 40).unwrap();
        assert_eq!(budget.reserved(), 50 << 20);
        assert_eq!(memory.reserve(2 << 20).unwrap_err(), Refusal::Exhausted);
        drop(largest);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_state_that_takes_more_than_one_payer_may_have_is_refused_and_one_of_just_that_is_not() {
        let budget = Budget::new(120 << 20);
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &Arc::default());
        let whole = memory.reserve_state(10 << 20, "").unwrap();
        assert_eq!(budget.reserved(), 60 << 20);
        let code = |weight| match memory.reserve_state(weight, " or so").unwrap_err() {
            Error::Refused { code, detail, .. } => (code, detail.contains("BUDGET or so")),
            other => panic!("{other}"),
        };
        assert_eq!(code((10 << 20) + 1), ("too_large", true));
        assert_eq!(code(2 << 20), ("no_memory", false));
        drop(whole);
        // However little memory there is, small states take none.
        let memory = ReadMemory::new(Budget::new(1), "ann".into(), &Arc::default());
        assert!(memory.reserve_state(BATCH_BYTES, "").unwrap().is_none());
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_response_has_the_memory_of_its_states_until_it_is_out() {
        let budget = Budget::new(100 << 20);
        let response = Arc::default();
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &response);
        assert!(memory.reserve(2 << 20).unwrap().is_none());
        assert_eq!(budget.reserved(), 12 << 20, "the state itself is gone");
        // A second one counts too, and what one response takes is never too much for it alone.
        assert!(memory.reserve(3 << 20).unwrap().is_none());
        assert_eq!(budget.reserved(), 30 << 20);
        assert!(memory.reserve(1 << 40).unwrap().is_none());
        assert_eq!(budget.reserved(), 50 << 20);
        drop(response);
        assert_eq!(budget.reserved(), 0);
        assert!(memory.reserve(2 << 20).unwrap().is_some());
    }
}
