//! Deltas: a list that grew is stored as the items added to its previous version, so that the
//! storage of a conversation grows with its length and not with its square.

use std::sync::Arc;

use super::codec::{self, Error, Format};
use crate::value::Value;

/// The change of a list: how many items stay at its front, and which items follow them.
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
/// Items that both lists share are recognised without a comparison of their contents. Maps that differ in
/// the order of their keys alone count as equal.
pub fn diff(old: &[Value], new: &[Value]) -> Option<Delta> {
    let keep = Value::common_start(old, new);
    let items = new.get(keep..)?;
    (keep > 0).then(|| Delta {
        keep,
        items: items.to_vec(),
    })
}

/// The new list. The old one is changed in place if it is not shared.
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

/// Tag and bytes of a delta's row.
pub fn encode(delta: &Delta, format: Format) -> (Arc<str>, Vec<u8>) {
    let items = Value::list(delta.items.clone());
    codec::encode_weighed(&Value::list(vec![delta.keep.into(), items]), format)
}

/// Reads the bytes of a delta's row.
///
/// # Errors
/// The bytes are no delta.
pub fn decode(tag: &str, bytes: &[u8]) -> Result<Delta, Error> {
    let value = codec::decode(tag, bytes)?;
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

#[cfg(test)]
mod tests;
