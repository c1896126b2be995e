//! Input that no server likes: each gets a clear answer, changes nothing, and the process lives on.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

mod support;

use std::path::Path;
use std::process::ExitStatus;

use serde_json::{Value, json};
use support::client::{Client, Event};
use support::place::Place;
use support::server::{Server, Setup};

on_both_storages!(
    malformed_bodies_are_refused,
    wrong_types_are_refused_with_the_field_that_is_wrong,
    unknown_assistants_are_refused,
    malformed_ids_are_refused_and_unknown_ones_not_found,
    a_body_that_is_too_large_is_refused,
    numbers_beyond_64_bits_are_refused_and_smaller_ones_kept,
    lone_surrogates_become_replacement_characters,
    nul_characters_are_kept,
    numbers_that_json_columns_would_change_are_kept,
    an_input_that_is_no_object_fails_its_run,
    a_node_that_panics_fails_its_run,
    a_node_that_returns_an_error_fails_its_run,
    a_route_to_nowhere_fails_its_run,
    a_graph_without_end_fails_at_its_limit,
    a_state_a_node_cannot_read_fails_its_run,
    a_run_without_input_on_an_empty_thread_fails,
    a_failed_run_leaves_the_last_good_step,
);

/// A server, and a thread with one finished run whose state must never change.
struct Scene {
    _server: Server,
    client: Client,
    thread: String,
    before: (Value, Vec<Value>, usize),
}

impl Scene {
    fn new(place: &Place) -> Self {
        let server = place.start(Setup::example("faulty_server"));
        let client = Client::of(&server);
        let thread = client.thread();
        client.run(&thread, &good());
        let mut scene = Self {
            _server: server,
            client,
            thread,
            before: (Value::Null, vec![], 0),
        };
        scene.before = scene.now();
        scene
    }

    fn now(&self) -> (Value, Vec<Value>, usize) {
        let runs = self.client.get(&format!("/threads/{}/runs", self.thread));
        (
            self.client.state(&self.thread),
            self.client.history(&self.thread),
            runs.json().as_array().unwrap().len(),
        )
    }

    /// Every door that creates a run on the thread refuses the body in the same way.
    fn refused(&self, body: impl AsRef<[u8]>, status: u16) -> String {
        let body = body.as_ref();
        let details = ["", "/stream", "/wait"].map(|door| {
            let path = format!("/threads/{}/runs{door}", self.thread);
            self.client.post_text(&path, body).refused(status)
        });
        assert!(
            details.iter().all(|detail| *detail == details[0]),
            "{details:?}"
        );
        details.into_iter().next().unwrap()
    }

    /// Nothing was written, and the next request works.
    fn unharmed(self) {
        assert_eq!(self.now(), self.before);
        self.lives();
    }

    fn lives(&self) {
        let thread = self.client.thread();
        assert_eq!(
            self.client.run(&thread, &good())["done"],
            json!(["good", "bad"])
        );
    }

    /// A run on a new thread that fails: its `error` event, and its thread.
    fn fails(&self, body: &Value) -> (Value, String) {
        let thread = self.client.thread();
        let mut open = self.client.open_stream(&thread, body);
        let run = open.run();
        let events: Vec<Event> = std::iter::from_fn(|| open.event()).collect();
        let last = events.last().unwrap();
        assert_eq!(last.name, "error", "{events:?}");
        let row = self
            .client
            .get(&format!("/threads/{thread}/runs/{run}"))
            .json();
        assert_eq!(row["status"], "error");
        let row = self.client.get(&format!("/threads/{thread}")).json();
        assert_eq!(
            (&row["status"], &row["error"]),
            (&json!("error"), &last.data)
        );
        // Who waits is told the same, but for the place, which is in another thread.
        let waited = self.client.run(&self.client.thread(), body);
        let told = |error: &Value| {
            let message = error["message"].as_str().unwrap();
            let what = message.split(" (node `").next().unwrap().to_owned();
            (error["error"].clone(), what)
        };
        assert_eq!(told(&waited["__error__"]), told(&last.data));
        (last.data.clone(), thread)
    }
}

