//! The schemas of the OpenAPI document, each type once.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

/// The schemas of bodies and of responses. They differ for one type: a field with a default may be
/// left out of a request, and is there in every response.
pub struct Schemas {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl Schemas {
    pub fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            responses: settings().for_serialize().into_generator(),
        }
    }

    /// Of a body.
    pub fn of_request<T: JsonSchema>(&mut self) -> Schema {
        self.requests.subschema_for::<T>()
    }

    /// Of a response.
    pub fn of_response<T: JsonSchema>(&mut self) -> Schema {
        self.responses.subschema_for::<T>()
    }

    /// Of a type whose fields are parameters of a query.
    pub fn fields<T: JsonSchema>(&mut self) -> Schema {
        T::json_schema(&mut self.requests)
    }

    /// All types that have names, by them.
    pub fn named(self) -> Map<String, Value> {
        let (mut named, responses) = self.by_direction();
        named.extend(responses);
        named.sort_keys();
        named
    }

    /// The types of bodies and those of responses that have names.
    pub fn by_direction(mut self) -> (Map<String, Value>, Map<String, Value>) {
        let requests = self.requests.take_definitions(true);
        (requests, self.responses.take_definitions(true))
    }
}
