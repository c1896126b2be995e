//! The writes of a node, collected by the builders that the derive generates.

use std::sync::Arc;

use serde::Serialize;

use crate::value::{EncodeError, Value, to_value};

/// A value that has no encoded form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the update of channel `{channel}` cannot be encoded: {source}")]
pub struct Unwritable {
    /// The channel.
    pub channel: &'static str,
    /// What is wrong.
    pub source: EncodeError,
}

/// Updates of channels in the order of the calls. A value that cannot be encoded is an error when
/// the node returns.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    entries: Vec<(&'static str, Value)>,
    error: Option<Unwritable>,
}

impl Writes {
    /// Adds an update of a channel, to be merged by the rule of its kind.
    pub fn write(&mut self, channel: &'static str, value: &impl Serialize) {
        self.push(channel, value, |value| value);
    }

    /// Replaces the whole value of a channel that would merge an update.
    pub fn overwrite(&mut self, channel: &'static str, value: &impl Serialize) {
        self.push(channel, value, crate::channel::overwrite);
    }

    fn push(
        &mut self,
        channel: &'static str,
        value: &impl Serialize,
        wrap: impl FnOnce(Value) -> Value,
    ) {
        match to_value(value) {
            Ok(value) => self.entries.push((channel, wrap(value))),
            Err(source) => {
                self.error.get_or_insert(Unwritable { channel, source });
            }
        }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.error.is_none()
    }

    /// The updates, encoded.
    ///
    /// # Errors
    /// The first value that could not be encoded.
    pub(crate) fn finish(self) -> Result<Vec<(Arc<str>, Value)>, Unwritable> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self
                .entries
                .into_iter()
                .map(|(channel, value)| (channel.into(), value))
                .collect()),
        }
    }
}

/// One item or several, so that `.notes("a")` and `.notes(["a", "b"])` both work.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Many<T>(Vec<T>);

impl<T> From<T> for Many<T> {
    fn from(one: T) -> Self {
        Self(vec![one])
    }
}

impl<T> From<Vec<T>> for Many<T> {
    fn from(many: Vec<T>) -> Self {
        Self(many)
    }
}

impl<T> From<Option<T>> for Many<T> {
    fn from(maybe: Option<T>) -> Self {
        Self(maybe.into_iter().collect())
    }
}

impl<T, const N: usize> From<[T; N]> for Many<T> {
    fn from(many: [T; N]) -> Self {
        Self(many.into())
    }
}

impl From<&str> for Many<String> {
    fn from(one: &str) -> Self {
        Self(vec![one.to_owned()])
    }
}

impl<const N: usize> From<[&str; N]> for Many<String> {
    fn from(many: [&str; N]) -> Self {
        Self(many.into_iter().map(str::to_owned).collect())
    }
}

/// A value or none, so that `.summary("short")`, `.summary(text)` and `.summary(None)` all work.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Maybe<T>(Option<T>);

impl<T> From<T> for Maybe<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> From<Option<T>> for Maybe<T> {
    fn from(maybe: Option<T>) -> Self {
        Self(maybe)
    }
}

impl From<&str> for Maybe<String> {
    fn from(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl From<&String> for Maybe<String> {
    fn from(text: &String) -> Self {
        Self(Some(text.clone()))
    }
}

impl From<&str> for Maybe<Arc<str>> {
    fn from(text: &str) -> Self {
        Self(Some(text.into()))
    }
}
