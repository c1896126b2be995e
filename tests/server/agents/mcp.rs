//! Assistants as tools of MCP.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::ok;

use super::{call, post, refusal};

on_both_storages!(
    every_assistant_that_a_client_sees_is_a_tool,
    a_tool_is_called_and_leaves_nothing,
    what_is_no_request_is_refused,
    the_official_client_finds_and_calls_tools,
);

const BOTH: &str = "application/json, text/event-stream";

fn mcp(client: &Client, method: &str, params: Value) -> Value {
    call(client, "/mcp", method, params)
}

fn names(client: &Client) -> Vec<String> {
    let listed = mcp(client, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn every_assistant_that_a_client_sees_is_a_tool(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(keys);
    let open = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| open.with_key(key));
    let graphs = names(&ann);
    assert!(graphs.contains(&"agent".to_owned()), "{graphs:?}");
    for name in ["mine", "mine", "counter"] {
        let body = json!({"graph_id": "counter", "name": name, "description": "Counts."});
        ok(ann.post("/assistants", &body), 200);
    }
    let mut expected = graphs.clone();
    expected.extend(["mine", "mine-2", "counter-2"].map(String::from));
    assert_eq!(names(&ann), expected);
    assert_eq!(names(&bob), graphs, "of others nothing shows");
    let listed = mcp(&ann, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = |name: &str| {
        tools
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap()
            .clone()
    };
    let expected = json!({
        "name": "agent", "title": "agent", "description": "Tool based on the agent assistant",
        "inputSchema": {
            "title": "State", "type": "object", "required": ["messages"],
            "properties": {"messages": {
                "type": "string", "title": "Messages", "description": "The user message to send to the agent."
            }}
        },
        "annotations": {
            "readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": true
        }
    });
    assert_eq!(tool("agent"), expected);
    assert_eq!(tool("mine-2")["description"], "Counts.");
    let input = json!({"name": "mine-2", "arguments": {"count": 1, "log": []}});
    let result = mcp(&ann, "tools/call", input.clone());
    assert!(
        result["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("1112")
    );
    let (code, text) = refusal(&mcp(&bob, "tools/call", input));
    assert_eq!((code, &*text), (-32602, "Unknown tool: mine-2"));
    assert_eq!(post(&open, "/mcp", BOTH, &json!({})).status, 401);
}

fn a_tool_is_called_and_leaves_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let wanted = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let begun = mcp(&client, "initialize", wanted);
    let expected = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": false}},
        "serverInfo": {"name": "Backstitch", "version": env!("CARGO_PKG_VERSION")}
    });
    assert_eq!(begun["result"], expected);
    for older in ["2025-03-26", "2024-11-05"] {
        let begun = mcp(&client, "initialize", json!({"protocolVersion": older}));
        assert_eq!(begun["result"]["protocolVersion"], older);
    }
    let newer = mcp(
        &client,
        "initialize",
        json!({"protocolVersion": "2999-01-01"}),
    );
    assert_eq!(newer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(mcp(&client, "ping", json!({}))["result"], json!({}));

    let run = |name: &str, arguments: Value| {
        let called = mcp(
            &client,
            "tools/call",
            json!({"name": name, "arguments": arguments}),
        );
        called["result"].clone()
    };
    let shown = |result: &Value| -> Value {
        assert!(result.get("isError").is_none(), "{result}");
        serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
    };
    let counted = run("counter", json!({"count": 1, "log": []}));
    assert_eq!(
        shown(&counted),
        json!({"count": 1112, "log": ["first", "left", "right", "last"]})
    );
    for said in [
        json!("hello"),
        json!([{"role": "user", "content": "hello"}]),
    ] {
        let values = shown(&run("agent", json!({"messages": said})));
        assert_eq!(values["messages"][1]["content"], "echo: hello");
    }
    let failed = run("failing", json!({"fail": true}));
    let expected = json!({"isError": true, "content": [{"type": "text", "text": "ValueError"}]});
    assert_eq!(failed, expected);
    let asked = shown(&run("approve", json!({"request": "pay"})));
    assert_eq!(asked["__interrupt__"][0]["value"]["question"], "approve?");
    assert_eq!(ok(client.post("/threads/count", &json!({})), 200), 0);
}

fn what_is_no_request_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let send = |accept: &str, body: &str| {
        let answer = client.send("POST", "/mcp", &[("accept", accept)], body.as_bytes());
        (answer.status, answer.text().to_owned())
    };
    for accept in ["text/html", ""] {
        let (status, text) = send(accept, &request.to_string());
        assert_eq!(
            (status, text.contains("Accept header must include")),
            (400, true),
            "{accept}"
        );
    }
    for accept in ["application/json", "text/event-stream", "*/*"] {
        assert_eq!(send(accept, &request.to_string()).0, 200, "{accept}");
    }
    let batch = json!([request]).to_string();
    for wrong in [
        "{nope",
        "",
        "[]",
        &batch,
        "\"x\"",
        "null",
        "{\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\"}",
    ] {
        let (status, text) = send(BOTH, wrong);
        assert_eq!(
            (status, text.starts_with("{\"error\":\"")),
            (400, true),
            "{wrong}: {text}"
        );
    }
    for silent in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "counter"}}),
        json!({"jsonrpc": "2.0", "id": null, "method": "tools/call", "params": {"name": "counter"}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
    ] {
        assert_eq!(
            send(BOTH, &silent.to_string()),
            (202, String::new()),
            "{silent}"
        );
    }
    for (id, method, echoed) in [
        (json!({"a": 1}), json!("ping"), json!(null)),
        (json!([1]), json!("ping"), json!(null)),
        (json!(true), json!("ping"), json!(null)),
        (json!(1), json!(2), json!(1)),
    ] {
        let wrong = json!({"jsonrpc": "2.0", "id": id, "method": method});
        let (status, text) = send(BOTH, &wrong.to_string());
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &message["id"]), (200, &echoed), "{wrong}");
        assert_eq!(refusal(&message).0, -32600, "{wrong}");
    }
    let number = json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"});
    assert!(send(BOTH, &number.to_string()).1.contains("\"id\":1.5"));
    for (method, params, code) in [
        ("bogus", json!({}), -32601),
        ("ping", json!([1]), -32602),
        ("tools/list", json!({"cursor": "x"}), -32602),
        ("tools/list", json!({"cursor": "99999"}), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({"name": 1}), -32602),
        ("tools/call", json!({"name": "nope"}), -32602),
        (
            "tools/call",
            json!({"name": "counter", "arguments": [1]}),
            -32602,
        ),
    ] {
        let message = mcp(&client, method, params.clone());
        assert_eq!(refusal(&message).0, code, "{method} {params}");
    }
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(5 << 20)});
    assert_eq!(send(BOTH, &large.to_string()).0, 413);
    let answer = client.get("/mcp");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(client.delete("/mcp").status, 404);
    let answer = client.send("POST", "/mcp/", &[], b"");
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some("/mcp"))
    );
}

fn the_official_client_finds_and_calls_tools(place: &Place) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = place.start(Setup::example("reference_server"));
    python.run("tools.py", &[server.base_url()]);
}
