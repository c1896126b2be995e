//! Decodes rows into checkpoints: envelopes, chains of deltas, pending writes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Frame, StoredValue, json, newest, writes::decode_writes};
use crate::{
    checkpoint::{
        BlobRow, Checkpoint, CheckpointRow, Error, Pending, Stored, Version, Versions, WriteRow,
        codec::{
            self,
            envelope::{self, Envelope, Updated},
        },
        delta,
    },
    id::{BranchId, TaskId},
    message::Ids,
    value::{Map, Value},
};

/// A stored checkpoint, decoded.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Which of its channel values are stored as blobs.
    pub frame: Frame,
    /// Pending writes with the branch they belong to.
    pub writes: Vec<(BranchId, Pending)>,
    /// Writes that point to a blob of a later checkpoint: position in `writes`, version.
    pub references: Vec<(usize, Version)>,
}

/// Decodes a checkpoint, its values and its pending writes.
///
/// # Errors
/// A row that this version cannot read; the text names channel and checkpoint.
pub fn decode(stored: &Stored) -> Result<Decoded, Error> {
    decode_row(&stored.row, &stored.writes, &Chains::new(&stored.blobs))
}

/// [`decode`] for one of several checkpoints whose blobs are indexed together.
///
/// # Errors
/// As [`decode`].
pub fn decode_row(
    row: &CheckpointRow,
    writes: &[WriteRow],
    chains: &Chains<'_>,
) -> Result<Decoded, Error> {
    let corrupt = |what: String| Error::Corrupt(format!("checkpoint {}: {what}", row.id));
    let envelope = read_envelope(&row.envelope).map_err(&corrupt)?;
    let versions = envelope.versions.into_owned();
    let mut values: BTreeMap<Arc<str>, Value> = envelope.values.into_iter().collect();
    let mut frame = Frame::default();
    for (name, version) in &versions {
        if values.contains_key(name) {
            continue;
        }
        let Some(found) = chains
            .resolve(name, *version)
            .map_err(|error| corrupt(format!("channel `{name}`: {error}")))?
        else {
            continue;
        };
        values.insert(name.clone(), found.value.clone());
        frame.channels.insert(name.clone(), found);
    }
    let updated = match envelope.updated {
        Updated::Newest => Some(newest(&values, &versions)),
        Updated::Unknown => None,
        Updated::Names(names) => Some(names),
    };
    let content = Content {
        values,
        versions,
        consumed: envelope.consumed.into_owned(),
        updated,
        task: envelope.task,
    };
    let checkpoint = checkpoint_of(row, content)?;
    let (writes, references) = decode_writes(writes)?;
    Ok(Decoded {
        checkpoint,
        frame,
        writes,
        references,
    })
}

fn read_envelope(bytes: &[u8]) -> Result<Envelope<'static>, String> {
    let envelope = if bytes.first() == Some(&b'{') {
        json::read(bytes)
    } else {
        envelope::decode(bytes).map_err(|error| error.to_string())
    };
    envelope.map_err(|error| format!("envelope: {error}"))
}

/// The value of one channel of a checkpoint with this envelope, if it has one.
///
/// # Errors
/// A row that this version cannot read.
pub fn channel_value(
    envelope: &[u8],
    channel: &str,
    chains: &Chains<'_>,
) -> Result<Option<Value>, String> {
    let envelope = read_envelope(envelope)?;
    let mut short = envelope.values.into_iter();
    if let Some((_, value)) = short.find(|(name, _)| **name == *channel) {
        return Ok(Some(value));
    }
    let Some(version) = envelope.versions.get(channel) else {
        return Ok(None);
    };
    let found = chains.resolve(channel, *version)?;
    Ok(found.map(|found| found.value))
}

/// The pending writes of a checkpoint, which belong to the columns of its row; nothing else of it is decoded.
///
/// # Errors
/// As [`decode`].
pub fn decode_pending(row: &CheckpointRow, writes: &[WriteRow]) -> Result<Decoded, Error> {
    let (writes, references) = decode_writes(writes)?;
    Ok(Decoded {
        checkpoint: checkpoint_with(row, Map::new(), Content::default()),
        frame: Frame::default(),
        writes,
        references,
    })
}

/// What a checkpoint stores besides the columns of its row.
#[derive(Default)]
struct Content {
    values: BTreeMap<Arc<str>, Value>,
    versions: Versions,
    consumed: BTreeMap<Arc<str>, Versions>,
    updated: Option<Vec<Arc<str>>>,
    task: Option<TaskId>,
}

fn checkpoint_of(row: &CheckpointRow, content: Content) -> Result<Checkpoint, Error> {
    let metadata = Value::from_json_slice(row.metadata.as_bytes())
        .map_err(|error| Error::Corrupt(format!("checkpoint {}: metadata: {error}", row.id)))?;
    let metadata = metadata.as_map().cloned().unwrap_or_default();
    Ok(checkpoint_with(row, metadata, content))
}

