//! The configuration that a run has, from the fields `config` and `context`.

use crate::{
    http::{parse::fields::Fields, server::Error},
    tree::metadata::Limits,
    value::{Map, Value},
};

/// Fields that a thread shows of its runs' configs, besides the metadata, and that may be long.
const SHOWN: [&str; 2] = ["tags", "run_name"];

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
pub(in crate::http) fn config(fields: &Fields<'_>, limits: Limits) -> Result<Map, Error> {
    let Some(value) = fields.any("config") else {
        return Ok(Map::default());
    };
    let config = Fields::at(value, "config")?;
    config.map("configurable")?;
    config.map("metadata")?;
    config.texts("tags")?;
    config.integer("max_concurrency", i64::MIN, i64::MAX)?;
    // Every list of threads has them.
    let shown = SHOWN.iter().filter_map(|name| value.get(name));
    let bytes: usize = shown.map(|value| value.to_json().len()).sum();
    if bytes > limits.bytes {
        let detail = format!(
            "`tags` and `run_name` have {bytes} bytes, at most {} are allowed (BACKSTITCH_METADATA_BYTES)",
            limits.bytes
        );
        return Err(fields.refuse("config", detail));
    }
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
