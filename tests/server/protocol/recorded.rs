//! Every message of the protocol as it is on the wire: the reply to each command, each error, and the
//! events of each channel. What a reply or an event has is recorded in `snapshots`; `INSTA_UPDATE=always`
//! records it anew.

use std::collections::HashMap;

use test_support::on_both_storages;
use test_support::place::{Place, block_on, serve};
use test_support::server::Setup;
use test_support::talk;

use super::websocket::connect;
use super::*;

on_both_storages!(
    replies_to_commands_are_as_recorded,
    replies_over_a_websocket_are_as_recorded,
    refused_streams_are_as_recorded,
    the_events_of_every_channel_are_as_recorded,
);

const ALL: [&str; 9] = [
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "checkpoints",
    "tasks",
    "custom",
];

/// What was sent and received, with names in place of ids and times.
#[derive(Default)]
struct Record {
    text: String,
    ids: HashMap<String, usize>,
}

impl Record {
    fn line(&mut self, label: &str, body: &Value) {
        let mut body = body.clone();
        self.name(&mut body);
        self.text.push_str(&format!("{label}{body}\n"));
    }

    fn name(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if key == "timestamp" && value.is_number() {
                        *value = json!("<time>");
                    }
                    self.name(value);
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.name(value)),
            Value::String(text) => *text = self.named(text),
            _ => {}
        }
    }

    /// The text with each id in it numbered by its first appearance.
    fn named(&mut self, text: &str) -> String {
        if text.len() > 18 && text.as_bytes()[10] == b'T' && text.starts_with("20") {
            return "<time>".into();
        }
        let is_part = |char: char| char.is_ascii_hexdigit() || char == '-';
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|char: char| char.is_ascii_hexdigit()) {
            let end = rest[start..].find(|char| !is_part(char));
            let end = end.map_or(rest.len(), |end| start + end);
            let word = rest[start..end].trim_matches('-');
            out.push_str(&rest[..start]);
            let plain = word.replace('-', "");
            if plain.len() == 32 && (word.len() == 36 || word.len() == 32) {
                let next = self.ids.len() + 1;
                let number = *self.ids.entry(plain).or_insert(next);
                out.push_str(&format!("<id {number}>"));
                out.push_str(&rest[start + word.len()..end]);
            } else {
                out.push_str(&rest[start..end]);
            }
            rest = &rest[end..];
        }
        out + rest
    }
}

/// Commands that are the same on every connection: what they are about, the method and the parameters.
fn commands() -> Vec<(&'static str, Value)> {
    let nowhere = "0".repeat(32);
    let absent = "11111111-2222-7333-8444-555555555555";
    let counter = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
    vec![
        ("run.start", json!({})),
        ("run.start", json!({"assistant_id": 5})),
        ("run.start", json!({"assistant_id": "none", "input": {}})),
        ("run.start", talk::with(counter.clone(), "config", 7)),
        ("run.start", talk::with(counter.clone(), "forkFrom", absent)),
        (
            "run.start",
            talk::with(counter.clone(), "multitaskStrategy", "never"),
        ),
        ("input.respond", json!({})),
        ("input.respond", json!({"interrupt_id": ""})),
        (
            "input.respond",
            json!({"interrupt_id": nowhere, "response": 1}),
        ),
        ("input.respond", json!({"responses": []})),
        ("input.respond", json!({"responses": {}})),
        (
            "input.respond",
            json!({"responses": [{"interrupt_id": "a", "response": 1}, {"interrupt_id": "a", "response": 2}]}),
        ),
        (
            "input.respond",
            json!({"interrupt_id": "a", "response": 1, "goto": 1}),
        ),
        ("input.inject", json!({})),
        ("state.get", json!({})),
        ("state.listCheckpoints", json!({})),
        ("state.fork", json!({})),
        ("no.such", json!({})),
        ("agent.getTree", json!({})),
        ("subscription.subscribe", json!({})),
        ("subscription.subscribe", json!({"channels": ["none"]})),
        (
            "subscription.subscribe",
            json!({"channels": ["values"], "since": -1}),
        ),
        ("subscription.unsubscribe", json!({})),
        (
            "subscription.unsubscribe",
            json!({"subscription_id": nowhere}),
        ),
        ("subscription.reconnect", json!({})),
        ("run.start", counter),
    ]
}

/// Messages that are no commands.
const NO_COMMANDS: [&str; 7] = [
    "",
    "{",
    "[]",
    "{\"method\": \"run.start\"}",
    "{\"id\": \"1\", \"method\": \"run.start\"}",
    "{\"id\": 1.5, \"method\": \"run.start\"}",
    "{\"id\": 1, \"method\": 2}",
];

