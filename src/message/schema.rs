//! The JSON schema of a message.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Message;

impl JsonSchema for Message {
    fn schema_name() -> Cow<'static, str> {
        "Message".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "Message",
            "description": "A chat message; further fields are kept.",
            "type": "object",
            "properties": {
                "type": {
                    "type": "string",
                    "description": "human, ai, system, tool, function, chat or remove",
                },
                "content": {
                    "anyOf": [
                        {"type": "string"},
                        {"type": "array", "items": {"anyOf": [
                            {"type": "string"},
                            {"type": "object", "additionalProperties": true},
                        ]}},
                    ],
                },
                "id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "tool_calls": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "args": {"type": "object", "additionalProperties": true},
                            "id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        },
                        "required": ["name", "args"],
                    },
                },
                "tool_call_id": {"type": "string"},
            },
            "required": ["type", "content"],
            "additionalProperties": true,
        })
    }
}
