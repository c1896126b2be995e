//! Between checkpoints and rows: which values go into the envelope, which become blobs, and
//! which of those are deltas on a version that is stored already.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    BlobRow, Checkpoint, CheckpointRow, Error, Pending, Stored, Version, Versions, WriteRow, codec,
    delta,
};
use crate::{
    channel::Shape,
    id::{BranchId, CheckpointId},
    value::{Map, Value},
};

/// A full row is written when the deltas since the last one reach this, or its size if greater.
const CHAIN_FLOOR: usize = 32 * 1024;

/// What is stored of each channel: the base of the next deltas.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    channels: HashMap<Arc<str>, Held>,
}

/// A channel value that lies in the blobs.
#[derive(Clone, Debug)]
struct Held {
    version: Version,
    value: Value,
    /// Bytes of deltas since the last full value.
    chain_bytes: usize,
    /// Bytes of that full value.
    full_bytes: usize,
}

/// A delta that was just made: a task's write of the same items may refer to it.
pub struct Made {
    /// The version it makes.
    pub version: Version,
    /// The items it adds.
    pub items: Vec<Value>,
}

/// Rows of one checkpoint.
pub struct Encoded {
    /// The row.
    pub row: CheckpointRow,
    /// New values.
    pub blobs: Vec<BlobRow>,
    /// Deltas among them that only append, by channel.
    pub appended: HashMap<Arc<str>, Made>,
}

impl Frame {
    /// Encodes `checkpoint` on top of what is stored, and holds the result.
    ///
    /// `shape` tells how a channel grows. Only versions that are not stored yet make rows.
    pub fn encode(
        &mut self,
        ns: &Arc<str>,
        checkpoint: &Checkpoint,
        shape: impl Fn(&str) -> Shape,
    ) -> Encoded {
        let mut blobs = vec![];
        let mut appended = HashMap::new();
        let mut envelope = String::with_capacity(512);
        envelope.push_str("{\"v\":4,\"channel_values\":{");
        let mut first = true;
        for (name, value) in &checkpoint.values {
            let Some(version) = checkpoint.versions.get(name) else {
                continue;
            };
            if fits_jsonb(name, value) {
                self.channels.remove(name);
                comma(&mut envelope, &mut first);
                quote(&mut envelope, name);
                envelope.push(':');
                envelope.push_str(&value.to_json());
                continue;
            }
            if self
                .channels
                .get(name)
                .is_some_and(|held| held.version == *version)
            {
                continue;
            }
            let (row, held, made) = blob(
                ns,
                name,
                *version,
                value,
                self.channels.get(name),
                shape(name),
            );
            if let Some(made) = made {
                appended.insert(name.clone(), made);
            }
            self.channels.insert(name.clone(), held);
            blobs.push(row);
        }
        self.channels
            .retain(|name, _| checkpoint.values.contains_key(name));
        envelope.push_str("},\"channel_versions\":");
        write_versions(&mut envelope, &checkpoint.versions);
        envelope.push_str(",\"versions_seen\":{");
        first = true;
        for (node, versions) in &checkpoint.seen {
            comma(&mut envelope, &mut first);
            quote(&mut envelope, node);
            envelope.push(':');
            write_versions(&mut envelope, versions);
        }
        envelope.push('}');
        if let Some(updated) = &checkpoint.updated {
            envelope.push_str(",\"updated_channels\":[");
            first = true;
            for name in updated {
                comma(&mut envelope, &mut first);
                quote(&mut envelope, name);
            }
            envelope.push(']');
        }
        envelope.push('}');
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
                metadata: without_nul(&checkpoint.metadata),
                created_at: checkpoint.created_at,
            },
            blobs,
            appended,
        }
    }
}

/// A blob row for `value`: a delta on what is held where that is shorter, else the full value.
fn blob(
    ns: &Arc<str>,
    name: &Arc<str>,
    version: Version,
    value: &Value,
    held: Option<&Held>,
    shape: Shape,
) -> (BlobRow, Held, Option<Made>) {
    let grows = !matches!(shape, Shape::Plain);
    let delta = held.filter(|_| grows).and_then(|held| {
        let (old, new) = (held.value.as_list()?, value.as_list()?);
        let delta = delta::diff(old, new)?;
        let bytes = delta::encode(&delta);
        let chain = held.chain_bytes + bytes.len();
        (chain < CHAIN_FLOOR.max(held.full_bytes)).then_some((held, old.len(), delta, bytes, chain))
    });
    if let Some((base, old_len, delta, bytes, chain)) = delta {
        let made = (delta.keep == old_len).then(|| Made {
            version,
            items: delta.items,
        });
        let row = BlobRow {
            ns: ns.clone(),
            channel: name.clone(),
            version,
            base: Some(base.version),
            chain_bytes: i32::try_from(chain).unwrap_or(i32::MAX),
            tag: codec::BINCODE.into(),
            bytes,
        };
        let held = Held {
            version,
            value: value.clone(),
            chain_bytes: chain,
            full_bytes: base.full_bytes,
        };
        return (row, held, made);
    }
    let bytes = codec::encode(value);
    let held = Held {
        version,
        value: value.clone(),
        chain_bytes: 0,
        full_bytes: bytes.len(),
    };
    let row = BlobRow {
        ns: ns.clone(),
        channel: name.clone(),
        version,
        base: None,
        chain_bytes: 0,
        tag: codec::BINCODE.into(),
        bytes,
    };
    (row, held, None)
}

