//! How much memory a value takes.

use std::{mem::size_of, sync::Arc};

use super::{Map, Value};

/// The two counts of an [`Arc`].
const COUNTS: usize = 2 * size_of::<usize>();

/// A field of a map: key, value and hash.
const FIELD: usize = size_of::<(Arc<str>, Value, u64)>();

/// Up to so many items a list is made with as much room as it needs; then it doubles.
const EXACT: usize = 256;

/// The maps of a list mostly have the same few keys and share them. The keys of larger ones are their own.
const SHARED_KEYS: usize = 16;

impl Value {
    /// About how many bytes it takes in memory with all that is in it. What several parts share counts for each
    /// of them, but for the keys of small maps.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.behind()
    }

    /// What it has behind a pointer.
    fn behind(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Float(_) => 0,
            Self::Str(text) => COUNTS + text.len(),
            Self::Bytes(bytes) => COUNTS + bytes.len(),
            Self::List(items) => {
                let inside = items.iter().map(Self::behind).sum::<usize>();
                COUNTS + size_of::<Vec<Self>>() + room(items.len()) * size_of::<Self>() + inside
            }
            Self::Map(map) => COUNTS + map.memory(),
            Self::Opaque(opaque) => {
                COUNTS + size_of::<super::Opaque>() + opaque.tag.len() + opaque.bytes.len()
            }
        }
    }
}

impl Map {
    /// About how many bytes it takes in memory with all that is in it.
    pub(crate) fn memory(&self) -> usize {
        let fields = self.len();
        if fields == 0 {
            return size_of::<Self>();
        }
        let keys = if fields > SHARED_KEYS {
            self.keys().map(|key| COUNTS + key.len()).sum()
        } else {
            0
        };
        let buckets = (fields * 8 / 7 + 1).next_power_of_two().max(4);
        // Each bucket has a position and one byte that is compared first.
        let table = buckets * (size_of::<usize>() + 1) + COUNTS;
        let inside = self.values().map(Value::behind).sum::<usize>();
        size_of::<Self>() + fields * FIELD + table + keys + inside
    }
}

/// The room of a list of so many items.
fn room(items: usize) -> usize {
    if items <= EXACT {
        items
    } else {
        EXACT * items.div_ceil(EXACT).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn a_value_is_three_words() {
        assert_eq!(size_of::<Value>(), 3 * size_of::<usize>());
    }

    #[test]
    fn what_is_inside_counts() {
        let memory = |value: Value| value.memory();
        assert_eq!(memory(value!(1)), 24);
        assert_eq!(memory(value!("hello")), 24 + 16 + 5);
        assert_eq!(memory(value!([])), 24 + 16 + 24);
        assert_eq!(memory(value!([1, "hello"])), 24 + 16 + 24 + 2 * 24 + 21);
        assert_eq!(memory(Value::list(vec![Value::Null; 600])), 64 + 1024 * 24);
        let small = memory(value!({"a": 1}));
        assert!((150..300).contains(&small), "{small}");
        let more = memory(value!({"a": 1, "b": "hello"}));
        assert_eq!(more, small + FIELD + 21);
    }

    #[test]
    fn keys_count_where_they_are_not_shared() {
        let map = |fields: usize| {
            let fields = (0..fields).map(|at| (Arc::from(format!("key {at:04}")), Value::Null));
            Value::map(fields.collect()).memory()
        };
        assert!(map(16) < 16 * (FIELD + 20) + 128);
        assert!(map(17) > 17 * (FIELD + 8 + COUNTS));
    }
}
