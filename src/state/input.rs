//! What a run or a called graph starts with and what it returns: an update, a JSON value, a state.

use std::sync::Arc;

use super::{State, Unreadable, Writes, update::Unwritable};
use crate::value::{EncodeError, Map, Value, to_value};

/// A value that a graph can start with: the update of a state, a [`Value`], JSON, or `()` for
/// nothing.
///
/// ```
/// use backstitch::{prelude::*, state::IntoInput, value};
///
/// #[derive(State)]
/// struct Post {
///     topic: String,
///     #[state(append)]
///     notes: Vec<String>,
/// }
///
/// let update = Post::update().topic("bees").notes("They dance.");
/// assert_eq!(update.into_input()?, value!({"topic": "bees", "notes": ["They dance."]}));
/// assert_eq!(json!({"topic": "bees"}).into_input()?, value!({"topic": "bees"}));
/// # anyhow::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a graph cannot start with `{Self}`",
    note = "it starts with an update (`Chat::update().topic(\"bees\")`), `value!({{..}})`, `json!({{..}})`, or `()` to go on where the thread stopped"
)]
pub trait IntoInput {
    /// The input: a map of channels, or null for none.
    ///
    /// # Errors
    /// A value cannot be encoded, or a channel is written twice and the updates cannot be joined.
    fn into_input(self) -> Result<Value, Unsuitable>;
}

/// Why an update cannot be an input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsuitable {
    /// A value of the update has no encoded form.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// A value has no encoded form.
    #[error("the input cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
    /// Two updates of one channel that are no lists.
    #[error("the input updates channel `{0}` twice: give it one value")]
    Twice(Arc<str>),
}

impl IntoInput for () {
    fn into_input(self) -> Result<Value, Unsuitable> {
        Ok(Value::Null)
    }
}

impl IntoInput for Value {
    fn into_input(self) -> Result<Value, Unsuitable> {
        Ok(self)
    }
}

impl IntoInput for Map {
    fn into_input(self) -> Result<Value, Unsuitable> {
        Ok(Value::map(self))
    }
}

impl IntoInput for serde_json::Value {
    fn into_input(self) -> Result<Value, Unsuitable> {
        Ok(to_value(&self)?)
    }
}

/// Several updates of one list are joined.
#[diagnostic::do_not_recommend]
impl<U: Into<Writes>> IntoInput for U {
    fn into_input(self) -> Result<Value, Unsuitable> {
        let writes: Writes = self.into();
        let mut map = Map::new();
        for (channel, value) in writes.finish()? {
            match (map.get_mut(&channel), value) {
                (None, value) => {
                    map.insert(channel, value);
                }
                (Some(Value::List(all)), Value::List(more)) => {
                    Arc::make_mut(all).extend(more.iter().cloned());
                }
                (Some(_), _) => return Err(Unsuitable::Twice(channel)),
            }
        }
        Ok(Value::map(map))
    }
}

/// A type that the final values of a graph can be read as: a state, a part of one, or a [`Value`].
#[diagnostic::on_unimplemented(
    message = "the values of a graph cannot be read as `{Self}`",
    note = "add `#[derive(State)]` to the struct, or take a `Value`"
)]
pub trait FromValues: Sized {
    /// Reads the values.
    ///
    /// # Errors
    /// They do not fit.
    fn from_values(values: &Value) -> Result<Self, Unreadable>;
}

impl FromValues for Value {
    fn from_values(values: &Value) -> Result<Self, Unreadable> {
        Ok(values.clone())
    }
}

#[diagnostic::do_not_recommend]
impl<S: State> FromValues for S {
    fn from_values(values: &Value) -> Result<Self, Unreadable> {
        match values {
            Value::Map(map) => S::decode(map),
            _ => S::decode(&Map::new()),
        }
    }
}
