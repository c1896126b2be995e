//! LangGraph's `add_messages`: appends, replaces by id, removes by id.

use std::collections::HashMap;
use std::sync::Arc;

use super::coerce::{coerce, coerce_list};
use super::{Error, REMOVE_ALL};
use crate::channel::{as_overwrite, overwrite};
use crate::value::Value;

/// Merges new messages into a list of messages.
///
/// Each of `right` (one message or several, in any form [`coerce`](super::coerce()) takes)
/// replaces the message that has its id, in place, or is appended; a removal removes the message
/// with its id; of duplicates in `right` the last counts, at the place of the first. After a
/// removal of everything ([`REMOVE_ALL`]) the result is what follows the last such marker.
/// Missing ids are minted on both sides. The old list is extended in place if nobody else shares it.
///
/// # Errors
/// A value that is no message, or a removal of an id that no message has.
pub fn add(left: Value, right: &Value) -> Result<Value, Error> {
    let right = identified(coerce_list(right)?)?;
    if let Some(marker) = right
        .iter()
        .rposition(|m| is_removal(m) && id_of(m) == REMOVE_ALL)
    {
        return Ok(Value::list(right.into_iter().skip(marker + 1).collect()));
    }
    let mut left = match left {
        Value::Null => Value::list(Vec::new()),
        list @ Value::List(_) => list,
        // A single message was put there by an overwrite.
        single @ (Value::Map(_) | Value::Str(_)) => Value::list(vec![single]),
        other => return Err(Error::NotAList(other.type_name())),
    };
    let Some(list) = left.make_list_mut() else {
        return Ok(left);
    };
    for message in list.iter_mut().filter(|m| !is_identified(m)) {
        *message = identify(coerce(message)?);
    }
    merge(list, right)?;
    Ok(left)
}

fn merge(list: &mut Vec<Value>, right: Vec<Value>) -> Result<(), Error> {
    let mut places = Places::of(list, &right);
    // Removals only mark, since a later message may bring the id back.
    let mut removed: HashMap<usize, ()> = HashMap::new();
    for message in right {
        match places.find(id_of(&message)) {
            Some(at) if is_removal(&message) => {
                removed.insert(at, ());
            }
            Some(at) => {
                removed.remove(&at);
                if let Some(old) = list.get_mut(at) {
                    *old = message;
                }
            }
            None if is_removal(&message) => {
                return Err(Error::UnknownRemoval(id_of(&message).into()));
            }
            None => {
                places.put(id_of(&message), list.len());
                list.push(message);
            }
        }
    }
    if !removed.is_empty() {
        let mut at = 0;
        list.retain(|_| {
            let keep = !removed.contains_key(&at);
            at += 1;
            keep
        });
    }
    Ok(())
}

/// Where each id that `right` speaks of is in the list. Only those are kept, so that a long
/// history costs one comparison per message and no map of all its ids.
struct Places(HashMap<Arc<str>, Option<usize>>);

impl Places {
    fn of(list: &[Value], right: &[Value]) -> Self {
        let mut places: HashMap<Arc<str>, Option<usize>> =
            right.iter().map(|m| (Arc::from(id_of(m)), None)).collect();
        for (at, message) in list.iter().enumerate() {
            // The last of several with one id is the one that is replaced.
            if let Some(place) = places.get_mut(id_of(message)) {
                *place = Some(at);
            }
        }
        Places(places)
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.0.get(id).copied().flatten()
    }

    fn put(&mut self, id: &str, at: usize) {
        self.0.insert(id.into(), Some(at));
    }
}

/// Brings a write to a message channel into stored form and gives ids where they are missing.
///
/// Done once, when the write is accepted and before it is streamed or saved, so that a replay
/// sees the same ids. A single message stays single, a list stays a list, and what an overwrite
/// carries is treated likewise.
///
/// # Errors
/// A value that is no message.
pub fn mint_ids(value: &Value) -> Result<Value, Error> {
    if let Some(inner) = as_overwrite(value) {
        return match inner {
            Value::Null => Ok(value.clone()),
            inner => mint_ids(inner).map(overwrite),
        };
    }
    match value {
        Value::List(items) if items.iter().all(is_identified) => Ok(value.clone()),
        Value::List(items) => items
            .iter()
            .map(mint_one)
            .collect::<Result<Vec<_>, _>>()
            .map(Value::list),
        single => mint_one(single),
    }
}

fn mint_one(value: &Value) -> Result<Value, Error> {
    coerce(value).map(identify)
}

fn identified(messages: Vec<Value>) -> Result<Vec<Value>, Error> {
    Ok(messages.into_iter().map(identify).collect())
}

/// Gives a message in stored form an id unless it has one.
fn identify(mut message: Value) -> Value {
    if message.get("id").is_none()
        && let Some(map) = message.make_map_mut()
    {
        map.insert("id", uuid::Uuid::new_v4().to_string());
    }
    message
}

fn id_of(message: &Value) -> &str {
    message
        .get("id")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn is_removal(message: &Value) -> bool {
    message.get("type").and_then(Value::as_str) == Some("remove")
}

/// In stored form, with an id: nothing is left to do.
fn is_identified(message: &Value) -> bool {
    message.get("id").is_some() && coerce(message).is_ok_and(|same| same.is_same(message))
}
