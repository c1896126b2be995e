//! What tests say to a server of the reference graphs, and read back of it.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Client};

/// A body with one more field.
pub fn with(mut body: Value, key: &str, value: impl Into<Value>) -> Value {
    body[key] = value.into();
    body
}

/// A body with more fields.
pub fn extend(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Types of the events of a turn of `agent` with one answer.
pub const TURN: [&str; 6] = [
    "RunEnqueued",
    "RunStarted",
    "UserMessageAdded",
    "LLMResponseGenerated",
    "CheckpointCreated",
    "RunFinished",
];

/// A message of a user.
pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A run of `agent` in which the user says this.
pub fn turn(text: &str) -> Value {
    json!({"assistant_id": "agent", "input": {"messages": [user(text)]}})
}

/// The same with an id of the message, and more fields.
pub fn turn_as(text: &str, id: &str, more: Value) -> Value {
    let message = with(user(text), "id", id);
    let body = json!({"assistant_id": "agent", "input": {"messages": [message]}});
    extend(body, more)
}

/// A run of `slow`: `ticks` custom events in `work`, then `rest`, each after `ms` milliseconds.
pub fn slow(ms: u64, ticks: u64) -> Value {
    json!({
        "assistant_id": "slow",
        "input": {"ms": ms, "ticks": ticks},
        "stream_mode": ["values", "custom"],
    })
}

/// Runs a turn of `agent` to its end: the values.
pub fn say(client: &Client, thread: &str, text: &str) -> Value {
    client.run(thread, &turn(text))
}

/// Starts a run that nobody waits for: its id.
pub fn background(client: &Client, thread: &str, body: &Value) -> String {
    let row = ok(client.post(&format!("/threads/{thread}/runs"), body), 200);
    row["run_id"].as_str().unwrap().to_owned()
}

/// How long a test waits for what must come; a busy machine takes many times what a quiet one does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until it is so.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

/// Polls until it is so, for as long as the amount of work may take.
pub fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if holds() {
            return;
        }
        // Nobody tells a client or a reader of tables.
        std::thread::sleep(poll_pause(begin));
    }
    panic!("it never came to be that {what}");
}

/// How long to wait before asking again for what has been awaited since `begin`: what comes soon is noticed soon, and
/// asking for what takes long keeps no processor from it.
pub fn poll_pause(begin: Instant) -> Duration {
    (begin.elapsed() / 8).clamp(Duration::from_millis(1), Duration::from_millis(100))
}

/// The body of an answer of this status; null if it has none.
pub fn ok(answer: Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    if answer.body.is_empty() {
        Value::Null
    } else {
        answer.json()
    }
}

/// The code of a refusal of this status; empty if it has none.
pub fn code(answer: impl Borrow<Answer>, status: u16) -> String {
    let answer = answer.borrow();
    answer.refused(status);
    let code = answer.json()["code"].clone();
    code.as_str().unwrap_or_default().to_owned()
}

/// A PUT of JSON.
pub fn put(client: &Client, path: &str, body: &Value) -> Answer {
    client.send("PUT", path, &[], body.to_string().as_bytes())
}

/// A PATCH of JSON.
pub fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    client.send("PATCH", path, &[], body.to_string().as_bytes())
}

/// What is below a thread at this path.
pub fn get(client: &Client, thread: &str, path: &str) -> Value {
    ok(client.get(&format!("/threads/{thread}/{path}")), 200)
}

/// A new thread by this body.
pub fn create(client: &Client, body: &Value) -> String {
    id_of(&ok(client.post("/threads", body), 200))
}

/// A new thread of the graph `agent`.
pub fn agent_thread(client: &Client) -> String {
    create(client, &json!({"metadata": {"graph_id": "agent"}}))
}

/// The thread that an answer is about.
pub fn id_of(answer: &Value) -> String {
    answer["thread_id"].as_str().unwrap().to_owned()
}

