//! What is checked of MCP servers without one.

use std::sync::Arc;

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::{child::Lines, header_map, offer, outcome, without_password};

#[test]
fn the_name_of_a_web_address_shows_neither_passwords_nor_queries() {
    for (url, shown) in [
        ("https://a.example/mcp", "https://a.example/mcp"),
        ("https://user:key@a.example/mcp", "a.example/mcp"),
        ("https://a.example/mcp?key=1", "https://a.example/mcp"),
        ("https://a.example/mcp#key", "https://a.example/mcp"),
        ("no address", "no address"),
    ] {
        assert_eq!(without_password(url), shown);
    }
}

#[test]
fn a_header_that_cannot_be_one_is_named_without_its_value() {
    let error = header_map(&[("x-key".to_owned(), "sec\nret".to_owned())]).unwrap_err();
    assert_eq!(error, "the value of the header `x-key` cannot be one");
    let error = header_map(&[("x key".to_owned(), "1".to_owned())]).unwrap_err();
    assert_eq!(error, "`x key` cannot be a header");
}

#[tokio::test]
async fn output_ends_at_the_first_line_that_is_too_long() {
    let read = |text: &'static [u8], most| async move {
        let too_long = Arc::default();
        let mut lines = Lines::new(text, most, Arc::clone(&too_long));
        let mut output = Vec::new();
        let result = lines.read_to_end(&mut output).await.map(|_| ());
        (result.is_ok(), too_long.get().is_some())
    };
    assert_eq!(read(b"1234\n12345\n1", 5).await, (true, false));
    assert_eq!(read(b"1234\n123456\n1", 5).await, (false, true));
    assert_eq!(read(b"123456", 5).await, (false, true));
    assert_eq!(read(b"", 5).await, (true, false));
}

#[test]
fn tools_that_no_model_can_be_offered_are_left_out() {
    let offer = |name: &str, schema: serde_json::Value| {
        let tool = json!({"name": name, "inputSchema": schema, "description": "d"});
        offer::usable(
            serde_json::from_value(tool).unwrap(),
            "p.",
            &mut std::collections::HashSet::from(["p_taken".to_owned()]),
        )
    };
    let (name, description, parameters) = offer("a/b c", json!({"$schema": "x"})).unwrap();
    assert_eq!((name.as_str(), description.as_str()), ("p_a_b_c", "d"));
    assert_eq!(parameters, json!({"type": "object", "properties": {}}));
    let large = json!({"type": "object", "title": "x".repeat(65 << 10)});
    for (name, schema, why) in [
        (
            "a",
            json!({"type": "string"}),
            "its schema is not that of an object",
        ),
        (
            "a",
            large,
            "its description and schema have more than 64 KiB",
        ),
        ("taken", json!({}), "another one has its name"),
        (
            &*"x".repeat(65),
            json!({}),
            "its name is empty or has more than 64 characters",
        ),
    ] {
        assert_eq!(offer(name, schema).unwrap_err(), why);
    }
}

#[test]
fn results_are_read_as_text_and_images() {
    let value = |result: serde_json::Value| {
        let result = serde_json::from_value(result).unwrap();
        outcome::value(rmcp::model::CallToolResponse::Complete(result))
            .map(|value| value.to_json())
            .map_err(|error| error.to_string())
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
    let resource = json!({"type": "resource", "resource": {"uri": "f:1", "text": "inside"}});
    let blob = json!({"type": "resource", "resource": {"uri": "f:2", "blob": "AAAAAAAA"}});
    let content = json!([text("one"), resource, blob]);
    assert_eq!(
        value(json!({"content": content})).unwrap(),
        r#""one\ninside\n[f:2 of an unknown type, 6 bytes left out]""#
    );
    let content = json!([text("one"), image, blob]);
    let shown = value(json!({"content": content})).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let left_out = "[f:2 of an unknown type, 6 bytes left out]\n";
    let image_part = json!({"type": "image", "base64": "AAAA", "mime_type": "image/png"});
    assert_eq!(shown, json!([text("one\n"), image_part, text(left_out)]));
    let vector = json!({"type": "image", "mimeType": "image/svg+xml", "data": "AAAA"});
    let broken = json!({"type": "image", "mimeType": "image/png", "data": "A:AA"});
    assert_eq!(
        value(json!({"content": [vector, broken]})).unwrap(),
        r#""[image image/svg+xml, 3 bytes left out]\n[image image/png, 3 bytes left out]""#
    );
    let failed = json!({"content": [text("no"), image], "isError": true});
    assert_eq!(
        value(failed).unwrap_err(),
        "no\n[image image/png, 3 bytes left out]"
    );
    let both = json!({"content": [text("as text")], "structuredContent": {"n": 1}});
    assert_eq!(value(both).unwrap(), r#""as text""#);
    let structured = json!({"content": [], "structuredContent": {"n": 1}});
    assert_eq!(value(structured).unwrap(), r#"{"n":1}"#);
    assert_eq!(value(json!({"content": []})).unwrap(), r#""""#);
    let failed = json!({"content": [text("no"), text("way")], "isError": true});
    assert_eq!(value(failed).unwrap_err(), "no\nway");
    let silent = json!({"content": [], "isError": true});
    assert_eq!(
        value(silent).unwrap_err(),
        "the tool failed and does not say why"
    );
}
