//! The requests that are made to a tree of some size: of every kind that reads or changes one.

use serde_json::{Value, json};

use test_support::{
    client::Client,
    server::Server,
    talk::{self, ok},
};

use super::SMALL;
use crate::id::AssistantId;

/// A tree, and what requests name of it: all of it in its middle or at its end.
pub(super) struct Tree {
    pub(super) thread: String,
    pub(super) messages: usize,
    /// A checkpoint in the middle.
    pub(super) middle: String,
    /// The last run.
    run: String,
    fork: String,
    /// Forks of the first messages that are the same in trees of any size, with as many runs of their own.
    pub(super) short: Vec<String>,
    /// A fork of the first messages with as many messages of its own as the tree has.
    pub(super) long: String,
}

/// Messages that short forks inherit, and runs of their own.
const INHERITED: usize = 10;
const OWN: usize = 3;

/// Metadata that few checkpoints of a tree have.
fn rare() -> Value {
    json!({"user": "rare", "plan": "rare"})
}

/// The id of a message.
fn message(number: usize) -> String {
    format!("u{number}")
}

/// A thread of so many messages, with ten branches, tags and forks, however large it is.
pub(super) fn tree(client: &Client, messages: usize) -> Tree {
    let metadata = json!({"metadata": {"graph_id": "agent", "size": messages.to_string()}});
    let thread = talk::create(client, &metadata);
    // Its first checkpoints are the only ones with these labels.
    let first = talk::with(talk::turn("hello"), "metadata", rare());
    client.run(&thread, &first);
    let post = |number: usize| {
        let body = json!({"id": message(number), "role": "user", "content": "x".repeat(200)});
        talk::store(client, &thread, &body);
    };
    let head = || {
        let head = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
        head.as_str().unwrap().to_owned()
    };
    (0..INHERITED).for_each(post);
    let first = json!({"checkpoint_id": head()});
    let fork = |runs| {
        let fork = talk::id_of(&talk::fork(client, &thread, &first));
        client.run(&fork, &json!({"assistant_id": "subgraph", "input": {}}));
        for _ in 0..runs {
            talk::say(client, &fork, "hello");
        }
        fork
    };
    let short = vec![fork(OWN), fork(OWN)];
    let long = fork(OWN * messages / SMALL);
    (INHERITED..messages / 2).for_each(post);
    let middle = head();
    (messages / 2..messages).for_each(post);
    for number in 0..10 {
        let at = json!({"checkpoint_id": middle, "name": format!("b{number}")});
        let branches = format!("/threads/{thread}/branches");
        ok(client.post(&branches, &at), 201);
        ok(
            client.post(&format!("{branches}/main/activate"), &json!({})),
            200,
        );
        let tag = format!("/threads/{thread}/tags/t{number}");
        ok(
            talk::put(client, &tag, &json!({"checkpoint_id": middle})),
            201,
        );
    }
    let forks: Vec<Value> = (0..10)
        .map(|_| talk::fork(client, &thread, &json!({"checkpoint_id": middle})))
        .collect();
    let fork = talk::id_of(&forks[9]);
    for _ in 0..messages / 10 {
        talk::say(client, &thread, "hello");
    }
    let run = talk::get(client, &thread, "runs?limit=1")[0]["run_id"].clone();
    Tree {
        run: run.as_str().unwrap().to_owned(),
        fork,
        thread,
        messages,
        middle,
        short,
        long,
    }
}

/// Waits until what follows from the events of a thread is there.
pub(super) fn quiet(client: &Client, tree: &Tree) {
    let last = talk::last_event(client, &tree.thread);
    talk::until("the tables are derived", || {
        let path = format!("/threads?min_event={}:{last}", tree.thread);
        client.get(&path).status == 200
    });
}

