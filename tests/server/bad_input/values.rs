//! Values that are odd, and how they are kept.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    numbers_beyond_64_bits_are_refused_and_smaller_ones_kept,
    lone_surrogates_become_replacement_characters,
    nul_characters_are_kept,
    numbers_that_json_columns_would_change_are_kept,
);

fn numbers_beyond_64_bits_are_refused_and_smaller_ones_kept(place: &Place) {
    let scene = Scene::new(place);
    for number in ["18446744073709551616", "-9223372036854775809"] {
        let body = format!("{{\"assistant_id\": \"fault\", \"input\": {{\"note\": {number}}}}}");
        let detail = scene.refused(body, 422);
        assert!(
            detail.contains(number) && detail.contains("send it as a string"),
            "{detail}"
        );
    }
    for number in [
        "18446744073709551615",
        "-9223372036854775808",
        "1e300",
        "0.1",
    ] {
        assert_eq!(kept(&scene, number), number.replace("e", "e+"), "{number}");
    }
    scene.unharmed();
}

/// What a JSON value has become in the state, as the server writes it.
fn kept(scene: &Scene, value: &str) -> String {
    let client = &scene.client;
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/wait");
    let body = format!("{{\"assistant_id\": \"fault\", \"input\": {{\"note\": {value}}}}}");
    let waited = client.post_text(&path, body);
    assert_eq!(waited.status, 200, "{}", waited.text());
    let state = client.get(&format!("/threads/{thread}/state"));
    let text = state.text();
    let start = text.find("\"note\":").unwrap() + "\"note\":".len();
    let end = start + text[start..].find(",\"done\"").unwrap();
    text[start..end].to_owned()
}

fn lone_surrogates_become_replacement_characters(place: &Place) {
    let scene = Scene::new(place);
    assert_eq!(kept(&scene, "\"a\\ud800b\""), "\"a\u{fffd}b\"");
    assert_eq!(
        kept(&scene, "{\"\\udc00\": [\"\\ud83d\\ude00\"]}"),
        "{\"\u{fffd}\":[\"\u{1f600}\"]}"
    );
    scene.unharmed();
}

fn nul_characters_are_kept(place: &Place) {
    let scene = Scene::new(place);
    assert_eq!(kept(&scene, "\"a\\u0000b\""), "\"a\\u0000b\"");
    assert_eq!(
        kept(&scene, "{\"k\\u0000\": [\"\\u0000\"]}"),
        "{\"k\\u0000\":[\"\\u0000\"]}"
    );
    // In metadata, tags and configuration of a run and of a thread as well.
    let client = &scene.client;
    let mut body = good();
    body["metadata"] = json!({"k\0": "v\0"});
    body["config"] = json!({"tags": ["t\0"], "configurable": {"c\0": "d\0"}});
    let thread = client.thread();
    assert_eq!(client.run(&thread, &body)["done"], json!(["good", "bad"]));
    assert_eq!(client.history(&thread).len(), 4);
    let made = client.post("/threads", &json!({"metadata": {"k\0": ["v\0"]}}));
    assert_eq!(made.status, 200, "{}", made.text());
    scene.unharmed();
}

fn numbers_that_json_columns_would_change_are_kept(place: &Place) {
    let scene = Scene::new(place);
    for number in ["1.0", "-0.0", "1e+22", "123456789012345678", "5e-324"] {
        assert_eq!(kept(&scene, number), number);
        assert_eq!(kept(&scene, &format!("[{number}]")), format!("[{number}]"));
    }
    scene.unharmed();
}
