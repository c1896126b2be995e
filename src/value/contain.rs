//! Containment on metadata, as Postgres' `@>` decides it.

use super::{Map, Value};

/// Whether `have` has every field of `want`, with a value that contains the one in `want`.
pub fn contains_map(have: &Map, want: &Map) -> bool {
    want.iter()
        .all(|(key, want)| have.get(key).is_some_and(|have| contains(have, want)))
}

/// Whether `have` contains `want`: maps contain fields, lists contain items in any order, other
/// values are equal.
pub fn contains(have: &Value, want: &Value) -> bool {
    match (have, want) {
        (Value::Map(have), Value::Map(want)) => contains_map(have, want),
        (Value::List(have), Value::List(want)) => want
            .iter()
            .all(|want| have.iter().any(|have| contains(have, want))),
        // 1 and 1.0 are one number.
        (Value::Float(_), _) | (_, Value::Float(_)) => have
            .as_f64()
            .is_some_and(|have| Some(have) == want.as_f64()),
        _ => have == want,
    }
}

#[cfg(test)]
mod tests {
    use super::contains;
    use crate::value;

    #[test]
    fn maps_and_lists_contain_their_parts_at_any_depth() {
        let have = value!({"a": {"b": [1, {"c": "x", "d": 2}], "e": null}, "f": 1});
        for want in [
            value!({}),
            value!({"f": 1.0}),
            value!({"a": {"e": null}}),
            value!({"a": {"b": [{"c": "x"}]}}),
            value!({"a": {"b": [{"d": 2}, 1, 1]}}),
        ] {
            assert!(contains(&have, &want), "{want}");
        }
        for want in [
            value!({"g": null}),
            value!({"f": "1"}),
            value!({"f": true}),
            value!({"a": {"b": 1}}),
            value!({"a": {"b": [[1]]}}),
            value!({"a": {"b": [{"c": "x", "z": 1}]}}),
            value!([]),
        ] {
            assert!(!contains(&have, &want), "{want}");
        }
    }
}