fn good() -> Value {
    json!({"assistant_id": "fault", "input": {"how": "well"}})
}

fn fault(how: &str) -> Value {
    json!({"assistant_id": "fault", "input": {"how": how}})
}

fn malformed_bodies_are_refused(place: &Place) {
    let scene = Scene::new(place);
    for body in [
        &b""[..],
        b"{",
        b"{\"assistant_id\": \"fault\",}",
        b"{\"assistant_id\": NaN}",
        b"assistant_id=fault",
        b"\xff\xfe",
        b"{\"assistant_id\": \"fault\", \"input\": \"\xc3\x28\"}",
        b"{\"assistant_id\": \"fault\"} {}",
    ] {
        assert_eq!(scene.refused(body, 422), "Invalid JSON in request body");
    }
    for body in ["[]", "\"text\"", "5", "null"] {
        let detail = scene.refused(body, 422);
        assert!(detail.contains("is not of type \"object\""), "{detail}");
    }
    let deep = format!(
        "{{\"assistant_id\": \"fault\", \"input\": {}{}}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let detail = scene.refused(deep, 422);
    assert!(detail.contains("at most 128 levels"), "{detail}");
    scene.unharmed();
}

fn wrong_types_are_refused_with_the_field_that_is_wrong(place: &Place) {
    let scene = Scene::new(place);
    for (field, value) in [
        ("assistant_id", json!(5)),
        ("config", json!("x")),
        ("config", json!([])),
        ("context", json!(1)),
        ("metadata", json!("x")),
        ("command", json!("x")),
        ("stream_mode", json!("everything")),
        ("stream_mode", json!(["values", "everything"])),
        ("stream_mode", json!(5)),
        ("stream_subgraphs", json!("yes")),
        ("stream_resumable", json!(1)),
        ("multitask_strategy", json!("wait")),
        ("on_disconnect", json!("sleep")),
        ("durability", json!("never")),
        ("if_not_exists", json!("panic")),
        ("after_seconds", json!("soon")),
        ("interrupt_before", json!(7)),
        ("checkpoint", json!("x")),
    ] {
        let mut body = good();
        body[field] = value.clone();
        let detail = scene.refused(body.to_string(), 422);
        assert!(detail.contains(field), "{field} = {value}: {detail}");
    }
    let mut body = good();
    body["config"] = json!({"recursion_limit": "many"});
    assert!(
        scene
            .refused(body.to_string(), 422)
            .contains("recursion_limit")
    );
    let missing = scene.refused(b"{\"input\": {}}", 422);
    assert!(
        missing.contains("\"assistant_id\" is a required property"),
        "{missing}"
    );
    scene.unharmed();
}

fn unknown_assistants_are_refused(place: &Place) {
    let scene = Scene::new(place);
    let detail = scene.refused(b"{\"assistant_id\": \"nobody\"}", 422);
    assert!(
        detail.contains("'nobody'") && detail.contains("fault"),
        "{detail}"
    );
    let body = json!({"assistant_id": "6ba7b821-9dad-11d1-80b4-00c04fd430c8"});
    assert_eq!(
        scene.refused(body.to_string(), 404),
        "Thread or assistant not found."
    );
    scene.unharmed();
}

fn malformed_ids_are_refused_and_unknown_ones_not_found(place: &Place) {
    let scene = Scene::new(place);
    let client = &scene.client;
    let thread = &scene.thread;
    let unknown = "01a1fbb1-8812-732a-aaef-3404857dee8e";

    for path in ["", "/state", "/history", "/runs"] {
        let bad = client.get(&format!("/threads/nonsense{path}"));
        assert!(bad.refused(422).contains("must be a UUID"));
        if path != "/history" || client.get(&format!("/threads/{unknown}{path}")).status != 200 {
            client
                .get(&format!("/threads/{unknown}{path}"))
                .refused(404);
        }
    }
    client.delete(&format!("/threads/{unknown}")).refused(404);
    client
        .get(&format!("/threads/{thread}/runs/nonsense"))
        .refused(422);
    client
        .get(&format!("/threads/{thread}/runs/{unknown}"))
        .refused(404);
    client.get("/assistants/nonsense").refused(422);
    client.get(&format!("/assistants/{unknown}")).refused(404);
    for (verb, path) in [("POST", "cancel"), ("GET", "join"), ("GET", "stream")] {
        let answer = client.send(
            verb,
            &format!("/threads/{thread}/runs/nonsense/{path}"),
            &[],
            b"",
        );
        answer.refused(422);
    }
    let cancel = format!("/threads/{thread}/runs/{unknown}/cancel");
    client.send("POST", &cancel, &[], b"").refused(404);
    let joined = client
        .get(&format!("/threads/{thread}/runs/{unknown}/join"))
        .json();
    assert_eq!(joined["__error__"]["message"], "404: Run not found");

    for door in ["", "/stream", "/wait"] {
        let status = client
            .post(&format!("/threads/nonsense/runs{door}"), &good())
            .status;
        assert!(matches!(status, 400 | 422), "{status}");
        client
            .post(&format!("/threads/{unknown}/runs{door}"), &good())
            .refused(404);
    }
    let mut body = good();
    body["checkpoint_id"] = json!("nonsense");
    scene.refused(body.to_string(), 422);
    body["checkpoint_id"] = json!("1f1e52d3-b51d-655d-8000-078d7d9aa83f");
    assert!(
        scene
            .refused(body.to_string(), 404)
            .contains("1f1e52d3-b51d")
    );
    let mut body = good();
    body["checkpoint"] = json!({"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"});
    scene.refused(body.to_string(), 404);

    // A checkpoint of another thread is none of this one.
    let other = client.thread();
    client.run(&other, &good());
    let foreign = client.state(&other)["checkpoint"]["checkpoint_id"].clone();
    body["checkpoint"] = json!({"checkpoint_id": foreign});
    scene.refused(body.to_string(), 404);
    scene.unharmed();
}

fn a_body_that_is_too_large_is_refused(place: &Place) {
    let scene = Scene::new(place);
    let body = json!({"assistant_id": "fault", "input": {"how": "x".repeat(5 << 20)}});
    let path = format!("/threads/{}/runs", scene.thread);
    let detail = scene.client.post(&path, &body).refused(413);
    assert!(detail.contains("limit of 4194304 bytes"), "{detail}");
    // The same when the size is not announced.
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20)).repeat(5);
    let mut open = scene.client.open_chunked(&path, chunk.as_bytes());
    assert_eq!(open.status, 413);
    open.rest();
    scene.unharmed();
}

