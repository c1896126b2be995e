//! Envelopes as JSON text: those of earlier versions were, and those of values in JSON are.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    checkpoint::{
        Version, Versions,
        codec::{
            self,
            envelope::{Envelope, Updated},
        },
    },
    value::{Map, Value},
};

/// The JSON text of an envelope, which begins with a brace; `None` when it would change a value.
pub(super) fn write(envelope: &Envelope<'_>) -> Option<Vec<u8>> {
    let mut out = Map::with_capacity(5);
    out.insert(
        "channel_values",
        Value::map(envelope.values.iter().cloned().collect()),
    );
    out.insert("channel_versions", write_versions(&envelope.versions));
    let consumed = envelope.consumed.iter();
    let consumed: Map = consumed
        .map(|(node, versions)| (node.clone(), write_versions(versions)))
        .collect();
    out.insert("versions_seen", Value::map(consumed));
    match &envelope.updated {
        Updated::Newest => {}
        Updated::Unknown => {
            out.insert("updated_channels", Value::Null);
        }
        Updated::Names(names) => {
            let names = names.iter().cloned().map(Value::Str).collect();
            out.insert("updated_channels", Value::list(names));
        }
    }
    if let Some(task) = &envelope.task {
        out.insert("task", Value::from(task.to_string()));
    }
    codec::encode_json(&Value::map(out)).map(|(_, text)| text)
}

fn write_versions(versions: &Versions) -> Value {
    let versions = versions.iter();
    let texts = versions.map(|(name, version)| (name.clone(), version.to_string().into()));
    Value::map(texts.collect())
}

/// An envelope out of JSON text. The error is the reason.
pub(super) fn read(bytes: &[u8]) -> Result<Envelope<'static>, String> {
    let envelope = Value::from_json_slice(bytes).map_err(|error| error.to_string())?;
    let versions = read_versions(envelope.get("channel_versions"))?;
    let mut consumed = BTreeMap::new();
    if let Some(map) = envelope.get("versions_seen").and_then(Value::as_map) {
        for (node, versions) in map {
            consumed.insert(node.clone(), read_versions(Some(versions))?);
        }
    }
    let values = envelope.get("channel_values").and_then(Value::as_map);
    let values = values.into_iter().flatten();
    let values = values
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let updated = match envelope.get("updated_channels") {
        Some(names) => match names.as_list() {
            Some(names) => Updated::Names(
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(Into::into)
                    .collect(),
            ),
            None => Updated::Unknown,
        },
        // Envelopes with a format number wrote null when there were none.
        None if envelope.get("v").is_some() => Updated::Unknown,
        None => Updated::Newest,
    };
    let task = envelope.get("task").and_then(Value::as_str);
    let task = task.map(str::parse).transpose();
    Ok(Envelope {
        versions: Cow::Owned(versions),
        values,
        consumed: Cow::Owned(consumed),
        updated,
        task: task.map_err(|error| format!("task: {error}"))?,
    })
}

fn read_versions(value: Option<&Value>) -> Result<Versions, String> {
    let mut versions = Versions::new();
    for (name, version) in value.and_then(Value::as_map).into_iter().flatten() {
        let version = version.as_str().unwrap_or_default().parse::<Version>();
        versions.insert(name.clone(), version.map_err(|error| error.to_string())?);
    }
    Ok(versions)
}
