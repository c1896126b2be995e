//! Metadata of threads, runs and assistants, within its limits.

use super::fields::Fields;
use crate::{
    http::server::Error,
    tree::metadata::{BYTES_MAX, excess},
    value::Map,
};

/// The field `metadata`; absent is empty.
pub fn metadata(fields: &Fields<'_>) -> Result<Map, Error> {
    let map = fields.map("metadata")?.cloned().unwrap_or_default();
    match excess(&map) {
        Some(excess) => Err(fields.refuse("metadata", excess)),
        None => Ok(map),
    }
}

/// Fields of a run's config that its thread shows besides the metadata, and that may have any length.
const SHOWN: [&str; 2] = ["tags", "run_name"];

/// Checks what a run has of `metadata` in its config and of its own together, and what of its config its thread
/// shows: every list of threads has that.
pub fn check_with_config(fields: &Fields<'_>, config: &Map, own: &Map) -> Result<(), Error> {
    let shown = SHOWN.iter().filter_map(|name| config.get(name));
    let bytes: usize = shown.map(|value| value.to_json().len()).sum();
    if bytes > BYTES_MAX {
        let detail =
            format!("`tags` and `run_name` have {bytes} bytes, at most {BYTES_MAX} are allowed");
        return Err(fields.refuse("config", detail));
    }
    let Some(of_config) = config.get("metadata").and_then(|value| value.as_map()) else {
        return Ok(());
    };
    let mut all = of_config.clone();
    all.extend(own.clone());
    match excess(&all) {
        Some(excess) => Err(fields.refuse("config", format!("With that of the config: {excess}"))),
        None => Ok(()),
    }
}