/// So many threads with the history of this one, which is one of them: a copy of a large state costs a server a part of
/// what it costs to receive it.
pub fn copies(client: &Client, thread: String, count: usize) -> Vec<String> {
    let path = format!("/threads/{thread}/copy");
    let copy = |_| {
        let made = client.post(&path, &json!({}));
        assert_eq!(made.status, 200, "{}", made.text());
        // Values may follow, which take long to read.
        let (_, id) = made.text().split_once("\"thread_id\":\"").unwrap();
        id.split('"').next().unwrap().to_owned()
    };
    let copies: Vec<String> = (1..count).map(copy).collect();
    [vec![thread], copies].concat()
}

/// What the task of a node has written in the superstep that is not over; null before.
pub fn result_of(client: &Client, thread: &str, node: &str) -> Value {
    let state = client.state(thread);
    let tasks = state["tasks"].as_array().unwrap();
    let task = tasks.iter().find(|task| task["name"] == node);
    task.map_or(Value::Null, |task| task["result"].clone())
}

/// Posts messages.
pub fn post(client: &Client, thread: &str, body: &Value) -> Answer {
    client.post(&format!("/threads/{thread}/messages"), body)
}

/// Posts and expects it to be new.
pub fn store(client: &Client, thread: &str, body: &Value) -> Value {
    ok(post(client, thread, body), 201)
}

/// Posts `text of <id>`; what begins with `a` is the assistant's, all else the user's.
pub fn note(client: &Client, thread: &str, id: &str) -> Value {
    let role = if id.starts_with('a') {
        "assistant"
    } else {
        "user"
    };
    let body = json!({"id": id, "role": role, "content": format!("text of {id}")});
    store(client, thread, &body)
}

/// A thread of `agent` with these notes, each posted by itself.
pub fn thread_of(client: &Client, notes: &[&str]) -> String {
    let thread = agent_thread(client);
    for id in notes {
        note(client, &thread, id);
    }
    thread
}

/// A page of messages.
pub fn read(client: &Client, thread: &str, query: &str) -> Value {
    get(client, thread, &format!("messages?{query}"))
}

/// The ids on a page of messages.
pub fn ids(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().unwrap().iter();
    let id = |one: &Value| one["message_id"].as_str().unwrap().to_owned();
    messages.map(id).collect()
}

/// The ids of the messages that are read so.
pub fn path(client: &Client, thread: &str, query: &str) -> Vec<String> {
    ids(&read(client, thread, query))
}

/// What messages say, texts all of them.
pub fn contents(messages: &Value) -> Vec<&str> {
    let all = messages.as_array().unwrap().iter();
    all.map(|one| one["content"].as_str().unwrap()).collect()
}

/// The branches of a thread, its leaves and forks.
pub fn branches(client: &Client, thread: &str) -> Value {
    get(client, thread, "branches")
}

/// The names of a thread's branches.
pub fn branch_names(client: &Client, thread: &str) -> Vec<String> {
    let found = branches(client, thread);
    let rows = found["branches"].as_array().unwrap().iter();
    rows.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

/// A thread's events.
pub fn events(client: &Client, thread: &str, query: &str) -> Vec<Value> {
    let page = get(client, thread, &format!("events?{query}"));
    page["events"].as_array().unwrap().clone()
}

/// The numbers of events.
pub fn numbers(events: &[Value]) -> Vec<i64> {
    let numbers = events.iter().map(|event| event["event_number"].as_i64());
    numbers.map(Option::unwrap).collect()
}

/// The number of a thread's newest event.
pub fn last_event(client: &Client, thread: &str) -> i64 {
    let log = events(client, thread, "limit=1000");
    log.last().unwrap()["event_number"].as_i64().unwrap()
}

/// Forks a thread.
pub fn fork(client: &Client, thread: &str, body: &Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/fork"), body);
    assert_eq!(answer.status, 201, "{body}: {}", answer.text());
    answer.json()
}

/// The fork tree that a thread belongs to.
pub fn family(client: &Client, thread: &str) -> Value {
    get(client, thread, "forks")
}

/// Everything a client can read of a thread.
pub fn whole(client: &Client, thread: &str) -> Vec<Value> {
    [
        "",
        "/state",
        "/history?limit=100",
        "/messages",
        "/branches",
        "/tags",
        "/events?limit=1000",
    ]
    .iter()
    .map(|path| {
        let answer = client.get(&format!("/threads/{thread}{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    })
    .collect()
}
