//! The bodies, queries and responses of the protocol as types, from which the OpenAPI document has its
//! schemas. Handlers read bodies field by field, so that an error names the field that is wrong.

pub mod run_streams;
pub mod system;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A flag of a query, in the spellings of clients.
pub struct Flag;

impl JsonSchema for Flag {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Flag".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "enum": ["true", "false", "1", "0", "yes", "no", "on", "off"]
        })
    }
}

/// An empty object.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Nothing {}
