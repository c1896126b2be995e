//! Messages that wait for an answer.

use serde_json::{Value, json};

use super::conversation;
use test_support::on_both_storages;
use test_support::talk::{
    background, branch_names, branches, code, contents, events, ok, path, read, slow, until, with,
};
use test_support::{
    client::Client,
    place::{Place, serve},
    server::Setup,
};

on_both_storages!(
    a_message_is_sent_and_answered_once,
    only_the_new_message_is_fed_on_top_of_the_head,
    a_message_behind_an_older_one_is_answered_on_a_branch,
    messages_sent_together_are_answered_in_order,
    a_message_that_is_sent_again_has_the_answer_it_had,
    a_message_is_sent_in_place_of_another,
    a_message_that_ends_a_running_run_is_answered_alone,
    a_message_that_undoes_the_run_of_a_new_branch_goes_to_the_one_before,
);

fn send(client: &Client, body: &Value) -> Value {
    ok(client.post("/commands/send-message", body), 202)
}

fn a_message_is_sent_and_answered_once(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"thread_id": thread, "content": "hi", "assistant_id": "agent"});
    let sent = send(&client, &with(body, "message_id", "Q"));
    assert_eq!(sent["thread_id"], json!(thread));
    assert_eq!(sent["message_id"], "Q");
    assert_eq!(sent["branch"], "main");
    assert!(sent["event_id"].is_string());
    let run = sent["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&thread, run), "success");
    let page = read(&client, &thread, "");
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["message_id"], "Q");
    assert_eq!(messages[1]["content"], "echo: hi");
    // The message keeps the number it was given when it was sent.
    assert_eq!(messages[0]["event_number"], sent["event_number"]);
    assert!(messages[1]["event_number"].as_i64() > sent["event_number"].as_i64());
    // The thread knows its assistant now.
    let again = send(&client, &json!({"thread_id": thread, "content": "ho"}));
    client.end_of(&thread, again["run_id"].as_str().unwrap());
    assert_eq!(
        read(&client, &thread, "")["messages"][3]["content"],
        "echo: ho"
    );
}

fn only_the_new_message_is_fed_on_top_of_the_head(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let sent = send(&client, &json!({"thread_id": thread, "content": "new"}));
    client.end_of(&thread, sent["run_id"].as_str().unwrap());
    let ids = path(&client, &thread, "view=state");
    assert_eq!(ids.len(), 6);
    assert_eq!(ids[..4], ["M1", "M2", "M3", "M4"]);
    let row = client.get(&format!(
        "/threads/{thread}/runs/{}",
        sent["run_id"].as_str().unwrap()
    ));
    let input = &row.json()["kwargs"]["input"]["messages"];
    assert_eq!(input.as_array().unwrap().len(), 1);
}

fn a_message_behind_an_older_one_is_answered_on_a_branch(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let body = json!({"thread_id": thread, "content": "aside", "parent_id": "M2"});
    let sent = send(&client, &body);
    assert_eq!(sent["branch"], "main-v2");
    client.end_of(&thread, sent["run_id"].as_str().unwrap());
    assert_eq!(branches(&client, &thread)["active"], "main-v2");
    let page = read(&client, &thread, "");
    assert_eq!(page["messages"][3]["content"], "echo: aside");
    assert_eq!(page["messages"].as_array().unwrap().len(), 4);
    // A named branch is answered where it is, whatever is active.
    let body = json!({"thread_id": thread, "content": "there", "branch": "main"});
    let sent = send(&client, &body);
    assert_eq!(sent["branch"], "main");
    client.end_of(&thread, sent["run_id"].as_str().unwrap());
    assert_eq!(branches(&client, &thread)["active"], "main-v2");
    let page = read(&client, &thread, "branch=main");
    assert_eq!(page["messages"][5]["content"], "echo: there");
}

fn messages_sent_together_are_answered_in_order(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    let runs: Vec<String> = (0..4)
        .map(|n| {
            let body = json!({"thread_id": thread, "content": format!("q{n}")});
            send(&client, &body)["run_id"].as_str().unwrap().to_owned()
        })
        .collect();
    for run in &runs {
        assert_eq!(client.end_of(&thread, run), "success");
    }
    let page = read(&client, &thread, "after=M2");
    let texts: Vec<_> = page["messages"].as_array().unwrap().iter().collect();
    let expected: Vec<String> = (0..4)
        .flat_map(|n| [format!("q{n}"), format!("echo: q{n}")])
        .collect();
    let found: Vec<_> = texts
        .iter()
        .map(|one| one["content"].as_str().unwrap())
        .collect();
    assert_eq!(found, expected);
}

