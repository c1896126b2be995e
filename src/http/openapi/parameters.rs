//! Parameters of paths in the OpenAPI document.

use serde_json::{Value, json};

/// The schema of a parameter of a path.
pub fn of_path(template: &str, name: &str) -> Value {
    match name {
        // A graph stands for its assistant where a drawing is asked for.
        "assistant_id" if template.ends_with("/graph") => json!({
            "type": "string", "minLength": 1, "description": "The id of an assistant, or the name of a graph"
        }),
        "checkpoint_id" => json!({
            "type": "string", "minLength": 1, "description": "The id of a checkpoint; an unknown one has an empty state"
        }),
        name if name.ends_with("_id") => json!({"type": "string", "format": "uuid"}),
        _ => json!({"type": "string", "minLength": 1}),
    }
}
