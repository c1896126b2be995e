//! The bodies, queries and responses of the protocol as types, from which the OpenAPI document has its
//! schemas. Handlers read bodies field by field, so that an error names the field that is wrong.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator};

pub mod assistants;
pub mod branches;
pub mod crons;
pub mod events;
pub mod json_rpc;
pub mod messages;
pub mod protocol;
pub mod runs;
pub mod state;
pub mod store;
pub mod system;
pub mod threads;

/// Declares types by their schemas.
macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident = $schema:tt;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    )*};
}
use schemas;

/// The pattern of names of branches and tags: no segment is empty, `.` or `..`.
pub const NAME: &str = concat!(
    "^(\\.?[A-Za-z0-9_-][A-Za-z0-9._-]*|\\.\\.[A-Za-z0-9._-]+)",
    "(/(\\.?[A-Za-z0-9_-][A-Za-z0-9._-]*|\\.\\.[A-Za-z0-9._-]+))*$"
);

schemas! {
    /// A flag of a query, in the spellings of clients.
    Flag = {
        "type": "string",
        "enum": ["true", "false", "1", "0", "yes", "no", "on", "off", ""]
    };
    /// The id of a thread, a run, a checkpoint, an assistant or an event.
    Id = {
        "type": "string",
        "format": "uuid",
        "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
    };
    /// An id in a field that older clients send empty.
    IdOrEmpty = {
        "type": "string",
        "pattern": "^([0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})?$"
    };
    /// A moment in UTC.
    Timestamp = { "type": "string", "format": "date-time" };
    /// The length of a page.
    Limit = { "type": "integer", "minimum": 1, "maximum": 1000 };
    /// How many entries come before a page.
    Offset = { "type": "integer", "minimum": 0, "maximum": 18_446_744_073_709_551_615_u64 };
    /// How many entries come before a page, in a query.
    QueryOffset = { "type": "integer", "minimum": 0, "maximum": i64::MAX };
    /// The number of an event.
    EventNumber = { "type": "integer", "minimum": 1, "maximum": 18_446_744_073_709_551_615_u64 };
    /// The number of an event, in a query.
    QueryEventNumber = { "type": "integer", "minimum": 1, "maximum": i64::MAX };
    /// An absolute `http` or `https` URL.
    Webhook = { "type": "string", "pattern": "^https?://[a-z0-9-]+(\\.[a-z0-9-]+)*(:[0-9]{1,4})?(/.*)?$" };
    /// A whole number that fits 64 bits.
    Integer = { "type": "integer", "minimum": i64::MIN, "maximum": 18_446_744_073_709_551_615_u64 };
    /// The name of a branch or a tag.
    Name = {
        "type": "string",
        "minLength": 1,
        "maxLength": 128,
        "pattern": NAME
    };
    /// Anything but null.
    NotNull = { "type": ["object", "array", "string", "number", "boolean"] };
    /// An object or a list.
    Container = { "type": ["object", "array"] };
    /// Metadata of at most as many keys and bytes as the server allows: 64 and 16000, unless its settings say otherwise.
    Metadata = { "type": "object", "additionalProperties": true };
    /// A text, or a list of parts.
    Content = { "type": ["string", "array"] };
}

/// An empty object.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Nothing {}

/// The order of a list.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    Asc,
    Desc,
}

/// The fields of `T` that the client has selected.
pub struct Selected<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Selected<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Selected{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.remove("required");
        let description = "The fields that the client has selected.";
        schema.insert("description".to_owned(), description.into());
        schema
    }
}

/// One value, or several.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}
