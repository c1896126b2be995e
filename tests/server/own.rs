//! Routes, layers, an authentication, flags and hooks of the program that serves, also where they
//! misbehave (`tests/server/own_server.rs`).

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};
use test_support::{
    client::{Answer, Client},
    programs,
    server::Setup,
    talk::until,
};

fn setup() -> Setup {
    Setup::example("own_server")
}

fn send(client: &Client, user: &str, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    client.send(method, path, &[("x-user", user)], body.as_bytes())
}

fn get(client: &Client, user: &str, path: &str) -> Answer {
    send(client, user, "GET", path, &Value::Null)
}

#[test]
fn an_authentication_that_fails_or_panics_fails_its_request_alone_and_shows_nothing() {
    let server = setup().start();
    let client = Client::of(&server);
    for (user, status) in [("panics", 500), ("fails", 500), ("nameless", 500)] {
        let detail = get(&client, user, "/threads").refused(status);
        assert!(
            !detail.contains("secret") && detail.contains("id "),
            "{user}: {detail}"
        );
    }
    assert_eq!(
        get(&client, "banned", "/threads").refused(403),
        "You are banned"
    );
    assert_eq!(
        get(&client, "unlucky", "/threads").refused(503),
        "The directory is down"
    );
    assert_eq!(client.get("/threads").refused(401), "Send x-user");
    assert_eq!(client.get("/own/me").refused(401), "Send x-user");
    assert_eq!(get(&client, "ann", "/own/me").text(), "ann");
    // The log has what clients do not see.
    until("the log has the reasons", || {
        server
            .output()
            .matches("a secret of the authentication")
            .count()
            >= 2
    });
}

#[test]
fn who_may_only_read_changes_nothing_and_who_administers_sees_everything() {
    let server = setup().start();
    let client = Client::of(&server);
    let run = json!({"assistant_id": "note", "input": {}});
    let thread = send(&client, "ann", "POST", "/threads", &json!({})).json();
    let thread = thread["thread_id"].as_str().unwrap().to_owned();
    let runs = format!("/threads/{thread}/runs");
    assert_eq!(
        send(&client, "ann", "POST", &format!("{runs}/wait"), &run).status,
        200
    );

    let state = format!("/threads/{thread}/state");
    assert_eq!(
        get(&client, "reader", &state).json()["values"]["text"],
        "written"
    );
    let found = send(&client, "reader", "POST", "/threads/search", &json!({}));
    assert_eq!(found.json()[0]["thread_id"], *thread);
    let stream = format!("/threads/{thread}/stream");
    let mut refusals = 0;
    for (method, path, body) in [
        ("POST", "/threads", json!({})),
        ("POST", &*runs, run.clone()),
        ("POST", "/runs/wait", run),
        ("POST", &*state, json!({"values": {"text": "x"}})),
        ("DELETE", &*format!("/threads/{thread}"), Value::Null),
        (
            "PUT",
            "/store/items",
            json!({"namespace": ["a"], "key": "k", "value": {}}),
        ),
        ("POST", "/mcp", json!({})),
        ("POST", "/own/body", json!({})),
        (
            "GET",
            &*format!("{stream}?cancel_on_disconnect=true"),
            Value::Null,
        ),
    ] {
        let refused = send(&client, "reader", method, path, &body);
        refusals += 1;
        let detail = refused.refused(403);
        assert_eq!(
            detail, "You may read here, and change nothing",
            "{method} {path}"
        );
    }
    let upgrade = [
        ("x-user", "reader"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let socket = format!("/threads/{thread}/stream/events");
    assert_eq!(client.send("GET", &socket, &upgrade, b"").status, 403);
    let logged = |line: &&str| {
        let words = ["may only read", "principal=ann", "request_id="];
        words.iter().all(|word| line.contains(word))
    };
    until("each refusal is in the log", || {
        server.output().lines().filter(logged).count() == refusals + 1
    });
    assert_eq!(get(&client, "reader", "/own/me").text(), "ann");

    assert_eq!(get(&client, "bob", &state).status, 404);
    assert_eq!(get(&client, "bob", "/metrics").status, 403);
    assert_eq!(get(&client, "root", "/metrics").status, 200);
}

#[test]
fn layers_are_around_all_routes_and_their_panic_is_a_500() {
    let server = setup().start();
    let client = Client::of(&server);
    for path in ["/ok", "/threads", "/own/me", "/open/word", "/nowhere"] {
        assert_eq!(client.get(path).header("x-marked"), Some("yes"), "{path}");
    }
    let broken = client.send("GET", "/ok", &[("x-layer-panics", "1")], b"");
    broken.refused(500);
    let panicked = get(&client, "ann", "/own/panic").refused(500);
    assert!(!panicked.contains("secret"), "{panicked}");
    assert_eq!(client.get("/ok").status, 200);
}

#[test]
fn own_routes_have_bodies_within_the_limit_of_the_settings() {
    let server = setup().start();
    let client = Client::of(&server);
    let body = |bytes: usize| {
        let headers = [("x-user", "ann")];
        client.send("POST", "/own/body", &headers, "x".repeat(bytes).as_bytes())
    };
    assert_eq!(body(2048).text(), "2048");
    assert_eq!(body(2049).status, 413);
    // The program's value is beneath those of whoever runs it.
    let server = setup().env("BACKSTITCH_BODY_LIMIT", "4096").start();
    let client = Client::of(&server);
    let more = client.send("POST", "/own/body", &[("x-user", "ann")], &[b'x'; 3000]);
    assert_eq!(more.text(), "3000");
}

#[test]
fn own_flags_stand_beside_those_of_the_server() {
    let server = setup()
        .arg("--word")
        .arg("ahoy")
        .arg("--port")
        .arg("0")
        .start();
    assert_eq!(Client::of(&server).get("/open/word").text(), "ahoy");
    let own = || std::process::Command::new(programs::example("own_server"));
    let help = own().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.contains("--word <WORD>") && help.contains("--port <PORT>"),
        "{help}"
    );
    let settings = own().args(["config", "show"]).output().unwrap();
    let settings = String::from_utf8(settings.stdout).unwrap();
    let line = settings.lines().find(|line| line.starts_with("body_limit"));
    assert!(line.unwrap().trim_end().ends_with("program"), "{settings}");
    let (status, output) = setup().arg("--wrod").refused();
    assert!(
        status.code() == Some(2) && output.contains("--word"),
        "{output}"
    );
    let (status, output) = setup().env("CLASHING", "1").refused();
    assert!(
        status.code() == Some(2) && output.contains("`port`"),
        "{output}"
    );
}

#[test]
fn an_authentication_of_its_own_ends_the_open_mode_and_stands_alone() {
    // Without keys no other address than those of this machine is bound.
    let server = setup().env("HOST", "0.0.0.0").start();
    let url = server.base_url().replace("0.0.0.0", "127.0.0.1");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let (status, output) = setup().env("BACKSTITCH_API_KEYS", "ann=k").refused();
    assert!(
        !status.success() && output.contains("BACKSTITCH_API_KEYS"),
        "{output}"
    );
    let embedded = || setup().env("EMBED", "1");
    let (status, output) = embedded().env("OPEN", "1").refused();
    assert!(
        !status.success() && output.contains("BACKSTITCH_ALLOW_OPEN"),
        "{output}"
    );
    let (status, output) = embedded().refused();
    assert!(status.success(), "{output}");
}

#[test]
fn what_fails_at_the_start_or_at_the_end_is_told_with_the_exit_code() {
    let (status, output) = setup().env("START_FAILS", "1").refused();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("START_FAILS, as wanted"), "{output}");
    let mut server = setup().start();
    assert!(server.output().contains("hook START_FAILS"));
    assert!(server.terminate().success());
    until("it did what it wanted at the end", || {
        server.output().contains("hook STOP_FAILS")
    });
    let mut server = setup().env("STOP_FAILS", "1").start();
    assert_eq!(server.terminate().code(), Some(1));
}