fn numbers_beyond_64_bits_are_refused_and_smaller_ones_kept(place: &Place) {
    let scene = Scene::new(place);
    for number in ["18446744073709551616", "-9223372036854775809"] {
        let body = format!("{{\"assistant_id\": \"fault\", \"input\": {{\"note\": {number}}}}}");
        let detail = scene.refused(body, 422);
        assert!(
            detail.contains(number) && detail.contains("send it as a string"),
            "{detail}"
        );
    }
    for number in [
        "18446744073709551615",
        "-9223372036854775808",
        "1e300",
        "0.1",
    ] {
        assert_eq!(kept(&scene, number), number.replace("e", "e+"), "{number}");
    }
    scene.unharmed();
}

/// What a JSON value has become in the state, as the server writes it.
fn kept(scene: &Scene, value: &str) -> String {
    let client = &scene.client;
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/wait");
    let body = format!("{{\"assistant_id\": \"fault\", \"input\": {{\"note\": {value}}}}}");
    let waited = client.post_text(&path, body);
    assert_eq!(waited.status, 200, "{}", waited.text());
    let state = client.get(&format!("/threads/{thread}/state"));
    let text = state.text();
    let start = text.find("\"note\":").unwrap() + "\"note\":".len();
    let end = start + text[start..].find(",\"done\"").unwrap();
    text[start..end].to_owned()
}

fn lone_surrogates_become_replacement_characters(place: &Place) {
    let scene = Scene::new(place);
    assert_eq!(kept(&scene, "\"a\\ud800b\""), "\"a\u{fffd}b\"");
    assert_eq!(
        kept(&scene, "{\"\\udc00\": [\"\\ud83d\\ude00\"]}"),
        "{\"\u{fffd}\":[\"\u{1f600}\"]}"
    );
    scene.unharmed();
}

