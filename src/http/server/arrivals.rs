//! The bodies of requests that come on a connection at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bodies nobody has read to their end yet.
#[derive(Debug, Default)]
pub struct Arrivals(AtomicUsize);

impl Arrivals {
    /// A body begins to come; nobody wants more of it when the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> Arrival {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arrival(self.clone())
    }

    /// Whether no body comes.
    pub fn are_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A body that comes.
#[derive(Debug)]
pub struct Arrival(Arc<Arrivals>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
