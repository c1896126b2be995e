//! Encodes checkpoints as rows: decides which values go into the envelope, which become blobs,
//! and which of those are deltas on a stored version.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    BlobRow, Checkpoint, CheckpointRow, Version, Versions,
    codec::{
        self, Format,
        envelope::{self, Envelope, Updated},
    },
    delta,
};
use crate::{channel::Shape, message::Ids, value::Value};

mod decode;
mod json;
mod text;
mod writes;

#[cfg(test)]
pub(super) mod tests;

pub use decode::{Chains, Decoded, channel_value, decode, decode_pending, decode_row, with_row};
use text::{fits_envelope, versions_text, without_nul};
pub use text::{metadata_as_stored, versions_of};
pub use writes::{decode_control, encode_writes, references, rows_found_by};

/// A full row is written when the deltas since the last one reach this, or its size if greater.
const CHAIN_FLOOR: usize = 32 * 1024;

/// The channel values that are stored as blobs: the bases of the next deltas.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    channels: HashMap<Arc<str>, StoredValue>,
}

/// A channel value that is stored as a blob.
#[derive(Clone, Debug)]
struct StoredValue {
    version: Version,
    value: Value,
    /// Bytes of deltas since the last full value.
    chain_bytes: usize,
    /// Bytes of that full value.
    full_bytes: usize,
    /// What all of them weigh.
    weight: u64,
    /// The ids of the messages that it is a list of, if they are known.
    ids: Option<Ids>,
}

/// The items that a new delta appends: a task's write of the same items may refer to its blob.
pub struct Appended {
    /// The version that the delta leads to.
    pub version: Version,
    /// The appended items.
    pub items: Vec<Value>,
}

/// Rows of one checkpoint.
pub struct Encoded {
    /// The row.
    pub row: CheckpointRow,
    /// New values.
    pub blobs: Vec<BlobRow>,
    /// Deltas among them that only append, by channel.
    pub appended: HashMap<Arc<str>, Appended>,
}

impl Frame {
    /// The version and value that are stored of a channel.
    pub fn stored(&self, channel: &str) -> Option<(Version, &Value)> {
        let stored = self.channels.get(channel)?;
        Some((stored.version, &stored.value))
    }

    /// Remembers the ids of the messages that are the value of a channel, if that is what is stored.
    pub fn know_message_ids(&mut self, channel: &str, value: &Value, ids: &Ids) {
        if let Some(stored) = self.channels.get_mut(channel)
            && stored.value.is_identical(value)
        {
            stored.ids = Some(ids.clone());
        }
    }

    /// The ids of the messages that are the value of a channel, if they are known.
    pub fn message_ids(&self, channel: &str, value: &Value) -> Option<&Ids> {
        let stored = self.channels.get(channel)?;
        let ids = stored.ids.as_ref()?;
        stored.value.is_identical(value).then_some(ids)
    }

