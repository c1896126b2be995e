//! LangGraph's `add_messages`: appends, replaces by id, removes by id.

use std::collections::HashMap;
use std::sync::Arc;

use super::coerce::{coerce, coerce_list, is_id, is_identified};
use super::ids::Ids;
use super::{Error, REMOVE_ALL};
use crate::channel::{as_overwrite, overwrite};
use crate::value::Value;

/// Merges new messages into a list of messages.
///
/// Each of `right` (one message or several, in any form [`coerce`](super::coerce()) takes)
/// replaces the message that has its id, in place, or is appended; a removal removes the message
/// with its id; of duplicates in `right` the last counts, at the position of the first. After a
/// removal of everything ([`REMOVE_ALL`]) the result is what follows the last such marker.
/// Missing ids are minted on both sides. The old list is extended in place if it is not shared.
///
/// # Errors
/// A value that is no message, or a removal of an id that no message has.
pub fn add(left: Value, right: &Value) -> Result<Value, Error> {
    add_known(left, right, &mut None)
}

/// A shorter list is read each time.
const LONG: usize = 64;

/// [`add`] to a list whose ids are `known`, which is not read then. Afterwards those of the result are, if
/// it is a long one that nothing was removed from.
///
/// # Errors
/// As [`add`]; nothing is known then.
pub fn add_known(left: Value, right: &Value, known: &mut Option<Ids>) -> Result<Value, Error> {
    let ids = known.take();
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
        // An overwrite may have left a single message.
        single @ (Value::Map(_) | Value::Str(_)) => Value::list(vec![single]),
        other => return Err(Error::NotAList(other.type_name())),
    };
    let Some(list) = left.make_list_mut() else {
        return Ok(left);
    };
    let mut ids = ids.filter(|ids| ids.len() == list.len());
    if ids.is_none() {
        // What is there was checked when it was written; an id too.
        for message in list.iter_mut().filter(|m| !is_identified(m)) {
            *message = identify(coerce(message)?);
        }
        if list.len() >= LONG {
            ids = Ids::of(list);
        }
    }
    let before = list.len();
    let has_removed = merge(list, right, ids.as_ref())?;
    *known = ids.filter(|_| !has_removed).and_then(|mut ids| {
        let appended = list.get(before..).unwrap_or_default();
        ids.append(appended).then_some(ids)
    });
    Ok(left)
}

/// Merges messages into a list, which is read unless its ids are known; whether any was removed.
fn merge(list: &mut Vec<Value>, right: Vec<Value>, ids: Option<&Ids>) -> Result<bool, Error> {
    let mut positions = Positions::of(list, &right, ids);
    // Removals only mark, since a later message may bring the id back.
    let mut removed: HashMap<usize, ()> = HashMap::new();
    for message in right {
        match positions.find(id_of(&message)) {
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
                positions.set(id_of(&message), list.len());
                list.push(message);
            }
        }
    }
    let has_removed = !removed.is_empty();
    if has_removed {
        let mut at = 0;
        list.retain(|_| {
            let keep = !removed.contains_key(&at);
            at += 1;
            keep
        });
    }
    Ok(has_removed)
}

/// The position in the list of each id in `right`. Other ids are left out, so that a history whose ids are not
/// known costs one comparison per message.
enum Positions {
    /// Of so few that comparing is faster than hashing.
    Few(Vec<(Arc<str>, Option<usize>)>),
    Many(HashMap<Arc<str>, Option<usize>>),
}

impl Positions {
    /// Most ids that are compared one by one.
    const FEW: usize = 4;

    fn of(list: &[Value], right: &[Value], known: Option<&Ids>) -> Self {
        let ids = right.iter().map(|message| {
            let id = id_of(message);
            (Arc::from(id), known.and_then(|known| known.find(id)))
        });
        let mut positions = if right.len() <= Self::FEW {
            Self::Few(ids.collect())
        } else {
            Self::Many(ids.collect())
        };
        if known.is_some() {
            return positions;
        }
        for (at, message) in list.iter().enumerate() {
            // The last of several with one id is the one that is replaced.
            if let Some(position) = positions.get_mut(id_of(message)) {
                *position = Some(at);
            }
        }
        positions
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut Option<usize>> {
        match self {
            Self::Few(all) => {
                let mut all = all.iter_mut();
                all.find(|(one, _)| **one == *id)
                    .map(|(_, position)| position)
            }
            Self::Many(all) => all.get_mut(id),
        }
    }

    fn find(&mut self, id: &str) -> Option<usize> {
        self.get_mut(id).copied().flatten()
    }

    /// For an id in `right` whose message was appended.
    fn set(&mut self, id: &str, at: usize) {
        if let Some(position) = self.get_mut(id) {
            *position = Some(at);
        }
    }
}

/// Brings a write to a message channel into stored form and mints missing ids.
///
/// Done once, when the write is accepted and before it is streamed or saved, so that a replay
/// has the same ids. A single message stays single, a list stays a list, and what an overwrite
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
        Value::List(items)
            if items
                .iter()
                .all(|one| is_identified(one) && is_id(id_of(one))) =>
        {
            Ok(value.clone())
        }
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

/// Sets the id of a message in stored form unless it has one.
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
