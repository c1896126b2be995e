//! One operation of the OpenAPI document: its parameters, its body and its responses.

use std::collections::BTreeMap;

use hyper::StatusCode;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};

use super::{headers, parameters, schemas::Schemas};

/// What the document says of an operation.
pub struct Operation<'a> {
    schemas: &'a mut Schemas,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: BTreeMap<u16, Value>,
}

/// Carries the description of a row of the table of routes out on an operation.
macro_rules! describe {
    ($operation:ident {}) => {{
        let _ = $operation;
    }};
    ($operation:ident { coded $(, $($rest:tt)*)? }) => {{
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { query $query:ty $(, $($rest:tt)*)? }) => {{
        $operation.query::<$query>();
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { body $body:ty $(, $($rest:tt)*)? }) => {{
        $operation.body::<$body>(true);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { optional body $body:ty $(, $($rest:tt)*)? }) => {{
        $operation.body::<$body>(false);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { empty $status:literal $(, $($rest:tt)*)? }) => {{
        $operation.empty($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { takes $header:literal $(, $($rest:tt)*)? }) => {{
        $operation.request_header($header);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { returns $status:literal $header:literal $(, $($rest:tt)*)? }) => {{
        $operation.response_header($status, $header);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { stream $status:literal $(, $($rest:tt)*)? }) => {{
        $operation.stream($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { page $status:literal $(, $($rest:tt)*)? }) => {{
        $operation.page($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { text $status:literal $(, $($rest:tt)*)? }) => {{
        $operation.text($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { $status:literal $(, $($rest:tt)*)? }) => {{
        $operation.response($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
    ($operation:ident { $status:literal $response:ty $(, $($rest:tt)*)? }) => {{
        $operation.json_response::<$response>($status);
        $crate::http::openapi::operation::describe!($operation { $($($rest)*)? });
    }};
}
pub(in crate::http) use describe;

impl<'a> Operation<'a> {
    pub(super) fn new(schemas: &'a mut Schemas) -> Self {
        Self {
            schemas,
            parameters: vec![],
            body: None,
            responses: BTreeMap::new(),
        }
    }

    /// The parameters in the template of its path.
    pub(super) fn path(&mut self, template: &str) {
        let names = template.split('/').filter_map(|part| {
            let name = part.strip_prefix('{')?;
            name.strip_suffix('}')
        });
        for name in names {
            let schema = parameters::of_path(template, name);
            self.parameters
                .push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
        }
    }

    /// Parameters of the query: the fields of a type.
    pub fn query<T: JsonSchema>(&mut self) {
        let schema = self.schemas.fields::<T>();
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        for (name, schema) in properties.into_iter().flatten() {
            let mut schema = without_null(schema.clone());
            let description = schema
                .as_object_mut()
                .and_then(|map| map.remove("description"));
            let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
            let mut parameter = json!({
                "name": name, "in": "query", "required": is_required, "schema": schema
            });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            self.parameters.push(parameter);
        }
    }

    /// A header that it reads.
    pub fn request_header(&mut self, name: &str) {
        self.parameters.push(headers::of_request(name));
    }

    /// A header of its responses with a status.
    pub fn response_header(&mut self, status: u16, name: &str) {
        self.put(status, None);
        if let Some(response) = self.responses.get_mut(&status) {
            response["headers"][name] = headers::of_response(name);
        }
    }

    /// A JSON body, whatever its content type says.
    pub fn body<T: JsonSchema>(&mut self, required: bool) {
        let schema = self.schemas.of_request::<T>();
        self.body = Some(json!({
            "required": required,
            "content": {"application/json": {"schema": schema}}
        }));
    }

    /// A response with a JSON value.
    pub fn json_response<T: JsonSchema>(&mut self, status: u16) {
        let schema = self.schemas.of_response::<T>();
        self.put(status, Some(("application/json", schema)));
    }

    /// A response without a body, also of an error.
    pub fn empty(&mut self, status: u16) {
        self.put(status, None);
    }

    /// A response without a body, or an error.
    pub fn response(&mut self, status: u16) {
        if status < 400 {
            self.put(status, None);
        } else {
            self.json_response::<ErrorBody>(status);
        }
    }

    /// A response with a page for people.
    pub fn page(&mut self, status: u16) {
        let schema = json_schema!({"type": "string"});
        self.put(status, Some(("text/html", schema)));
    }

    /// A response with plain text.
    pub fn text(&mut self, status: u16) {
        let schema = json_schema!({"type": "string"});
        self.put(status, Some(("text/plain", schema)));
    }

    /// A response with an event stream. The schema is that of one event.
    pub fn stream(&mut self, status: u16) {
        let schema = json_schema!({
            "type": "object",
            "properties": {
                "event": {"type": "string"},
                "data": {"type": "string"},
                "id": {"type": "string"}
            },
            "required": ["event"]
        });
        self.put(status, Some(("text/event-stream", schema)));
    }

    /// What every operation may respond with that reads a body, or that not everybody may call.
    pub(super) fn put_common(&mut self, is_public: bool, with_keys: bool) {
        let mut common = vec![];
        if self.body.is_some() {
            common.extend([408, 413, 422]);
        }
        if !is_public {
            common.extend([403, 429, 503]);
        }
        if !is_public && with_keys {
            common.push(401);
        }
        common.retain(|status| !self.responses.contains_key(status));
        for status in common {
            self.response(status);
        }
        if !is_public {
            self.response_header(429, "Retry-After");
            self.response_header(503, "Retry-After");
        }
    }

    fn put(&mut self, status: u16, content: Option<(&str, Schema)>) {
        let known = StatusCode::from_u16(status).ok();
        let reason = known.and_then(|status| status.canonical_reason());
        let response = self.responses.entry(status);
        let response =
            response.or_insert_with(|| json!({"description": reason.unwrap_or_default()}));
        if let Some((kind, schema)) = content {
            response["content"][kind] = json!({"schema": schema});
        }
    }

    /// The operation object.
    pub(super) fn finish(self) -> Map<String, Value> {
        let mut object = Map::new();
        if !self.parameters.is_empty() {
            object.insert("parameters".into(), self.parameters.into());
        }
        object.extend(self.body.map(|body| ("requestBody".into(), body)));
        let responses = self.responses.into_iter();
        let responses = responses.map(|(status, response)| (status.to_string(), response));
        object.insert("responses".into(), Value::Object(responses.collect()));
        object
    }
}

/// A parameter of a query is there or not, and never null.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.retain(|one| one["type"] != "null");
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            if let Some(map) = schema.as_object_mut() {
                map.remove("anyOf");
                map.extend(only);
            }
        }
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
    schema
}

/// An error.
#[derive(JsonSchema)]
#[schemars(rename = "Error")]
#[allow(dead_code, reason = "describes what `server::error` renders")]
struct ErrorBody {
    /// What is wrong and what to do, for people.
    detail: String,
    /// A stable word for programs, where there is one.
    #[schemars(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}
