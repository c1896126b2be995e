//! Repeated requests of MCP and A2A, whose methods are in their bodies.

use super::*;

on_both_storages!(
    a_repeated_call_or_message_runs_once,
    of_methods_that_only_read_nothing_is_stored,
);

/// The server's assistant of `agent`.
const AGENT: &str = "/a2a/fe096781-5601-53d2-b2f6-0d3403f7e9ca";

/// A client of a server that knows nobody, and one of a server with keys.
fn with_keys_and_without(place: &Place, does: impl Fn(&Client)) {
    {
        let (_server, client) = serve(place);
        does(&client);
    }
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = place.start(setup);
    does(&Client::of(&server).with_key("key-a"));
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn message(text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"role": "user", "messageId": "m", "parts": parts}})
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed").is_some()
}

fn a_repeated_call_or_message_runs_once(place: &Place) {
    with_keys_and_without(place, |client| {
        let call = json!({"name": "agent", "arguments": {"messages": "hello"}});
        let newer =
            json!({"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}});
        for (path, method, params) in [
            ("/mcp", "tools/call", call),
            (AGENT, "message/send", message("hello")),
            (AGENT, "SendMessage", newer),
        ] {
            let body = request(method, &params);
            let first = post(client, path, method, &body);
            assert_eq!(
                (first.status, replayed(&first)),
                (200, false),
                "{}",
                first.text()
            );
            assert!(first.json()["error"].is_null(), "{}", first.text());
            let again = post(client, path, method, &body);
            assert!(replayed(&again), "{method}: {}", again.text());
            // Its messages and tasks have the ids of the first time.
            assert_eq!((again.status, again.text()), (200, first.text()));
        }
        let threads = client.get("/threads").json();
        assert_eq!(threads.as_array().unwrap().len(), 2, "{threads}");
    });
}

fn of_methods_that_only_read_nothing_is_stored(place: &Place) {
    with_keys_and_without(place, |client| {
        let sent = ok(
            post(
                client,
                AGENT,
                "send",
                &request("message/send", &message("hello")),
            ),
            200,
        );
        let task = &sent["result"];
        let nowhere = format!("{}:{}", uuid::Uuid::now_v7(), uuid::Uuid::now_v7());
        for (path, method, params) in [
            (
                "/mcp",
                "initialize",
                json!({"protocolVersion": "2025-06-18"}),
            ),
            ("/mcp", "ping", json!({})),
            ("/mcp", "tools/list", json!({})),
            ("/mcp", "tools/list", json!({"cursor": "x"})),
            (AGENT, "tasks/get", json!({"id": task["id"]})),
            (AGENT, "tasks/get", json!({"id": nowhere})),
            (AGENT, "GetTask", json!({"id": task["id"]})),
            (AGENT, "ListTasks", json!({"contextId": task["contextId"]})),
        ] {
            for _ in 0..2 {
                let answer = post(client, path, "read", &request(method, &params));
                assert_eq!((answer.status, replayed(&answer)), (200, false), "{method}");
            }
        }
        // The key is still free.
        assert_eq!(post(client, "/threads", "read", &json!({})).status, 200);
    });
}
