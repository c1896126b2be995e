//! How values become bytes and come back. The only file that names bincode.
//!
//! Every stored value has a tag beside it. `b` (`bincode` in rows of earlier versions) is this program's own
//! form: a format byte, then per value a kind byte and its content in bincode's standard configuration
//! (variable-length integers, little endian). A text that is a UUID takes its 16 bytes, one that is a
//! well-known word its number. `json` is JSON text, which is readable in the database; a setting decides in which of
//! both new values are [written](Format). A number behind `b` or `json` is the multiple of its bytes that a value
//! [weighs](weight()). `null` is null without bytes. Anything else is stored as an opaque value and never interpreted.

use std::sync::Arc;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::de::read::BorrowReader;
use bincode::de::{BorrowDecode, BorrowDecoder, Decode};
use bincode::enc::write::Writer;
use bincode::enc::{Encode, Encoder};
use bincode::error::{DecodeError, EncodeError};
use bytes::Bytes;
use uuid::Uuid;

use crate::value::{self, JsonError, Map, Opaque, Value};

pub(crate) mod envelope;
mod weight;
mod words;

pub use weight::{IN_MEMORY, JSON_TEXT, memory, tag_of_results, weight};

/// Tag of this program's own binary form: one character, since every row has it.
pub const BINCODE: &str = "b";
/// The same tag in rows of earlier versions.
const BINCODE_IN_FULL: &str = "bincode";
/// Tag of JSON text.
pub const JSON: &str = "json";
/// Tag of the [results](super::results) of several tasks that share a row.
pub const RESULTS: &str = "results";
/// Tag of null, which has no bytes.
pub const NULL: &str = "null";

/// The version of the binary form, its first byte. Its earlier version, 1, is read: it has maps
/// with whole names, and texts that are stored as such.
const FORMAT: u8 = 2;
const OLDEST_FORMAT: u8 = 1;

/// How many bytes a stored value may have: the most a Postgres field holds.
pub const MAX_BYTES: usize = 1 << 30;

/// How deeply a stored value may be nested: as deeply as values from outside, and a few levels
/// more for the lists that the engine wraps around them.
pub const MAX_DEPTH: usize = value::MAX_DEPTH + 8;

const CONFIG: Configuration<LittleEndian, Varint, Limit<MAX_BYTES>> =
    bincode::config::standard().with_limit::<MAX_BYTES>();

/// The kind byte of each value. Stored: never renumber.
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const UINT: u8 = 4;
    pub(super) const FLOAT: u8 = 5;
    pub(super) const STR: u8 = 6;
    pub(super) const BYTES: u8 = 7;
    pub(super) const LIST: u8 = 8;
    pub(super) const MAP: u8 = 9;
    pub(super) const OPAQUE: u8 = 10;
    /// A text: a number of [`super::words`].
    pub(super) const WORD: u8 = 11;
    /// A text: the 16 bytes of a UUID, which it is in lower case and with hyphens.
    pub(super) const UUID: u8 = 12;
    /// A text: what follows on [`super::words::BRANCH`].
    pub(super) const BRANCH: u8 = 13;
    /// A map whose names are words or texts of their own.
    pub(super) const FIELDS: u8 = 14;
}

/// Why stored bytes are not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Written by a later version of this program.
    #[error(
        "binary value of format {0}; this version reads formats up to {FORMAT}: is it older than the one that wrote?"
    )]
    Format(u8),
    /// Cut off, damaged, or nested too deeply.
    #[error("damaged binary value: {0}")]
    Damaged(String),
    /// Bytes are left over after the value.
    #[error("damaged binary value: {0} bytes too many")]
    Trailing(usize),
    /// Longer than [`MAX_BYTES`].
    #[error("stored value of {0} bytes is longer than {MAX_BYTES}")]
    TooLong(usize),
    /// Damaged JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Bytes that are no delta, or one that does not fit its base.
    #[error("damaged delta: {0}")]
    Delta(String),
}

/// In which form values are written where there is a choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// The binary form.
    #[default]
    Bincode,
    /// JSON where that does not change the value, otherwise the binary form.
    Json,
}