fn nul_characters_are_kept(place: &Place) {
    let scene = Scene::new(place);
    assert_eq!(kept(&scene, "\"a\\u0000b\""), "\"a\\u0000b\"");
    assert_eq!(
        kept(&scene, "{\"k\\u0000\": [\"\\u0000\"]}"),
        "{\"k\\u0000\":[\"\\u0000\"]}"
    );
    // In metadata, tags and configuration of a run and of a thread as well.
    let client = &scene.client;
    let mut body = good();
    body["metadata"] = json!({"k\0": "v\0"});
    body["config"] = json!({"tags": ["t\0"], "configurable": {"c\0": "d\0"}});
    let thread = client.thread();
    assert_eq!(client.run(&thread, &body)["done"], json!(["good", "bad"]));
    assert_eq!(client.history(&thread).len(), 4);
    let made = client.post("/threads", &json!({"metadata": {"k\0": ["v\0"]}}));
    assert_eq!(made.status, 200, "{}", made.text());
    scene.unharmed();
}

fn numbers_that_json_columns_would_change_are_kept(place: &Place) {
    let scene = Scene::new(place);
    for number in ["1.0", "-0.0", "1e+22", "123456789012345678", "5e-324"] {
        assert_eq!(kept(&scene, number), number);
        assert_eq!(kept(&scene, &format!("[{number}]")), format!("[{number}]"));
    }
    scene.unharmed();
}

fn an_input_that_is_no_object_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    for input in [json!("abc"), json!(5), json!([1]), json!(true)] {
        let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": input}));
        assert_eq!(error["error"], "InvalidUpdateError");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("Expected dict, got"), "{message}");
    }
    // On a thread with a past, the past stays.
    let body = json!({"assistant_id": "fault", "input": "abc"});
    let error = scene.client.run(&scene.thread, &body);
    assert_eq!(error["__error__"]["error"], "InvalidUpdateError");
    assert_eq!(
        scene.client.state(&scene.thread)["values"],
        scene.before.0["values"]
    );
    scene.lives();
}

fn a_node_that_panics_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, thread) = scene.fails(&fault("panic"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`bad`"), "{message}");
    assert_eq!(scene.client.state(&thread)["next"], json!(["bad"]));
    scene.unharmed();
}

fn a_node_that_returns_an_error_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&fault("error"));
    assert_eq!(error, json!({"error": "ValueError", "message": "no luck"}));
    scene.unharmed();
}

fn a_route_to_nowhere_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, thread) = scene.fails(&fault("astray"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`nowhere`"), "{message}");
    // The node and its route are one unit: nothing of either is kept.
    let state = scene.client.state(&thread);
    assert_eq!(
        (&state["values"]["done"], &state["next"]),
        (&json!(["good"]), &json!(["bad"]))
    );
    scene.unharmed();
}

fn a_graph_without_end_fails_at_its_limit(place: &Place) {
    let scene = Scene::new(place);
    let mut body = fault("endless");
    body["config"] = json!({"recursion_limit": 4});
    let (error, thread) = scene.fails(&body);
    assert_eq!(error["error"], "GraphRecursionError");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("limit of 4") && message.contains("recursion_limit"),
        "{message}"
    );
    assert_eq!(
        scene.client.state(&thread)["values"]["done"],
        json!(["good", "bad", "bad", "bad"])
    );
    scene.unharmed();
}

fn a_state_a_node_cannot_read_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": {"how": 5}}));
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("`how`") && message.contains("expected a string"),
        "{message}"
    );
    assert_eq!(message.matches("expected a string").count(), 1, "{message}");
    scene.unharmed();
}

fn a_run_without_input_on_an_empty_thread_fails(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": null}));
    assert_eq!(error["error"], "EmptyInputError");
    scene.unharmed();
}

