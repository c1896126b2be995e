//! Lists whose items are read and made one after the other, while a response is written.

use std::pin::Pin;

use futures::{Stream, StreamExt};

use crate::tree::load::AT_ONCE;

/// The items of a list that is longer than what is read of it at once.
pub type Items<T, E> = Pin<Box<dyn Stream<Item = Result<T, E>> + Send>>;

/// A list that is read while it is written. Its sizes are known before anything is read.
pub struct Listing<T, E> {
    /// What its largest item weighs.
    pub largest: u64,
    /// What is read at once weighs.
    pub at_once: u64,
    /// Its items.
    pub items: Items<T, E>,
}

pub use crate::checkpoint::codec::IN_MEMORY;

/// What items weigh that are read together, unless one alone weighs more.
pub const BATCH_BYTES: u64 = AT_ONCE;

impl<T: Send + 'static, E: Send + 'static> Listing<T, E> {
    /// A list of what is in memory already, of so many bytes.
    pub fn of(items: Vec<T>, bytes: u64) -> Self {
        Self {
            largest: 0,
            at_once: bytes,
            items: Box::pin(futures::stream::iter(items.into_iter().map(Ok))),
        }
    }

    /// A list of what `read` makes of keys, each of which stands for an item that weighs so much: as many
    /// together as fit into a batch, and at least one.
    pub fn in_batches<K, R>(
        keys: Vec<(K, u64)>,
        read: impl Fn(Vec<K>) -> R + Send + 'static,
    ) -> Self
    where
        K: Send + 'static,
        R: Future<Output = Result<Vec<T>, E>> + Send,
    {
        let largest = keys.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let batches = batches(keys);
        let at_once = batches.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        Self {
            largest,
            at_once,
            items: Box::pin(async_stream::try_stream! {
                for (keys, _) in batches {
                    for item in read(keys).await? {
                        yield item;
                    }
                }
            }),
        }
    }

    /// A list of nothing.
    pub fn empty() -> Self {
        Self::of(vec![], 0)
    }

    /// The list of what a function makes of the items.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U + Send + 'static) -> Listing<U, E> {
        Listing {
            largest: self.largest,
            at_once: self.at_once,
            items: Box::pin(self.items.map(move |item| item.map(&mut make))),
        }
    }
}

/// Keys that are read together, with the bytes that they stand for.
fn batches<K>(keys: Vec<(K, u64)>) -> Vec<(Vec<K>, u64)> {
    let mut batches: Vec<(Vec<K>, u64)> = vec![];
    for (key, bytes) in keys {
        match batches.last_mut() {
            Some((keys, total)) if *total + bytes <= BATCH_BYTES => {
                keys.push(key);
                *total += bytes;
            }
            _ => batches.push((vec![key], bytes)),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_is_read_together_and_what_is_large_alone() {
        let keys = [10, 20, BATCH_BYTES, BATCH_BYTES * 2, 5, BATCH_BYTES - 5, 1];
        let keys = keys.iter().enumerate().map(|(key, bytes)| (key, *bytes));
        let found: Vec<Vec<usize>> = batches(keys.collect())
            .into_iter()
            .map(|(keys, _)| keys)
            .collect();
        assert_eq!(found, [vec![0, 1], vec![2], vec![3], vec![4, 5], vec![6]]);
        assert!(batches::<usize>(vec![]).is_empty());
    }
}