/// Encodes a value in the binary form, for rows without a tag.
///
/// A value nested deeper than [`MAX_DEPTH`](crate::value::MAX_DEPTH) could not be decoded: such values are refused
/// where they are accepted (`Value::is_deeper_than`).
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(FORMAT);
    // Fails only when the writer fails, and memory does not.
    let result = bincode::encode_into_std_write(value, &mut out, CONFIG);
    debug_assert!(result.is_ok(), "values are always encodable: {result:?}");
    out
}

/// Encodes a value as the tag and the bytes of a row. An opaque value keeps its own tag and bytes.
pub fn encode_tagged(value: &Value, format: Format) -> (Arc<str>, Vec<u8>) {
    match value {
        Value::Opaque(opaque) if !is_known(&opaque.tag) => {
            (opaque.tag.clone(), opaque.bytes.to_vec())
        }
        value => encode_weighed(value, format),
    }
}

/// Encodes a value, opaque ones too, with the tag that says in which form it is and what it weighs.
pub fn encode_weighed(value: &Value, format: Format) -> (Arc<str>, Vec<u8>) {
    let text = match format {
        Format::Bincode => None,
        Format::Json => encode_json(value),
    };
    text.unwrap_or_else(|| encode_binary(value))
}

/// Encodes a value as JSON text, with its tag; `None` when that would change the value.
pub fn encode_json(value: &Value) -> Option<(Arc<str>, Vec<u8>)> {
    survives_json(value).then(|| {
        let bytes = value.to_json().into_bytes();
        (weight::tag(JSON, value, bytes.len()), bytes)
    })
}

/// Encodes two values whose rows have one tag for both.
pub fn encode_pair(one: &Value, other: &Value, format: Format) -> (Arc<str>, Vec<u8>, Vec<u8>) {
    let texts = match format {
        Format::Bincode => None,
        Format::Json => encode_json(one).zip(encode_json(other)),
    };
    let ((tag, bytes), (other_tag, other_bytes)) =
        texts.unwrap_or_else(|| (encode_binary(one), encode_binary(other)));
    (weight::heavier(tag, other_tag), bytes, other_bytes)
}

fn encode_binary(value: &Value) -> (Arc<str>, Vec<u8>) {
    let bytes = encode(value);
    (weight::tag(BINCODE, value, bytes.len()), bytes)
}

/// Whether a tag is that of JSON text.
pub fn is_json(tag: &str) -> bool {
    tag == JSON || tag.starts_with(JSON) && weight::times(tag).is_some()
}

fn is_known(tag: &str) -> bool {
    matches!(tag, BINCODE | BINCODE_IN_FULL | JSON | NULL) || weight::times(tag).is_some()
}

fn survives_json(value: &Value) -> bool {
    fn scan(value: &Value, depth: usize) -> bool {
        match value {
            Value::Bytes(_) | Value::Opaque(_) => false,
            Value::Float(f) => f.is_finite(),
            // The JSON reader stops one level before its limit.
            Value::List(items) => depth > 1 && items.iter().all(|item| scan(item, depth - 1)),
            Value::Map(map) => depth > 1 && map.values().all(|v| scan(v, depth - 1)),
            _ => true,
        }
    }
    scan(value, value::MAX_DEPTH)
}

/// Decodes a stored value by its tag. An unknown tag makes an opaque value.
///
/// Safe on any bytes: depth and size are limited, and no length found in the bytes is trusted
/// for an allocation.
///
/// # Errors
/// The bytes are not of the form that the tag names.
pub fn decode(tag: &str, bytes: &[u8]) -> Result<Value, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::TooLong(bytes.len()));
    }
    match tag {
        BINCODE | BINCODE_IN_FULL => decode_binary(bytes),
        tag if is_json(tag) => Ok(Value::from_json_slice(bytes)?),
        tag if weight::times(tag).is_some() => decode_binary(bytes),
        NULL if bytes.is_empty() => Ok(Value::Null),
        NULL => Err(Error::Trailing(bytes.len())),
        tag => Ok(Value::Opaque(Arc::new(Opaque {
            tag: tag.into(),
            bytes: Bytes::copy_from_slice(bytes),
        }))),
    }
}

fn decode_binary(bytes: &[u8]) -> Result<Value, Error> {
    let Some((&format, content)) = bytes.split_first() else {
        return Err(Error::Damaged("it is empty".into()));
    };
    if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
        return Err(Error::Format(format));
    }
    let (Root(value), used) = bincode::borrow_decode_from_slice(content, CONFIG)
        .map_err(|error| Error::Damaged(error.to_string()))?;
    match content.len() - used {
        0 => Ok(value),
        left => Err(Error::Trailing(left)),
    }
}

