//! What the agents of A2A refuse.

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, serve};

use super::{AGENT, COUNTER, parts, post, refusal, refused, text};

on_both_storages!(
    what_is_no_request_is_refused,
    a_message_that_makes_no_sense_is_refused,
);

fn what_is_no_request_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let path = format!("/a2a/{AGENT}");
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}});
    let send = |body: &str| {
        let answer = client.post_text(&path, body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        (answer.json()["id"].clone(), refusal(&answer.json()).0)
    };
    let null = serde_json::Value::Null;
    let batch = json!([get]).to_string();
    for (body, code) in [
        ("{nope", -32700),
        ("", -32700),
        ("[]", -32600),
        (&*batch, -32600),
        ("\"x\"", -32600),
    ] {
        assert_eq!(send(body), (null.clone(), code), "{body}");
    }
    let without = |name: &str| {
        let mut body = get.clone();
        body.as_object_mut().unwrap().remove(name);
        body.to_string()
    };
    assert_eq!(send(&without("id")), (null.clone(), -32600));
    assert_eq!(send(&without("method")), (json!(1), -32600));
    assert_eq!(send(&without("jsonrpc")), (json!(1), -32600));
    assert_eq!(
        send(&get.to_string().replace("\"id\":1", "\"id\":null")),
        (null, -32600)
    );
    let listed = get.to_string().replace("{\"id\":\"x\"}", "[1]");
    assert_eq!(send(&listed), (json!(1), -32602));
    for (method, params, code) in [
        ("bogus", json!({}), -32601),
        ("tasks/get", json!({}), -32602),
        ("tasks/get", json!({"id": "x"}), -32001),
        ("tasks/get", json!({"id": "x", "historyLength": -1}), -32001),
        ("tasks/cancel", json!({"id": "x:y"}), -32001),
    ] {
        assert_eq!(
            refused(&client, "agent", method, params.clone()).0,
            code,
            "{method} {params}"
        );
    }
    for (method, accept) in [
        ("tasks/get", "text/html"),
        ("tasks/get", "text/event-stream"),
        ("message/stream", "application/json"),
    ] {
        let mut body = get.clone();
        body["method"] = json!(method);
        let answer = post(&client, &path, accept, &body);
        assert_eq!(answer.status, 400, "{method} {accept}");
        assert!(
            answer.json()["error"]
                .as_str()
                .unwrap()
                .starts_with("Accept header must include")
        );
    }
    for id in ["agent", "nope", &uuid::Uuid::new_v4().to_string()] {
        let answer = post(&client, &format!("/a2a/{id}"), "application/json", &get);
        assert_eq!(
            (answer.status, refusal(&answer.json()).0),
            (200, -32602),
            "{id}"
        );
    }
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(5 << 20)});
    assert_eq!(post(&client, &path, "application/json", &large).status, 413);
    assert_eq!(client.delete(&path).status, 405);
    let headers = [("idempotency-key", "k"), ("accept", "text/event-stream")];
    let stream = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": text("x", json!({}))});
    let answer = client.send("POST", &path, &headers, stream.to_string().as_bytes());
    assert!(refusal(&answer.json()).1.contains("Idempotency-Key"));
}

fn a_message_that_makes_no_sense_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let said = || json!([{"kind": "text", "text": "x"}]);
    let mut notified = text("x", json!({}));
    notified["configuration"] = json!({"pushNotificationConfig": {"url": "http://x"}});
    for (params, code) in [
        (json!({}), -32602),
        (
            json!({"message": {"role": "user", "messageId": "m"}}),
            -32602,
        ),
        (
            json!({"message": {"role": "user", "messageId": "m", "parts": []}}),
            -32602,
        ),
        (
            json!({"message": {"role": "user", "parts": said()}}),
            -32602,
        ),
        (
            json!({"message": {"role": "bogus", "messageId": "m", "parts": said()}}),
            -32602,
        ),
        (parts(json!([{"kind": "bogus"}]), json!({})), -32005),
        (
            parts(json!([{"kind": "text", "text": 1}]), json!({})),
            -32602,
        ),
        (parts(json!([{"data": [1]}]), json!({})), -32602),
        (text("x", json!({"contextId": "mine"})), -32602),
        (text("x", json!({"taskId": "nope"})), -32001),
        (
            text(
                "x",
                json!({"taskId": format!("{0}:{0}", uuid::Uuid::now_v7())}),
            ),
            -32001,
        ),
        (notified, -32003),
    ] {
        assert_eq!(
            refused(&client, "agent", "message/send", params.clone()).0,
            code,
            "{params}"
        );
    }
    let (code, reason) = refused(&client, "counter", "message/send", text("x", json!({})));
    assert_eq!(code, -32602);
    for word in [COUNTER, "'counter'", "'count', 'log'"] {
        assert!(reason.contains(word), "{reason}");
    }
    // Nothing of it was written.
    assert_eq!(client.post("/threads/count", &json!({})).json(), 0);
}
