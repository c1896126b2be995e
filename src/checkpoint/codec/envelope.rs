//! The binary form of what a checkpoint's row holds beside its columns.
//!
//! After a format byte: the names of all channels, those with a version first; the versions; the
//! values; what each node consumed; the updated channels; the task. Channels are named by their
//! position, so that each name is there once. Numbers are bincode's variable-length integers, the
//! random part of a version is four bytes.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bincode::de::{BorrowDecode, BorrowDecoder, Decode};
use bincode::enc::write::Writer;
use bincode::enc::{Encode, Encoder};
use bincode::error::{DecodeError, EncodeError};
use uuid::Uuid;

use super::{CONFIG, Error, Keys, MAX_BYTES, MAX_DEPTH, read, read_len, read_str, write_bytes};
use crate::{
    checkpoint::{Version, Versions},
    id::TaskId,
    value::Value,
};

/// The version of this form, its first byte. JSON text, the earlier form, begins with a brace.
const FORMAT: u8 = 1;

/// Capacity is reserved for at most this many items ahead of reading them.
const AHEAD: usize = 256;

/// What a checkpoint's row holds beside its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<'a> {
    /// The version of every channel that was ever written.
    pub versions: Cow<'a, Versions>,
    /// Values that are stored here rather than as blobs.
    pub values: Vec<(Arc<str>, Value)>,
    /// For every node the versions of its triggers when it last ran.
    pub consumed: Cow<'a, BTreeMap<Arc<str>, Versions>>,
    /// The channels that the last superstep updated.
    pub updated: Updated,
    /// The client's own task, in a checkpoint that stands for one.
    pub task: Option<TaskId>,
}

/// The channels that the last superstep updated.
#[derive(Clone, Debug, PartialEq)]
pub enum Updated {
    /// Those with a value that have the newest version, which is the rule.
    Newest,
    /// Nobody knows them: no superstep wrote the checkpoint.
    Unknown,
    /// These.
    Names(Vec<Arc<str>>),
}

/// How the list of updated channels is stored. Never renumber.
mod updated {
    pub(super) const NEWEST: u8 = 0;
    pub(super) const UNKNOWN: u8 = 1;
    pub(super) const NAMES: u8 = 2;
}

/// Encodes an envelope.
pub fn encode(envelope: &Envelope<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.push(FORMAT);
    // Fails only when the writer fails, and memory does not.
    let result = bincode::encode_into_std_write(envelope, &mut out, CONFIG);
    debug_assert!(result.is_ok(), "envelopes are always encodable: {result:?}");
    out
}

/// Decodes an envelope. Safe on any bytes.
///
/// # Errors
/// The bytes are not of this form.
pub fn decode(bytes: &[u8]) -> Result<Envelope<'static>, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::TooLong(bytes.len()));
    }
    let Some((&format, content)) = bytes.split_first() else {
        return Err(Error::Damaged("it is empty".into()));
    };
    if format != FORMAT {
        return Err(Error::Format(format));
    }
    let (envelope, used) = bincode::borrow_decode_from_slice(content, CONFIG)
        .map_err(|error| Error::Damaged(error.to_string()))?;
    match content.len() - used {
        0 => Ok(envelope),
        left => Err(Error::Trailing(left)),
    }
}

/// The names of channels: those with a version, in their order, and the others behind them.
struct Names<'a> {
    versioned: Vec<&'a str>,
    others: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(envelope: &'a Envelope<'_>) -> Self {
        let mut names = Self {
            versioned: envelope.versions.keys().map(|name| &**name).collect(),
            others: Vec::new(),
        };
        let updated: &[Arc<str>] = match &envelope.updated {
            Updated::Names(names) => names,
            Updated::Newest | Updated::Unknown => &[],
        };
        let consumed = envelope.consumed.values().flat_map(BTreeMap::keys);
        let valued = envelope.values.iter().map(|(name, _)| name);
        for name in valued.chain(consumed).chain(updated) {
            if names.position(name).is_none() {
                names.others.push(name);
            }
        }
        names
    }

    fn position(&self, name: &str) -> Option<usize> {
        let versioned = self.versioned.binary_search(&name).ok();
        versioned.or_else(|| {
            let other = self.others.iter().position(|other| *other == name)?;
            Some(self.versioned.len() + other)
        })
    }

    fn encode<E: Encoder>(&self, name: &str, encoder: &mut E) -> Result<(), EncodeError> {
        let position = self.position(name);
        let position = position.ok_or(EncodeError::Other("a channel has no position"))?;
        (position as u64).encode(encoder)
    }
}

