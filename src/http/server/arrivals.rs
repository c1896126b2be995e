//! The bodies of requests that come on a connection at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bodies have begun to come and nobody has read to their end.
#[derive(Debug, Default)]
pub struct Arrivals(AtomicUsize);

impl Arrivals {
    /// A body begins to come.
    pub fn begin(self: &Arc<Self>) -> Arrival {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arrival(self.clone())
    }

    /// Whether no body comes.
    pub fn are_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A body that comes. One that is dropped before it is over counts as coming for as long as its connection is open, which
/// hyper closes in most cases; in the others hyper alone notices that the client has left.
#[derive(Debug)]
pub struct Arrival(Arc<Arrivals>);

impl Arrival {
    /// All of it has been read.
    pub fn end(self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
