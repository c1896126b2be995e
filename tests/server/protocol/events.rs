//! The events of a thread: which there are, in which order, and what a client gets that comes back.

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk;

use super::*;

on_both_storages!(
    a_run_is_shown_from_its_beginning_to_its_end,
    every_connection_replays_the_thread_with_the_same_ids_and_numbers,
    a_client_that_was_ahead_of_the_log_gets_all_of_it,
    a_stream_is_opened_before_its_thread_and_stays_open_after_a_run,
    an_interrupt_can_be_resumed_the_moment_it_is_shown,
    a_cancelled_run_is_interrupted,
    classic_runs_appear_if_they_can_be_replayed,
    wrong_subscriptions_are_refused,
);

const ALL: [&str; 9] = [
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "tasks",
    "checkpoints",
    "custom",
];

fn a_run_is_shown_from_its_beginning_to_its_end(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "slow", json!({"ms": 1, "ticks": 2}));
    let found = events(
        &client,
        &thread,
        &["lifecycle", "custom", "updates", "values"],
        1,
    );
    assert_eq!(
        brief(&found),
        [
            (
                "lifecycle",
                json!({"event": "running", "graph_name": "slow"})
            ),
            ("values", json!({"ms": 1, "ticks": 2, "seen": []})),
            ("custom", json!({"payload": {"tick": 0}})),
            ("custom", json!({"payload": {"tick": 1}})),
            ("updates", json!({"seen": ["work"]})),
            ("values", json!({"ms": 1, "ticks": 2, "seen": ["work"]})),
            ("updates", json!({"seen": ["rest"]})),
            (
                "values",
                json!({"ms": 1, "ticks": 2, "seen": ["work", "rest"]})
            ),
            (
                "lifecycle",
                json!({"event": "completed", "graph_name": "slow"})
            ),
        ]
        .map(|(method, data)| (method.to_owned(), data))
    );
    assert_eq!(found[4]["params"]["node"], "work");
    let state = client.state(&thread);
    assert_eq!(state["values"]["seen"], json!(["work", "rest"]));
}

fn every_connection_replays_the_thread_with_the_same_ids_and_numbers(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    let input = |text: &str| json!({"messages": [{"role": "user", "content": text}]});
    start(&client, &thread, "agent", input("tool: 2 3"));
    let first = events(&client, &thread, &ALL, 1);
    start(&client, &thread, "agent", input("more"));
    let both = events(&client, &thread, &ALL, 2);
    assert_eq!(both[..first.len()], first);
    assert_eq!(events(&client, &thread, &ALL, 2), both);
    let numbers: Vec<_> = both
        .iter()
        .map(|one| one["seq"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    let ids: std::collections::BTreeSet<_> =
        both.iter().map(|one| one["event_id"].to_string()).collect();
    assert_eq!(ids.len(), both.len());
    // Other channels have the numbers and ids that they have among all, and a client gets the rest.
    for channel in ALL {
        let method = if channel == "input" {
            "input.requested"
        } else {
            channel
        };
        let lifecycle = |one: &&Value| one["method"] == method || one["method"] == "lifecycle";
        let expected: Vec<_> = both.iter().filter(lifecycle).cloned().collect();
        assert_eq!(
            events(&client, &thread, &[channel, "lifecycle"], 2),
            expected
        );
    }
    let since = both[5]["seq"].as_u64().unwrap();
    let mut rest = open(&client, &thread, json!({"channels": ALL, "since": since}));
    assert_eq!(ends(&mut rest, 2), both[6..]);
}

fn a_client_that_was_ahead_of_the_log_gets_all_of_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "counter", json!({"count": 1, "log": []}));
    let all = events(&client, &thread, &["values", "lifecycle"], 1);
    let body = json!({"channels": ["values", "lifecycle"], "since": AHEAD});
    assert_eq!(ends(&mut open(&client, &thread, body), 1), all);
}

