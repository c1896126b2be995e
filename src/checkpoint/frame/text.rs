//! What of a checkpoint's row is JSON text, and which values its envelope holds.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    checkpoint::{BadVersion, Error, Version, Versions},
    value::{Map, Value},
};

/// Longer texts are blobs: an envelope is written anew and read as a whole with every superstep,
/// and nobody knows the length of a text in it without reading it.
const LONGEST_TEXT: usize = 4 << 10;

/// Whether a value is stored in the envelope: it is short, and cannot grow.
pub(super) fn fits_envelope(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Float(_) => true,
        Value::Str(text) => text.len() <= LONGEST_TEXT,
        Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::Opaque(_) => false,
    }
}

fn quote(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_json());
    }
}

/// Versions as JSON text, by channel.
pub(super) fn versions_text<'a>(versions: impl Iterator<Item = (&'a str, Version)>) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(64);
    for (name, version) in versions {
        out.push(if out.is_empty() { '{' } else { ',' });
        quote(&mut out, name);
        // Writing to a String cannot fail.
        let _ = write!(out, ":\"{version}\"");
    }
    if out.is_empty() {
        out.push('{');
    }
    out.push('}');
    out
}

/// The versions of `blob_versions` of a row.
///
/// # Errors
/// A text that this version cannot read.
pub fn versions_of(text: &str) -> Result<Versions, Error> {
    let versions: BTreeMap<Arc<str>, String> = serde_json::from_str(text)
        .map_err(|error| Error::Corrupt(format!("the versions of a checkpoint: {error}")))?;
    versions
        .into_iter()
        .map(|(channel, version)| Ok((channel, version.parse()?)))
        .collect::<Result<_, BadVersion>>()
        .map_err(|error| Error::Corrupt(error.to_string()))
}

/// Metadata as it is read once it was stored; `None` of what could not be read.
pub fn metadata_as_stored(metadata: &Map) -> Option<Map> {
    let stored = Value::from_json_slice(without_nul(metadata).as_bytes());
    Some(stored.ok()?.as_map()?.clone())
}

/// Metadata as JSON text. JSONB refuses NUL, so it is stripped, as LangGraph does.
pub(super) fn without_nul(metadata: &Map) -> String {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Str(text) if text.contains('\0') => text.replace('\0', "").into(),
            Value::List(items) => Value::list(items.iter().map(strip).collect()),
            Value::Map(map) => Value::map(strip_map(map)),
            other => other.clone(),
        }
    }
    fn strip_map(map: &Map) -> Map {
        map.iter()
            .map(|(key, value)| (key.replace('\0', "").into(), strip(value)))
            .collect()
    }
    let text = Value::map(metadata.clone()).to_json();
    if text.contains("\\u0000") {
        Value::map(strip_map(metadata)).to_json()
    } else {
        text
    }
}
