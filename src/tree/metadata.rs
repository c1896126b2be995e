//! How much metadata a thread or a run may have, of one request and merged with what is there.

use super::error::{Error, Result};
use crate::value::{Map, Value};

/// How much metadata there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most keys.
    pub keys: usize,
    /// Most bytes, as JSON.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keys: 64,
            bytes: 16_000,
        }
    }
}

impl Limits {
    /// For what was checked before it was stored.
    pub const NONE: Self = Self {
        keys: usize::MAX,
        bytes: usize::MAX,
    };

    /// What is too much about metadata, if anything is.
    pub fn excess(self, metadata: &Map) -> Option<String> {
        let (keys, bytes) = size(metadata);
        if keys > self.keys {
            Some(format!(
                "Metadata has {keys} keys, at most {} are allowed (BACKSTITCH_METADATA_KEYS)",
                self.keys
            ))
        } else if bytes > self.bytes {
            Some(format!(
                "Metadata has {bytes} bytes, at most {} are allowed (BACKSTITCH_METADATA_BYTES)",
                self.bytes
            ))
        } else {
            None
        }
    }

    /// What `own` becomes when `more` is merged into it. What is too large already, since the server
    /// adds to it, may still change, but not grow.
    ///
    /// # Errors
    /// 422: it would be too much.
    pub fn merged(self, own: &Map, more: Map) -> Result<Map> {
        let mut merged = own.clone();
        merged.extend(more);
        let (before, after) = (size(own), size(&merged));
        match self.excess(&merged) {
            Some(excess) if after.0 > before.0 || after.1 > before.1 => Err(Error::invalid(
                format!("Merged with what is there: {excess}"),
            )),
            _ => Ok(merged),
        }
    }
}

/// Keys and bytes.
fn size(metadata: &Map) -> (usize, usize) {
    let bytes = Value::map(metadata.clone()).to_json().len();
    (metadata.len(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: usize, bytes: usize) -> Map {
        let key = |at| (format!("k{at}").into(), Value::str("x".repeat(bytes)));
        (0..keys).map(key).collect()
    }

    #[test]
    fn what_is_merged_has_the_limits_of_one_request() {
        let few = Limits { keys: 3, bytes: 90 };
        for (limits, too_many) in [(Limits::default(), "65 keys"), (few, "4 keys")] {
            let Limits { keys, bytes } = limits;
            let excess = |metadata| limits.excess(&metadata);
            assert_eq!(excess(of(keys, 1)), None);
            assert!(excess(of(keys + 1, 1)).unwrap().contains(too_many));
            assert!(excess(of(1, bytes)).unwrap().contains("bytes"));
            let own = of(keys, 1);
            let one = |key: &str, bytes| Map::from([(key, Value::str("x".repeat(bytes)))]);
            assert_eq!(limits.merged(&own, one("k0", 2)).unwrap().len(), keys);
            assert!(limits.merged(&own, one("new", 1)).is_err());
            assert!(limits.merged(&own, one("k0", bytes)).is_err());
        }
        assert_eq!(Limits::NONE.excess(&of(2000, 100)), None);
    }

    #[test]
    fn what_is_too_large_already_may_change_and_not_grow() {
        let limits = Limits::default();
        let own = of(limits.keys + 2, 4);
        let one = |bytes| Map::from([("k0", Value::str("x".repeat(bytes)))]);
        assert!(limits.merged(&own, one(4)).is_ok());
        assert!(limits.merged(&own, one(3)).is_ok());
        assert!(limits.merged(&own, one(5)).is_err());
    }
}