/// A stored checkpoint, decoded.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// What is stored of it.
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
    let row = &stored.row;
    let corrupt = |what: String| Error::Corrupt(format!("checkpoint {}: {what}", row.id));
    let envelope = Value::from_json_slice(row.envelope.as_bytes())
        .map_err(|error| corrupt(format!("envelope: {error}")))?;
    let versions = read_versions(envelope.get("channel_versions"))
        .map_err(|error| corrupt(error.to_string()))?;
    let mut seen = BTreeMap::new();
    if let Some(map) = envelope.get("versions_seen").and_then(Value::as_map) {
        for (node, versions) in map {
            let versions =
                read_versions(Some(versions)).map_err(|error| corrupt(error.to_string()))?;
            seen.insert(node.clone(), versions);
        }
    }
    let updated = envelope
        .get("updated_channels")
        .and_then(Value::as_list)
        .map(|names| {
            names
                .iter()
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect()
        });
    let mut values = BTreeMap::new();
    if let Some(map) = envelope.get("channel_values").and_then(Value::as_map) {
        for (name, value) in map {
            values.insert(name.clone(), value.clone());
        }
    }
    let mut frame = Frame::default();
    let chains = Chains::new(&stored.blobs);
    for (name, version) in &versions {
        if values.contains_key(name) {
            continue;
        }
        let Some(held) = chains
            .resolve(name, *version)
            .map_err(|error| corrupt(format!("channel `{name}`: {error}")))?
        else {
            continue;
        };
        values.insert(name.clone(), held.value.clone());
        frame.channels.insert(name.clone(), held);
    }
    let metadata = Value::from_json_slice(row.metadata.as_bytes())
        .map_err(|error| corrupt(format!("metadata: {error}")))?;
    let checkpoint = Checkpoint {
        id: row.id,
        parent: row.parent,
        step: row.step,
        source: row.source,
        created_at: row.created_at,
        values,
        versions,
        seen,
        updated,
        metadata: metadata.as_map().cloned().unwrap_or_default(),
        run: row.run,
        thread: row.thread,
        branch: row.branch,
        depth: row.depth,
        root: row.root,
        last_node: row.last_node,
        event_number: row.event_number,
    };
    let (writes, references) = decode_writes(&stored.writes)?;
    Ok(Decoded {
        checkpoint,
        frame,
        writes,
        references,
    })
}

/// A checkpoint that was decoded before, with the pending writes it has now.
///
/// # Errors
/// A row that this version cannot read.
pub fn with_writes(cached: &Decoded, stored: &Stored) -> Result<Decoded, Error> {
    let (writes, references) = decode_writes(&stored.writes)?;
    Ok(Decoded {
        checkpoint: cached.checkpoint.clone(),
        frame: cached.frame.clone(),
        writes,
        references,
    })
}

impl Decoded {
    /// About how many bytes it takes in memory.
    pub fn weight(&self) -> usize {
        let held = self.frame.channels.values();
        let blobs: usize = held.map(|held| held.full_bytes + held.chain_bytes).sum();
        1024 + 2 * blobs + 128 * self.checkpoint.versions.len()
    }
}

/// Blobs by channel and version, to resolve chains of deltas.
pub struct Chains<'a>(HashMap<(&'a str, Version), &'a BlobRow>);

impl<'a> Chains<'a> {
    /// Indexes rows.
    pub fn new(rows: &'a [BlobRow]) -> Self {
        Self(
            rows.iter()
                .map(|row| ((&*row.channel, row.version), row))
                .collect(),
        )
    }

    fn resolve(&self, channel: &str, version: Version) -> Result<Option<Held>, String> {
        let Some(mut row) = self.0.get(&(channel, version)).copied() else {
            return Ok(None);
        };
        let (top, mut deltas) = (row, vec![]);
        while let Some(base) = row.base {
            deltas.push(row);
            row =
                self.0.get(&(channel, base)).copied().ok_or_else(|| {
                    format!("version {base}, on which {version} builds, is missing")
                })?;
            if deltas.len() > self.0.len() {
                return Err("its versions build on each other in a circle".to_owned());
            }
        }
        let mut value = codec::decode(&row.tag, &row.bytes).map_err(|error| error.to_string())?;
        for delta in deltas.iter().rev() {
            let delta = delta::decode(&delta.bytes).map_err(|error| error.to_string())?;
            value = delta::apply(value, &delta).map_err(|error| error.to_string())?;
        }
        Ok(Some(Held {
            version,
            value,
            chain_bytes: usize::try_from(top.chain_bytes).unwrap_or(0),
            full_bytes: row.bytes.len(),
        }))
    }

