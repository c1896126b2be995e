//! Tasks of A2A: sent, streamed, read and cancelled, in both generations of the protocol.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::{ok, until};

use super::{AGENT, a2a, assistant, parts, refused, streamed, text};

on_both_storages!(
    a_message_is_sent_and_its_task_read_in_both_generations,
    a_stream_shows_how_a_message_grows,
    a_task_is_cancelled_while_it_is_worked_on,
    a_failure_is_shown_with_its_reason,
    every_part_of_a_message_reaches_the_graph,
    cards_say_where_an_agent_is_called,
    the_official_client_talks_to_an_agent,
);

/// What of a task does not differ from time to time.
fn brief(task: &Value) -> Value {
    let context = task["contextId"].as_str().unwrap();
    assert!(
        task["id"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{context}:"))
    );
    let text = task.to_string().replace(context, "CONTEXT");
    let mut task: Value = serde_json::from_str(&text).unwrap();
    let run = task["id"].as_str().unwrap().replace("CONTEXT:", "");
    for (place, name) in [
        ("/status", "timestamp"),
        ("/artifacts/0", "artifactId"),
        ("/history/0", "messageId"),
        ("/history/1", "messageId"),
    ] {
        let Some(object) = task.pointer_mut(place) else {
            continue;
        };
        assert!(object[name].is_string(), "{place} {object}");
        object[name] = json!("VARIES");
    }
    serde_json::from_str(&task.to_string().replace(&run, "RUN")).unwrap()
}

fn a_message_is_sent_and_its_task_read_in_both_generations(place: &Place) {
    let (_server, client) = serve(place);
    let task = a2a(&client, "agent", "message/send", text("hello", json!({})));
    let said = |role: &str, text: &str| {
        json!({"kind": "message", "role": role, "parts": [{"kind": "text", "text": text}],
               "messageId": "VARIES", "taskId": "CONTEXT:RUN", "contextId": "CONTEXT"})
    };
    let expected = json!({
        "kind": "task", "id": "CONTEXT:RUN", "contextId": "CONTEXT",
        "history": [said("user", "hello"), said("agent", "echo: hello")],
        "status": {"state": "completed", "timestamp": "VARIES"},
        "artifacts": [{
            "artifactId": "VARIES", "name": "Assistant Response",
            "description": format!("Response from assistant {AGENT}"),
            "parts": [{"kind": "text", "text": "echo: hello"}]
        }]
    });
    assert_eq!(brief(&task), expected);
    let of = json!({"id": task["id"], "contextId": task["contextId"]});
    assert_eq!(a2a(&client, "agent", "tasks/get", of), task);

    let newer = a2a(
        &client,
        "agent",
        "GetTask",
        json!({"id": task["id"], "historyLength": 1}),
    );
    let expected = json!({
        "id": "CONTEXT:RUN", "contextId": "CONTEXT",
        "history": [{"role": "ROLE_AGENT", "parts": [{"text": "echo: hello"}], "messageId": "VARIES",
                     "taskId": "CONTEXT:RUN", "contextId": "CONTEXT"}],
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "VARIES"},
        "artifacts": [{
            "artifactId": "VARIES", "name": "Assistant Response",
            "description": format!("Response from assistant {AGENT}"), "parts": [{"text": "echo: hello"}]
        }]
    });
    assert_eq!(brief(&newer), expected);
    let none = a2a(
        &client,
        "agent",
        "tasks/get",
        json!({"id": task["id"], "historyLength": 0}),
    );
    assert!(none.get("history").is_none());
    let sent =
        json!({"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}});
    let newer = a2a(&client, "agent", "SendMessage", sent);
    assert_eq!(newer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

fn a_stream_shows_how_a_message_grows(place: &Place) {
    let (_server, client) = serve(place);
    let events = streamed(
        &client,
        "agent",
        "message/stream",
        text("hello you", json!({})),
    );
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!(
        (&first["kind"], &first["status"]["state"]),
        (&json!("task"), &json!("submitted"))
    );
    assert_eq!(first["history"][0]["parts"][0]["text"], "hello you");
    let growing: Vec<_> = events
        .iter()
        .filter(|event| event["status"]["state"] == "working")
        .map(|event| {
            assert_eq!(
                (&event["kind"], &event["final"]),
                (&json!("status-update"), &json!(false))
            );
            event["status"]["message"]["parts"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(growing[..3], ["echo:", "echo: hello", "echo: hello you"]);
    let artifact = &events[events.len() - 2];
    assert_eq!(
        (&artifact["kind"], &artifact["lastChunk"]),
        (&json!("artifact-update"), &json!(true))
    );
    assert_eq!(artifact["artifact"]["parts"][0]["text"], "echo: hello you");
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("completed"), &json!(true))
    );
    for event in &events[1..] {
        assert_eq!(
            (&event["taskId"], &event["contextId"]),
            (&first["id"], &first["contextId"])
        );
    }
    let task = a2a(&client, "agent", "tasks/get", json!({"id": first["id"]}));
    assert_eq!(task["artifacts"][0], artifact["artifact"]);

    let sent =
        json!({"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}});
    let newer = streamed(&client, "agent", "SendStreamingMessage", sent);
    let kinds: Vec<_> = newer
        .iter()
        .map(|event| event.as_object().unwrap().keys().next().unwrap().as_str())
        .collect();
    assert_eq!((kinds[0], kinds[1]), ("task", "statusUpdate"));
    assert_eq!(kinds[kinds.len() - 2..], ["artifactUpdate", "statusUpdate"]);
    assert_eq!(
        newer[kinds.len() - 1]["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}

fn a_task_is_cancelled_while_it_is_worked_on(place: &Place) {
    let (_server, client) = serve(place);
    let mut slow = parts(
        json!([{"kind": "data", "data": {"ms": 50, "ticks": 2000}}]),
        json!({}),
    );
    slow["configuration"] = json!({"blocking": false});
    let task = a2a(&client, "slow", "message/send", slow);
    assert_eq!(task["status"]["state"], "submitted");
    let of = json!({"id": task["id"]});
    let state = || a2a(&client, "slow", "tasks/get", of.clone())["status"]["state"].clone();
    until("the task is worked on", || state() == "working");
    let further = text("more", json!({"taskId": task["id"]}));
    assert_eq!(refused(&client, "slow", "message/send", further).0, -32004);
    let cancelled = a2a(&client, "slow", "tasks/cancel", of.clone());
    assert_eq!(
        (&cancelled["id"], &cancelled["status"]["state"]),
        (&task["id"], &json!("canceled"))
    );
    assert_eq!(state(), "canceled");
    assert_eq!(
        refused(&client, "slow", "tasks/cancel", of.clone()).0,
        -32002
    );
    assert_eq!(refused(&client, "slow", "CancelTask", of).0, -32002);
}

fn a_failure_is_shown_with_its_reason(place: &Place) {
    let (_server, client) = serve(place);
    let fails = || parts(json!([{"kind": "data", "data": {"fail": true}}]), json!({}));
    let task = a2a(&client, "failing", "message/send", fails());
    assert_eq!(task["status"]["state"], "failed");
    let shown = task["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap();
    assert!(shown.starts_with("ValueError: "), "{shown}");
    assert!(task.get("artifacts").is_none());
    let events = streamed(&client, "failing", "message/stream", fails());
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("failed"), &json!(true))
    );
    assert_eq!(last["status"]["message"]["parts"][0]["text"], shown);
}

fn every_part_of_a_message_reaches_the_graph(place: &Place) {
    let (_server, client) = serve(place);
    let both = json!([
        {"kind": "text", "text": "see"},
        {"kind": "file", "file": {"uri": "https://x/y.png", "mimeType": "image/png", "name": "y.png"}}
    ]);
    let task = a2a(
        &client,
        "agent",
        "message/send",
        parts(both.clone(), json!({})),
    );
    assert_eq!(task["history"][0]["parts"], both);
    let path = format!("/threads/{}/state", task["contextId"].as_str().unwrap());
    let state = ok(client.get(&path), 200);
    let blocks = json!([
        {"type": "text", "text": "see"},
        {"type": "image", "url": "https://x/y.png", "mime_type": "image/png", "extras": {"filename": "y.png"}}
    ]);
    assert_eq!(state["values"]["messages"][0]["content"], blocks);
    // Fields of data are the input of graphs that have no messages.
    let data = json!([{"data": {"count": 1, "log": []}}]);
    let task = a2a(&client, "counter", "message/send", parts(data, json!({})));
    assert_eq!(task["history"], json!([]));
    let shown = task["artifacts"][0]["parts"][0]["text"].as_str().unwrap();
    let values: Value = serde_json::from_str(shown).unwrap();
    assert_eq!(values["count"], 1112);
}

fn cards_say_where_an_agent_is_called(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(keys);
    let open = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| open.with_key(key));
    let below = format!("/a2a/{AGENT}");
    let places = [
        below.clone(),
        format!("{below}/.well-known/agent-card.json"),
        format!("{below}/.well-known/agent.json"),
        format!("/.well-known/agent-card.json?assistant_id={AGENT}"),
    ];
    let card = ok(ann.get(&places[0]), 200);
    let url = format!("{}{below}", server.base_url());
    assert_eq!(
        (&card["name"], &card["url"]),
        (&json!("agent"), &json!(url))
    );
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_eq!(
        card["supportedInterfaces"][0],
        json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"})
    );
    assert_eq!(
        card["skills"][0]["metadata"]["inputSchema"]["supportsA2A"],
        true
    );
    for path in &places {
        assert_eq!(ok(ann.get(path), 200), card, "{path}");
        assert_eq!(open.get(path).status, 401, "{path}");
    }
    let counter = ok(ann.get(&format!("/a2a/{}", assistant("counter"))), 200);
    assert_eq!(
        counter["skills"][0]["metadata"]["inputSchema"]["supportsA2A"],
        false
    );
    let own = ok(
        ann.post("/assistants", &json!({"graph_id": "agent", "name": "own"})),
        200,
    );
    let own = own["assistant_id"].as_str().unwrap();
    assert_eq!(ok(ann.get(&format!("/a2a/{own}")), 200)["name"], "own");
    let nowhere = uuid::Uuid::new_v4().to_string();
    let shown = |client: &Client, id: &str| {
        let answer = client.get(&format!("/a2a/{id}"));
        (answer.status, answer.text().replace(id, "ID"))
    };
    assert_eq!(shown(&bob, own), shown(&bob, &nowhere));
    for path in [
        format!("/a2a/{nowhere}"),
        "/a2a/agent".into(),
        "/.well-known/agent-card.json".into(),
        "/.well-known/agent-card.json?assistant_id=agent".into(),
    ] {
        let answer = ann.get(&path);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(-32602)),
            "{path}"
        );
    }
}

fn the_official_client_talks_to_an_agent(place: &Place) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = place.start(Setup::example("reference_server"));
    python.run(
        "agents.py",
        &[server.base_url(), AGENT, &assistant("approve")],
    );
}
