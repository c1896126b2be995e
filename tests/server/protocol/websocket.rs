//! The protocol over a WebSocket, as clients and as those who mean harm use it.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::{Server, Setup};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        protocol::{WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::*;

on_both_storages!(
    a_conversation_has_commands_replies_and_events_on_one_connection,
    a_later_subscription_gets_what_it_has_missed_once,
    a_subscription_that_was_ahead_of_the_log_gets_all_of_it,
    messages_that_cannot_be_taken_close_the_connection,
    a_handshake_needs_a_key_and_all_of_its_headers,
    a_shutdown_says_that_the_client_should_come_back,
);

/// Longer than anything takes, even on a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Socket(WebSocketStream<TcpStream>);

pub(super) async fn connect(
    server: &Server,
    thread: &str,
    key: Option<&str>,
) -> Result<Socket, Error> {
    let address = server
        .base_url()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    let url = format!("ws://{address}/threads/{thread}/stream/events");
    let mut request = url.into_client_request().unwrap();
    if let Some(key) = key {
        request
            .headers_mut()
            .insert("x-api-key", key.parse().unwrap());
    }
    let stream = TcpStream::connect(&address).await.unwrap();
    let config = WebSocketConfig::default().max_write_buffer_size(usize::MAX);
    let (socket, _) =
        tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await?;
    Ok(Socket(socket))
}

impl Socket {
    pub(super) async fn send(&mut self, text: impl Into<String>) {
        self.0.send(Message::text(text.into())).await.unwrap();
    }

    /// The next text, or the code with which the server closes.
    pub(super) async fn read(&mut self) -> Result<Value, Option<CloseCode>> {
        loop {
            let message = tokio::time::timeout(LIMIT, self.0.next()).await.unwrap();
            match message {
                Some(Ok(Message::Text(text))) => {
                    return Ok(serde_json::from_str(text.as_str()).unwrap());
                }
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code)),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Carries out a command. Events that come before the reply are dropped.
    pub(super) async fn command(&mut self, method: &str, params: Value) -> Value {
        let command = json!({"id": 3, "method": method, "params": params});
        self.send(command.to_string()).await;
        loop {
            let message = self.read().await.unwrap();
            if message["type"] != "event" {
                assert_eq!(message["id"], 3);
                return message;
            }
        }
    }

    /// The events up to the end of a run.
    pub(super) async fn run(&mut self) -> Vec<Value> {
        let mut events = vec![];
        loop {
            let event = self.read().await.unwrap();
            assert_eq!(event["type"], "event", "{event}");
            let params = event["params"].clone();
            events.push(event);
            let how = params["data"]["event"].as_str().unwrap_or_default();
            let is_end = ["completed", "failed", "interrupted"].contains(&how);
            if params["namespace"] == json!([]) && is_end {
                return events;
            }
        }
    }
}

fn a_conversation_has_commands_replies_and_events_on_one_connection(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    block_on(async {
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        assert_eq!(
            socket.command("agent.getTree", json!({})).await["error"],
            "no_such_run"
        );
        let channels = json!({"channels": ["lifecycle", "input", "values"]});
        let reply = socket.command("subscription.subscribe", channels).await;
        assert_eq!(reply["result"]["replayed_events"], 0, "{reply}");
        let id = reply["result"]["subscription_id"].clone();
        let params = json!({"assistant_id": "approve", "input": {"request": "pay"}});
        let reply = socket.command("run.start", params).await;
        assert!(reply["result"]["run_id"].is_string(), "{reply}");
        let events = socket.run().await;
        let asked = events
            .iter()
            .find(|one| one["method"] == "input.requested")
            .unwrap();
        let interrupt = asked["params"]["data"]["interrupt_id"].clone();
        let tree = socket.command("agent.getTree", json!({})).await;
        let expected =
            json!({"tree": {"namespace": [], "status": "interrupted", "graph_name": "approve"}});
        assert_eq!(tree["result"], expected);
        assert!(
            tree["meta"]["applied_through_seq"].as_u64() >= events.last().unwrap()["seq"].as_u64()
        );

        let params = json!({"interrupt_id": interrupt, "namespace": [], "response": "ok"});
        assert_eq!(
            socket.command("input.respond", params).await["result"],
            json!({})
        );
        let events = socket.run().await;
        assert_eq!(
            events.last().unwrap()["params"]["data"]["event"],
            "completed"
        );
        let params = json!({"subscription_id": "nope"});
        let reply = socket.command("subscription.unsubscribe", params).await;
        assert_eq!(reply["error"], "no_such_subscription");
        assert!(reply["meta"]["applied_through_seq"].is_u64());
        socket.send("not json").await;
        let expected = json!({"type": "error", "id": null, "error": "invalid_argument",
            "message": "Protocol commands must be valid JSON."});
        assert_eq!(socket.read().await, Ok(expected));
        for (method, code) in [
            ("state.get", "not_supported"),
            ("bogus", "unknown_command"),
            ("subscription.subscribe", "invalid_argument"),
        ] {
            assert_eq!(socket.command(method, json!({})).await["error"], code);
        }
        let reply = socket
            .command("subscription.reconnect", json!({"run_id": "x"}))
            .await;
        assert_eq!(reply["result"], json!({"restored": false}));

        let params = json!({"assistant_id": "subgraph", "input": {"path": []}});
        socket.command("run.start", params).await;
        socket.run().await;
        let tree = socket.command("agent.getTree", json!({})).await["result"]["tree"].clone();
        let child = &tree["children"][0];
        assert_eq!(
            (&tree["status"], &child["graph_name"]),
            (&json!("completed"), &json!("child"))
        );
        assert_eq!(child["children"][0]["graph_name"], "grand");
        let params = json!({"subscription_id": id});
        let reply = socket.command("subscription.unsubscribe", params).await;
        assert_eq!(reply["result"], json!({}));
    });
}

fn a_later_subscription_gets_what_it_has_missed_once(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = new_thread();
    start(&client, &thread, "counter", json!({"count": 1, "log": []}));
    let all = super::events(&client, &thread, &["values", "lifecycle", "updates"], 1);
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        let channels = json!({"channels": ["lifecycle", "values"]});
        socket.command("subscription.subscribe", channels).await;
        let first = socket.run().await;
        let of = |methods: &[&str]| -> Vec<Value> {
            let wanted = |one: &&Value| methods.contains(&one["method"].as_str().unwrap());
            all.iter().filter(wanted).cloned().collect()
        };
        assert_eq!(first, of(&["lifecycle", "values"]));
        let channels = json!({"channels": ["updates", "values"]});
        let reply = socket.command("subscription.subscribe", channels).await;
        let missed = of(&["updates"]);
        assert_eq!(reply["result"]["replayed_events"], missed.len());
        for event in missed {
            assert_eq!(socket.read().await.unwrap(), event);
        }
    });
}

