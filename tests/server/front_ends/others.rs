//! CopilotKit, which reads events and schemas, and RemoteGraph, a graph that another one calls.

use serde_json::{Value, json};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{create, ok, with};

use super::{contents, data, human, open, rest};

on_both_storages!(
    copilotkit_finds_its_agent_and_its_keys_and_follows_its_events,
    a_remote_graph_is_drawn_streamed_with_its_subgraphs_and_resumed,
);

fn keys(schema: &Value) -> Vec<&str> {
    let properties = schema["properties"].as_object().unwrap();
    properties.keys().map(String::as_str).collect()
}

fn copilotkit_finds_its_agent_and_its_keys_and_follows_its_events(place: &Place) {
    let (_server, client) = serve(place);
    let search = json!({"graph_id": "agent", "limit": 10, "offset": 0});
    let found = ok(client.post("/assistants/search", &search), 200);
    let assistant = found[0]["assistant_id"].as_str().unwrap();
    let thread = create(
        &client,
        &json!({"thread_id": uuid::Uuid::now_v7().to_string()}),
    );
    ok(client.get(&format!("/threads/{thread}/state")), 200);
    let drawing = ok(client.get(&format!("/assistants/{assistant}/graph")), 200);
    let nodes: Vec<_> = drawing["nodes"].as_array().unwrap().iter().collect();
    assert!(nodes.iter().any(|node| node["id"] == "model"), "{nodes:?}");
    let schemas = ok(client.get(&format!("/assistants/{assistant}/schemas")), 200);
    // It drops what has no key here.
    assert_eq!(keys(&schemas["input_schema"]), ["messages"]);
    assert_eq!(keys(&schemas["output_schema"]), ["messages"]);

    let mut run = json!({
        "assistant_id": assistant, "input": human("one"), "stream_subgraphs": true,
        "stream_mode": ["events", "values", "updates", "messages-tuple"],
    });
    let path = format!("/threads/{thread}/runs/stream");
    let events = rest(open(&client, "POST", &path, &run));
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(contents(last), ["one", "echo: one"]);
    let of_graph = data(&events, "events");
    let of_node: Vec<_> = of_graph
        .iter()
        .filter(|event| event["name"] == "model")
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(of_node.first(), Some(&"on_chain_start"), "{of_node:?}");
    assert_eq!(of_node.last(), Some(&"on_chain_end"), "{of_node:?}");
    // Words as the model says them, and the tool it calls, which are what it shows.
    let words: String = of_graph
        .iter()
        .filter(|event| event["event"] == "on_chat_model_stream")
        .filter_map(|event| event["data"]["chunk"]["content"].as_str())
        .collect();
    assert_eq!(words, "echo: one");
    assert!(of_graph.iter().all(|event| event["run_id"].is_string()
        && event["metadata"].is_object()
        && event["parent_ids"].is_array()));
    run["input"] = human("tool: 2 3");
    let events = rest(open(&client, "POST", &path, &run));
    let tools: Vec<_> = data(&events, "events")
        .into_iter()
        .filter(|event| event["event"].as_str().unwrap().starts_with("on_tool_"))
        .collect();
    assert_eq!(tools.len(), 2);
    assert_eq!(
        (&tools[0]["event"], &tools[0]["name"]),
        (&json!("on_tool_start"), &json!("add"))
    );
    assert_eq!(tools[1]["event"], "on_tool_end");
    assert_eq!(tools[1]["data"]["output"]["content"], "5");

    // A message that is asked for anew is written into the state as if it came in there, and the run
    // goes on from that checkpoint.
    let history = client.history(&thread);
    let empty = history.last().unwrap()["checkpoint"]["checkpoint_id"].clone();
    let write = json!({"values": human("two"), "as_node": "__start__", "checkpoint_id": empty});
    let written = client.post(&format!("/threads/{thread}/state"), &write);
    let fork = ok(written, 200)["configurable"]["checkpoint_id"].clone();
    run["input"] = Value::Null;
    run["checkpoint_id"] = fork;
    let events = rest(open(&client, "POST", &path, &run));
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(contents(last), ["two", "echo: two"]);
    let state = client.state(&thread);
    assert_eq!(contents(&state["values"]), ["two", "echo: two"]);
}

