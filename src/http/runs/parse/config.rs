//! The configuration that a run has, from the fields `config` and `context`.

use crate::{
    http::{parse::fields::Fields, server::Error},
    value::{Map, Value},
};

/// The greatest limit of supersteps that a request may set.
const RECURSION_MAX: i64 = 10_000;

/// 400 when both `config.configurable` and `context` have values.
pub(in crate::http) fn config_or_context(config: &Map, context: &Map) -> Result<(), Error> {
    if !context.is_empty() && has_configurable(config) {
        return Err(Error::bad_request(
            "Cannot specify both configurable and context. Prefer setting context alone: it \
             replaces configurable.",
        ));
    }
    Ok(())
}

/// The field `config`, its known fields checked.
pub(in crate::http) fn config(fields: &Fields<'_>) -> Result<Map, Error> {
    let Some(value) = fields.any("config") else {
        return Ok(Map::default());
    };
    let config = Fields::at(value, "config")?;
    config.map("configurable")?;
    config.map("metadata")?;
    config.texts("tags")?;
    // The run itself fails on less than one.
    config.integer("recursion_limit", i64::MIN, RECURSION_MAX)?;
    let mut map = value.as_map().cloned().unwrap_or_default();
    map.retain(|_, value| !value.is_null());
    Ok(map)
}

fn has_configurable(config: &Map) -> bool {
    let configurable = config.get("configurable").and_then(Value::as_map);
    // Where to start from is no configuration of the graph.
    let is_address = |key: &str| {
        matches!(
            key,
            "thread_id" | "checkpoint_id" | "checkpoint_ns" | "checkpoint_map"
        )
    };
    configurable.is_some_and(|map| map.keys().any(|key| !is_address(key)))
}
