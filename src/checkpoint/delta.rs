//! Deltas: a long list that grew is stored as what was added to the version before, so that the
//! storage of a conversation grows with its length and not with its square.

use std::collections::HashMap;

use super::codec::{self, Error, Format};
use super::{BlobRow, Version};
use crate::value::Value;

/// A chain of deltas is never cut off below this many bytes.
const MIN_CHAIN_BYTES: usize = 32 * 1024;

/// The change of a list: what stays at its front, and what follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// How many items of the old list stay.
    pub keep: usize,
    /// The items after them.
    pub items: Vec<Value>,
}

/// The change from one list to another, found as their common beginning: an append or an edit
/// near the end is small. `None` if nothing is common, so that a delta would not be worth it.
///
/// Items that both lists share are recognised without looking into them. Maps that differ in
/// the order of their keys alone count as equal.
pub fn diff(old: &[Value], new: &[Value]) -> Option<Delta> {
    let keep = if std::ptr::eq(old, new) {
        new.len()
    } else {
        old.iter()
            .zip(new)
            .take_while(|(a, b)| a.is_same(b) || a == b)
            .count()
    };
    let items = new.get(keep..)?;
    (keep > 0).then(|| Delta {
        keep,
        items: items.to_vec(),
    })
}

/// The new list. The old one is changed in place if nobody else holds it.
///
/// # Errors
/// [`Error::Delta`] if the delta does not fit the base.
pub fn apply(mut base: Value, delta: &Delta) -> Result<Value, Error> {
    let found = base.type_name();
    let Some(list) = base.make_list_mut() else {
        return Err(Error::Delta(format!(
            "it changes a list, but the older value is a {found}"
        )));
    };
    if delta.keep > list.len() {
        return Err(Error::Delta(format!(
            "it keeps {} items, but the older list has {}",
            delta.keep,
            list.len()
        )));
    }
    list.truncate(delta.keep);
    list.extend_from_slice(&delta.items);
    Ok(base)
}

/// The bytes of a row with tag [`DELTA`](codec::DELTA).
pub fn encode(delta: &Delta) -> Vec<u8> {
    let items = Value::list(delta.items.clone());
    codec::encode(&Value::list(vec![delta.keep.into(), items]))
}

/// Reads a row with tag [`DELTA`](codec::DELTA).
///
/// # Errors
/// Bytes that hold no delta.
pub fn decode(bytes: &[u8]) -> Result<Delta, Error> {
    let value = codec::decode(codec::BINCODE, bytes)?;
    if let Some([keep, Value::List(items)]) = value.as_list()
        && let Some(keep) = keep.as_u64().and_then(|keep| usize::try_from(keep).ok())
    {
        return Ok(Delta {
            keep,
            items: items.to_vec(),
        });
    }
    Err(Error::Delta(
        "it is not a pair of a number and a list".into(),
    ))
}

/// How the stored form of a channel's value came to be: decides whether the next one may be a
/// delta on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The version whose row ends the chain.
    pub version: Version,
    /// Bytes of the full value at its beginning.
    pub full_bytes: usize,
    /// Bytes of the deltas since.
    pub chain_bytes: usize,
}

/// A channel value as a row will hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// The version a delta builds on; `None` for a full value.
    pub base: Option<Version>,
    /// Codec of `bytes`.
    pub tag: std::sync::Arc<str>,
    /// The full value, or the delta.
    pub bytes: Vec<u8>,
    /// The chain that ends here.
    pub chain: Chain,
}

impl Encoded {
    /// Bytes of deltas since the last full value, as the row says it.
    pub fn chain_bytes(&self) -> i32 {
        i32::try_from(self.chain.chain_bytes).unwrap_or(i32::MAX)
    }
}

/// Encodes a channel's new value, as a delta where that is worth it.
///
/// `previous` is the stored value before this one, for a channel whose value mostly grows, and
/// `None` for any other. A full value is written when the bytes of the chain would reach the
/// greater of 32 KiB and the last full value: so a chain costs no more to read than its
/// beginning, and all full values together stay in proportion to what was said. There is no
/// limit on the number of deltas, which would make storage quadratic again.
pub fn encode_next(
    previous: Option<(&Chain, &Value)>,
    new: &Value,
    version: Version,
    format: Format,
) -> Encoded {
    if let Some((chain, old)) = previous
        && let (Some(old), Some(new)) = (old.as_list(), new.as_list())
        && let Some(delta) = diff(old, new)
    {
        let bytes = encode(&delta);
        let chain_bytes = chain.chain_bytes.saturating_add(bytes.len());
        if chain_bytes < chain.full_bytes.max(MIN_CHAIN_BYTES) {
            return Encoded {
                base: Some(chain.version),
                tag: codec::DELTA.into(),
                bytes,
                chain: Chain {
                    version,
                    chain_bytes,
                    ..*chain
                },
            };
        }
    }
    let (tag, bytes) = codec::encode_tagged(new, format);
    let chain = Chain {
        version,
        full_bytes: bytes.len(),
        chain_bytes: 0,
    };
    Encoded {
        base: None,
        tag,
        bytes,
        chain,
    }
}

/// Puts the value of a version together from the rows of its channel, in whatever order they
/// come; rows of other versions do no harm.
///
/// # Errors
/// A row is missing or damaged, or the rows lead in a circle.
pub fn resolve<'a>(
    rows: impl IntoIterator<Item = &'a BlobRow>,
    version: Version,
) -> Result<(Value, Chain), Error> {
    resolve_on(rows, version, |_| None)
}

/// As [`resolve`], with values that are at hand already (a cache): the walk towards the full
/// value stops at the first one.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_on<'a>(
    rows: impl IntoIterator<Item = &'a BlobRow>,
    version: Version,
    known: impl Fn(Version) -> Option<(Value, Chain)>,
) -> Result<(Value, Chain), Error> {
    let rows: HashMap<Version, &BlobRow> = rows.into_iter().map(|r| (r.version, r)).collect();
    let mut deltas = Vec::new();
    let mut at = version;
    let (mut value, mut chain) = loop {
        if let Some(start) = known(at) {
            break start;
        }
        let row = rows
            .get(&at)
            .ok_or_else(|| Error::Delta(format!("the value of version {at} is missing")))?;
        let Some(base) = row.base else {
            let value = codec::decode(&row.tag, &row.bytes)?;
            break (
                value,
                Chain {
                    version: at,
                    full_bytes: row.bytes.len(),
                    chain_bytes: 0,
                },
            );
        };
        if deltas.len() == rows.len() {
            return Err(Error::Delta(format!(
                "the versions below {version} lead in a circle"
            )));
        }
        deltas.push(row);
        at = base;
    };
    for row in deltas.into_iter().rev() {
        value = apply(value, &decode(&row.bytes)?)?;
        chain.chain_bytes = chain.chain_bytes.saturating_add(row.bytes.len());
        chain.version = row.version;
    }
    Ok((value, chain))
}

#[cfg(test)]
mod tests;
