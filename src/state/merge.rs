//! How updates of a field are merged: one function per attribute of the derive.

use std::{any::type_name, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    channel::{Error, Kind, Reducer},
    value::{Value, from_value, to_value},
};

/// The last update replaces the value; two in one superstep are an error.
pub fn replace() -> Kind {
    Kind::Last
}

/// Items are added to a list.
pub fn append() -> Kind {
    Kind::Aggregate(Reducer::append())
}

/// Chat messages are added, replaced and removed by id.
pub fn messages() -> Kind {
    Kind::Aggregate(Reducer::messages())
}

/// As [`replace`], but the value lives for one superstep.
pub fn ephemeral() -> Kind {
    Kind::Ephemeral { guard: true }
}

/// As [`replace`], but the value is never stored.
pub fn untracked() -> Kind {
    Kind::Untracked { guard: true }
}

/// All updates of one superstep are collected for the next one.
pub fn topic() -> Kind {
    Kind::Topic { accumulate: false }
}

/// `fold(old, update)` is the new value. Both are decoded for the call and the result is encoded;
/// the first `old` is `T::default()`, which is also the channel's value before any update.
pub fn with<T, U>(fold: impl Fn(T, U) -> T + Send + Sync + 'static) -> Kind
where
    T: Default + Serialize + DeserializeOwned,
    U: DeserializeOwned,
{
    let name = name_of(&fold);
    // A default that has no encoded form shows as null and fails the first update by name.
    let initial = to_value(&T::default()).unwrap_or_default();
    let reducer = name.clone();
    Kind::Aggregate(Reducer::custom(
        name,
        initial,
        move |old, update: &Value| {
            let failed = |reason: String| Error::Custom {
                reducer: reducer.clone(),
                reason,
            };
            let old = from_value(&old).map_err(|error| failed(format!("its value: {error}")))?;
            let update =
                from_value(update).map_err(|error| failed(format!("an update: {error}")))?;
            to_value(&fold(old, update)).map_err(|error| failed(format!("its result: {error}")))
        },
    ))
}

/// `add` of `my_agent::state::add`.
fn name_of<F>(_: &F) -> Arc<str> {
    let path = type_name::<F>();
    match path.rsplit("::").next() {
        Some(name) if !name.is_empty() && !name.contains(['{', '<', '>']) => name.into(),
        _ => "merge".into(),
    }
}
