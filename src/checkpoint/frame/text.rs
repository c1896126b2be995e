//! JSON text of envelopes and metadata: values that survive JSONB, versions, strings.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    checkpoint::{BadVersion, Error, Versions},
    value::{Map, Value},
};

/// Longer texts are blobs: an envelope is written anew and read as a whole with every superstep,
/// and nobody knows the length of a text in it without reading it.
const LONGEST_TEXT: usize = 4 << 10;

/// Whether a value of this name is stored in the envelope: JSONB stores it without changing it, and
/// it is short.
pub(super) fn fits_envelope(name: &str, value: &Value) -> bool {
    !name.contains('\0')
        && match value {
            Value::Null | Value::Bool(_) | Value::Int(_) => true,
            Value::Float(float) => {
                let text = value.to_json();
                float.is_finite()
                    && (*float != 0.0 || float.is_sign_positive())
                    && text.contains('.')
                    && !text.contains(['e', 'E'])
            }
            Value::Str(text) => text.len() <= LONGEST_TEXT && !text.contains('\0'),
            _ => false,
        }
}

pub(super) fn comma(out: &mut String, first: &mut bool) {
    if !std::mem::take(first) {
        out.push(',');
    }
}

pub(super) fn quote(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_json());
    }
}

pub(super) fn write_versions(out: &mut String, versions: &Versions) {
    use std::fmt::Write as _;
    out.push('{');
    let mut first = true;
    for (name, version) in versions {
        comma(out, &mut first);
        quote(out, name);
        // Writing to a String cannot fail.
        let _ = write!(out, ":\"{version}\"");
    }
    out.push('}');
}

pub(super) fn read_versions(value: Option<&Value>) -> Result<Versions, BadVersion> {
    let mut versions = Versions::new();
    if let Some(map) = value.and_then(Value::as_map) {
        for (name, version) in map {
            versions.insert(name.clone(), version.as_str().unwrap_or_default().parse()?);
        }
    }
    Ok(versions)
}

/// The versions that an envelope names. Nothing else of it is decoded.
///
/// # Errors
/// A text that this version cannot read.
pub fn channel_versions(envelope: &str) -> Result<Versions, Error> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        #[serde(default)]
        channel_versions: BTreeMap<Arc<str>, String>,
    }
    let envelope: Envelope = serde_json::from_str(envelope)
        .map_err(|error| Error::Corrupt(format!("the envelope of a checkpoint: {error}")))?;
    parsed(envelope.channel_versions.into_iter())
}

/// The versions in the part of an envelope that has them, as text.
///
/// # Errors
/// As [`channel_versions`].
pub fn versions_of(text: &str) -> Result<Versions, Error> {
    let versions: BTreeMap<Arc<str>, String> = serde_json::from_str(text)
        .map_err(|error| Error::Corrupt(format!("the versions of a checkpoint: {error}")))?;
    parsed(versions.into_iter())
}

fn parsed(versions: impl Iterator<Item = (Arc<str>, String)>) -> Result<Versions, Error> {
    versions
        .map(|(channel, version)| Ok((channel, version.parse()?)))
        .collect::<Result<_, BadVersion>>()
        .map_err(|error| Error::Corrupt(error.to_string()))
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