fn replies_to_commands_are_as_recorded(place: &Place) {
    let (_server, client) = serve(place);
    let mut record = Record::default();
    let thread = new_thread();
    let path = format!("/threads/{thread}/commands");
    for text in NO_COMMANDS {
        let reply = client.post_text(&path, text);
        record.text.push_str(&format!("> {text}\n"));
        record.line(&format!("{} ", reply.status), &reply.json());
    }
    for (method, params) in commands() {
        let command = json!({"id": 7, "method": method, "params": params});
        let reply = client.post(&path, &command);
        record.line("> ", &command);
        record.line(&format!("{} ", reply.status), &reply.json());
    }
    // An answer that is taken, and one that comes too late.
    let thread = new_thread();
    start(&client, &thread, "approve", json!({"request": "pay"}));
    let requested = events(&client, &thread, &["input", "lifecycle"], 1);
    let id = requested[1]["params"]["data"]["interrupt_id"].clone();
    for _ in 0..2 {
        let params = json!({"interrupt_id": id, "response": "yes"});
        let reply = command(&client, &thread, "input.respond", params);
        record.line("input.respond ", &reply);
        events(&client, &thread, &["lifecycle"], 2);
    }
    let absent = json!({"configurable": {"checkpoint_id": "1f0a0000-0000-6000-8000-000000000000"}});
    let start = json!({"assistant_id": "approve", "input": {"request": "x"}, "config": absent});
    let reply = command(&client, &thread, "run.start", start);
    record.line("run.start from a checkpoint that is not there: ", &reply);
    insta::assert_snapshot!("commands", record.text);
}

fn replies_over_a_websocket_are_as_recorded(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    block_on(async {
        let mut record = Record::default();
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        for text in NO_COMMANDS {
            socket.send(text).await;
            record.text.push_str(&format!("> {text}\n"));
            record.line("", &socket.read().await.unwrap());
        }
        for (method, params) in commands() {
            record.line("> ", &json!({"id": 3, "method": method, "params": params}));
            record.line("", &socket.command(method, params).await);
        }
        // What a subscription gets, and its end.
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        let channels = json!({"channels": ["lifecycle"]});
        let subscribed = socket
            .command("subscription.subscribe", channels.clone())
            .await;
        record.line("subscription.subscribe ", &subscribed);
        let params = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
        record.line("run.start ", &socket.command("run.start", params).await);
        for event in socket.run().await {
            record.line("", &event);
        }
        record.line(
            "agent.getTree ",
            &socket.command("agent.getTree", json!({})).await,
        );
        let more = json!({"channels": ["values"]});
        let reply = socket.command("subscription.subscribe", more).await;
        record.line("subscription.subscribe ", &reply);
        for _ in 0..reply["result"]["replayed_events"].as_u64().unwrap() {
            record.line("", &socket.read().await.unwrap());
        }
        let id = json!({"subscription_id": subscribed["result"]["subscription_id"]});
        for _ in 0..2 {
            let reply = socket.command("subscription.unsubscribe", id.clone()).await;
            record.line("subscription.unsubscribe ", &reply);
        }
        insta::assert_snapshot!("websocket", record.text);
    });
}

fn refused_streams_are_as_recorded(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(keys);
    let client = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| client.with_key(key));
    let mut record = Record::default();
    let thread = ann.thread();
    let path = format!("/threads/{thread}/stream/events");
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"channels": []}"#,
        r#"{"channels": "values"}"#,
        r#"{"channels": [1]}"#,
        r#"{"channels": ["none", "values"]}"#,
        r#"{"channels": ["values"], "since": -1}"#,
        r#"{"channels": ["values"], "since": "1"}"#,
        r#"{"channels": ["values"], "depth": -1}"#,
        r#"{"channels": ["values"], "namespaces": [1]}"#,
    ] {
        let refused = ann.post_text(&path, body);
        record.line(&format!("> {body}\n{} ", refused.status), &refused.json());
    }
    let body = json!({"channels": ["values"]});
    let refused = client.post(&path, &body);
    record.line(
        &format!("without a key: {} ", refused.status),
        &refused.json(),
    );
    let refused = ann.get(&path);
    record.line(
        &format!("without an upgrade: {} ", refused.status),
        &refused.json(),
    );
    // What is somebody else's is as if it were not there.
    let start = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
    let respond = json!({"interrupt_id": "0".repeat(32), "response": 1});
    for (method, params) in [("run.start", start), ("input.respond", respond)] {
        let reply = command(&bob, &thread, method, params.clone());
        record.line(&format!("{method} of another one's thread: "), &reply);
        let member = format!("/threads/{thread}/members/bob");
        let granted = talk::put(&ann, &member, &json!({"level": "reader"}));
        assert!(granted.status < 300);
        let reply = command(&bob, &thread, method, params);
        record.line(&format!("{method} of a thread to read: "), &reply);
        assert_eq!(ann.delete(&member).status, 204);
    }
    insta::assert_snapshot!("refused_streams", record.text);
}

fn the_events_of_every_channel_are_as_recorded(place: &Place) {
    let (_server, client) = serve(place);
    let tool = json!({"messages": [{"role": "user", "content": "tool: 2 3", "id": "u1"}]});
    let runs = [
        ("agent", tool),
        ("approve", json!({"request": "pay"})),
        ("slow", json!({"ms": 1, "ticks": 2})),
        ("subgraph", json!({"log": []})),
        ("failing", json!({"fail": true})),
    ];
    for (graph, input) in runs {
        let thread = new_thread();
        start(&client, &thread, graph, input);
        let mut record = Record::default();
        for event in events(&client, &thread, &ALL, 1) {
            record.line("", &event);
        }
        insta::assert_snapshot!(format!("events_of_{graph}"), record.text);
    }
}
