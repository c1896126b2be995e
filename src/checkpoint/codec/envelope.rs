//! The binary form of what a checkpoint's row holds beside its columns.
//!
//! After a format byte: the names of all channels, those with a version first; a table of the
//! different versions; which version each channel has; the values; what each node consumed; the
//! updated channels; the task. Channels and versions are named by their position, so that each is
//! there once. Numbers are bincode's variable-length integers, the random part of a version is four
//! bytes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use bincode::de::{BorrowDecode, BorrowDecoder, Decode};
use bincode::enc::write::Writer;
use bincode::enc::{Encode, Encoder};
use bincode::error::{DecodeError, EncodeError};
use uuid::Uuid;

use super::{
    CONFIG, Error, Keys, MAX_BYTES, MAX_DEPTH, read, read_array, read_len, read_word, take_bytes,
    text_of, words,
};
use crate::{
    checkpoint::{Version, Versions},
    id::TaskId,
    value::Value,
};

mod earlier;

/// The version of this form, its first byte. JSON text, the first form, begins with a brace.
const FORMAT: u8 = 2;

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

/// Beside the form of the updated channels: a task follows.
const HAS_TASK: u8 = 4;

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
    let decoded = match format {
        earlier::FORMAT => bincode::borrow_decode_from_slice(content, CONFIG)
            .map(|(earlier::Envelope(envelope), used)| (envelope, used)),
        FORMAT => bincode::borrow_decode_from_slice(content, CONFIG),
        other => return Err(Error::Format(other)),
    };
    let (envelope, used) = decoded.map_err(|error| Error::Damaged(error.to_string()))?;
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

    /// The position of the channel by which branches start a node, of those with a version.
    fn branch_to(&self, node: &str) -> Option<usize> {
        let name = [words::BRANCH, node].concat();
        self.versioned.binary_search(&&*name).ok()
    }

    fn encode<E: Encoder>(&self, name: &str, encoder: &mut E) -> Result<(), EncodeError> {
        let position = self.position(name);
        let position = position.ok_or(EncodeError::Other("a channel has no position"))?;
        (position as u64).encode(encoder)
    }
}

/// The different versions of an envelope: those that channels have, and others that nodes consumed.
#[derive(Default)]
struct VersionTable {
    versions: Vec<Version>,
    /// Where each is, for what is encoded.
    positions: HashMap<Version, u64>,
}

impl VersionTable {
    fn of(envelope: &Envelope<'_>) -> Self {
        let mut table = Self::default();
        let consumed = envelope.consumed.values().flat_map(BTreeMap::values);
        for version in envelope.versions.values().chain(consumed) {
            let next = table.versions.len() as u64;
            if let Entry::Vacant(entry) = table.positions.entry(*version) {
                entry.insert(next);
                table.versions.push(*version);
            }
        }
        table
    }

    fn encode_position<E: Encoder>(
        &self,
        version: &Version,
        encoder: &mut E,
    ) -> Result<(), EncodeError> {
        let position = self.positions.get(version);
        let position = position.ok_or(EncodeError::Other("a version has no position"))?;
        position.encode(encoder)
    }
}

impl Encode for VersionTable {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        (self.versions.len() as u64).encode(encoder)?;
        // The counters are near each other, so that what each lacks to the greatest is short.
        let greatest = self.versions.iter().map(|version| version.counter).max();
        let Some(greatest) = greatest else {
            return Ok(());
        };
        greatest.encode(encoder)?;
        self.versions.iter().try_for_each(|version| {
            (greatest - version.counter).encode(encoder)?;
            encoder.writer().write(&version.salt.to_le_bytes())
        })
    }
}

impl<'de, C> BorrowDecode<'de, C> for VersionTable {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        let len = read_len(decoder)?;
        if len == 0 {
            return Ok(Self::default());
        }
        let greatest = u64::decode(decoder)?;
        let mut table = Vec::with_capacity(len.min(AHEAD));
        for _ in 0..len {
            let counter = greatest.checked_sub(u64::decode(decoder)?);
            table.push(Version {
                counter: counter.ok_or(DecodeError::Other("a version is below zero"))?,
                salt: u32::from_le_bytes(read_array(decoder)?),
            });
        }
        Ok(Self {
            versions: table,
            ..Self::default()
        })
    }
}