impl Encode for Envelope<'_> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let names = Names::of(self);
        (names.versioned.len() as u64).encode(encoder)?;
        (names.others.len() as u64).encode(encoder)?;
        for name in names.versioned.iter().chain(&names.others) {
            write_bytes(name.as_bytes(), encoder)?;
        }
        for version in self.versions.values() {
            version.counter.encode(encoder)?;
            encoder.writer().write(&version.salt.to_le_bytes())?;
        }
        (self.values.len() as u64).encode(encoder)?;
        for (name, value) in &self.values {
            names.encode(name, encoder)?;
            value.encode(encoder)?;
        }
        (self.consumed.len() as u64).encode(encoder)?;
        for (node, versions) in self.consumed.iter() {
            write_bytes(node.as_bytes(), encoder)?;
            (versions.len() as u64).encode(encoder)?;
            for (name, version) in versions {
                names.encode(name, encoder)?;
                // As a rule the node consumed what the channel still has.
                let is_current = self.versions.get(name) == Some(version);
                is_current.encode(encoder)?;
                if !is_current {
                    version.counter.encode(encoder)?;
                    encoder.writer().write(&version.salt.to_le_bytes())?;
                }
            }
        }
        match &self.updated {
            Updated::Newest => updated::NEWEST.encode(encoder)?,
            Updated::Unknown => updated::UNKNOWN.encode(encoder)?,
            Updated::Names(channels) => {
                updated::NAMES.encode(encoder)?;
                (channels.len() as u64).encode(encoder)?;
                for name in channels {
                    names.encode(name, encoder)?;
                }
            }
        }
        self.task.is_some().encode(encoder)?;
        match &self.task {
            Some(task) => encoder.writer().write(task.0.as_bytes()),
            None => Ok(()),
        }
    }
}

impl<'de, C> BorrowDecode<'de, C> for Envelope<'static> {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        let versioned = read_len(decoder)?;
        let others = read_len(decoder)?;
        let count = versioned.checked_add(others);
        let count = count.ok_or(DecodeError::Other("it has too many channels"))?;
        let mut names: Vec<Arc<str>> = Vec::with_capacity(count.min(AHEAD));
        for _ in 0..count {
            names.push(read_str(decoder)?.into());
        }
        let mut versions = Versions::new();
        for name in names.iter().take(versioned) {
            versions.insert(name.clone(), read_version(decoder)?);
        }
        let len = read_len(decoder)?;
        let mut values = Vec::with_capacity(len.min(AHEAD));
        let mut keys = Keys::default();
        for _ in 0..len {
            let name = read_name(decoder, &names)?;
            values.push((name, read(decoder, MAX_DEPTH, &mut keys)?));
        }
        let mut consumed = BTreeMap::new();
        for _ in 0..read_len(decoder)? {
            let node: Arc<str> = read_str(decoder)?.into();
            let mut of_node = Versions::new();
            for _ in 0..read_len(decoder)? {
                let name = read_name(decoder, &names)?;
                let version = if bool::decode(decoder)? {
                    *versions
                        .get(&name)
                        .ok_or(DecodeError::Other("a consumed channel has no version"))?
                } else {
                    read_version(decoder)?
                };
                of_node.insert(name, version);
            }
            consumed.insert(node, of_node);
        }
        let updated = match u8::decode(decoder)? {
            updated::NEWEST => Updated::Newest,
            updated::UNKNOWN => Updated::Unknown,
            updated::NAMES => {
                let len = read_len(decoder)?;
                let mut channels = Vec::with_capacity(len.min(AHEAD));
                for _ in 0..len {
                    channels.push(read_name(decoder, &names)?);
                }
                Updated::Names(channels)
            }
            _ => return Err(DecodeError::Other("its updated channels are unreadable")),
        };
        let task = if bool::decode(decoder)? {
            Some(TaskId(Uuid::from_bytes(read_array(decoder)?)))
        } else {
            None
        };
        Ok(Self {
            versions: Cow::Owned(versions),
            values,
            consumed: Cow::Owned(consumed),
            updated,
            task,
        })
    }
}

