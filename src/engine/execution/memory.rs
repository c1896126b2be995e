//! What the state of one graph takes in memory while it is executed.

use super::Execution;
use crate::{
    budget::Reservation,
    checkpoint::{Pending, frame::Decoded},
};

/// What is counted is a multiple of this, so that little steps cost nothing; a run waits for as much at least.
const STEP: usize = 4 << 10;
/// Bytes that may be written before the state is measured anew.
const UNMEASURED: usize = 64 << 10;

/// The memory that a graph has for its state. What the state grows by is counted and not waited for: what a run
/// has in use already, it needs in order to end.
pub struct StateMemory {
    /// `None` where nobody counts.
    reservation: Option<Reservation>,
    /// What the state counted when it was measured.
    measured: usize,
    /// What was written since then. Some of it has replaced what was there.
    written: usize,
}

impl StateMemory {
    /// The memory of a graph that begins with `base`; `reservation` has what that took while it was decoded.
    pub fn new(reservation: Option<Reservation>, base: Option<&Decoded>) -> Self {
        let mut new = Self {
            reservation,
            measured: 0,
            written: 0,
        };
        if new.reservation.is_some()
            && let Some(base) = base
        {
            let writes = base.writes.iter();
            let writes: usize = writes.map(|(_, write)| write.value.memory()).sum();
            // It has waited for all that it may wait for.
            let reserved = new.reservation.as_ref().map_or(0, Reservation::bytes);
            new.set(counted(base.memory() + writes).min(reserved));
        }
        new
    }

    /// The reservation, for what goes on with the state.
    pub fn take(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// Adds what a task has written.
    pub fn add(&mut self, writes: &[Pending]) {
        if self.reservation.is_some() {
            let written = writes.iter().map(|write| write.value.memory());
            self.written += written.sum::<usize>();
            self.count();
        }
    }

    fn set(&mut self, measured: usize) {
        (self.measured, self.written) = (measured, 0);
        self.count();
    }

    fn count(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            let bytes = self.measured + self.written;
            reservation.charge(bytes.next_multiple_of(STEP));
        }
    }
}

/// What a state counts that takes so many bytes: nodes have forms of it that are their own, and its rows are made of it.
pub fn counted(bytes: usize) -> usize {
    2 * bytes
}

impl Execution {
    /// Measures the state after a superstep, if most of it may be new: what that costs is little beside what was
    /// written.
    pub fn measure(&mut self) {
        let memory = &self.memory;
        if memory.reservation.is_some() && memory.written > UNMEASURED.max(memory.measured) {
            self.memory.set(counted(self.channels.memory()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{budget::Budget, id::TaskId, value::Value};

    fn wrote(bytes: usize) -> Vec<Pending> {
        let value = Value::from("x".repeat(bytes));
        vec![Pending {
            task: TaskId::NULL,
            path: "".into(),
            idx: 0,
            channel: "a".into(),
            value,
        }]
    }

    #[test]
    fn what_is_written_counts_beyond_the_budget_until_the_graph_has_ended() {
        let (budget, ann) = (Budget::new(1 << 20), Arc::from("ann"));
        let reservation = budget.reserve(&ann, STEP).unwrap();
        let mut memory = StateMemory::new(Some(reservation), None);
        memory.add(&wrote(1000));
        assert_eq!(budget.reserved(), STEP, "little steps cost nothing");
        memory.add(&wrote(2 << 20));
        assert!(budget.reserved() > 2 << 20);
        memory.set(counted(100_000));
        assert_eq!(budget.reserved(), 200_000_usize.next_multiple_of(STEP));
        drop(memory);
        assert_eq!(budget.reserved(), 0);
    }
}
