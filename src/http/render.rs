//! Renders threads and runs in the form clients see.

use crate::{
    runs,
    threads::request as threads,
    tree::{self, search::ThreadStatus},
    value::{Map, Value},
};

/// A thread. One on which nothing has run has no `error` and no `interrupts`.
pub(super) fn thread(view: &threads::View) -> Map {
    let row = &view.row;
    let status = ThreadStatus::of(row.busy, row.outcome).as_str();
    let mut map = Map::with_capacity(10);
    map.insert("thread_id", row.id.to_string());
    map.insert("created_at", row.created_at.to_string());
    map.insert("updated_at", row.updated_at.to_string());
    map.insert("state_updated_at", row.state_updated_at.to_string());
    map.insert("metadata", Value::map(row.metadata.clone()));
    map.insert("status", status);
    map.insert("config", Value::map(row.config.clone()));
    map.insert("values", view.values.clone());
    let untouched = row.head.is_none() && row.outcome == tree::Outcome::Idle;
    if !untouched || row.error.is_some() {
        map.insert("error", row.error.clone().unwrap_or_default());
        map.insert("interrupts", Value::map(view.interrupts.clone()));
    }
    map
}

/// When a thread expires.
pub(super) fn expiry(expiry: &tree::ttl::Expiry) -> Value {
    Value::map(Map::from([
        ("strategy", Value::str(expiry.ttl.strategy.as_str())),
        ("ttl_minutes", expiry.ttl.minutes.into()),
        ("expires_at", expiry.at.to_string().into()),
    ]))
}

/// A run.
pub(super) fn run(row: &runs::Run) -> Map {
    row.to_map()
}

/// Only these fields, in the object's order.
pub(super) fn select(mut map: Map, columns: Option<&[&'static str]>) -> Map {
    if let Some(columns) = columns {
        map.retain(|key, _| columns.contains(&&**key));
    }
    map
}

/// What a path such as `values.messages[-1].content` leads to; null if it leads nowhere.
pub(super) fn extract(root: &Map, path: &str) -> Value {
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or_default();
    let (name, indexes) = split(first);
    let Some(mut value) = root.get(name).and_then(|value| index(value, indexes)) else {
        return Value::Null;
    };
    for part in parts {
        let (name, indexes) = split(part);
        let Some(next) = value.get(name).and_then(|value| index(value, indexes)) else {
            return Value::Null;
        };
        value = next;
    }
    value.clone()
}

fn split(part: &str) -> (&str, &str) {
    part.find('[').map_or((part, ""), |at| part.split_at(at))
}

fn index<'a>(mut value: &'a Value, mut indexes: &str) -> Option<&'a Value> {
    while let Some(rest) = indexes.strip_prefix('[') {
        let (number, rest) = rest.split_once(']')?;
        let items = value.as_list()?;
        let number: i64 = number.parse().ok()?;
        let at = if number < 0 {
            items
                .len()
                .checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?
        } else {
            usize::try_from(number).ok()?
        };
        value = items.get(at)?;
        indexes = rest;
    }
    indexes.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn paths_lead_into_objects_and_lists_from_both_ends() {
        let value = value!({"values": {"log": [1, 2, [3, 4]], "a": {"b": "c"}}});
        let root = value.as_map().unwrap();
        assert_eq!(extract(root, "values.log[0]"), value!(1));
        assert_eq!(extract(root, "values.log[-1][1]"), value!(4));
        assert_eq!(extract(root, "values.a.b"), value!("c"));
        for nowhere in [
            "values.nope",
            "values.log[9]",
            "values.log[-9]",
            "values.log[x]",
            "values.log[0",
            "values.log[0]x",
            "values.a[0]",
            "nope",
            "",
            "values..a",
            "values.log[-9223372036854775808]",
        ] {
            assert_eq!(extract(root, nowhere), Value::Null, "{nowhere}");
        }
    }
}
