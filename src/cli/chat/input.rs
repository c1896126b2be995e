//! What a graph takes as input, and how a line that somebody types becomes one.

use serde_json::{Map, Value, json};

/// The form of a graph's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A message in this channel.
    Messages(String),
    /// A text in this field.
    Text(String),
    /// A JSON object with these fields.
    Fields(Vec<String>),
}

impl Shape {
    pub(super) fn of(schema: &Value) -> Self {
        let Some(properties) = schema["properties"].as_object() else {
            return Self::Fields(vec![]);
        };
        let is_message = |schema: &Value| {
            let item = schema["items"]["$ref"].as_str();
            item.is_some_and(|name| name.ends_with("/Message"))
        };
        let messages = properties.iter().find(|(_, schema)| is_message(schema));
        if let Some((name, _)) = messages.or(properties.get_key_value("messages")) {
            return Self::Messages(name.clone());
        }
        let required: Vec<&String> = properties
            .keys()
            .filter(|name| {
                let mut required = schema["required"].as_array().into_iter().flatten();
                required.any(|one| one == *name)
            })
            .collect();
        let wanted: Vec<&String> = if required.is_empty() {
            properties.keys().collect()
        } else {
            required
        };
        match &*wanted {
            [one] if is_text(&properties[*one]) => Self::Text((*one).clone()),
            _ => Self::Fields(wanted.into_iter().cloned().collect()),
        }
    }

    /// The input that a line stands for.
    ///
    /// # Errors
    /// What to type instead.
    pub(super) fn input(&self, line: &str) -> Result<Value, String> {
        let of = |name: &String, value| Value::Object(Map::from_iter([(name.clone(), value)]));
        if let Self::Messages(channel) = self {
            let message = json!([{"role": "user", "content": line}]);
            return Ok(of(channel, message));
        }
        if line.starts_with('{') {
            return serde_json::from_str(line).map_err(|error| format!("this is no JSON: {error}"));
        }
        match self {
            Self::Text(field) => Ok(of(field, json!(line))),
            Self::Messages(_) => Ok(Value::Null),
            Self::Fields(fields) => Err(format!(
                "this graph takes an object; type JSON such as {{{}}}",
                fields
                    .iter()
                    .map(|field| format!("\"{field}\": …"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }
}

fn is_text(schema: &Value) -> bool {
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
        kind => kind == "string",
    }
}

/// The resume value of a line: JSON where it is JSON, else the text.
pub(super) fn resume(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| json!(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_message_a_text_or_an_object() {
        let messages = json!({"properties": {
            "n": {"type": "integer"},
            "log": {"type": "array", "items": {"$ref": "#/$defs/Message"}}
        }});
        let chat = Shape::of(&messages);
        assert_eq!(chat, Shape::Messages("log".into()));
        assert_eq!(
            chat.input("{hi"),
            Ok(json!({"log": [{"role": "user", "content": "{hi"}]}))
        );
        let topic = json!({"topic": {"type": "string"}, "n": {"type": "integer"}});
        let one = Shape::of(&json!({"properties": topic, "required": ["topic"]}));
        assert_eq!(one.input("tea"), Ok(json!({"topic": "tea"})));
        assert_eq!(one.input("{\"topic\": 1}"), Ok(json!({"topic": 1})));
        let several = Shape::of(&json!({"properties": topic}));
        let refused = several.input("tea").unwrap_err();
        assert!(refused.contains("\"topic\": …, \"n\": …"), "{refused}");
        assert!(several.input("{\"n\"").is_err());
        assert!(Shape::of(&json!({})).input("tea").is_err());
    }

    #[test]
    fn a_resume_value_is_json_or_a_text() {
        assert_eq!(resume("true"), json!(true));
        assert_eq!(resume("shorter, please"), json!("shorter, please"));
    }
}
