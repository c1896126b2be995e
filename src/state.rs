//! Typed views of the state: which channels a struct has, how it is read and how it is updated.

use crate::{
    channel::Kind,
    value::{Map, Value},
};

mod command;
/// Named by the code the derive makes.
#[doc(hidden)]
pub mod decode;
mod input;
/// Named by the code the derive makes.
#[doc(hidden)]
pub mod merge;
mod update;

pub use command::{Command, IntoRoute, Target, goto};
pub use decode::Unreadable;
pub use input::{FromValues, IntoInput, Unsuitable};
pub use update::{Many, Maybe, Writes};

/// A struct whose fields are channels. Derive it.
///
/// ```
/// use backstitch::prelude::*;
///
/// #[derive(State)]
/// struct Chat {
///     /// Merged by message id.
///     #[state(messages)]
///     messages: Vec<Message>,
///     /// Every update adds items.
///     #[state(append)]
///     notes: Vec<String>,
///     /// `add(old, update)` is the new value; it starts at 0.
///     #[state(merge = add)]
///     turns: u32,
///     /// Lives for one superstep.
///     #[state(ephemeral)]
///     hint: Option<String>,
///     /// Replaced by every update; empty text until then.
///     #[state(default)]
///     summary: String,
/// }
///
/// fn add(old: u32, update: u32) -> u32 {
///     old + update
/// }
///
/// let update: Update<Chat> = Chat::update().notes("one").notes(["two", "three"]).turns(1u32);
/// ```
///
/// | attribute | several updates in a superstep | nothing written yet |
/// | --- | --- | --- |
/// | none | an error | `None` for an `Option`, else an error |
/// | `messages` | appended, replaced and removed by id; the field is a `Vec<Message>` | empty |
/// | `append` | appended | empty |
/// | `merge = f` | folded with `f`; `update = Type` if updates are of another type | `Default` |
/// | `ephemeral` | an error; cleared by a superstep without an update | as none |
/// | `untracked` | an error; never stored | as none |
/// | `topic` | collected; cleared by the next superstep | empty |
///
/// Beside any of them, `rename = "name"` names the channel otherwise than the field, and
/// `schema(description = "..", minimum = 0)` adds keywords to its JSON schema:
///
/// ```
/// # use backstitch::{prelude::*, value};
/// #[derive(State)]
/// struct Survey {
///     #[state(rename = "type", schema(description = "What it is about", maxLength = 80))]
///     kind: Option<String>,
/// }
///
/// assert_eq!(Survey::channels()[0].name, "type");
/// let update: Update<Survey> = Survey::update().kind("bees");
/// ```
///
/// `default` beside any of them reads an absent channel as `Default::default()`. On the struct,
/// `#[state(crate = path)]` names the path of this crate when it was renamed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state",
    note = "add `#[derive(State)]` to the struct: each field becomes a channel"
)]
pub trait State: Sized + Send + 'static {
    /// The builder of partial updates that the derive makes: `Update<Chat>` is `ChatUpdate`.
    type Update: Into<Writes> + Send;

    /// Name of the struct.
    const NAME: &'static str;

    /// Its channels in the order of the fields.
    fn channels() -> Vec<Channel>;

    /// Reads the fields out of a map of channels.
    ///
    /// # Errors
    /// A channel has no value yet and its field has no initial one, or the value does not fit.
    fn decode(state: &Map) -> Result<Self, Unreadable>;
}

/// What a node of a graph over `S` returns: `Update<Chat>` is `ChatUpdate`.
pub type Update<S> = <S as State>::Update;

/// One field of a state.
#[derive(Clone)]
pub struct Channel {
    /// Its name.
    pub name: &'static str,
    /// How updates are merged.
    pub kind: Kind,
    /// Builds the JSON schema of its value.
    pub schema: fn() -> serde_json::Value,
    /// Keywords that the schema has besides.
    pub keywords: Vec<(&'static str, Value)>,
}

impl Channel {
    /// A channel for a value of type `T`.
    pub fn new<T: schemars::JsonSchema>(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            schema: || schemars::schema_for!(T).to_value(),
            keywords: vec![],
        }
    }

    /// Adds a keyword to its JSON schema, or replaces it.
    #[must_use]
    pub fn with_keyword(mut self, keyword: &'static str, value: impl Into<Value>) -> Self {
        self.keywords.push((keyword, value.into()));
        self
    }

    /// The JSON schema with the keywords.
    pub(crate) fn full_schema(&self) -> serde_json::Value {
        let mut schema = (self.schema)();
        if let Some(schema) = schema.as_object_mut() {
            // The name of the channel is clearer than a title of the type (`Array_of_string`).
            schema.remove("title");
            for (keyword, value) in &self.keywords {
                schema.insert((*keyword).to_owned(), value.to_json_value());
            }
        }
        schema
    }
}

#[cfg(test)]
mod tests;
