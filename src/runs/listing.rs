//! Lists whose items are read and made one after the other, while a response is written.

use std::pin::Pin;

use futures::{Stream, StreamExt};

use super::Error;

/// The items of a list that is longer than what is read of it at once.
pub type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>;

/// A list that is read while it is written. Its sizes are known before anything is read.
pub struct Listing<T> {
    /// Bytes that are stored of its largest item.
    pub largest: u64,
    /// Bytes, as they are stored, of what is read at once.
    pub at_once: u64,
    /// Its items.
    pub items: Items<T>,
}

/// What a value takes in memory while it is read, decoded and used, as a multiple of what is stored
/// of it.
pub const IN_MEMORY: u64 = 6;

/// Bytes, as they are stored, that are read together unless one item alone has more.
pub const BATCH_BYTES: u64 = 1 << 20;

impl<T: Send + 'static> Listing<T> {
    /// A list of what is in memory already, of so many bytes.
    pub fn of(items: Vec<T>, bytes: u64) -> Self {
        Self {
            largest: 0,
            at_once: bytes,
            items: Box::pin(futures::stream::iter(items.into_iter().map(Ok))),
        }
    }

    /// A list of nothing.
    pub fn empty() -> Self {
        Self::of(vec![], 0)
    }

    /// The list of what a function makes of the items.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U + Send + 'static) -> Listing<U> {
        Listing {
            largest: self.largest,
            at_once: self.at_once,
            items: Box::pin(self.items.map(move |item| item.map(&mut make))),
        }
    }
}