impl Encode for Envelope<'_> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let names = Names::of(self);
        (names.versioned.len() as u64).encode(encoder)?;
        (names.others.len() as u64).encode(encoder)?;
        for name in names.versioned.iter().chain(&names.others) {
            write_name(name, encoder)?;
        }
        let table = VersionTable::of(self);
        table.encode(encoder)?;
        for version in self.versions.values() {
            table.encode_position(version, encoder)?;
        }
        (self.values.len() as u64).encode(encoder)?;
        for (name, value) in &self.values {
            names.encode(name, encoder)?;
            value.encode(encoder)?;
        }
        (self.consumed.len() as u64).encode(encoder)?;
        for (node, versions) in self.consumed.iter() {
            match names.branch_to(node) {
                Some(position) => (4 * position as u64 + name::STARTED).encode(encoder)?,
                None => write_name(node, encoder)?,
            }
            (versions.len() as u64).encode(encoder)?;
            for (name, version) in versions {
                names.encode(name, encoder)?;
                table.encode_position(version, encoder)?;
            }
        }
        let form = match &self.updated {
            Updated::Newest => updated::NEWEST,
            Updated::Unknown => updated::UNKNOWN,
            Updated::Names(_) => updated::NAMES,
        };
        (form | if self.task.is_some() { HAS_TASK } else { 0 }).encode(encoder)?;
        if let Updated::Names(channels) = &self.updated {
            (channels.len() as u64).encode(encoder)?;
            for name in channels {
                names.encode(name, encoder)?;
            }
        }
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
            names.push(read_name(decoder)?);
        }
        let table = VersionTable::borrow_decode(decoder)?;
        let mut versions = Versions::new();
        for name in names.iter().take(versioned) {
            versions.insert(name.clone(), at_position(decoder, &table.versions)?);
        }
        let len = read_len(decoder)?;
        let mut values = Vec::with_capacity(len.min(AHEAD));
        let mut keys = Keys::default();
        for _ in 0..len {
            let name = at_position(decoder, &names)?;
            values.push((name, read(decoder, MAX_DEPTH, &mut keys)?));
        }
        let mut consumed = BTreeMap::new();
        for _ in 0..read_len(decoder)? {
            let node = read_node(decoder, &names)?;
            let mut of_node = Versions::new();
            for _ in 0..read_len(decoder)? {
                let name = at_position(decoder, &names)?;
                of_node.insert(name, at_position(decoder, &table.versions)?);
            }
            // Each repetition takes two bytes here and a copy of the whole name in memory.
            if consumed.insert(node, of_node).is_some() {
                return Err(DecodeError::Other("a node stands there twice"));
            }
        }
        let form = u8::decode(decoder)?;
        let updated = match form & !HAS_TASK {
            updated::NEWEST => Updated::Newest,
            updated::UNKNOWN => Updated::Unknown,
            updated::NAMES => {
                let len = read_len(decoder)?;
                let mut channels = Vec::with_capacity(len.min(AHEAD));
                for _ in 0..len {
                    channels.push(at_position(decoder, &names)?);
                }
                Updated::Names(channels)
            }
            _ => return Err(DecodeError::Other("its updated channels are unreadable")),
        };
        let task = if form & HAS_TASK != 0 {
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

/// How the name of a channel or node is stored: the remainder of its number by four.
mod name {
    /// A fourth of the number is the length of the text that follows.
    pub(super) const TEXT: u64 = 0;
    /// A fourth of the number is that of a word.
    pub(super) const WORD: u64 = 1;
    /// As [`TEXT`], and [`super::words::BRANCH`] comes before it.
    pub(super) const BRANCH: u64 = 2;
    /// Of nodes: a fourth of the number is the position of the channel by which branches start it.
    pub(super) const STARTED: u64 = 3;
}

fn write_name<E: Encoder>(name: &str, encoder: &mut E) -> Result<(), EncodeError> {
    if let Some(number) = words::number(name) {
        return (4 * number + name::WORD).encode(encoder);
    }
    let (form, text) = match name.strip_prefix(words::BRANCH) {
        Some(rest) => (name::BRANCH, rest),
        None => (name::TEXT, name),
    };
    (4 * text.len() as u64 + form).encode(encoder)?;
    encoder.writer().write(text.as_bytes())
}

fn read_name<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<Arc<str>, DecodeError> {
    let number = u64::decode(decoder)?;
    name_of(number, decoder)
}

fn read_node<'de, D: BorrowDecoder<'de>>(
    decoder: &mut D,
    names: &[Arc<str>],
) -> Result<Arc<str>, DecodeError> {
    let number = u64::decode(decoder)?;
    if number % 4 != name::STARTED {
        return name_of(number, decoder);
    }
    let position = usize::try_from(number / 4).ok();
    let channel = position.and_then(|position| names.get(position));
    let node = channel.and_then(|channel| channel.strip_prefix(words::BRANCH));
    let node = node.ok_or(DecodeError::Other("no branch starts a node"))?;
    Ok(node.into())
}

fn name_of<'de, D: BorrowDecoder<'de>>(
    number: u64,
    decoder: &mut D,
) -> Result<Arc<str>, DecodeError> {
    let (form, rest) = (number % 4, number / 4);
    if form == name::WORD {
        return Ok(read_word(rest)?.into());
    }
    let len = usize::try_from(rest).map_err(|_| DecodeError::OutsideUsizeRange(rest))?;
    let text = text_of(take_bytes(decoder, len)?)?;
    match form {
        name::TEXT => Ok(text.into()),
        name::BRANCH => Ok([words::BRANCH, text].concat().into()),
        _ => Err(DecodeError::Other("a name is stored in an unknown way")),
    }
}

/// What the position that follows leads to in a table.
fn at_position<'de, T: Clone, D: BorrowDecoder<'de>>(
    decoder: &mut D,
    table: &[T],
) -> Result<T, DecodeError> {
    let position = read_len(decoder)?;
    let found = table.get(position).cloned();
    found.ok_or(DecodeError::Other("a position leads nowhere"))
}

#[cfg(test)]
mod tests;
