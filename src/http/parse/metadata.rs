//! Metadata of threads, runs and assistants, within its limits.

use super::fields::Fields;
use crate::{http::server::Error, tree::metadata::Limits, value::Map};

/// The field `metadata`; absent is empty.
pub fn metadata(fields: &Fields<'_>, limits: Limits) -> Result<Map, Error> {
    let map = fields.map("metadata")?.cloned().unwrap_or_default();
    match limits.excess(&map) {
        Some(excess) => Err(fields.refuse("metadata", excess)),
        None => Ok(map),
    }
}

/// Checks what a run has of `metadata` in its config and of its own together.
pub fn check_with_config(
    fields: &Fields<'_>,
    config: &Map,
    own: &Map,
    limits: Limits,
) -> Result<(), Error> {
    let Some(of_config) = config.get("metadata").and_then(|value| value.as_map()) else {
        return Ok(());
    };
    let mut all = of_config.clone();
    all.extend(own.clone());
    match limits.excess(&all) {
        Some(excess) => Err(fields.refuse("config", format!("With that of the config: {excess}"))),
        None => Ok(()),
    }
}
