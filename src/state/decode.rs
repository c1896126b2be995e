//! Reads one field of a derived state from a map of channels.

use serde::de::DeserializeOwned;

use crate::value::{DecodeError, Map, Value, from_value};

/// Why a field of a state cannot be read from its channel.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing was written to the channel.
    #[error(
        "channel `{channel}`: it has no value yet; make the field an `Option`, or give it `#[state(default)]`"
    )]
    Absent {
        /// The channel.
        channel: &'static str,
    },
    /// The value of the channel has another type.
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
/// The channel has a value that does not fit.
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