    /// Encodes `checkpoint` on top of what is stored, and remembers its values as stored.
    ///
    /// `shape` returns how a channel grows. Only versions that are not stored yet make rows, in this format.
    pub(crate) fn encode(
        &mut self,
        ns: &Arc<str>,
        checkpoint: &Checkpoint,
        shape: impl Fn(&str) -> Shape,
        format: Format,
    ) -> Encoded {
        let mut blobs = vec![];
        let mut appended = HashMap::new();
        let mut values = vec![];
        for (name, value) in &checkpoint.values {
            let Some(version) = checkpoint.versions.get(name) else {
                continue;
            };
            if fits_envelope(value) {
                self.channels.remove(name);
                values.push((name.clone(), value.clone()));
                continue;
            }
            if self
                .channels
                .get(name)
                .is_some_and(|stored| stored.version == *version)
            {
                continue;
            }
            let (row, stored, delta) = blob(
                (ns, name, *version),
                value,
                self.channels.get(name),
                shape(name),
                format,
            );
            if let Some(delta) = delta {
                appended.insert(name.clone(), delta);
            }
            self.channels.insert(name.clone(), stored);
            blobs.push(row);
        }
        self.channels
            .retain(|name, _| checkpoint.values.contains_key(name));
        // What follows from the rest is left out: there is a row per superstep.
        let updated = match &checkpoint.updated {
            Some(updated) if *updated == newest(&checkpoint.values, &checkpoint.versions) => {
                Updated::Newest
            }
            Some(updated) => Updated::Names(updated.clone()),
            None => Updated::Unknown,
        };
        let envelope = Envelope {
            versions: Cow::Borrowed(&checkpoint.versions),
            values,
            consumed: Cow::Borrowed(&checkpoint.consumed_versions),
            updated,
            task: checkpoint.task,
        };
        let text = match format {
            Format::Bincode => None,
            Format::Json => json::write(&envelope),
        };
        let envelope = text.unwrap_or_else(|| envelope::encode(&envelope));
        let stored = self.channels.iter();
        let blob_versions = stored.map(|(name, stored)| (&**name, stored.version));
        Encoded {
            row: CheckpointRow {
                ns: ns.clone(),
                id: checkpoint.id,
                parent: checkpoint.parent,
                root: checkpoint.root,
                depth: checkpoint.depth,
                thread: checkpoint.thread,
                branch: checkpoint.branch,
                run: checkpoint.run,
                source: checkpoint.source,
                step: checkpoint.step,
                last_node: checkpoint.last_node,
                event_number: checkpoint.event_number,
                envelope,
                blob_versions: versions_text(blob_versions),
                metadata: without_nul(&checkpoint.metadata),
                created_at: checkpoint.created_at,
                run_supersteps: i32::try_from(checkpoint.run_supersteps).unwrap_or(i32::MAX),
            },
            blobs,
            appended,
        }
    }
}

/// The channels with a value that have the newest version: as a rule those that the superstep
/// updated.
fn newest(values: &BTreeMap<Arc<str>, Value>, versions: &Versions) -> Vec<Arc<str>> {
    let counter = versions.values().map(|version| version.counter).max();
    versions
        .iter()
        .filter(|(name, version)| Some(version.counter) == counter && values.contains_key(*name))
        .map(|(name, _)| name.clone())
        .collect()
}

/// A blob row for `value`: a delta on the stored value where that is shorter, else the full value.
fn blob(
    (ns, name, version): (&Arc<str>, &Arc<str>, Version),
    value: &Value,
    stored: Option<&StoredValue>,
    shape: Shape,
    format: Format,
) -> (BlobRow, StoredValue, Option<Appended>) {
    let grows = !matches!(shape, Shape::Plain);
    let delta = stored.filter(|_| grows).and_then(|stored| {
        let (old, new) = (stored.value.as_list()?, value.as_list()?);
        let delta = delta::diff(old, new)?;
        let (tag, bytes) = delta::encode(&delta, format);
        let chain = stored.chain_bytes + bytes.len();
        (chain < CHAIN_FLOOR.max(stored.full_bytes)).then_some((
            stored,
            old.len(),
            delta,
            (tag, bytes),
            chain,
        ))
    });
    if let Some((base, old_len, delta, (tag, bytes), chain)) = delta {
        let weight = base.weight + codec::weight(&tag, bytes.len());
        let appended = (delta.keep == old_len).then(|| Appended {
            version,
            items: delta.items,
        });
        let row = BlobRow {
            ns: ns.clone(),
            channel: name.clone(),
            version,
            base: Some(base.version),
            chain_bytes: i32::try_from(chain).unwrap_or(i32::MAX),
            tag,
            bytes,
        };
        let stored = StoredValue {
            version,
            value: value.clone(),
            chain_bytes: chain,
            full_bytes: base.full_bytes,
            weight,
            ids: None,
        };
        return (row, stored, appended);
    }
    let (tag, bytes) = codec::encode_weighed(value, format);
    let stored = StoredValue {
        version,
        value: value.clone(),
        chain_bytes: 0,
        full_bytes: bytes.len(),
        weight: codec::weight(&tag, bytes.len()),
        ids: None,
    };
    let row = BlobRow {
        ns: ns.clone(),
        channel: name.clone(),
        version,
        base: None,
        chain_bytes: 0,
        tag,
        bytes,
    };
    (row, stored, None)
}