fn a_message_that_is_sent_again_has_the_answer_it_had(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let first = background(&client, &thread, &slow(700, 1));
    let body = |text: &str| json!({"thread_id": thread, "content": text, "message_id": "Q", "assistant_id": "agent"});
    let sent = send(&client, &body("q"));
    let refused = |text: &str| code(client.post("/commands/send-message", &body(text)), 409);
    assert_eq!(send(&client, &body("q")), sent, "while it waits");
    assert_eq!(refused("other"), "message_exists");
    assert_eq!(client.end_of(&thread, &first), "success");
    let run = sent["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&thread, run), "success");
    assert_eq!(send(&client, &body("q")), sent, "once it is answered");
    assert_eq!(refused("other"), "message_exists");
    assert_eq!(
        contents(&read(&client, &thread, "")["messages"]),
        ["q", "echo: q"]
    );
    let log = events(&client, &thread, "limit=1000");
    let told = log
        .iter()
        .filter(|one| one["event_type"] == "UserMessageAdded");
    assert_eq!(told.count(), 1);
}

fn a_message_is_sent_in_place_of_another(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    for (parent, branch, before) in [("M3", "main-v2", 2), ("M1", "main-v2-v2", 0)] {
        let body = json!({"thread_id": thread, "content": "instead", "parent_id": parent,
            "position": "before"});
        let sent = send(&client, &body);
        assert_eq!(sent["branch"], branch);
        client.end_of(&thread, sent["run_id"].as_str().unwrap());
        let page = read(&client, &thread, "");
        let said = contents(&page["messages"]);
        assert_eq!(said.len(), before + 2, "{said:?}");
        assert_eq!(said[before..], ["instead", "echo: instead"]);
    }
}

fn a_message_that_ends_a_running_run_is_answered_alone(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    for (strategy, left) in [
        ("interrupt", vec!["wait", "next", "so: next"]),
        ("rollback", vec!["next", "so: next"]),
    ] {
        let thread = client.thread();
        let body = json!({"thread_id": thread, "content": "wait", "assistant_id": "talk"});
        let first = send(&client, &body);
        let first = first["run_id"].as_str().unwrap();
        until("the first message is in the state", || {
            read(&client, &thread, "")["messages"] != json!([])
        });
        let next = json!({"thread_id": thread, "content": "next", "multitask_strategy": "reject"});
        let refused = client.post("/commands/send-message", &next);
        assert_eq!(code(refused, 409), "branch_busy");
        let sent = send(&client, &with(next, "multitask_strategy", strategy));
        assert_eq!(sent["branch"], "main");
        let end = client.end_of(&thread, sent["run_id"].as_str().unwrap());
        assert_eq!(end, "success", "{strategy}");
        let page = read(&client, &thread, "");
        assert_eq!(contents(&page["messages"]), left, "{strategy}");
        let run = client.get(&format!("/threads/{thread}/runs/{first}"));
        match strategy {
            "interrupt" => assert_eq!(ok(run, 200)["status"], "interrupted"),
            _ => assert_eq!(run.status, 404),
        }
    }
}

fn a_message_that_undoes_the_run_of_a_new_branch_goes_to_the_one_before(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let turn = |text: &str| {
        let message = json!({"role": "user", "content": text});
        json!({"assistant_id": "talk", "input": {"messages": [message]}})
    };
    client.run(&thread, &turn("one"));
    let old = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    client.run(&thread, &turn("two"));
    background(&client, &thread, &with(turn("wait"), "checkpoint_id", old));
    until("the run has made its branch", || {
        branches(&client, &thread)["active"] == "main-v2"
    });
    let body = json!({"thread_id": thread, "content": "next", "multitask_strategy": "rollback"});
    let sent = send(&client, &body);
    assert_eq!(sent["branch"], "main");
    client.end_of(&thread, sent["run_id"].as_str().unwrap());
    assert_eq!(branch_names(&client, &thread), ["main"]);
    let page = read(&client, &thread, "");
    let said = contents(&page["messages"]);
    assert_eq!(
        said,
        ["one", "so: one", "two", "so: two", "next", "so: next"]
    );
}
