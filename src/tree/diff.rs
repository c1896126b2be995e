//! Differences between two states: of channels by name, of messages by id. Pure.

use std::collections::{HashMap, HashSet};

use crate::value::{Map, Value};

#[cfg(test)]
mod tests;

/// The differences between two lists of things with ids. Order alone is no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDiff<'a, T> {
    /// Only in the first, in its order.
    pub removed: Vec<&'a T>,
    /// Only in the second, in its order.
    pub added: Vec<&'a T>,
    /// In both but not equal, in the order of the second.
    pub changed: Vec<(&'a T, &'a T)>,
}

/// Compares two lists. Of several things with one id in a list the last counts, as it does when
/// messages are merged; things without an id are compared by value.
pub fn diff_lists<'a, T: PartialEq>(
    from: &'a [T],
    to: &'a [T],
    id: impl Fn(&T) -> Option<&str>,
) -> ListDiff<'a, T> {
    let by_id = |list: &'a [T]| -> HashMap<String, &'a T> {
        let named = list
            .iter()
            .filter_map(|one| Some((id(one)?.to_owned(), one)));
        named.collect()
    };
    let (old, new) = (by_id(from), by_id(to));
    let counts = |map: &HashMap<String, &'a T>, one: &'a T| match id(one) {
        Some(id) => map.get(id).is_some_and(|last| std::ptr::eq(*last, one)),
        None => true,
    };
    let missing =
        |list: &'a [T], own: &HashMap<String, &'a T>, other: &[T], ids: &HashMap<String, &'a T>| {
            list.iter()
                .filter(|one| counts(own, one))
                .filter(|one| match id(one) {
                    Some(id) => !ids.contains_key(id),
                    None => !other.iter().any(|twin| id_free(&id, twin) && twin == *one),
                })
                .collect()
        };
    let changed = to
        .iter()
        .filter(|one| counts(&new, one))
        .filter_map(|one| {
            let before = *old.get(id(one)?)?;
            (before != one).then_some((before, one))
        })
        .collect();
    ListDiff {
        removed: missing(from, &old, to, &new),
        added: missing(to, &new, from, &old),
        changed,
    }
}

fn id_free<T>(id: &impl Fn(&T) -> Option<&str>, one: &T) -> bool {
    id(one).is_none()
}

/// The differences between two sets of channel values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelDiff {
    /// Only in the second.
    pub added: Map,
    /// Only in the first.
    pub removed: Map,
    /// In both with different values: `{"from", "to"}`.
    pub changed: Map,
}

/// Compares channel values by name. Channels in `summarized` are only reported as changed, with null
/// values, because another part of the diff describes them. In a state that lacks them they count as
/// present and empty.
pub fn diff_channels(from: &Map, to: &Map, summarized: &[&str]) -> ChannelDiff {
    let summarized: HashSet<&str> = summarized.iter().copied().collect();
    let both = |from: Value, to: Value| Value::map(Map::from([("from", from), ("to", to)]));
    let mut found = ChannelDiff::default();
    for (name, before) in from.iter() {
        match to.get(name) {
            Some(after) if before == after => {}
            None if summarized.contains(&**name) && is_empty(before) => {}
            _ if summarized.contains(&**name) => {
                found
                    .changed
                    .insert(name.clone(), both(Value::Null, Value::Null));
            }
            Some(after) => {
                let pair = both(before.clone(), after.clone());
                found.changed.insert(name.clone(), pair);
            }
            None => {
                found.removed.insert(name.clone(), before.clone());
            }
        }
    }
    for (name, after) in to.iter().filter(|(name, _)| !from.contains_key(name)) {
        if !summarized.contains(&**name) {
            found.added.insert(name.clone(), after.clone());
        } else if !is_empty(after) {
            found
                .changed
                .insert(name.clone(), both(Value::Null, Value::Null));
        }
    }
    found
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}
