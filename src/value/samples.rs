//! Arbitrary values for property tests of every room.

use std::sync::Arc;

use proptest::prelude::*;

use super::Value;

/// Any value without opaque parts, as deep as a few levels.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}|[\\x00-\\x1f\"\\\\]{0,3}".prop_map(Value::from),
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(|b| Value::Bytes(b.into())),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::list),
            proptest::collection::vec(("[a-z]{0,3}", inner), 0..5).prop_map(|fields| Value::map(
                fields.into_iter().map(|(k, v)| (Arc::from(k), v)).collect()
            )),
        ]
    })
}