fn a_stream_is_opened_before_its_thread_and_stays_open_after_a_run(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    let body = json!({"channels": ["lifecycle", "values"], "namespaces": [[]], "depth": 0});
    let mut early = open(&client, &thread, body);
    for run in 1..=2 {
        start(&client, &thread, "subgraph", json!({"path": []}));
        let found = ends(&mut early, 1);
        assert_eq!(found[0]["params"]["data"]["event"], "running", "{run}");
        let root = |one: &Value| one["params"]["namespace"] == json!([]);
        assert!(found.iter().all(root));
    }
    let body = json!({"channels": ["lifecycle"], "namespaces": [["child"]], "depth": 0});
    let mut inner = open(&client, &thread, body);
    let begin = inner.event().unwrap().data;
    assert_eq!(begin["params"]["data"]["graph_name"], "child");
    assert_eq!(begin["params"]["data"]["event"], "started");
    assert_eq!(
        inner.event().unwrap().data["params"]["data"]["event"],
        "completed"
    );
    // Any text is waited for.
    let mut silent = open(&client, "no-thread", json!({"channels": ["values"]}));
    let heartbeat = String::from_utf8(silent.chunk().unwrap()).unwrap();
    assert_eq!(heartbeat, ": heartbeat\r\n\r\n");
}

fn an_interrupt_can_be_resumed_the_moment_it_is_shown(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "approve", json!({"request": "pay"}));
    let mut watch = open(
        &client,
        &thread,
        json!({"channels": ["values", "input", "lifecycle"]}),
    );
    let requested = watch.event_named("input.requested").data;
    let data = &requested["params"]["data"];
    assert_eq!(
        data["payload"],
        json!({"question": "approve?", "request": "pay"})
    );
    assert_eq!(data["value"], data["payload"]);
    let params = json!({"interrupt_id": data["interrupt_id"], "namespace": [], "response": "yes"});
    let reply = command(&client, &thread, "input.respond", params);
    assert_eq!(reply["result"], json!({}), "{reply}");
    let found = brief(&ends(&mut watch, 2));
    let interrupted = json!({"event": "interrupted", "graph_name": "approve"});
    assert_eq!(found[0], ("lifecycle".into(), interrupted));
    assert_eq!(found[1], ("values".into(), json!({"request": "pay"})));
    let last = &found[found.len() - 2].1;
    assert_eq!(last["result"], "answer=yes");
}

fn a_cancelled_run_is_interrupted(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    let run = start(&client, &thread, "slow", json!({"ms": 50, "ticks": 400}));
    let mut watch = open(
        &client,
        &thread,
        json!({"channels": ["custom", "lifecycle"]}),
    );
    watch.event_named("custom");
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1&action=interrupt");
    talk::ok(client.send("POST", &cancel, &[], b""), 200);
    let last = ends(&mut watch, 1).pop().unwrap();
    assert_eq!(last["params"]["data"]["event"], "interrupted");
}

fn classic_runs_appear_if_they_can_be_replayed(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let classic = |resumable: bool| {
        json!({
            "assistant_id": "agent",
            "input": {"messages": [{"role": "user", "content": "hi"}]},
            "stream_mode": ["values", "updates", "messages-tuple"],
            "stream_resumable": resumable,
        })
    };
    client.run(&thread, &classic(false));
    client.run(&thread, &classic(true));
    let found = events(
        &client,
        &thread,
        &["values", "messages", "lifecycle", "updates"],
        1,
    );
    let methods: Vec<_> = brief(&found)
        .into_iter()
        .map(|(method, _)| method)
        .collect();
    assert_eq!(
        methods,
        ["lifecycle", "values", "updates", "values", "lifecycle"]
    );
    // The form of messages is that of the run.
    let update = &found[2]["params"];
    assert_eq!(update["node"], "model");
    assert_eq!(update["data"]["messages"][0]["content"], "echo: hi");
}

fn wrong_subscriptions_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let path = format!("/threads/{}/stream/events", client.thread());
    for (body, part) in [
        (json!({}), "`channels` must be"),
        (json!({"channels": []}), "`channels` must be"),
        (json!({"channels": "values"}), "channels"),
        (
            json!({"channels": ["values", "bogus"]}),
            "unknown entries: bogus",
        ),
        (
            json!({"channels": ["values"], "namespaces": ["a"]}),
            "`namespaces`",
        ),
        (
            json!({"channels": ["values"], "namespaces": [[1]]}),
            "`namespaces`",
        ),
        (json!({"channels": ["values"], "depth": -1}), "`depth`"),
        (json!({"channels": ["values"], "since": "x"}), "`since`"),
        (json!([]), "object"),
    ] {
        let detail = client.post(&path, &body).refused(400);
        assert!(detail.contains(part), "{body}: {detail}");
    }
    client.post_text(&path, "{").refused(422);
    let answer = client.get(&path);
    assert_eq!(answer.status, 405);
}
