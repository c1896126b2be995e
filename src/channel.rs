//! Channels: the fields of a graph's state, and how the writes of a superstep change them.
//!
//! The kinds and their rules are those of LangGraph's channels of the same names. Everything is
//! pure: a channel has a value, but no version, checkpoint or name.

use std::sync::Arc;

use crate::message;
use crate::value::{Map, Value};

mod reducer;
mod state;

pub use reducer::Reducer;
pub(crate) use reducer::Shape;
pub(crate) use state::Channel;

/// How a channel treats its writes.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Stores the last value; at most one write per superstep.
    Last,
    /// Stores the last of several writes; a superstep without a write clears it.
    Any,
    /// Stores a value for one superstep.
    Ephemeral {
        /// Refuse more than one write per superstep; otherwise the last counts.
        guard: bool,
    },
    /// Has the last value, which no checkpoint stores.
    Untracked {
        /// Refuse more than one write per superstep; otherwise the last counts.
        guard: bool,
    },
    /// Folds writes into its value.
    Aggregate(Reducer),
    /// Collects writes into a list; written lists are spread one level.
    Topic {
        /// Keep the items beyond the next superstep.
        accumulate: bool,
    },
    /// Becomes available once all these names were written; consumed by the task it starts.
    Barrier(Arc<[Arc<str>]>),
    /// Stores the last write, available only when nothing else is left to run.
    LastAfterFinish,
    /// A barrier that is available only when nothing else is left to run.
    BarrierAfterFinish(Arc<[Arc<str>]>),
}

/// Why a channel refuses a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// LangGraph's INVALID_CONCURRENT_GRAPH_UPDATE.
    #[error(
        "Can receive only one value per step, got {0}; a key that several nodes write at once \
         needs a reducer: `#[state(append)]` on its field collects the values, `#[state(merge = f)]` \
         folds them (INVALID_CONCURRENT_GRAPH_UPDATE)"
    )]
    Concurrent(usize),
    /// Two overwrites in one superstep.
    #[error("can receive only one overwrite per step")]
    Overwrites,
    /// A barrier got a name that it does not wait for.
    #[error("a join waits for {expected:?}, not for {found}")]
    Barrier {
        /// The names that the barrier waits for.
        expected: Vec<Arc<str>>,
        /// What was written.
        found: String,
    },
    /// A reducer cannot combine the value with the update.
    #[error("the reducer `{reducer}` cannot combine a {value} with a {update}")]
    Mismatch {
        /// The reducer's name.
        reducer: Arc<str>,
        /// What kind of value the channel has.
        value: &'static str,
        /// What kind of value was written.
        update: &'static str,
    },
    /// A sum of integers beyond 64 bits.
    #[error("the sum of {0} and {1} does not fit 64 bits")]
    Overflow(String, String),
    /// A write to a message channel is no message, or removes a message that is not there.
    #[error(transparent)]
    Message(#[from] message::Error),
    /// Nested too deeply to be stored.
    #[error("a value is nested more than {} levels deep", crate::value::MAX_DEPTH)]
    TooDeep,
    /// A stored value does not have the form of its channel's kind.
    #[error("the stored value of a {kind} channel is a {found}: was the kind of the key changed?")]
    Stored {
        /// The channel's kind.
        kind: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// Raised by a custom reducer.
    #[error("the reducer `{reducer}` failed: {reason}")]
    Custom {
        /// The reducer's name.
        reducer: Arc<str>,
        /// The message of its error.
        reason: String,
    },
}

impl Error {
    /// The exception class under which LangGraph reports this.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Error::Concurrent(_) | Error::Overwrites | Error::Barrier { .. } => {
                "InvalidUpdateError"
            }
            Error::Mismatch { .. } => "TypeError",
            Error::Message(error) => error.class(),
            Error::Overflow(..) | Error::TooDeep | Error::Stored { .. } | Error::Custom { .. } => {
                "ValueError"
            }
        }
    }
}

const OVERWRITE: &str = "__overwrite__";

/// A write that replaces the value of an aggregate instead of being folded into it.
pub fn overwrite(value: Value) -> Value {
    Value::map(Map::from([(OVERWRITE, value)]))
}

/// What an overwrite replaces the value with, if this is one: `{"__overwrite__": v}` or
/// `{"type": "__overwrite__", "value": v}`.
pub(crate) fn as_overwrite(write: &Value) -> Option<&Value> {
    let map = write.as_map()?;
    match map.len() {
        1 => map.get(OVERWRITE),
        2 if map.get("type").and_then(Value::as_str) == Some(OVERWRITE) => map.get("value"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
