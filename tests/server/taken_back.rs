//! Runs that answered questions and are taken back: the questions are open again, and the answers of those runs count for
//! nothing.

use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::{Place, serve},
    talk::ok,
};

on_both_storages!(
    an_answer_that_is_taken_back_is_asked_for_again,
    of_several_answers_those_of_other_runs_count,
    an_answer_inside_a_graph_that_is_taken_back_is_asked_for_again,
    an_answer_before_a_breakpoint_that_is_taken_back_is_asked_for_again,
    a_command_that_is_taken_back_leaves_no_result_for_the_next_one,
    a_fork_keeps_what_a_run_did_inside_that_is_taken_back,
);

/// Answers with a run: the values after it, and its id.
fn answer(client: &Client, thread: &str, graph: &str, resume: &Value) -> (Value, String) {
    let body = json!({"assistant_id": graph, "command": {"resume": resume}});
    let values = client.run(thread, &body);
    let runs = ok(client.get(&format!("/threads/{thread}/runs")), 200);
    (values, runs[0]["run_id"].as_str().unwrap().to_owned())
}

/// Deletes the newest run of a thread, and with it what it has done.
fn take_back(client: &Client, thread: &str, run: &str) {
    let path = format!("/threads/{thread}/runs/{run}");
    let answer = client.send("DELETE", &path, &[], b"");
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// The ids of the questions that are open, by their values.
fn open(client: &Client, thread: &str) -> Vec<(Value, String)> {
    let state = client.state(thread);
    let open = state["interrupts"].as_array().unwrap();
    let open = open
        .iter()
        .map(|one| (one["value"].clone(), one["id"].as_str().unwrap().to_owned()));
    let open: Vec<_> = open.collect();
    let row = ok(client.get(&format!("/threads/{thread}")), 200);
    let is_open = row["status"] == "interrupted";
    assert_eq!(is_open, !open.is_empty(), "{row}");
    open
}

fn an_answer_that_is_taken_back_is_asked_for_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "r"}}),
    );
    let asked = open(&client, &thread);
    let before = client.state(&thread);
    for word in ["yes", "no", "maybe"] {
        assert_eq!(open(&client, &thread), asked);
        assert_eq!(client.state(&thread)["tasks"], before["tasks"]);
        let (values, run) = answer(&client, &thread, "approve", &json!(word));
        assert_eq!(values["result"], format!("answer={word}"));
        take_back(&client, &thread, &run);
    }
    assert_eq!(client.state(&thread)["values"], before["values"]);
}

fn of_several_answers_those_of_other_runs_count(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "approve_many", "input": {}}),
    );
    let asked = open(&client, &thread);
    assert_eq!(asked.len(), 2, "{asked:?}");
    let id = |question: &str| {
        let of = asked.iter().find(|(value, _)| value == question);
        of.unwrap().1.clone()
    };
    let (a, b) = (id("A?"), id("B?"));
    answer(&client, &thread, "approve_many", &json!({a: "yes"}));
    assert_eq!(open(&client, &thread).len(), 1);
    for word in ["yes", "no"] {
        let (values, run) = answer(&client, &thread, "approve_many", &json!({&b: word}));
        assert_eq!(values["answers"], json!([["a", "yes"], ["b", word]]));
        take_back(&client, &thread, &run);
        assert_eq!(open(&client, &thread), [(json!("B?"), b.clone())]);
    }
    let (values, _) = answer(&client, &thread, "approve_many", &json!({b: "late"}));
    assert_eq!(values["answers"], json!([["a", "yes"], ["b", "late"]]));
}

fn an_answer_inside_a_graph_that_is_taken_back_is_asked_for_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "subgraph", "input": {"pause": true}}),
    );
    let asked = open(&client, &thread);
    assert_eq!(asked.len(), 1);
    for word in ["yes", "no"] {
        let (values, run) = answer(&client, &thread, "subgraph", &json!(word));
        let path: Vec<&str> = values["path"]
            .as_array()
            .unwrap()
            .iter()
            .map(|at| at.as_str().unwrap())
            .collect();
        let leaves: Vec<_> = path.iter().filter(|at| at.starts_with("leaf")).collect();
        assert_eq!(leaves, [&&*format!("leaf:{word}")], "{values}");
        assert_eq!(path.last(), Some(&"after"));
        take_back(&client, &thread, &run);
        assert_eq!(open(&client, &thread), asked);
    }
}

fn an_answer_before_a_breakpoint_that_is_taken_back_is_asked_for_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let ask = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &ask);
    let asked = open(&client, &thread);
    let yes = json!({"assistant_id": "approve", "command": {"resume": "yes"}, "interrupt_before": ["finalize"]});
    client.run(&thread, &yes);
    assert_eq!(client.state(&thread)["next"], json!(["finalize"]));
    let runs = ok(client.get(&format!("/threads/{thread}/runs")), 200);
    take_back(&client, &thread, runs[0]["run_id"].as_str().unwrap());
    assert_eq!(open(&client, &thread), asked);
    let (values, _) = answer(&client, &thread, "approve", &json!("no"));
    assert_eq!(values["result"], "answer=no");
}

fn a_command_that_is_taken_back_leaves_no_result_for_the_next_one(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let ask = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &ask);
    answer(&client, &thread, "approve", &json!("yes"));
    for word in ["one", "two"] {
        let command = json!({"update": {"answer": word}, "goto": "finalize"});
        let body = json!({"assistant_id": "approve", "command": command});
        let values = client.run(&thread, &body);
        assert_eq!(values["result"], format!("answer={word}"));
        let runs = ok(client.get(&format!("/threads/{thread}/runs")), 200);
        take_back(&client, &thread, runs[0]["run_id"].as_str().unwrap());
        assert_eq!(
            client.state(&thread)["values"]["result"],
            json!("answer=yes")
        );
    }
}

fn a_fork_keeps_what_a_run_did_inside_that_is_taken_back(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let pauses = json!({"assistant_id": "subgraph", "input": {"pause": true}});
    client.run(&thread, &pauses);
    let asked = open(&client, &thread);
    let (values, run) = answer(&client, &thread, "subgraph", &json!("yes"));
    let made = ok(
        client.post(&format!("/threads/{thread}/fork"), &json!({})),
        201,
    );
    let fork = made["thread_id"].as_str().unwrap();
    let states = || -> Vec<[Value; 2]> {
        let history = client.history(fork);
        let states = history.iter();
        states
            .map(|state| ["checkpoint", "values"].map(|field| state[field].clone()))
            .collect()
    };
    let before = states();
    take_back(&client, &thread, &run);
    assert_eq!(open(&client, &thread), asked);
    assert_eq!(states(), before);
    assert_eq!(client.state(fork)["values"], values);
    let passes = json!({"assistant_id": "subgraph", "input": {"pause": false}});
    let path = client.run(fork, &passes)["path"].clone();
    assert_eq!(path.as_array().unwrap().last().unwrap(), "after");
}