    /// The items a delta appended: what a reference in a write stands for.
    ///
    /// # Errors
    /// The row cannot be read.
    pub fn items(&self, channel: &str, version: Version) -> Result<Option<Value>, String> {
        let Some(row) = self.0.get(&(channel, version)) else {
            return Ok(None);
        };
        let delta = delta::decode(&row.bytes).map_err(|error| error.to_string())?;
        Ok(Some(Value::list(delta.items)))
    }
}

/// Encodes the writes of one task: one row of output, one row per control channel.
///
/// With `appended` a write whose value is what a delta added is stored as a reference to it.
pub fn encode_writes(
    ns: &Arc<str>,
    checkpoint: CheckpointId,
    branch: BranchId,
    writes: &[Pending],
    appended: Option<&HashMap<Arc<str>, Made>>,
) -> Vec<WriteRow> {
    let Some(first) = writes.first() else {
        return vec![];
    };
    let (task, path) = (first.task, first.path.clone());
    let control_only = writes.iter().all(|write| write.idx < 0);
    let row = |idx, channel, value: Value, upsert: bool| WriteRow {
        ns: ns.clone(),
        checkpoint,
        branch,
        task,
        idx,
        path: path.clone(),
        channel,
        tag: codec::BINCODE.into(),
        bytes: codec::encode(&value),
        upsert,
    };
    let mut rows: Vec<WriteRow> = vec![];
    let mut output = vec![];
    for write in writes {
        let entry = |value: Value| {
            Value::list(vec![
                Value::Int(write.idx.into()),
                Value::Str(write.channel.clone()),
                value,
            ])
        };
        if write.idx < 0 {
            // Of several writes to one control channel the last one counts.
            rows.retain(|row| row.idx != write.idx);
            let list = Value::list(vec![entry(write.value.clone())]);
            rows.push(row(
                write.idx,
                Some(write.channel.clone()),
                list,
                control_only,
            ));
            continue;
        }
        let made = appended
            .and_then(|appended| appended.get(&write.channel))
            .filter(|made| write.value.as_list() == Some(&made.items));
        output.push(match made {
            Some(made) => Value::list(vec![
                Value::Int(write.idx.into()),
                Value::Str(write.channel.clone()),
                Value::Null,
                made.version.to_string().into(),
            ]),
            None => entry(write.value.clone()),
        });
    }
    if !output.is_empty() {
        // The client's own writes grow from command to command: each one stores all of them.
        let grows = task == crate::id::TaskId::NULL;
        rows.push(row(0, None, Value::list(output), grows));
    }
    rows
}

type DecodedWrites = (Vec<(BranchId, Pending)>, Vec<(usize, Version)>);

/// Decodes rows of writes, ordered by path, task and index.
fn decode_writes(rows: &[WriteRow]) -> Result<DecodedWrites, Error> {
    let (mut writes, mut references) = (vec![], vec![]);
    for row in rows {
        let corrupt = |what: &str| Error::Corrupt(format!("writes of task {}: {what}", row.task));
        let list =
            codec::decode(&row.tag, &row.bytes).map_err(|error| corrupt(&error.to_string()))?;
        let list = list.as_list().ok_or_else(|| corrupt("not a list"))?;
        for entry in list {
            let fields = entry
                .as_list()
                .ok_or_else(|| corrupt("an entry is no list"))?;
            let (Some(idx), Some(channel), Some(value)) = (
                fields.first().and_then(Value::as_i64),
                fields.get(1).and_then(Value::as_str),
                fields.get(2),
            ) else {
                return Err(corrupt("an entry lacks a field"));
            };
            if let Some(version) = fields.get(3).and_then(Value::as_str) {
                let version = version.parse().map_err(|_| corrupt("a bad reference"))?;
                references.push((writes.len(), version));
            }
            writes.push((
                row.branch,
                Pending {
                    task: row.task,
                    path: row.path.clone(),
                    idx: i32::try_from(idx).map_err(|_| corrupt("an index is out of range"))?,
                    channel: channel.into(),
                    value: value.clone(),
                },
            ));
        }
    }
    Ok((writes, references))
}

/// Whether JSONB gives this value back as it was, under this name.
fn fits_jsonb(name: &str, value: &Value) -> bool {
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
            Value::Str(text) => !text.contains('\0'),
            _ => false,
        }
}

fn comma(out: &mut String, first: &mut bool) {
    if !std::mem::take(first) {
        out.push(',');
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

fn write_versions(out: &mut String, versions: &Versions) {
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

fn read_versions(value: Option<&Value>) -> Result<Versions, super::BadVersion> {
    let mut versions = Versions::new();
    if let Some(map) = value.and_then(Value::as_map) {
        for (name, version) in map {
            versions.insert(name.clone(), version.as_str().unwrap_or_default().parse()?);
        }
    }
    Ok(versions)
}

/// Metadata as JSON text. JSONB refuses NUL, so it is stripped, as LangGraph does.
fn without_nul(metadata: &Map) -> String {
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
    match text.contains("\\u0000") {
        true => Value::map(strip_map(metadata)).to_json(),
        false => text,
    }
}
