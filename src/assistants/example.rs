//! An input that a graph may have, for commands that people copy.

use serde_json::{Map, Value, json};

use crate::graph::Compiled;

/// An input by the graph's schema: a message where it has messages, else its required fields, else
/// its first one.
pub fn input(graph: &Compiled) -> Value {
    if let Some(channel) = graph.message_channel() {
        return Value::Object(Map::from_iter([(channel.to_string(), json!("Hello"))]));
    }
    of_schema(&graph.schemas.input)
}

/// A text as one word of a shell's command.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn of_schema(schema: &Value) -> Value {
    let Some(properties) = schema["properties"].as_object() else {
        return json!({});
    };
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let chosen = properties.iter().enumerate().filter(|(index, (name, _))| {
        if required.is_empty() {
            *index == 0
        } else {
            required.contains(&name.as_str())
        }
    });
    let fields = chosen.map(|(_, (name, schema))| (name.clone(), value_of(schema)));
    Value::Object(fields.collect())
}

fn value_of(schema: &Value) -> Value {
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => json!("rivers"),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_the_required_fields_or_else_the_first_one() {
        let two = json!({"topic": {"type": "string"}, "depth": {"type": ["integer", "null"]}});
        let schema = json!({"properties": two, "required": ["topic"]});
        assert_eq!(of_schema(&schema), json!({"topic": "rivers"}));
        assert_eq!(
            of_schema(&json!({"properties": {"n": {"type": "integer"}}})),
            json!({"n": 1})
        );
        assert_eq!(of_schema(&json!({})), json!({}));
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