fn a_failed_run_leaves_the_last_good_step(place: &Place) {
    let scene = Scene::new(place);
    let (_, thread) = scene.fails(&fault("error"));
    let state = scene.client.state(&thread);
    assert_eq!(state["values"], json!({"how": "error", "done": ["good"]}));
    assert_eq!(state["next"], json!(["bad"]));
    let error = state["tasks"][0]["error"].as_str().unwrap();
    assert!(error.contains("no luck"), "{error}");
    // Without input the node is tried again; with input the graph starts over.
    let again = scene.client.run(&thread, &json!({"assistant_id": "fault"}));
    assert_eq!(again["__error__"]["error"], "ValueError");
    let over = scene.client.run(&thread, &good());
    assert_eq!(over["done"], json!(["good", "good", "bad"]));
    assert_eq!(
        scene.client.get(&format!("/threads/{thread}")).json()["status"],
        "idle"
    );
}

fn refuses(setup: Setup, code: i32, words: &[&str]) {
    let (status, text): (ExitStatus, String) = setup.refused();
    assert_eq!(status.code(), Some(code), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{text}");
    for word in words {
        assert!(last.contains(word), "`{word}` is not in: {last}");
    }
}

#[test]
fn a_data_folder_that_cannot_be_made_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let below = file.join("data").display().to_string();
    let setup = Setup::bundled().env("BACKSTITCH_DATA", &below);
    refuses(setup, 1, &[&below]);
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let place = Place::sqlite();
    let scene = Scene::new(&place);
    let data = scene._server.folder().join("data").display().to_string();
    let setup = Setup::bundled().env("BACKSTITCH_DATA", &data);
    refuses(setup, 1, &[&data, "another process"]);
    scene.unharmed();
}

#[test]
fn a_database_that_cannot_be_reached_is_refused_without_its_password() {
    let url = "postgres://somebody:hunter2@127.0.0.1:1/nowhere";
    let setup = Setup::bundled().env("DATABASE_URL", url);
    refuses(setup.clone(), 1, &["127.0.0.1", "1"]);
    let (_, text) = setup.refused();
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_port_that_is_taken_is_refused_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refuses(Setup::bundled().env("PORT", &port), 1, &[&port, "--port"]);
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_name() {
    refuses(Setup::bundled().env("PORT", "many"), 2, &["port", "many"]);
    let setup = Setup::bundled().env("DATABASE_URL", "mysql://x");
    refuses(setup, 2, &["database_url", "postgres://"]);
}

#[test]
fn a_full_disk_at_start_is_refused_and_later_fails_only_what_writes() {
    let Some(disk) = Disk::mount(1 << 20) else {
        eprintln!("NOT TESTED: a full disk, because no file system can be mounted here");
        return;
    };
    disk.fill(0);
    let data = disk.0.path().join("data").display().to_string();
    let setup = Setup::example("faulty_server").env("BACKSTITCH_DATA", &data);
    refuses(setup.clone(), 1, &[]);

    disk.empty();
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &good());
    let before = client.state(&thread);
    disk.fill(0);
    // The file may have room for a few rows yet.
    let failed = (0..200).any(|_| {
        let input = json!({"how": "x".repeat(10_000)});
        let body = json!({"assistant_id": "fault", "input": input});
        let answer = client.post(&format!("/threads/{}/runs/wait", thread), &body);
        answer.status >= 500 || answer.json().get("__error__").is_some()
    });
    assert!(failed, "a full disk was never noticed");
    assert_eq!(client.get("/ok").status, 200);
    let full = client.state(&thread)["values"]["done"]
        .as_array()
        .unwrap()
        .len();
    assert!(full >= before["values"]["done"].as_array().unwrap().len());
    disk.empty();
    assert!(
        client.run(&thread, &good())["done"]
            .as_array()
            .unwrap()
            .len()
            > full
    );
}

/// A small file system of its own.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(bytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(folder))
    }

    fn ballast(&self) -> std::path::PathBuf {
        Path::join(self.0.path(), "ballast")
    }

    /// Takes all room but `left` bytes.
    fn fill(&self, left: u64) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        let block = [0; 4096];
        while file.write_all(&block).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(left)).unwrap();
    }

    fn empty(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status()
            .ok();
    }
}
