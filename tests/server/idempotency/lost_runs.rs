//! Requests that create runs and whose answer was lost: the run goes on undisturbed, and is found again.

use super::lost_answers::LOST;
use super::*;

on_both_storages!(
    a_live_run_keeps_its_stream_when_its_request_is_repeated,
    a_call_of_a_tool_is_joined_when_it_is_repeated,
    a_run_whose_thread_goes_while_it_is_created_gives_its_slot_back,
    a_message_to_an_agent_answers_no_interrupt_when_it_is_repeated,
    a_message_that_resumed_a_task_resumes_it_once,
    a_command_that_started_a_run_starts_it_once,
    a_posted_message_names_its_run_when_it_is_repeated,
    updates_that_a_run_overtook_are_told_as_not_applied,
);

/// Sends a request whose answer is lost.
fn lose(client: &Client, path: &str, key: &str, body: &Value) {
    assert_eq!(post(client, path, key, body).status, 500, "{path}");
}

fn count(client: &Client, what: &str) -> u64 {
    let path = format!("/{what}/count");
    ok(client.post(&path, &json!({})), 200).as_u64().unwrap()
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn assistant(client: &Client, graph: &str) -> String {
    let found = client.post("/assistants/search", &json!({"graph_id": graph}));
    let id = &ok(found, 200)[0]["assistant_id"];
    id.as_str().unwrap().to_owned()
}

fn a_live_run_keeps_its_stream_when_its_request_is_repeated(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    let slow = json!({"assistant_id": "slow", "input": {"ms": 200, "ticks": 50}, "on_completion": "keep",
        "stream_mode": ["values", "custom"]});
    let body = json!([slow]);
    lose(&client, "/runs/batch", "k", &body);
    let rows = ok(post(&client, "/runs/batch", "k", &body), 200);
    let text = |key: &str| rows[0][key].as_str().unwrap().to_owned();
    let (thread, run) = (text("thread_id"), text("run_id"));
    let path = format!("/threads/{thread}/runs/{run}/stream?stream_mode=custom&stream_mode=values");
    let mut stream = client.open("GET", &path, &[], &[]);
    let events: Vec<_> = std::iter::from_fn(|| stream.event()).collect();
    let ticks = events.iter().filter(|event| event.name == "custom").count();
    assert!(ticks >= 5, "{events:?}");
    assert_eq!(client.end_of(&thread, &run), "success");
    assert_eq!(count(&client, "threads"), 1);
}

fn a_call_of_a_tool_is_joined_when_it_is_repeated(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    let call = json!({"name": "slow", "arguments": {"ms": 1500, "ticks": 3}});
    let body = request("tools/call", &call);
    let lost = {
        let (client, body) = (Client::of(&server), body.clone());
        thread::spawn(move || post(&client, "/mcp", "k", &body).status)
    };
    until("the tool runs", || count(&client, "threads") == 1);
    // It waits for the first one, whose answer is lost when the run has ended and its thread is gone.
    let again = post(&client, "/mcp", "k", &body);
    assert_eq!(lost.join().unwrap(), 500);
    assert_eq!(again.status, 200, "{}", again.text());
    let result = &again.json()["result"];
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        result["isError"].is_null() && text.contains("rest"),
        "{result}"
    );
    let metrics = client.get("/metrics");
    let ended: Vec<&str> = metrics
        .text()
        .lines()
        .filter(|line| line.starts_with("backstitch_runs_ended_total"))
        .collect();
    assert_eq!(
        ended,
        [r#"backstitch_runs_ended_total{status="success"} 1"#]
    );
}

fn a_run_whose_thread_goes_while_it_is_created_gives_its_slot_back(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_SLOTS", "2");
    let server = place.start(setup);
    let client = Client::of(&server);
    for _ in 0..60 {
        let of = client.thread();
        let path = format!("/threads/{of}");
        let runs = format!("{path}/runs");
        thread::scope(|scope| {
            scope.spawn(|| client.delete(&path));
            scope.spawn(|| client.post(&runs, &talk::turn("hi")));
            scope.spawn(|| client.post(&runs, &talk::turn("hi")));
        });
    }
    let workers = || client.get("/metrics?format=json").json()["workers"].clone();
    until("every slot is free", || workers()["active"] == 0);
    assert_eq!(workers()["available"], 2);
    // Both are there to be taken.
    let (first, second) = (client.thread(), client.thread());
    let mut one = client.open_stream(&first, &slow(5_000));
    one.event_named("custom");
    let mut other = client.open_stream(&second, &slow(5_000));
    other.event_named("custom");
}

/// A message of `approve`, whose graph asks before it goes on.
fn message(context: Option<&Value>, data: &Value) -> Value {
    let mut message =
        json!({"role": "user", "messageId": "m", "parts": [{"kind": "data", "data": data}]});
    if let Some(context) = context {
        message["contextId"] = context.clone();
    }
    request("message/send", &json!({ "message": message }))
}

fn a_message_to_an_agent_answers_no_interrupt_when_it_is_repeated(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    let path = format!("/a2a/{}", assistant(&client, "approve"));
    let body = message(None, &json!({"request": "pay"}));
    lose(&client, &path, "k", &body);
    let answer = post(&client, &path, "k", &body);
    let task = &ok(answer, 200)["result"];
    assert_eq!(task["status"]["state"], "input-required", "{task}");
    let thread = task["contextId"].as_str().unwrap();
    assert_eq!(runs(&client, thread).len(), 1);
    assert_eq!(count(&client, "threads"), 1);
}

fn a_message_that_resumed_a_task_resumes_it_once(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let path = format!("/a2a/{}", assistant(&client, "approve"));
    let asked = client.post(&path, &message(None, &json!({"request": "pay"})));
    let task = ok(asked, 200)["result"].clone();
    let thread = task["contextId"].as_str().unwrap();
    server.restart_with("FAILPOINTS", LOST);
    let client = Client::of(&server);
    let body = message(Some(&task["contextId"]), &json!({"ok": true}));
    lose(&client, &path, "k", &body);
    until("the task has ended", || {
        let all = runs(&client, thread);
        all.len() == 2 && all.iter().all(|run| run["status"] == "success")
    });
    // Another task of the context begins meanwhile, and waits in its turn.
    let next = client.post(
        &path,
        &message(Some(&task["contextId"]), &json!({"request": "more"})),
    );
    let next = ok(next, 200)["result"].clone();
    assert_eq!(next["status"]["state"], "input-required", "{next}");
    let again = ok(post(&client, &path, "k", &body), 200)["result"].clone();
    assert_eq!(again["id"], task["id"], "{again}");
    assert_eq!(again["status"]["state"], "completed", "{again}");
    assert_eq!(runs(&client, thread).len(), 3);
}

fn a_command_that_started_a_run_starts_it_once(place: &Place) {
    let mut server = place.start(Setup::example("reference_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    let thread = talk::id_of(&client.post("/threads", &json!({})).json());
    let path = format!("/threads/{thread}/commands");
    let start = json!({"id": 1, "method": "run.start",
        "params": {"assistant_id": "approve", "input": {"request": "pay"}}});
    lose(&client, &path, "start", &start);
    let started = ok(post(&client, &path, "start", &start), 200);
    let all = runs(&client, &thread);
    assert_eq!(all.len(), 1, "{started}");
    assert_eq!(started["result"]["run_id"], all[0]["run_id"], "{started}");
    client.end_of(&thread, all[0]["run_id"].as_str().unwrap());

    server.restart_with("FAILPOINTS", LOST);
    let client = Client::of(&server);
    let state = client.state(&thread);
    let interrupt = &state["tasks"][0]["interrupts"][0]["id"];
    let respond = json!({"id": 2, "method": "input.respond",
        "params": {"namespace": [], "interrupt_id": interrupt, "response": "yes"}});
    lose(&client, &path, "respond", &respond);
    let responded = ok(post(&client, &path, "respond", &respond), 200);
    assert_eq!(responded["type"], "success", "{responded}");
    assert_eq!(runs(&client, &thread).len(), 2);
}

fn a_posted_message_names_its_run_when_it_is_repeated(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    let thread = client.post("/threads", &json!({"metadata": {"graph_id": "agent"}}));
    let thread = talk::id_of(&thread.json());
    let path = format!("/threads/{thread}/messages");
    let body =
        json!({"messages": [{"role": "user", "content": "a"}], "run": {"assistant_id": "agent"}});
    lose(&client, &path, "k", &body);
    let again = ok(post(&client, &path, "k", &body), 200);
    let all = runs(&client, &thread);
    assert_eq!(all.len(), 1, "{again}");
    assert_eq!(again["run_id"], all[0]["run_id"], "{again}");
}

fn updates_that_a_run_overtook_are_told_as_not_applied(place: &Place) {
    let points = "threads.before_updates=panic@1";
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", points));
    let client = Client::of(&server);
    let update =
        json!({"values": {"messages": [{"role": "user", "content": "a"}]}, "as_node": "__start__"});
    let body = json!({"metadata": {"graph_id": "agent"}, "supersteps": [{"updates": [update]}]});
    lose(&client, "/threads", "k", &body);
    let threads = client.get("/threads").json();
    let thread = talk::id_of(&threads[0]);
    talk::say(&client, &thread, "first");
    let again = post(&client, "/threads", "k", &body);
    assert!(
        again.text().contains("before its updates"),
        "{}",
        again.text()
    );
    let messages = client.state(&thread)["values"]["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 2, "{messages}");
}
