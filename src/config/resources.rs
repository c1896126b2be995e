//! Settings of threads, of assistants, of crons, of long-term memory and of webhooks.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Error, keys,
    layers::Layers,
    values::{count, switch},
};
use crate::{
    assistants, crons, store,
    tree::{
        metadata,
        ttl::{MINUTES_MAX, Ttl, TtlStrategy},
    },
    value::Value,
    webhooks::{Policy, policy},
};

/// `{"graph": {"config"?: {...}, "context"?: {...}}}`.
pub fn graph_defaults(text: &str) -> Result<BTreeMap<Arc<str>, assistants::Defaults>, String> {
    let form = || "write JSON: {\"graph\": {\"config\": {...}, \"context\": {...}}}".to_owned();
    let value = Value::from_json_slice(text.as_bytes()).map_err(|_| form())?;
    let graphs = value.as_map().ok_or_else(form)?;
    graphs
        .iter()
        .map(|(graph, defaults)| {
            let defaults = defaults.as_map().ok_or_else(form)?;
            let field = |name| defaults.get(name).cloned().unwrap_or_default();
            let defaults = assistants::Defaults::of(&field("config"), &field("context"));
            let defaults = defaults.map_err(|reason| format!("graph {graph}: {reason}"))?;
            Ok((graph.clone(), defaults))
        })
        .collect()
}

/// How much metadata there may be.
pub fn metadata(layers: &Layers) -> Result<metadata::Limits, Error> {
    Ok(metadata::Limits {
        keys: layers.required("metadata_keys", |text| count(text, 1, 1000))?,
        bytes: layers.required("metadata_bytes", |text| count(text, 1000, 1 << 20))?,
    })
}

/// How much an assistant may take.
pub fn assistants(layers: &Layers) -> Result<assistants::Limits, Error> {
    let number = |name, most| layers.required(name, |text| count(text, 1, most));
    Ok(assistants::Limits {
        bytes: number("assistant_bytes", 1 << 24)?,
        metadata: metadata(layers)?,
        versions: number("assistant_versions", 1 << 20)?,
        most: number("max_assistants", 1 << 30)?,
    })
}

/// How long new threads live that name no time.
pub fn thread_ttl(layers: &Layers) -> Result<Option<Ttl>, Error> {
    let strategy: TtlStrategy = layers.required("thread_ttl_strategy", str::parse)?;
    layers.optional("thread_ttl", |text| {
        let ttl = text
            .parse()
            .ok()
            .and_then(|minutes| Ttl::of(minutes, strategy));
        ttl.ok_or_else(|| {
            format!("`{text}` does not do; write minutes, more than 0 and at most {MINUTES_MAX}")
        })
    })
}

/// Whether this process creates the runs of crons, and how much one may take.
pub fn crons(layers: &Layers) -> Result<crons::Options, Error> {
    Ok(crons::Options {
        fires: layers.required("crons", switch)?,
        bytes: layers.required("cron_bytes", |text| count(text, 1, 1 << 24))?,
        metadata: metadata(layers)?,
        most: layers.required("max_crons", |text| count(text, 1, 1 << 30))?,
        principals: layers
            .optional("api_keys", keys::api_keys)?
            .filter(|keys| !keys.is_empty())
            .map(|keys| keys.into_iter().map(|key| key.principal.into()).collect()),
    })
}

/// How much items of long-term memory may take.
pub fn items(layers: &Layers) -> Result<store::Limits, Error> {
    let number = |name| layers.required(name, |text| count(text, 1, 1 << 30));
    Ok(store::Limits {
        item_bytes: number("store_item_bytes")?,
        items: number("max_store_items")?,
        scan_rows: number("store_scan_items")?,
        scan_bytes: number("store_scan_bytes")?,
        page_bytes: number("store_page_bytes")?,
    })
}

/// Which URLs webhooks may have.
pub fn webhooks(layers: &Layers) -> Result<Policy, Error> {
    Ok(Policy {
        allow_loopback: layers.required("webhook_allow_loopback", switch)?,
        require_https: layers.required("webhook_require_https", switch)?,
        trusted: layers
            .optional("webhook_hosts", policy::trusted)?
            .unwrap_or_default(),
    })
}