fn read_name<'de, D: BorrowDecoder<'de>>(
    decoder: &mut D,
    names: &[Arc<str>],
) -> Result<Arc<str>, DecodeError> {
    let position = read_len(decoder)?;
    let name = names.get(position).cloned();
    name.ok_or(DecodeError::Other("a channel has no name"))
}

fn read_version<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<Version, DecodeError> {
    Ok(Version {
        counter: u64::decode(decoder)?,
        salt: u32::from_le_bytes(read_array(decoder)?),
    })
}

/// Bytes of a fixed number.
fn read_array<'de, const N: usize, D: BorrowDecoder<'de>>(
    decoder: &mut D,
) -> Result<[u8; N], DecodeError> {
    use bincode::de::read::Reader as _;
    decoder.claim_bytes_read(N)?;
    let mut bytes = [0; N];
    decoder.reader().read(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(counter: u64) -> Version {
        Version {
            counter,
            salt: 0x00ab_cdef,
        }
    }

    fn full() -> Envelope<'static> {
        let versions =
            BTreeMap::from([("a".into(), version(3)), ("nul\0".into(), version(1 << 40))]);
        let consumed = BTreeMap::from([
            ("__input__".into(), BTreeMap::new()),
            (
                "n".into(),
                BTreeMap::from([("a".into(), version(2)), ("gone".into(), version(0))]),
            ),
            ("o".into(), BTreeMap::from([("a".into(), version(3))])),
        ]);
        Envelope {
            versions: Cow::Owned(versions),
            values: vec![
                ("a".into(), Value::from("x\0")),
                ("b".into(), Value::Int(-1)),
            ],
            consumed: Cow::Owned(consumed),
            updated: Updated::Names(vec!["a".into(), "other".into()]),
            task: Some(TaskId(Uuid::from_u128(7))),
        }
    }

    #[test]
    fn an_envelope_comes_back_as_it_was() {
        let mut envelope = full();
        for updated in [envelope.updated.clone(), Updated::Newest, Updated::Unknown] {
            envelope.updated = updated;
            assert_eq!(decode(&encode(&envelope)).unwrap(), envelope);
        }
        envelope.task = None;
        envelope.values.clear();
        assert_eq!(decode(&encode(&envelope)).unwrap(), envelope);
    }

    #[test]
    fn the_bytes_of_an_envelope_do_not_change() {
        let bytes = encode(&full());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0102030161046e756c00016204676f6e65056f7468657203efcdab00fd000000000001\
             0000efcdab0002000602780002030103095f5f696e7075745f5f00016e02000002efcd\
             ab00030000efcdab00016f010001020200040100000000000000000000000000000007"
        );
    }

    #[test]
    fn cut_and_changed_envelopes_are_errors_and_never_panic() {
        let bytes = encode(&full());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0xfb, 0xfc, 0xfd, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let _ = decode(&changed);
            }
        }
        let mut long = bytes;
        long.push(0);
        assert!(matches!(decode(&long), Err(Error::Trailing(1))));
        assert!(matches!(decode(&[9]), Err(Error::Format(9))));
    }
}
