//! The memory that a request takes for a single state: reserved before the state is decoded.

use std::sync::Arc;

use super::Error;
use crate::{
    budget::{Budget, Reservation},
    runs::listing::{BATCH_BYTES, IN_MEMORY},
};

/// Whose share of which budget a request's states take.
#[derive(Clone, Debug)]
pub struct ReadMemory {
    /// The budget.
    pub budget: Arc<Budget>,
    /// The payer.
    pub payer: Arc<str>,
}

impl ReadMemory {
    /// Memory for a state of which so many bytes are stored; small ones take none. The largest ones take
    /// all that one payer may have, so that there is one of them at a time.
    ///
    /// # Errors
    /// There is not enough left.
    pub fn reserve(&self, stored: u64) -> Result<Option<Reservation>, Error> {
        if stored <= BATCH_BYTES {
            return Ok(None);
        }
        let bytes = usize::try_from(stored.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
        let bytes = bytes.min(self.budget.share());
        let reserved = self.budget.reserve(&self.payer, bytes);
        reserved.map(Some).map_err(|_| Error::NoMemory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_states_take_nothing_and_of_the_largest_there_is_one_at_a_time() {
        let budget = Budget::new(100 << 20);
        let memory = ReadMemory {
            budget: budget.clone(),
            payer: "ann".into(),
        };
        assert!(memory.reserve(1 << 20).unwrap().is_none());
        let large = memory.reserve(2 << 20).unwrap();
        assert_eq!(budget.reserved(), 12 << 20);
        drop(large);
        let largest = memory.reserve(1 << 40).unwrap();
        assert_eq!(budget.reserved(), 50 << 20);
        let refused = memory.reserve(2 << 20);
        assert!(matches!(refused, Err(Error::NoMemory)));
        drop(largest);
        assert_eq!(budget.reserved(), 0);
    }
}
