//! How much metadata a thread or a run may have, of one request and merged with what is there.

use super::error::{Error, Result};
use crate::value::{Map, Value};

/// Most keys of metadata.
pub const KEYS_MAX: usize = 64;
/// Most bytes of metadata, as JSON.
pub const BYTES_MAX: usize = 16_000;

/// What is too much about metadata, if anything is.
pub fn excess(metadata: &Map) -> Option<String> {
    let (keys, bytes) = size(metadata);
    if keys > KEYS_MAX {
        Some(format!(
            "Metadata has {keys} keys, at most {KEYS_MAX} are allowed"
        ))
    } else if bytes > BYTES_MAX {
        Some(format!(
            "Metadata has {bytes} bytes, at most {BYTES_MAX} are allowed"
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
pub fn merged(own: &Map, more: Map) -> Result<Map> {
    let mut merged = own.clone();
    merged.extend(more);
    let (before, after) = (size(own), size(&merged));
    match excess(&merged) {
        Some(excess) if after.0 > before.0 || after.1 > before.1 => Err(Error::invalid(format!(
            "Merged with what is there: {excess}"
        ))),
        _ => Ok(merged),
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
        assert_eq!(excess(&of(KEYS_MAX, 1)), None);
        assert!(excess(&of(KEYS_MAX + 1, 1)).unwrap().contains("65 keys"));
        assert!(excess(&of(1, BYTES_MAX)).unwrap().contains("bytes"));
        let own = of(KEYS_MAX, 1);
        let one = |key: &str, bytes| Map::from([(key, Value::str("x".repeat(bytes)))]);
        assert_eq!(merged(&own, one("k0", 2)).unwrap().len(), KEYS_MAX);
        assert!(merged(&own, one("new", 1)).is_err());
        assert!(merged(&own, one("k0", BYTES_MAX)).is_err());
    }

    #[test]
    fn what_is_too_large_already_may_change_and_not_grow() {
        let own = of(KEYS_MAX + 2, 4);
        let one = |bytes| Map::from([("k0", Value::str("x".repeat(bytes)))]);
        assert!(merged(&own, one(4)).is_ok());
        assert!(merged(&own, one(3)).is_ok());
        assert!(merged(&own, one(5)).is_err());
    }
}