impl Encode for Value {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        match self {
            Value::Null => kind::NULL.encode(encoder),
            Value::Bool(false) => kind::FALSE.encode(encoder),
            Value::Bool(true) => kind::TRUE.encode(encoder),
            Value::Int(i) => {
                kind::INT.encode(encoder)?;
                i.encode(encoder)
            }
            Value::Uint(u) => {
                kind::UINT.encode(encoder)?;
                u.encode(encoder)
            }
            Value::Float(f) => {
                kind::FLOAT.encode(encoder)?;
                f.encode(encoder)
            }
            Value::Str(text) => write_text(text, encoder),
            Value::Bytes(bytes) => {
                kind::BYTES.encode(encoder)?;
                write_bytes(bytes, encoder)
            }
            Value::List(items) => {
                kind::LIST.encode(encoder)?;
                (items.len() as u64).encode(encoder)?;
                items.iter().try_for_each(|item| item.encode(encoder))
            }
            Value::Map(map) => {
                kind::FIELDS.encode(encoder)?;
                (map.len() as u64).encode(encoder)?;
                map.iter().try_for_each(|(key, value)| {
                    write_key(key, encoder)?;
                    value.encode(encoder)
                })
            }
            Value::Opaque(opaque) => {
                kind::OPAQUE.encode(encoder)?;
                write_bytes(opaque.tag.as_bytes(), encoder)?;
                write_bytes(&opaque.bytes, encoder)
            }
        }
    }
}

fn write_bytes<E: Encoder>(bytes: &[u8], encoder: &mut E) -> Result<(), EncodeError> {
    (bytes.len() as u64).encode(encoder)?;
    encoder.writer().write(bytes)
}

fn write_text<E: Encoder>(text: &str, encoder: &mut E) -> Result<(), EncodeError> {
    if let Some(number) = words::number(text) {
        kind::WORD.encode(encoder)?;
        number.encode(encoder)
    } else if let Some(uuid) = uuid_of(text) {
        kind::UUID.encode(encoder)?;
        encoder.writer().write(uuid.as_bytes())
    } else if let Some(rest) = text.strip_prefix(words::BRANCH) {
        kind::BRANCH.encode(encoder)?;
        write_bytes(rest.as_bytes(), encoder)
    } else {
        kind::STR.encode(encoder)?;
        write_bytes(text.as_bytes(), encoder)
    }
}

/// The name of a field: an odd number is twice a word's number and one, an even one twice the
/// length of the text that follows.
fn write_key<E: Encoder>(key: &str, encoder: &mut E) -> Result<(), EncodeError> {
    if let Some(number) = words::number(key) {
        return (2 * number + 1).encode(encoder);
    }
    (2 * key.len() as u64).encode(encoder)?;
    encoder.writer().write(key.as_bytes())
}

/// The UUID that a text is, in the one form that it is written back in.
fn uuid_of(text: &str) -> Option<Uuid> {
    if text.len() != uuid::fmt::Hyphenated::LENGTH {
        return None;
    }
    let uuid = Uuid::try_parse(text).ok()?;
    let mut buffer = Uuid::encode_buffer();
    (uuid.hyphenated().encode_lower(&mut buffer) == text).then_some(uuid)
}

/// The outermost value: where the counting of levels starts.
struct Root(Value);

impl<'de, C> BorrowDecode<'de, C> for Root {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        read(decoder, MAX_DEPTH, &mut Keys::default()).map(Root)
    }
}

