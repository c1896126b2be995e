//! How a derived state reads one field out of a map of channels.

use serde::de::DeserializeOwned;

use crate::value::{DecodeError, Map, Value, from_value};

/// A channel that a state could not be read from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing was written to it.
    #[error(
        "channel `{channel}`: it has no value yet; make the field an `Option`, or give it `#[state(default)]`"
    )]
    Absent {
        /// The channel.
        channel: &'static str,
    },
    /// It holds something else.
    #[error("channel `{channel}`: {source}")]
    Mismatch {
        /// The channel.
        channel: &'static str,
        /// What is wrong, and where in the value.
        source: DecodeError,
    },
}

/// The field of a channel that has no initial value: absent is `None` for an `Option` and an
/// error for everything that cannot be read from null.
///
/// # Errors
/// The channel has no value, or one that does not fit.
pub fn required<T: DeserializeOwned>(state: &Map, channel: &'static str) -> Result<T, Unreadable> {
    match state.get(channel) {
        Some(value) => read(channel, value),
        None => from_value(&Value::Null).map_err(|_| Unreadable::Absent { channel }),
    }
}

/// The field of a channel with an initial value.
///
/// # Errors
/// The channel holds a value that does not fit.
pub fn or_default<T: DeserializeOwned + Default>(
    state: &Map,
    channel: &'static str,
) -> Result<T, Unreadable> {
    match state.get(channel) {
        Some(value) => read(channel, value),
        None => Ok(T::default()),
    }
}

fn read<T: DeserializeOwned>(channel: &'static str, value: &Value) -> Result<T, Unreadable> {
    from_value(value).map_err(|source| Unreadable::Mismatch { channel, source })
}
