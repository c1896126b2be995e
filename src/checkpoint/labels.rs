//! Labels: fields of metadata that are texts, by which a storage looks up the rows that have them.

use std::sync::Arc;

use crate::value::{Map, Value};

/// Most characters of a label.
const CHARS: usize = 100;

/// Labels of all rows whose metadata contains this, but for fields that the server writes into most of them. Triggers of
/// the storages make the same ones of the metadata of rows. A label that databases write or cut off in different ways is
/// left out: where Postgres does not know the encoding, it counts bytes.
pub fn labels_of(metadata: &Map, of_server: &[&str]) -> impl Iterator<Item = String> {
    let plain = |text: &str| !text.chars().any(char::is_control);
    let label = move |(key, value): (&Arc<str>, &Value)| {
        let value = value.as_str()?;
        let is_label = !of_server.contains(&&**key)
            && plain(key)
            && plain(value)
            && !key.contains(['"', '\\']);
        let label = is_label.then(|| format!("{key}={value}"))?;
        let is_cut_alike = label.is_ascii() || label.len() <= CHARS;
        is_cut_alike.then(|| label.chars().take(CHARS).collect())
    };
    metadata.iter().filter_map(label)
}
