//! A program of axum that embeds the server (`examples/axum_embed.rs`): its own route and tokens, and
//! everything that clients of the server have.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use test_support::{
    client::{Answer, Client, Open},
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    talk::until,
};
use tokio::{sync::Notify, time::timeout};
use tower_service::Service;

on_both_storages!(
    users_have_their_own_threads,
    runs_that_go_on_end_while_the_program_drains,
);

const ANN: &[(&str, &str)] = &[("authorization", "Bearer secret-1")];
const BOB: &[(&str, &str)] = &[("authorization", "Bearer secret-2")];

fn setup() -> Setup {
    Setup::example("axum_embed").env("TOKENS", "ann=secret-1,bob=secret-2")
}

fn post(client: &Client, user: &[(&str, &str)], path: &str, body: &Value) -> Answer {
    client.send("POST", path, user, body.to_string().as_bytes())
}

fn get(client: &Client, user: &[(&str, &str)], path: &str) -> Answer {
    client.send("GET", path, user, b"")
}

fn new_thread(client: &Client, user: &[(&str, &str)]) -> String {
    let thread = post(client, user, "/threads", &json!({})).json();
    thread["thread_id"].as_str().unwrap().to_owned()
}

fn stream(client: &Client, user: &[(&str, &str)], thread: &str, from: u64) -> Open {
    let body = json!({
        "assistant_id": "countdown", "input": {"from": from}, "stream_mode": ["custom", "values"],
    });
    let path = format!("/threads/{thread}/runs/stream");
    let open = client.open("POST", &path, user, body.to_string().as_bytes());
    assert_eq!(open.status, 200);
    open
}

#[test]
fn the_routes_of_the_program_know_their_user_and_those_beside_are_its_own() {
    let server = setup().start();
    let client = Client::of(&server);
    assert_eq!(client.get("/version").text(), env!("CARGO_PKG_VERSION"));
    assert_eq!(get(&client, ANN, "/app/me").text(), "ann");
    assert_eq!(get(&client, BOB, "/app/me").text(), "bob");
    for path in [
        "/app/me",
        "/app/nothing",
        "/info",
        "/threads",
        "/nowhere",
        "/metrics",
    ] {
        let detail = client.get(path).refused(401);
        assert!(detail.contains("Authorization: Bearer"), "{path}: {detail}");
    }
    let wrong = [("authorization", "Bearer secret-3")];
    assert_eq!(
        get(&client, &wrong, "/app/me").refused(401),
        "This token is nobody's"
    );
    // A key of the settings is no way in.
    assert_eq!(client.with_key("secret-1").get("/threads").status, 401);
    assert_eq!(client.get("/ok").status, 200);
    assert_eq!(get(&client, ANN, "/app/nothing").status, 404);
    assert_eq!(get(&client, ANN, "/info").status, 200);
    // Only whom the program lets administer may operate it.
    assert_eq!(get(&client, ANN, "/metrics").status, 403);
    // Pages of other sites may not call.
    let page = [ANN[0], ("origin", "https://elsewhere.example")];
    assert_eq!(get(&client, &page, "/app/me").status, 403);
}

fn users_have_their_own_threads(place: &Place) {
    let server = place.start(setup());
    let client = Client::of(&server);
    let thread = new_thread(&client, ANN);
    let mut events = stream(&client, ANN, &thread, 2);
    let mut left = vec![];
    while let Some(event) = events.event() {
        if event.name == "custom" {
            left.push(event.data["left"].clone());
        }
    }
    assert_eq!(left, [json!(2), json!(1)]);
    let path = format!("/threads/{thread}/state");
    assert_eq!(get(&client, ANN, &path).json()["values"]["said"], "Done.");

    get(&client, BOB, &path).refused(404);
    let run = json!({"assistant_id": "countdown", "input": {"from": 0}});
    post(&client, BOB, &format!("/threads/{thread}/runs"), &run).refused(404);
    let found = |user| post(&client, user, "/threads/search", &json!({})).json();
    assert_eq!(found(ANN)[0]["thread_id"], *thread);
    assert_eq!(found(BOB), json!([]));
}

#[test]
fn a_conversation_over_a_web_socket_works_within_the_program() {
    let server = setup().start();
    let client = Client::of(&server);
    let thread = new_thread(&client, ANN);
    let address = server.base_url().trim_start_matches("http://");
    let shake_hands = |token: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let head = format!(
            "GET /threads/{thread}/stream/events HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (socket, String::from_utf8(head).unwrap())
    };
    let (mut socket, head) = shake_hands("secret-1");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let command =
        json!({"id": 7, "method": "subscription.subscribe", "params": {"channels": ["values"]}});
    let text = command.to_string();
    let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    socket.write_all(&frame).unwrap();
    let mut reply = vec![];
    while !String::from_utf8_lossy(&reply).contains("\"success\"") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    let (_, head) = shake_hands("secret-3");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
}

fn runs_that_go_on_end_while_the_program_drains(place: &Place) {
    let mut server: Server = place.start(setup());
    let client = Client::of(&server);
    let thread = new_thread(&client, ANN);
    let mut events = stream(&client, ANN, &thread, 40);
    events.event_named("custom");
    server.signal("TERM");
    until("new runs are refused", || {
        let run = json!({"assistant_id": "countdown", "input": {"from": 0}});
        let refused = post(&client, ANN, "/runs/wait", &run);
        refused.status == 503
    });
    let mut last = None;
    while let Some(event) = events.event() {
        last = Some(event);
    }
    assert_eq!(last.unwrap().data["said"], "Done.");
    assert!(server.wait().success());
    until("the last line is read", || {
        server.output().contains("the agents have stopped")
    });
}

#[test]
fn routes_that_hide_one_of_the_server_are_refused_at_the_start() {
    let (status, output) = setup().env("APP_PREFIX", "/threads").refused();
    assert!(!status.success());
    assert!(
        output.contains("would hide the route `/threads`"),
        "{output}"
    );
}

#[tokio::test]
async fn the_drain_waits_for_requests_that_the_routes_of_the_program_still_answer() {
    let folder = tempfile::tempdir().unwrap();
    let [begun, release] = [(); 2].map(|()| Arc::new(Notify::new()));
    let [has_ended, ended_first] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let slow = {
        let (begun, release, has_ended) = (begun.clone(), release.clone(), has_ended.clone());
        async move || {
            begun.notify_one();
            release.notified().await;
            has_ended.store(true, Ordering::SeqCst);
        }
    };
    let router = axum::Router::new().route("/app/slow", axum::routing::get(slow));
    let at_the_end = ended_first.clone();
    let (mut service, handle) = backstitch::Server::new()
        .setting("data", folder.path().to_str().unwrap())
        .setting("allow_open", "true")
        .routes("/app", router)
        .on_stop(async move || {
            at_the_end.store(has_ended.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(())
        })
        .embed()
        .await
        .unwrap();
    let request = http::Request::get("/app/slow").header("host", "127.0.0.1");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = tokio::spawn(service.call(request));
    begun.notified().await;
    let mut drained = tokio::spawn(handle.drain());
    let early = timeout(Duration::from_millis(300), &mut drained).await;
    assert!(early.is_err(), "it waits for the request");
    release.notify_one();
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    drained.await.unwrap().unwrap();
    assert!(ended_first.load(Ordering::SeqCst));
}