#[test]
fn a_second_signal_ends_a_program_that_hangs_at_its_end() {
    let mut server = setup().env("STOP_HANGS", "1").start();
    server.signal("TERM");
    until("it does what it wanted at the end", || {
        server.output().contains("hook STOP_FAILS")
    });
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(128 + 2));
    until("it says why", || {
        server.output().contains("stopping at once")
    });
}

/// A client whose connection the server itself has cut has not left.
#[test]
fn a_run_that_waits_is_not_cancelled_when_the_server_cuts_who_waits_for_it() {
    let setup = setup().env("STOP_HANGS", "1").env("BACKSTITCH_DRAIN", "0");
    let mut server = setup.start();
    let client = Client::of(&server);
    let thread = send(&client, "ann", "POST", "/threads", &json!({})).json();
    let runs = format!("/threads/{}/runs", thread["thread_id"].as_str().unwrap());
    let run = json!({
        "assistant_id": "note", "input": {}, "after_seconds": 3600, "on_disconnect": "cancel",
    });
    let path = format!("{runs}/wait");
    let mut response = client.begin(
        "POST",
        &path,
        &[("x-user", "ann")],
        run.to_string().as_bytes(),
    );
    let status = |client: &Client| get(client, "ann", &runs).json()[0]["status"].clone();
    until("the run waits", || status(&client) == "pending");
    server.signal("TERM");
    response.read_to_end(&mut vec![]).ok();
    until("the server does what it wanted at the end", || {
        server.output().contains("hook STOP_FAILS")
    });
    // Whoever would cancel the run has done so meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    server.signal("INT");
    server.wait();
    server.restart();
    assert_eq!(status(&Client::of(&server)), "pending");
}
