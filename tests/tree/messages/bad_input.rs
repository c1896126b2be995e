//! What the message API refuses, and how.

use serde_json::{Value, json};

use super::conversation;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{code, post, read, user, with};

on_both_storages!(
    bad_posts_are_refused_and_write_nothing,
    bad_reads_are_refused,
    bad_sends_are_refused_and_write_nothing,
    a_graph_without_messages_has_none,
);

const NOBODY: &str = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";

fn bad_posts_are_refused_and_write_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    let before = read(&client, &thread, "");
    let many: Vec<Value> = (0..1001).map(|_| user("x")).collect();
    for (body, status, expected) in [
        (json!({"messages": []}), 422, "invalid_request"),
        (json!({"messages": many}), 413, "too_large"),
        (user(&"x".repeat((1 << 20) + 1)), 413, "too_large"),
        (
            json!({"role": "robot", "content": "x"}),
            422,
            "invalid_request",
        ),
        (json!({"role": "user"}), 422, "invalid_request"),
        (
            with(with(user("x"), "parent_id", "M1"), "branch", "main"),
            422,
            "invalid_request",
        ),
        (
            with(with(user("x"), "branch", "main"), "position", "before"),
            422,
            "invalid_request",
        ),
        (with(user("x"), "id", "a\u{7}"), 422, "invalid_request"),
        (with(user("x"), "branch", "../x"), 422, "invalid_request"),
        (
            with(user("x"), "parent_id", NOBODY),
            404,
            "message_not_found",
        ),
        (with(user("x"), "parent_id", "nothing"), 400, "invalid_id"),
        (
            with(user("x"), "expected_head", NOBODY),
            409,
            "head_conflict",
        ),
        (
            with(user("x"), "expected_head", "nothing"),
            409,
            "head_conflict",
        ),
    ] {
        assert_eq!(code(post(&client, &thread, &body), status), expected);
    }
    let path = format!("/threads/{thread}/messages");
    assert_eq!(code(client.post_text(&path, "{"), 422), "invalid_request");
    assert_eq!(
        code(post(&client, NOBODY, &user("x")), 404),
        "thread_not_found"
    );
    assert_eq!(
        code(post(&client, "nobody", &user("x")), 422),
        "invalid_request"
    );
    assert_eq!(read(&client, &thread, ""), before);
}

fn bad_reads_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    for (query, status, expected) in [
        ("after=M1&before=M2", 400, "invalid_cursor"),
        ("after=M1&tail=true", 400, "invalid_cursor"),
        ("after=nothing", 400, "invalid_cursor"),
        ("leaf_id=nothing", 400, "invalid_id"),
        ("checkpoint_id=nothing", 400, "invalid_id"),
        (
            "leaf_id=5a65802f-74fe-4e41-9a19-5fa219b2c04e",
            404,
            "message_not_found",
        ),
        (
            "checkpoint_id=1f1e52d3-b51d-655d-8000-078d7d9aa83f",
            404,
            "checkpoint_not_found",
        ),
        ("branch=nowhere", 404, "branch_not_found"),
        ("branch=..", 422, "invalid_request"),
        ("branch=main&leaf_id=M1", 422, "invalid_request"),
        ("limit=0", 422, "invalid_request"),
        ("limit=1001", 422, "invalid_request"),
        ("limit=ten", 422, "invalid_request"),
        ("view=all", 422, "invalid_request"),
        ("leaf=newest", 422, "invalid_request"),
        ("message_id=M1", 422, "invalid_request"),
        ("branch=main&tag=t", 422, "invalid_request"),
        ("branch=main&position=before", 422, "invalid_request"),
    ] {
        let answer = client.get(&format!("/threads/{thread}/messages?{query}"));
        assert_eq!(code(&answer, status), expected, "{query}");
    }
    read(&client, &thread, "branch=main&position=at");
    for query in [
        "checkpoint_id=x",
        "branch=main&event_number=1",
        "position=x",
    ] {
        let answer = client.get(&format!("/threads/{thread}/head?{query}"));
        assert_eq!(code(&answer, 422), "invalid_request", "{query}");
    }
    let unknown = client.get(&format!("/threads/{NOBODY}/messages"));
    assert_eq!(code(&unknown, 404), "thread_not_found");
    assert_eq!(
        code(client.get("/threads/nobody/messages"), 422),
        "invalid_request"
    );
}

fn bad_sends_are_refused_and_write_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    let before = read(&client, &thread, "");
    let send = |body: Value| client.post("/commands/send-message", &body);
    let to = |thread: &str, content: &str| json!({"thread_id": thread, "content": content});
    assert_eq!(code(send(to(&thread, "  ")), 400), "blank_message");
    assert_eq!(code(send(to(NOBODY, "x")), 404), "thread_not_found");
    assert_eq!(code(send(to("nobody", "x")), 422), "invalid_request");
    let plain = client.thread();
    assert_eq!(code(send(to(&plain, "x")), 422), "invalid_request");
    for (key, value, status, expected) in [
        ("assistant_id", NOBODY, 422, "invalid_request"),
        ("message_id", "M1", 409, "message_exists"),
        ("parent_id", "nothing", 400, "invalid_id"),
        ("parent_id", NOBODY, 404, "message_not_found"),
        ("branch", "nowhere", 404, "branch_not_found"),
        ("tag", "t", 422, "invalid_request"),
        ("checkpoint_id", NOBODY, 422, "invalid_request"),
        ("position", "zzz", 422, "invalid_request"),
        ("position", "before", 422, "invalid_request"),
    ] {
        let answer = send(with(to(&thread, "x"), key, value));
        assert_eq!(code(&answer, status), expected, "{key}");
    }
    assert_eq!(
        send(with(to(&thread, "x"), "assistant_id", "nobody")).status,
        422
    );
    assert_eq!(read(&client, &thread, ""), before);
    let runs = client.get(&format!("/threads/{thread}/runs"));
    assert_eq!(runs.json(), json!([]));
}

fn a_graph_without_messages_has_none(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let input = json!({"count": 0, "log": []});
    client.run(&thread, &json!({"assistant_id": "counter", "input": input}));
    assert_eq!(
        code(post(&client, &thread, &user("x")), 409),
        "no_messages_channel"
    );
    let answer = client.get(&format!("/threads/{thread}/messages"));
    assert_eq!(code(&answer, 409), "no_messages_channel");
    let send = json!({"thread_id": thread, "content": "x"});
    let answer = client.post("/commands/send-message", &send);
    assert_eq!(code(&answer, 409), "no_messages_channel");
}