fn checkpoint_with(row: &CheckpointRow, metadata: Map, content: Content) -> Checkpoint {
    Checkpoint {
        id: row.id,
        parent: row.parent,
        step: row.step,
        source: row.source,
        created_at: row.created_at,
        values: content.values,
        versions: content.versions,
        consumed_versions: content.consumed,
        updated: content.updated,
        metadata,
        run: row.run,
        thread: row.thread,
        branch: row.branch,
        depth: row.depth,
        root: row.root,
        last_node: row.last_node,
        event_number: row.event_number,
        run_supersteps: u32::try_from(row.run_supersteps).unwrap_or(0),
        task: content.task,
    }
}

/// A copy of a decoded checkpoint as its row is now, which pruning changes, with the pending writes that
/// are stored now. What it stores besides its row is never changed.
///
/// # Errors
/// A row that this version cannot read.
pub fn with_row(cached: &Decoded, stored: &Stored) -> Result<Decoded, Error> {
    let known = &cached.checkpoint;
    let content = Content {
        values: known.values.clone(),
        versions: known.versions.clone(),
        consumed: known.consumed_versions.clone(),
        updated: known.updated.clone(),
        task: known.task,
    };
    let (writes, references) = decode_writes(&stored.writes)?;
    Ok(Decoded {
        checkpoint: checkpoint_of(&stored.row, content)?,
        frame: cached.frame.clone(),
        writes,
        references,
    })
}

/// What the position of an id takes.
const ID_BYTES: usize = 32;

impl Decoded {
    /// Drops the pending writes that `retained` refuses, with their references.
    pub fn retain_writes(&mut self, mut retained: impl FnMut(BranchId, &Pending) -> bool) {
        let mut moved = Vec::with_capacity(self.writes.len());
        let mut left = 0;
        self.writes.retain(|(branch, write)| {
            let stays = retained(*branch, write);
            moved.push(stays.then_some(left));
            left += usize::from(stays);
            stays
        });
        let references = std::mem::take(&mut self.references);
        let references = references.into_iter();
        self.references = references
            .filter_map(|(at, version)| Some((moved.get(at).copied()??, version)))
            .collect();
    }

    /// About how many bytes it takes in memory.
    pub fn memory(&self) -> usize {
        let blobs = self.frame.channels.values();
        let ids = blobs.map(|blob| blob.ids.as_ref().map_or(0, Ids::len));
        let ids = ID_BYTES * ids.sum::<usize>();
        let blobs = self.frame.channels.values();
        let stored = blobs.map(|blob| blob.full_bytes + blob.chain_bytes);
        let values = codec::memory(self.weight(), stored.sum());
        let checkpoint = &self.checkpoint;
        let in_row = checkpoint.values.iter();
        let in_row = in_row.filter(|(name, _)| !self.frame.channels.contains_key(*name));
        let in_row: usize = in_row.map(|(_, value)| value.memory()).sum();
        1024 + values
            + in_row
            + checkpoint.metadata.memory()
            + ids
            + 128 * checkpoint.versions.len()
    }

    /// What its values weigh that are rows of their own, with what they build on.
    pub fn weight(&self) -> u64 {
        let blobs = self.frame.channels.values();
        blobs.map(|blob| blob.weight).sum()
    }
}

/// Blobs by channel and version, to resolve chains of deltas.
pub struct Chains<'a>(HashMap<(&'a str, Version), &'a BlobRow>);

impl<'a> Chains<'a> {
    /// Indexes rows by channel and version.
    pub fn new(rows: &'a [BlobRow]) -> Self {
        Self(
            rows.iter()
                .map(|row| ((&*row.channel, row.version), row))
                .collect(),
        )
    }

    fn resolve(&self, channel: &str, version: Version) -> Result<Option<StoredValue>, String> {
        let Some(mut row) = self.0.get(&(channel, version)).copied() else {
            return Ok(None);
        };
        let (top, mut deltas) = (row, vec![]);
        let mut weight = row.weight();
        while let Some(base) = row.base {
            deltas.push(row);
            row =
                self.0.get(&(channel, base)).copied().ok_or_else(|| {
                    format!("version {base}, on which {version} builds, is missing")
                })?;
            weight += row.weight();
            if deltas.len() > self.0.len() {
                return Err("its versions build on each other in a circle".to_owned());
            }
        }
        let mut value = codec::decode(&row.tag, &row.bytes).map_err(|error| error.to_string())?;
        for delta in deltas.iter().rev() {
            let delta =
                delta::decode(&delta.tag, &delta.bytes).map_err(|error| error.to_string())?;
            value = delta::apply(value, &delta).map_err(|error| error.to_string())?;
        }
        Ok(Some(StoredValue {
            version,
            value,
            chain_bytes: usize::try_from(top.chain_bytes).unwrap_or(0),
            full_bytes: row.bytes.len(),
            weight,
            ids: None,
        }))
    }

    /// The items that a delta appended, which a reference in a write points to.
    ///
    /// # Errors
    /// The row cannot be read.
    pub fn items(&self, channel: &str, version: Version) -> Result<Option<Value>, String> {
        let Some(row) = self.0.get(&(channel, version)) else {
            return Ok(None);
        };
        let delta = delta::decode(&row.tag, &row.bytes).map_err(|error| error.to_string())?;
        Ok(Some(Value::list(delta.items)))
    }
}
