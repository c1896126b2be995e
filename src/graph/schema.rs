//! JSON schemas of a graph's state, and whether two schemas can mean the same value.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::{ChannelSpec, Schemas};
use crate::channel::{Kind, Shape};

/// The schemas of a graph, made of those of its channels.
pub(super) fn schemas(
    title: &str,
    channels: &[ChannelSpec],
    input: &[Arc<str>],
    output: &[Arc<str>],
    context: Option<Value>,
) -> Schemas {
    let part = |names: &[Arc<str>]| {
        object(
            title,
            channels.iter().filter(|spec| names.contains(&spec.name)),
        )
    };
    Schemas {
        input: part(input),
        output: part(output),
        state: object(title, channels.iter()),
        context: context.map(|mut schema| {
            if let Some(schema) = schema.as_object_mut() {
                schema.remove("$schema");
            }
            schema
        }),
    }
}

/// An object with a property per channel. Definitions of nested types move to the top, where the
/// references in them point.
fn object<'a>(title: &str, channels: impl Iterator<Item = &'a ChannelSpec>) -> Value {
    let (mut properties, mut definitions) = (Map::new(), Map::new());
    for spec in channels {
        let mut schema = spec.schema.clone();
        let nested = match schema.as_object_mut().and_then(|all| all.remove("$defs")) {
            Some(Value::Object(nested)) => nested,
            _ => Map::new(),
        };
        let (choices, mut nested): (Map<_, _>, Map<_, _>) = nested
            .into_iter()
            .partition(|(_, definition)| is_choice(definition));
        inline(&mut schema, &choices);
        nested
            .values_mut()
            .for_each(|definition| inline(definition, &choices));
        definitions.extend(nested);
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("$schema");
            if is_messages(&spec.kind) {
                // Front ends show such a channel as a conversation.
                schema.insert("langgraph_type".to_owned(), "messages".into());
            }
            let title = schema.entry("title".to_owned());
            title.or_insert_with(|| heading(&spec.name).into());
        }
        properties.insert(spec.name.to_string(), schema);
    }
    let mut object = json!({ "title": title, "type": "object", "properties": properties });
    if !definitions.is_empty() {
        object["$defs"] = definitions.into();
    }
    object
}

/// Whether a definition is an enum of plain words: front ends show one in place as a choice.
fn is_choice(definition: &Value) -> bool {
    let choices = definition.get("oneOf").and_then(Value::as_array);
    let plain = |choice: &Value| choice.get("const").is_some() || choice.get("enum").is_some();
    definition.get("enum").is_some() || choices.is_some_and(|choices| choices.iter().all(plain))
}

/// Replaces references to `choices` by what they name.
fn inline(schema: &mut Value, choices: &Map<String, Value>) {
    match schema {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str);
            let name = name.and_then(|name| name.strip_prefix("#/$defs/"));
            if let Some(Value::Object(choice)) = name.and_then(|name| choices.get(name)).cloned() {
                map.remove("$ref");
                // A description at the reference says more than that of the type.
                for (keyword, value) in choice {
                    map.entry(keyword).or_insert(value);
                }
            }
            map.values_mut().for_each(|part| inline(part, choices));
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| inline(part, choices)),
        _ => {}
    }
}

/// `route_hint` as `Route Hint`.
fn heading(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    let words: Vec<String> = words
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|c| c.to_uppercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        })
        .collect();
    words.join(" ")
}

/// Whether a channel is one of chat messages.
pub(super) fn is_messages(kind: &Kind) -> bool {
    matches!(kind, Kind::Aggregate(reducer) if reducer.shape() == Shape::Messages)
}

/// The types of a reader and of a channel if no value can have both. Only types are compared,
/// down into lists: any other mismatch is an error when the value is decoded.
pub(super) fn mismatch(reader: &Value, holder: &Value) -> Option<(String, String)> {
    mismatch_in(reader, holder, reader, holder, 4).map(|(a, b)| (a.join(" or "), b.join(" or ")))
}

type Kinds = Vec<String>;

fn mismatch_in(
    reader: &Value,
    holder: &Value,
    reader_root: &Value,
    holder_root: &Value,
    depth: usize,
) -> Option<(Kinds, Kinds)> {
    let reader = resolve(reader, reader_root);
    let holder = resolve(holder, holder_root);
    let (required, provided) = (
        kinds(reader, reader_root, 8)?,
        kinds(holder, holder_root, 8)?,
    );
    // Null is what an absent channel reads as: it makes nothing compatible.
    let fits = |a: &str, b: &str| a == b || (a == "number" && b == "integer");
    let solid = |kinds: &BTreeSet<String>| kinds.iter().any(|kind| kind != "null");
    let common = required.iter().any(|a| {
        a != "null"
            && provided
                .iter()
                .any(|b| b != "null" && (fits(a, b) || fits(b, a)))
    });
    if solid(&required) && solid(&provided) && !common {
        return Some((Vec::from_iter(required), Vec::from_iter(provided)));
    }
    let items = reader.get("items").zip(holder.get("items"));
    let only_lists = required.iter().chain(&provided).all(|kind| kind == "array");
    if let (Some((reader, holder)), true, true) = (items, only_lists, depth > 0) {
        let (a, b) = mismatch_in(reader, holder, reader_root, holder_root, depth - 1)?;
        let lists = |kinds: Kinds| {
            kinds
                .iter()
                .map(|kind| format!("array of {kind}"))
                .collect()
        };
        return Some((lists(a), lists(b)));
    }
    None
}

fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str);
    let name = name.and_then(|name| name.strip_prefix("#/$defs/"));
    name.and_then(|name| root.get("$defs")?.get(name))
        .unwrap_or(schema)
}

/// The JSON types that a schema allows; `None` if it names none.
fn kinds(schema: &Value, root: &Value, depth: usize) -> Option<BTreeSet<String>> {
    let schema = resolve(schema, root);
    match schema.get("type") {
        Some(Value::String(one)) => return Some(BTreeSet::from([one.clone()])),
        Some(Value::Array(many)) => {
            let many = many.iter().filter_map(Value::as_str);
            return Some(many.map(str::to_owned).collect());
        }
        _ => {}
    }
    let depth = depth.checked_sub(1)?;
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    let mut all = BTreeSet::new();
    for choice in choices.as_array()? {
        all.extend(kinds(choice, root, depth)?);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
