//! The document is whole: every operation has responses, and every reference leads somewhere.

use std::collections::BTreeSet;

use super::*;

fn document() -> Value {
    describe(TABLE, true)
}

/// Every operation with its path and method.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut all = vec![];
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((format!("{method} {path}"), operation));
        }
    }
    all
}

#[test]
fn every_operation_says_how_it_succeeds() {
    // Clients of MCP know by their failure that there are no sessions.
    const NEVER: [&str; 2] = ["get /mcp", "delete /mcp"];
    for (name, operation) in operations(&document()) {
        if NEVER.contains(&&*name) {
            continue;
        }
        let responses = operation["responses"].as_object().unwrap();
        let succeeds = responses
            .keys()
            // A WebSocket begins with 101.
            .any(|status| status.starts_with('2') || status == "101");
        assert!(succeeds, "{name} has no response of a success");
    }
}

#[test]
fn operations_that_change_something_by_their_bodies_describe_them() {
    // Their bodies are not read.
    const BODILESS: [&str; 2] = ["copy_thread", "cancel_run"];
    for (name, operation) in operations(&document()) {
        let id = operation["operationId"].as_str().unwrap();
        let reads = ["post ", "put ", "patch "]
            .iter()
            .any(|method| name.starts_with(method))
            && !BODILESS.contains(&id)
            || name == "delete /store/items";
        if reads {
            assert!(
                operation["requestBody"].is_object(),
                "{name} describes no body"
            );
        }
    }
}

#[test]
fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
    let document = document();
    let mut named = BTreeSet::new();
    references(&document, &mut named);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let known: BTreeSet<String> = schemas.keys().cloned().collect();
    assert_eq!(named, known);
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let name = reference.strip_prefix("#/components/schemas/");
                found.insert(name.unwrap_or(reference).to_owned());
            }
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// A type that is read and written would have two schemas by one name.
#[test]
fn no_name_stands_for_two_schemas() {
    let mut schemas = Schemas::new();
    for route in TABLE {
        (route.describe)(&mut Operation::new(&mut schemas));
    }
    let (requests, responses) = schemas.by_direction();
    for (name, schema) in &requests {
        if let Some(other) = responses.get(name) {
            assert_eq!(schema, other, "{name}");
        }
    }
}

#[test]
fn fields_without_effect_are_said_to_have_none() {
    let document = document();
    for body in ["CreateRun", "CreateStatelessRun"] {
        let fields = &document["components"]["schemas"][body]["properties"];
        for name in ["feedback_keys", "langsmith_tracer", "strict_resume"] {
            let text = fields[name]["description"].as_str().unwrap_or_default();
            assert!(
                text.starts_with("Accepted and ignored"),
                "{body}.{name}: {text}"
            );
        }
    }
}

#[test]
fn a_key_is_asked_for_where_one_is_needed() {
    let open = describe(TABLE, false);
    assert!(open["security"].is_null() && open["components"]["securitySchemes"].is_null());
    let document = document();
    assert_eq!(document["security"], json!([{"key": []}]));
    for (name, operation) in operations(&document) {
        let is_public = operation["x-access"] == "public";
        assert_eq!(operation["security"] == json!([]), is_public, "{name}");
        assert_eq!(operation["responses"]["401"].is_null(), is_public, "{name}");
    }
}
