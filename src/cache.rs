//! A cache in memory that is bounded by the bytes of its values, whose entries may expire.

use std::hash::Hash;

use quick_cache::{
    DefaultHashBuilder, OptionsBuilder, Weighter,
    sync::{Cache as QuickCache, DefaultLifecycle},
};
use tokio::time::Instant;

/// A value is refused if it alone takes more than this share of the cache. This is also the share
/// of values that are read often; the rest is for the newest values, because a conversation reads
/// its newest checkpoint and no longer the one before it.
const LARGEST_SHARE: f64 = 0.25;

/// An estimate of the bytes of one entry, from which the crate sizes its list of evicted keys.
const TYPICAL_BYTES: usize = 16 << 10;

/// Values by key, of which the least used are evicted when their bytes exceed a limit.
pub struct ByteCache<K, V> {
    entries: QuickCache<K, Entry<V>, StatedBytes>,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    bytes: usize,
    expires: Option<Instant>,
}

impl<V> Entry<V> {
    fn is_expired(&self) -> bool {
        self.expires.is_some_and(|at| at <= Instant::now())
    }
}

/// Weighs an entry by the bytes that its owner stated for it.
#[derive(Clone, Copy)]
struct StatedBytes;

impl<K, V> Weighter<K, Entry<V>> for StatedBytes {
    fn weight(&self, _: &K, entry: &Entry<V>) -> u64 {
        // An entry without weight would never be evicted.
        entry.bytes.max(1) as u64
    }
}

impl<K: Eq + Hash, V: Clone> ByteCache<K, V> {
    /// An empty cache for about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the builder fails only without a capacity"
        )]
        let options = OptionsBuilder::new()
            .weight_capacity(limit as u64)
            .estimated_items_capacity(limit / TYPICAL_BYTES)
            .hot_allocation(LARGEST_SHARE)
            // Each shard has a limit of its own, which would be the limit of a value too.
            .shards(1)
            .build()
            .expect("capacities are set");
        Self {
            entries: QuickCache::with_options(
                options,
                StatedBytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// The value of a key, unless it was evicted or has expired.
    pub fn get(&self, key: &K) -> Option<V> {
        let entry = self.entries.get(key)?;
        if entry.is_expired() {
            self.entries.remove_if(key, Entry::is_expired);
            return None;
        }
        Some(entry.value)
    }

    /// Removes the value of a key if `condition` is true of it.
    pub fn remove_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) {
        self.entries.remove_if(key, |entry| condition(&entry.value));
    }

    /// Stores a value that takes about `bytes`, until `expires` if that is set. A value of more
    /// than a quarter of the limit is not stored; what was stored under its key is removed.
    pub fn insert(&self, key: K, value: V, bytes: usize, expires: Option<Instant>) {
        let entry = Entry {
            value,
            bytes,
            expires,
        };
        self.entries.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn old_values_are_evicted_when_there_are_too_many_bytes() {
        let cache = ByteCache::new(4096);
        for number in 0..1000 {
            cache.insert(number, number, 100, None);
            assert!(cache.entries.weight() <= 4096);
            // The newest values are there, whatever came before.
            for recent in (number - 20).max(0)..=number {
                assert_eq!(cache.get(&recent), Some(recent));
            }
        }
        assert_eq!(
            (0..1000).filter_map(|number| cache.get(&number)).count(),
            40
        );
    }

    #[test]
    fn a_value_of_more_than_a_quarter_of_the_limit_is_not_stored() {
        let cache = ByteCache::new(4096);
        cache.insert("a", 1, 1024, None);
        assert_eq!(cache.get(&"a"), Some(1));
        cache.insert("b", 2, 1025, None);
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), None));
        // What the refused value would have replaced is out of date.
        cache.insert("a", 3, 1025, None);
        assert_eq!(cache.get(&"a"), None);
    }

    #[test]
    fn a_value_that_is_replaced_counts_once() {
        let cache = ByteCache::new(4096);
        for round in 0..1000 {
            cache.insert((), round, 500, None);
        }
        assert_eq!((cache.get(&()), cache.entries.weight()), (Some(999), 500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_expires() {
        let cache = ByteCache::new(4096);
        let expires = Instant::now() + Duration::from_secs(5);
        cache.insert("a", 1, 10, Some(expires));
        tokio::time::advance(Duration::from_millis(4999)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get(&"a"), None);
        assert_eq!(cache.entries.len(), 0);
    }
}
