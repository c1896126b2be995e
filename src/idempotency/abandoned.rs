//! Claims that were given up and whose keys are not free yet: the storage may be away for a while.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Claim;

/// The most claims that are remembered. The keys of further ones are free once their process ends, or after a day.
const MOST: usize = 10_000;

/// The claims, oldest first.
#[derive(Default)]
pub struct Abandoned {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    claims: VecDeque<Claim>,
    /// A task takes them.
    has_task: bool,
}

impl Abandoned {
    /// Adds a claim; whether a task has to be begun that takes it and all others.
    pub fn push(&self, claim: Claim) -> bool {
        let mut state = self.state.lock();
        if state.claims.len() == MOST {
            tracing::warn!("an idempotency key stays taken: too many wait to be free");
            return false;
        }
        state.claims.push_back(claim);
        !std::mem::replace(&mut state.has_task, true)
    }

    /// The oldest one; without any the task that asks ends.
    pub fn take(&self) -> Option<Claim> {
        let mut state = self.state.lock();
        let claim = state.claims.pop_front();
        state.has_task = claim.is_some();
        claim
    }

    /// Puts the one that was taken back; returns how many there are.
    pub fn put_back(&self, claim: Claim) -> usize {
        let mut state = self.state.lock();
        state.claims.push_front(claim);
        state.claims.len()
    }
}
