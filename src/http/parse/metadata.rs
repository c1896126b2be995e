//! Metadata of threads, runs and assistants, within its limits.

use super::fields::Fields;
use crate::{
    http::server::error::Error,
    value::{Map, Value},
};

/// Most keys of metadata.
const KEYS_MAX: usize = 64;
/// Most bytes of metadata, as JSON.
const BYTES_MAX: usize = 16_000;

/// The field `metadata`; absent is empty.
pub fn metadata(fields: &Fields<'_>) -> Result<Map, Error> {
    let map = fields.map("metadata")?.cloned().unwrap_or_default();
    if map.len() > KEYS_MAX {
        let reason = format!(
            "Metadata has {} keys, at most {KEYS_MAX} are allowed",
            map.len()
        );
        return Err(fields.refuse("metadata", reason));
    }
    let bytes = Value::map(map.clone()).to_json().len();
    if bytes > BYTES_MAX {
        let reason = format!("Metadata has {bytes} bytes, at most {BYTES_MAX} are allowed");
        return Err(fields.refuse("metadata", reason));
    }
    Ok(map)
}
