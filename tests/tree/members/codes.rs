//! Refusals with the words that programs read.

use super::*;
use test_support::on_both_storages;
use test_support::talk::code;

on_both_storages!(what_is_not_ones_own_is_refused_with_a_code_but_as_langgraph_does_there,);

fn what_is_not_ones_own_is_refused_with_a_code_but_as_langgraph_does_there(place: &Place) {
    let (_server, client) = serve(place);
    let (ann, bob) = (
        Keyed(client.with_key("key-a")),
        Keyed(client.with_key("key-b")),
    );
    let foreign = ann.thread(&json!({}));
    let nowhere = uuid::Uuid::now_v7().to_string();
    let message = json!({"role": "user", "content": "x"});
    for thread in [&foreign, &nowhere] {
        let own = format!("/threads/{thread}");
        for (method, path, body) in [
            ("GET", format!("{own}/branches"), Value::Null),
            ("GET", format!("{own}/messages"), Value::Null),
            ("POST", format!("{own}/messages"), message.clone()),
            ("GET", format!("{own}/head"), Value::Null),
            ("GET", format!("{own}/tree"), Value::Null),
            ("GET", format!("{own}/events"), Value::Null),
            ("GET", format!("{own}/tags"), Value::Null),
            ("PUT", format!("{own}/tags/t"), json!({})),
            ("GET", format!("{own}/forks"), Value::Null),
            ("POST", format!("{own}/fork"), json!({})),
            ("GET", format!("{own}/members"), Value::Null),
            (
                "GET",
                format!("{own}/diff?from=tag:a&to=tag:b"),
                Value::Null,
            ),
            ("POST", format!("{own}/rewind"), json!({"tag": "t"})),
            ("POST", format!("{own}/btw"), json!({})),
            ("POST", format!("{own}/restore"), json!({"tag": "t"})),
            (
                "POST",
                "/commands/send-message".into(),
                json!({"thread_id": thread, "content": "x", "assistant_id": "agent"}),
            ),
            (
                "POST",
                "/commands/fork-thread".into(),
                json!({"source_thread_id": thread}),
            ),
        ] {
            let answer = bob.send(method, &path, &body);
            assert_eq!(code(answer, 404), "thread_not_found", "{method} {path}");
        }
        for path in ["", "/state", "/history", "/runs"] {
            let answer = bob.get(&format!("{own}{path}"));
            assert_eq!(code(answer, 404), "", "{path}");
        }
    }
    let taken = json!({"thread_id": foreign, "if_exists": "do_nothing"});
    let answer = bob.post("/commands/create-thread", &taken);
    assert_eq!(code(&answer, 409), "thread_exists");
    assert_eq!(code(bob.post("/threads", &taken), 409), "");
    for query in ["mode=x", "min_event=x", "limit=0"] {
        let answer = bob.get(&format!("/threads?{query}"));
        assert_eq!(code(&answer, 422), "invalid_request", "{query}");
    }
    for (field, expected) in [
        ("mode", "invalid_request"),
        ("min_event", "invalid_request"),
        ("status", ""),
    ] {
        let answer = bob.post("/threads/search", &json!({field: "x"}));
        assert_eq!(code(&answer, 422), expected, "{field}");
    }
}
