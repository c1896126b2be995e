//! Parameters of paths in the OpenAPI document.

use serde_json::{Value, json};

use crate::http::wire::NAME;

/// A text in a path: proxies and servers disagree about what others mean.
const SEGMENT: &str = r"^[^/\\\x00-\x1f\x7f-\x9f]+$";

/// The schema of a parameter of a path.
pub fn of_path(template: &str, name: &str) -> Value {
    match name {
        // A graph stands for its assistant where a drawing is asked for.
        "assistant_id" if template.ends_with("/graph") => json!({
            "type": "string",
            "minLength": 1,
            "pattern": SEGMENT,
            "description": "The id of an assistant, or the name of a graph"
        }),
        "checkpoint_id" => json!({
            "type": "string", "minLength": 1, "description": "The id of a checkpoint; an unknown one has an empty state"
        }),
        // As on LangGraph's server, which has no events of what is no id either.
        "thread_id" if template.ends_with("/stream/events") => json!({
            "type": "string", "minLength": 1, "description": "The id of a thread; what is none has no events"
        }),
        name if name.ends_with("_id") => json!({
            "type": "string",
            "format": "uuid",
            "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
        }),
        // Of a branch or a tag.
        "name" => json!({
            "type": "string",
            "minLength": 1,
            "maxLength": 128,
            "pattern": NAME,
            "description": "The name of a branch or a tag; its slashes are encoded"
        }),
        "principal" => json!({
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": SEGMENT
        }),
        "namespace" => json!({"type": "string", "minLength": 1, "pattern": SEGMENT}),
        _ => json!({"type": "string", "minLength": 1}),
    }
}