fn a_remote_graph_is_drawn_streamed_with_its_subgraphs_and_resumed(place: &Place) {
    let (_server, client) = serve(place);
    // By the name of the graph.
    let drawing = ok(client.get("/assistants/subgraph/graph?xray=true"), 200);
    let ids: Vec<_> = drawing["nodes"].as_array().unwrap().iter().collect();
    assert!(ids.iter().any(|node| node["id"] == "before"), "{ids:?}");
    let found = ok(
        client.post("/assistants/search", &json!({"graph_id": "subgraph"})),
        200,
    );
    let assistant = found[0]["assistant_id"].as_str().unwrap();
    let schemas = ok(client.get(&format!("/assistants/{assistant}/schemas")), 200);
    assert_eq!(keys(&schemas["input_schema"]), ["path", "pause"]);
    let path = format!("/assistants/{assistant}/subgraphs?recurse=true");
    let below = ok(client.get(&path), 200);
    let mut names: Vec<_> = below.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["child", "child|grand"]);

    // Without a thread, as a step of another graph.
    let body = json!({
        "assistant_id": "subgraph", "input": {"path": []}, "stream_subgraphs": true,
        "stream_mode": ["values", "updates"], "if_not_exists": "create",
    });
    let events = rest(open(&client, "POST", "/runs/stream", &body));
    let mut modes: Vec<_> = events
        .iter()
        .map(|event| {
            let parts = event.name.split('|').map(|part| part.split(':').next());
            parts.flatten().collect::<Vec<_>>().join("|")
        })
        .filter(|name| name.starts_with("updates"))
        .collect();
    modes.sort();
    modes.dedup();
    assert_eq!(modes, ["updates", "updates|child", "updates|child|grand"]);

    // On a thread, where it stops, is looked at with its subgraphs, and goes on.
    let thread = create(&client, &json!({}));
    let path = format!("/threads/{thread}/runs/stream");
    let stops = with(body, "input", json!({"path": [], "pause": true}));
    let events = rest(open(&client, "POST", &path, &stops));
    let asked = data(&events, "updates")
        .into_iter()
        .find_map(|data| data["__interrupt__"].get(0))
        .unwrap();
    assert_eq!(asked["value"], json!({"where": "leaf"}));
    let checkpoint = json!({"thread_id": thread, "checkpoint_ns": ""});
    let path_of_state = format!("/threads/{thread}/state/checkpoint");
    let whole = json!({"checkpoint": checkpoint, "subgraphs": true});
    let state = ok(client.post(&path_of_state, &whole), 200);
    assert_eq!(state["next"], json!(["child"]));
    let inner = &state["tasks"][0]["state"];
    assert_eq!(inner["tasks"][0]["state"]["next"], json!(["leaf"]));
    let history = json!({"limit": 10, "before": null, "metadata": null});
    let path_of_history = format!("/threads/{thread}/history");
    let states = ok(client.post(&path_of_history, &history), 200);
    assert_eq!(states[0]["checkpoint"], state["checkpoint"]);
    let resume = json!({
        "assistant_id": "subgraph", "command": {"resume": "go"}, "stream_subgraphs": true,
        "stream_mode": ["updates", "values"],
    });
    let events = rest(open(&client, "POST", &path, &resume));
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(
        last["path"].as_array().unwrap().last(),
        Some(&json!("after"))
    );
    // A failure of the graph is raised by the caller.
    let fails = json!({
        "assistant_id": "failing", "input": {"fail": true}, "stream_mode": ["values", "updates"],
    });
    let events = rest(open(&client, "POST", "/runs/stream", &fails));
    assert_eq!(data(&events, "error")[0]["message"], "boom from node bad");
    // Nor does a turn of `agent` need anything else.
    let body = json!({"assistant_id": "agent", "input": human("one"), "stream_mode": ["values"]});
    let events = rest(open(&client, "POST", "/runs/stream", &body));
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(contents(last), ["one", "echo: one"]);
}