fn a_subscription_that_was_ahead_of_the_log_gets_all_of_it(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = new_thread();
    start(&client, &thread, "counter", json!({"count": 1, "log": []}));
    let all = super::events(&client, &thread, &["values", "lifecycle", "updates"], 1);
    let is_update = |event: &&Value| event["method"] == "updates";
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        let ahead = json!({"channels": ["lifecycle", "values"], "since": AHEAD});
        socket.command("subscription.subscribe", ahead).await;
        let found = socket.run().await;
        assert!(
            found
                .iter()
                .eq(all.iter().filter(|event| !is_update(event)))
        );
        let ahead = json!({"channels": ["updates"], "since": AHEAD});
        socket.command("subscription.subscribe", ahead).await;
        for event in all.iter().filter(is_update) {
            assert_eq!(socket.read().await.unwrap(), *event);
        }
    });
}

fn messages_that_cannot_be_taken_close_the_connection(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    block_on(async {
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        socket.0.send(Message::binary(vec![1, 2, 3])).await.unwrap();
        assert_eq!(socket.read().await, Err(Some(CloseCode::Unsupported)));

        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        // The server stops reading at the head of the frame, so that not all of it may be taken.
        let _ = socket.0.send(Message::text("x".repeat(20 << 20))).await;
        let closed = socket.read().await.unwrap_err();
        assert!(
            closed.is_none_or(|code| code == CloseCode::Size),
            "{closed:?}"
        );

        // The others go on.
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        assert_eq!(
            socket.command("bogus", json!({})).await["error"],
            "unknown_command"
        );
    });
}

fn a_handshake_needs_a_key_and_all_of_its_headers(place: &Place) {
    let setup = Setup::example("reference_server");
    let server = place.start(setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"));
    let ann = Client::of(&server).with_key("key-a");
    let thread = ann.thread();
    let path = format!("/threads/{thread}/stream/events");
    let granted = format!("/threads/{thread}/members/bob");
    test_support::talk::put(&ann, &granted, &json!({"level": "reader"}));
    block_on(async {
        let refused = connect(&server, &thread, None).await.err().unwrap();
        let Error::Http(response) = refused else {
            panic!("{refused}");
        };
        assert_eq!(response.status(), 401);
        let mut of_bob = connect(&server, &thread, Some("key-b")).await.unwrap();
        let params = json!({"assistant_id": "counter", "input": {}});
        let reply = of_bob.command("run.start", params).await;
        assert_eq!(reply["error"], "permission_denied");
    });
    assert_eq!(ann.get(&path).status, 405);
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    let with = |more: &[(&'static str, &'static str)]| {
        let headers: Vec<_> = upgrade.iter().chain(more).copied().collect();
        ann.send("GET", &path, &headers, b"").status
    };
    assert_eq!(with(&[]), 426);
    assert_eq!(with(&[("sec-websocket-version", "8")]), 426);
    assert_eq!(with(&[("sec-websocket-version", "13")]), 400);
}

fn a_shutdown_says_that_the_client_should_come_back(place: &Place) {
    let mut server = place.start(Setup::example("reference_server").env("BACKSTITCH_DRAIN", "1"));
    block_on(async {
        let mut socket = connect(&server, &new_thread(), None).await.unwrap();
        let channels = json!({"channels": ["lifecycle"]});
        socket.command("subscription.subscribe", channels).await;
        let stopping = tokio::task::spawn_blocking(move || server.terminate());
        assert_eq!(socket.read().await, Err(Some(CloseCode::Restart)));
        stopping.await.unwrap();
    });
}