fn read<'de, D: BorrowDecoder<'de>>(
    decoder: &mut D,
    levels: usize,
    keys: &mut Keys,
) -> Result<Value, DecodeError> {
    // Capacity is reserved for at most this many items ahead of reading them.
    const AHEAD: usize = 256;
    match u8::decode(decoder)? {
        kind::NULL => Ok(Value::Null),
        kind::FALSE => Ok(Value::Bool(false)),
        kind::TRUE => Ok(Value::Bool(true)),
        kind::INT => i64::decode(decoder).map(Value::Int),
        kind::UINT => u64::decode(decoder).map(Value::from),
        kind::FLOAT => f64::decode(decoder).map(Value::Float),
        kind::STR => Ok(Value::Str(read_str(decoder)?.into())),
        kind::BYTES => Ok(Value::Bytes(read_bytes(decoder)?.into())),
        kind::LIST => {
            let levels = deeper(levels)?;
            let len = read_len(decoder)?;
            let mut items = Vec::with_capacity(len.min(AHEAD));
            for _ in 0..len {
                items.push(read(decoder, levels, keys)?);
            }
            Ok(Value::list(items))
        }
        kind::MAP => {
            let levels = deeper(levels)?;
            let len = read_len(decoder)?;
            let mut map = Map::with_capacity(len.min(AHEAD));
            for _ in 0..len {
                let key = keys.get(read_str(decoder)?);
                map.insert(key, read(decoder, levels, keys)?);
            }
            Ok(Value::map(map))
        }
        kind::WORD => Ok(Value::Str(keys.get(read_word(u64::decode(decoder)?)?))),
        kind::UUID => {
            let uuid = Uuid::from_bytes(read_array(decoder)?);
            let mut buffer = Uuid::encode_buffer();
            let text: &str = uuid.hyphenated().encode_lower(&mut buffer);
            Ok(Value::Str(text.into()))
        }
        kind::BRANCH => {
            let name = [words::BRANCH, read_str(decoder)?].concat();
            Ok(Value::Str(name.into()))
        }
        kind::FIELDS => {
            let levels = deeper(levels)?;
            let len = read_len(decoder)?;
            let mut map = Map::with_capacity(len.min(AHEAD));
            for _ in 0..len {
                let key = keys.get(read_key(decoder)?);
                map.insert(key, read(decoder, levels, keys)?);
            }
            Ok(Value::map(map))
        }
        kind::OPAQUE => {
            let tag = read_str(decoder)?.into();
            let bytes = Bytes::copy_from_slice(read_bytes(decoder)?);
            Ok(Value::Opaque(Arc::new(Opaque { tag, bytes })))
        }
        other => Err(DecodeError::OtherString(format!(
            "kind {other} of a value is unknown"
        ))),
    }
}

fn deeper(levels: usize) -> Result<usize, DecodeError> {
    levels
        .checked_sub(1)
        .ok_or(DecodeError::Other("it is nested too deeply"))
}

fn read_len<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<usize, DecodeError> {
    let len = u64::decode(decoder)?;
    usize::try_from(len).map_err(|_| DecodeError::OutsideUsizeRange(len))
}

fn read_bytes<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<&'de [u8], DecodeError> {
    let len = read_len(decoder)?;
    take_bytes(decoder, len)
}

fn take_bytes<'de, D: BorrowDecoder<'de>>(
    decoder: &mut D,
    len: usize,
) -> Result<&'de [u8], DecodeError> {
    decoder.claim_bytes_read(len)?;
    decoder.borrow_reader().take_bytes(len)
}

fn read_str<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<&'de str, DecodeError> {
    text_of(read_bytes(decoder)?)
}

fn text_of(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|inner| DecodeError::Utf8 { inner })
}

fn read_word(number: u64) -> Result<&'static str, DecodeError> {
    words::word(number).ok_or(DecodeError::Other("a word has an unknown number"))
}

/// Reads what [`write_key`] wrote.
fn read_key<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<&'de str, DecodeError> {
    let number = u64::decode(decoder)?;
    if number % 2 == 1 {
        return read_word(number / 2);
    }
    let len = usize::try_from(number / 2).map_err(|_| DecodeError::OutsideUsizeRange(number))?;
    text_of(take_bytes(decoder, len)?)
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

/// The keys decoded last, to be shared. A list of messages repeats a handful of keys thousands
/// of times.
#[derive(Default)]
struct Keys {
    recent: Vec<Arc<str>>,
    oldest: usize,
}

impl Keys {
    fn get(&mut self, key: &str) -> Arc<str> {
        const MOST: usize = 16;
        if let Some(cached) = self.recent.iter().find(|cached| &***cached == key) {
            return cached.clone();
        }
        let new: Arc<str> = key.into();
        if self.recent.len() < MOST {
            self.recent.push(new.clone());
        } else if let Some(slot) = self.recent.get_mut(self.oldest) {
            *slot = new.clone();
            self.oldest = (self.oldest + 1) % MOST;
        }
        new
    }
}

#[cfg(test)]
mod tests;