/// Everything of a request that may differ: its method, its path below the thread, and its body.
type Request = (&'static str, String, Value);

fn reads(tree: &Tree) -> Vec<Request> {
    let (middle, run, none) = (&tree.middle, &tree.run, Value::Null);
    let at = message(tree.messages / 2);
    let get = |path: &str| ("GET", path.to_owned(), none.clone());
    vec![
        get(""),
        get("/state"),
        get("/state?subgraphs=true"),
        get(&format!("/state/{middle}")),
        (
            "POST",
            "/state/checkpoint".into(),
            json!({"checkpoint": {"checkpoint_id": middle}}),
        ),
        get("/state?branch=b1"),
        get("/state?tag=t1"),
        get(&format!("/state?message_id={at}")),
        get("/state?event_number=30"),
        get("/history?limit=10"),
        get(&format!("/history?limit=10&before={middle}")),
        get("/history?limit=10&branch=b1"),
        get(&format!("/history?limit=10&message_id={at}")),
        (
            "POST",
            "/history".into(),
            json!({"limit": 10, "before": {"configurable": {"checkpoint_id": middle}}}),
        ),
        (
            "POST",
            "/history".into(),
            json!({"limit": 1, "metadata": {"source": "input"}}),
        ),
        (
            "POST",
            "/history".into(),
            json!({"limit": 10, "metadata": {"assistant_id": AssistantId::of_graph("agent").to_string()}}),
        ),
        (
            "POST",
            "/history".into(),
            json!({"limit": 10, "metadata": {"user": "rare"}}),
        ),
        (
            "POST",
            "/history".into(),
            json!({"limit": 10, "metadata": rare()}),
        ),
        get("/messages?limit=10"),
        get(&format!("/messages?limit=10&after={at}")),
        get(&format!("/messages?limit=10&before={at}")),
        get("/messages?limit=10&branch=b1"),
        get("/tree?limit=10"),
        get("/tree?limit=10&format=checkpoints"),
        get("/head"),
        get("/diff?from=branch:b1&to=branch:b2"),
        get(&format!("/diff?from=checkpoint:{middle}&to=branch:b2")),
        get("/events?limit=10"),
        get("/events?limit=10&after=30"),
        get("/branches"),
        get("/tags"),
        get("/tags/t1"),
        get("/forks"),
        get("/forks?limit=2"),
        get("/members"),
        get("/storage"),
        get("/runs?limit=5"),
        get("/runs?limit=5&status=success"),
        get("/runs?limit=5&select=run_id"),
        get(&format!("/runs/{run}")),
        get(&format!("/runs/{run}/join")),
        get(&format!("/runs/{run}/stream")),
    ]
}

/// A run whose frames are stored, and are of one size in trees of any size: those of `values` have the whole state.
fn resumable(run: Value) -> Value {
    let modes = json!(["updates", "custom"]);
    talk::with(
        talk::with(run, "stream_resumable", true),
        "stream_mode",
        modes,
    )
}

/// Changes that every thread takes.
fn changes(tree: &Tree) -> Vec<Request> {
    let middle = &tree.middle;
    let at = message(tree.messages / 2);
    let post = |path: &str, body: Value| ("POST", path.to_owned(), body);
    vec![
        (
            "PATCH",
            String::new(),
            json!({"metadata": {"x": 1}, "ttl": 100}),
        ),
        post("/runs/wait", talk::turn("hello")),
        post("/runs/stream", resumable(talk::turn("hello"))),
        post(
            "/runs/wait",
            talk::with(talk::turn("hello"), "checkpoint_id", &**middle),
        ),
        post("/branches/main/activate", json!({})),
        post("/state", json!({"values": {"messages": [talk::user("x")]}})),
        post(
            "/state",
            json!({"values": {"messages": [talk::user("x")]}, "checkpoint_id": middle}),
        ),
        post("/branches/main/activate", json!({})),
        post(
            "/messages",
            json!({"id": "new", "role": "user", "content": "x"}),
        ),
        post(
            "/messages",
            json!({"id": "new", "role": "user", "content": "x"}),
        ),
        post(
            "/messages",
            json!({"role": "user", "content": "x", "parent_id": at}),
        ),
        post("/branches/main/activate", json!({})),
        post("/branches", json!({"name": "other", "message_id": at})),
        (
            "PATCH",
            "/branches/other".into(),
            json!({"name": "renamed"}),
        ),
        post("/branches/main/activate", json!({})),
        ("DELETE", "/branches/renamed".into(), Value::Null),
        post("/rewind", json!({"message_id": at})),
        post("/branches/main/activate", json!({})),
        post("/btw", json!({})),
        post("/branches/main/activate", json!({})),
        post("/restore", json!({"tag": "t1"})),
        post("/branches/main/activate", json!({})),
        ("PUT", "/tags/t1".into(), json!({"message_id": at})),
        ("DELETE", "/tags/t1".into(), Value::Null),
        ("PUT", "/tags/new".into(), json!({"message_id": at})),
        ("PUT", "/members/bob".into(), json!({"level": "writer"})),
        ("DELETE", "/members/bob".into(), Value::Null),
    ]
}

/// Makes all requests to a tree; each of those that read twice.
pub(super) fn make(server: &mut Server, tree: &Tree) {
    let client = Client::of(server).with_key("key-a");
    let send = |thread: &str, (method, path, body): &Request| {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = client.send(
            method,
            &format!("/threads/{thread}{path}"),
            &[],
            text.as_bytes(),
        );
        assert!(
            answer.status < 300,
            "{method} {path} {body}: {}",
            answer.text()
        );
    };
    for _ in 0..2 {
        reads(tree)
            .iter()
            .for_each(|request| send(&tree.thread, request));
    }
    changes(tree)
        .iter()
        .for_each(|request| send(&tree.thread, request));
    // A fork reads what it inherits.
    for path in [
        "",
        "/state",
        "/history?limit=10",
        "/messages?limit=10",
        "/tree?limit=10",
        "/tree?limit=10&format=checkpoints",
        &*format!("/state/{}", tree.middle),
        "/runs",
        "/branches",
    ] {
        send(&tree.fork, &("GET", path.into(), Value::Null));
    }
    talk::say(&client, &tree.fork, "hello");
    send(
        &tree.fork,
        &(
            "POST",
            "/state".into(),
            json!({"values": {"messages": [talk::user("x")]}}),
        ),
    );
    lists(&client, tree);
    queue(&client, &tree.thread, &tree.middle);
    let fork = talk::id_of(&talk::fork(&client, &tree.thread, &json!({})));
    for strategy in ["keep_latest", "delete"] {
        let prune = json!({"thread_ids": [fork], "strategy": strategy});
        ok(client.post("/threads/prune", &prune), 200);
    }
    ok(client.delete(&format!("/threads/{}", tree.fork)), 204);
    taken_over(server, &tree.thread);
}

/// Lists that find the tree among others.
fn lists(client: &Client, tree: &Tree) {
    let size = json!({"size": tree.messages.to_string()});
    for more in [
        json!({"ids": [tree.thread]}),
        json!({"metadata": size}),
        json!({"status": "idle"}),
        json!({"status": "interrupted"}),
        json!({"sort_by": "created_at"}),
        json!({"sort_by": "state_updated_at"}),
        json!({"sort_by": "status"}),
        json!({"sort_by": "thread_id", "sort_order": "asc"}),
        json!({"metadata": size, "values": {"x": 1}}),
    ] {
        let search = talk::with(more, "limit", 2);
        ok(client.post("/threads/search", &search), 200);
    }
    ok(
        client.post("/threads/count", &json!({"metadata": size})),
        200,
    );
    let known = json!({"thread_id": tree.thread, "if_exists": "do_nothing"});
    ok(client.post("/threads", &known), 200);
}

/// Runs that wait for another, that are cancelled, rolled back, interrupted and deleted.
fn queue(client: &Client, thread: &str, middle: &str) {
    let slow = || talk::slow(20, 400);
    let cancel = |run: &str, how: &str| {
        let path = format!("/threads/{thread}/runs/{run}/cancel?wait=true&action={how}");
        assert_eq!(client.send("POST", &path, &[], b"").status, 200);
    };
    let short = talk::background(client, thread, &talk::slow(20, 10));
    let behind = talk::background(client, thread, &talk::slow(1, 1));
    for run in [short, behind] {
        assert_eq!(client.end_of(thread, &run), "success");
    }
    let resumable = talk::background(client, thread, &resumable(talk::slow(1, 3)));
    client.end_of(thread, &resumable);
    let path = format!("/threads/{thread}/runs/{resumable}/stream");
    let after = [("last-event-id", "0")];
    assert_eq!(client.send("GET", &path, &after, b"").status, 200);
    for how in ["interrupt", "rollback"] {
        let mut first = client.open_stream(thread, &slow());
        first.event_named("custom");
        talk::background(client, thread, &talk::slow(1, 1));
        let last = talk::background(
            client,
            thread,
            &talk::with(slow(), "multitask_strategy", how),
        );
        cancel(&last, how);
        let later = talk::background(client, thread, &talk::with(slow(), "after_seconds", 3600));
        cancel(&later, "interrupt");
        client.delete(&format!("/threads/{thread}/runs/{later}"));
    }
    // A question that is answered twice: the second answer opens a branch.
    let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(thread, &approve);
    let asked = client.state(thread)["checkpoint"]["checkpoint_id"].clone();
    for at in [Value::Null, asked] {
        let resumed = json!({"assistant_id": "approve", "command": {"resume": "yes"}});
        client.run(thread, &talk::with(resumed, "checkpoint_id", at));
    }
    let delete = |body| {
        let ended = talk::background(client, thread, &body);
        client.end_of(thread, &ended);
        let path = format!("/threads/{thread}/runs/{ended}");
        ok(client.delete(&path), 204);
    };
    // It goes with the branch that it opened.
    delete(talk::with(talk::turn("hello"), "checkpoint_id", middle));
    // What a run has decided where another one had stopped goes with it.
    let stops = talk::with(talk::turn("hello"), "interrupt_before", "*");
    client.run(thread, &stops);
    delete(json!({"assistant_id": "agent", "input": null}));
    // So does what graphs inside have stored since an answer.
    let pauses = json!({"assistant_id": "subgraph", "input": {"pause": true}});
    client.run(thread, &pauses);
    delete(json!({"assistant_id": "subgraph", "command": {"resume": "yes"}}));
    let passes = json!({"assistant_id": "subgraph", "input": {"pause": false}});
    client.run(thread, &passes);
    let inside = format!("/threads/{thread}/state?subgraphs=true");
    ok(client.get(&inside), 200);
    client.post(
        &format!("/threads/{thread}/branches/main/activate"),
        &json!({}),
    );
}

/// A run whose process dies is taken over by the next one.
fn taken_over(server: &mut Server, thread: &str) {
    let client = Client::of(server).with_key("key-a");
    let mut first = client.open_stream(thread, &talk::slow(100, 20));
    first.event_named("custom");
    let run = first.run();
    server.restart();
    let client = Client::of(server).with_key("key-a");
    assert_eq!(client.end_of(thread, &run), "success");
}
