//! Schemas of replies as a provider takes them.

use serde_json::Value as Json;

use super::provider::Provider;

/// Bounds that Anthropic refuses. Whether a reply keeps to them is seen when it is read.
const BOUNDS: [&str; 8] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
];

/// The schema without what the provider refuses in one.
pub(super) fn schema_for(provider: Provider, mut schema: Json) -> Json {
    if provider == Provider::Anthropic {
        without_bounds(&mut schema);
    }
    schema
}

fn without_bounds(schema: &mut Json) {
    match schema {
        Json::Object(keywords) => {
            keywords.retain(|name, value| match name.as_str() {
                "minItems" => value.as_u64().is_none_or(|items| items <= 1),
                // Of a number, such as `uint32`.
                "format" => !value.as_str().is_some_and(is_of_number),
                name => !BOUNDS.contains(&name),
            });
            for (name, value) in keywords {
                match (name.as_str(), value) {
                    // Names that the author chose, each with a schema.
                    ("properties" | "$defs" | "definitions", Json::Object(named)) => {
                        named.values_mut().for_each(without_bounds);
                    }
                    // Data, which may look like a schema.
                    ("const" | "default" | "enum" | "examples", _) => {}
                    (_, value) => without_bounds(value),
                }
            }
        }
        Json::Array(parts) => parts.iter_mut().for_each(without_bounds),
        _ => {}
    }
}

fn is_of_number(format: &str) -> bool {
    ["int", "uint", "float", "double"]
        .iter()
        .any(|kind| format.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anthropic_gets_no_bounds_and_others_get_all() {
        let schema = json!({
            "type": "object",
            "properties": {
                "guests": {"type": "integer", "format": "uint32", "minimum": 0},
                "minimum": {"type": "string", "maxLength": 5, "format": "date-time"},
                "default": {"type": "integer", "maximum": 5},
                "days": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/Day"}},
                "rooms": {"type": "array", "minItems": 2, "items": {"type": "string"}},
                "limits": {"enum": [{"minimum": 1}], "default": {"minimum": 1}},
            },
            "required": ["guests", "minimum"],
            "$defs": {"Day": {"anyOf": [{"type": "number", "exclusiveMaximum": 31, "multipleOf": 1}, {"type": "null"}]}},
        });
        let plain = json!({
            "type": "object",
            "properties": {
                "guests": {"type": "integer"},
                "minimum": {"type": "string", "format": "date-time"},
                "default": {"type": "integer"},
                "days": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Day"}},
                "rooms": {"type": "array", "items": {"type": "string"}},
                "limits": {"enum": [{"minimum": 1}], "default": {"minimum": 1}},
            },
            "required": ["guests", "minimum"],
            "$defs": {"Day": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        });
        assert_eq!(schema_for(Provider::Anthropic, schema.clone()), plain);
        assert_eq!(schema_for(Provider::Gemini, schema.clone()), schema);
    }
}
