//! Headers of requests and responses in the OpenAPI document.

use serde_json::{Value, json};

/// The headers that every operation reads.
pub const OF_ALL: [&str; 2] = ["x-request-id", "traceparent"];

/// The parameter that describes a header of requests.
pub fn of_request(name: &str) -> Value {
    let (schema, description) = match name {
        "Idempotency-Key" => (
            json!({"type": "string", "pattern": "^[!-~]{1,255}$"}),
            "A request that is repeated with its key within a day has no further effect and gets the \
             response of the first time",
        ),
        "Last-Event-ID" => (
            json!({"type": "string"}),
            "The id of the last event that was read: those behind it follow. `-` is before the first one",
        ),
        "Prefer" => (
            json!({"type": "string"}),
            "With `return=minimal` the response has no body",
        ),
        "traceparent" => (
            json!({"type": "string"}),
            "The span of the caller (W3C Trace Context), which the spans of the server continue if it \
             records any",
        ),
        _ => (
            json!({"type": "string"}),
            "The id of the request in the log; a new one without it",
        ),
    };
    json!({
        "name": name, "in": "header", "required": false, "schema": schema, "description": description
    })
}

/// What describes a header of responses.
pub fn of_response(name: &str) -> Value {
    let path = json!({"type": "string", "format": "uri-reference"});
    let (required, schema, description) = match name {
        "Content-Location" => (true, path, "The run that the response is about"),
        "Location" => (
            true,
            path,
            "Where to go on with the response after a broken connection",
        ),
        "X-Pagination-Total" => (
            true,
            json!({"type": "integer", "minimum": 0}),
            "How many items there are up to the end of the page, and one more if others follow",
        ),
        "X-Pagination-Next" => (
            false,
            json!({"type": "integer", "minimum": 0}),
            "The offset of the next page, if there is one",
        ),
        "Retry-After" => (
            true,
            json!({"type": "integer", "minimum": 0}),
            "Seconds after which to try again",
        ),
        _ => (true, json!({"type": "string"}), "The methods of the path"),
    };
    json!({"required": required, "schema": schema, "description": description})
}
