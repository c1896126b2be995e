//! Where posted messages go, and what they leave.

use serde_json::{Value, json};

use super::{conversation, four_in_one_step};
use test_support::on_both_storages;
use test_support::talk::{
    agent_thread, branch_names, branches, code, ids, path, post, read, store, user, with,
};
use test_support::{
    client::Client,
    place::{Place, serve},
    server::Setup,
};

on_both_storages!(
    a_thread_without_a_graph_keeps_messages_until_its_first_run,
    a_posted_message_waits_for_a_run_and_others_do_not,
    a_run_is_created_with_the_messages_it_answers,
    a_repeated_post_writes_nothing,
    an_edit_of_several_messages_is_known_again,
    the_end_of_another_branch_is_continued_there,
    a_post_before_a_message_takes_its_place,
    several_messages_are_one_checkpoint_and_can_be_branched_between,
    rewinding_between_messages_of_one_step_cuts_the_later_ones_off,
    replacing_a_message_edits_it_where_it_is,
    a_taken_id_is_refused_when_asked,
    an_expected_head_must_be_the_head,
    a_branch_on_which_a_run_works_takes_no_posts,
    unanswered_tool_calls_are_warned_of,
    events_tell_of_posts,
    ids_are_the_clients_own_or_uuids,
);

fn a_thread_without_a_graph_keeps_messages_until_its_first_run(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let answer = store(&client, &thread, &user("hello"));
    assert_eq!(answer["branch"], "main");
    assert_eq!(answer["branch_created"], false);
    let page = read(&client, &thread, "");
    assert_eq!(page["messages"][0]["content"], "hello");
    assert_eq!(page["messages"][0]["role"], "user");
    let end = client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    assert_eq!(end["messages"][1]["content"], "echo: hello");
    assert_eq!(read(&client, &thread, "")["messages"][1]["depth"], 2);
    // With an input of its own a run takes up both.
    let other = client.thread();
    store(&client, &other, &user("hello"));
    let input = json!({"messages": [user("and more")]});
    let end = client.run(&other, &json!({"assistant_id": "agent", "input": input}));
    let said: Vec<_> = end["messages"].as_array().unwrap().iter().collect();
    assert_eq!(said.len(), 3);
    assert_eq!(said[2]["content"], "echo: and more");
    let nobody = with(user("x"), "as_node", "model");
    assert_eq!(
        code(post(&client, &client.thread(), &nobody), 422),
        "invalid_request"
    );
}

fn a_posted_message_waits_for_a_run_and_others_do_not(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    store(&client, &thread, &user("question"));
    assert_eq!(client.state(&thread)["next"], json!(["model"]));
    store(
        &client,
        &thread,
        &json!({"role": "ai", "content": "answer"}),
    );
    assert_eq!(client.state(&thread)["next"], json!([]));
    let by_node = json!({"role": "tool", "tool_call_id": "c", "content": "3", "as_node": "tools"});
    store(&client, &thread, &by_node);
    assert_eq!(client.state(&thread)["next"], json!(["model"]));
    let page = read(&client, &thread, "");
    let roles: Vec<_> = page["messages"].as_array().unwrap().iter().collect();
    assert_eq!(roles[1]["role"], "assistant");
    assert_eq!(roles[2]["role"], "tool");
    let unknown = with(user("x"), "as_node", "nobody");
    assert_eq!(
        code(post(&client, &thread, &unknown), 422),
        "invalid_request"
    );
}

fn a_run_is_created_with_the_messages_it_answers(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = with(user("hello"), "run", json!({"assistant_id": "agent"}));
    let answer = store(&client, &thread, &body);
    let run = answer["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&thread, run), "success");
    let page = read(&client, &thread, "");
    assert_eq!(page["messages"][1]["content"], "echo: hello");
    // A run that cannot be created takes the messages with it.
    let body = with(user("again"), "run", json!({"assistant_id": "nobody"}));
    assert_eq!(post(&client, &thread, &body).status, 422);
    assert_eq!(
        read(&client, &thread, "")["messages"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

fn a_repeated_post_writes_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let body = json!({"messages": [
        {"id": "a", "role": "user", "content": "one"},
        {"id": "b", "role": "assistant", "content": "two"},
    ]});
    let first = store(&client, &thread, &body);
    store(&client, &thread, &user("later"));
    let before = read(&client, &thread, "");
    let again = post(&client, &thread, &body);
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.json()["messages"][1]["message_id"], "b");
    assert_eq!(again.json()["checkpoint_id"], first["checkpoint_id"]);
    assert_eq!(read(&client, &thread, ""), before);
    // The beginning is there already: only the rest is new, behind it.
    let more = json!({"messages": [
        {"id": "a", "role": "user", "content": "one"},
        {"id": "c", "role": "assistant", "content": "another"},
    ]});
    let answer = store(&client, &thread, &more);
    assert_eq!(answer["branch_created"], true);
    assert_eq!(path(&client, &thread, ""), ["a", "c"]);
}

fn the_end_of_another_branch_is_continued_there(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let aside = with(with(user("aside"), "parent_id", "M2"), "id", "A");
    store(&client, &thread, &aside);
    assert_eq!(branches(&client, &thread)["active"], "main-v2");
    let back = with(with(user("back"), "parent_id", "M4"), "id", "M5");
    let answer = store(&client, &thread, &back);
    assert_eq!(answer["branch"], "main");
    assert_eq!(answer["branch_created"], false);
    assert_eq!(branches(&client, &thread)["active"], "main");
    assert_eq!(path(&client, &thread, ""), ["M1", "M2", "M3", "M4", "M5"]);
    // A named branch is appended to; it becomes active unless the request says otherwise.
    let quiet = with(with(user("quiet"), "branch", "main-v2"), "activate", false);
    store(&client, &thread, &quiet);
    assert_eq!(branches(&client, &thread)["active"], "main");
    store(&client, &thread, &with(user("loud"), "branch", "main-v2"));
    assert_eq!(branches(&client, &thread)["active"], "main-v2");
    assert_eq!(path(&client, &thread, "").len(), 5);
    let unknown = with(user("x"), "branch", "nowhere");
    assert_eq!(
        code(post(&client, &thread, &unknown), 404),
        "branch_not_found"
    );
}

fn a_post_before_a_message_takes_its_place(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let body = with(
        with(user("instead"), "parent_id", "M3"),
        "position",
        "before",
    );
    let answer = store(&client, &thread, &with(body, "id", "N"));
    assert_eq!(answer["branch"], "main-v2");
    assert_eq!(path(&client, &thread, ""), ["M1", "M2", "N"]);
    let first = with(with(user("anew"), "parent_id", "M1"), "position", "before");
    store(&client, &thread, &with(first, "id", "O"));
    assert_eq!(path(&client, &thread, ""), ["O"]);
}

fn several_messages_are_one_checkpoint_and_can_be_branched_between(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, answer) = four_in_one_step(&client);
    let all = answer["messages"].as_array().unwrap();
    assert_eq!(all.len(), 4);
    assert!(
        all.iter()
            .all(|one| one["checkpoint_id"] == answer["checkpoint_id"])
    );
    let body = with(with(user("between"), "parent_id", "M2"), "id", "B");
    let between = store(&client, &thread, &body);
    assert_eq!(between["messages"][0]["parent_id"], "M2");
    assert_eq!(between["messages"][0]["depth"], 3);
    assert_eq!(path(&client, &thread, ""), ["M1", "M2", "B"]);
    assert_eq!(path(&client, &thread, "view=state"), ["M1", "M2", "B"]);
    assert_eq!(
        path(&client, &thread, "branch=main"),
        ["M1", "M2", "M3", "M4"]
    );
    assert_eq!(path(&client, &thread, "leaf_id=M2"), ["M1", "M2"]);
    let seen = client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    assert_eq!(seen["messages"].as_array().unwrap().len(), 4);
    // An edit of one in the middle keeps those before it.
    let edit = json!({"id": "M3", "role": "user", "content": "other"});
    let edited = store(&client, &thread, &edit);
    assert_eq!(edited["messages"][0]["parent_id"], "M2");
    assert_eq!(path(&client, &thread, "").len(), 3);
    assert!(!path(&client, &thread, "").contains(&"M4".to_owned()));
}

fn rewinding_between_messages_of_one_step_cuts_the_later_ones_off(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, _) = four_in_one_step(&client);
    let rewind = |body: &Value| {
        let answer = client.post(&format!("/threads/{thread}/rewind"), body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    };
    let at = rewind(&json!({"message_id": "M2"}));
    assert_eq!(at["head_message_id"], "M2");
    assert_eq!(at["message_count"], 2);
    let state = client.state(&thread);
    assert_eq!(state["next"], json!([]));
    assert_eq!(state["metadata"]["source"], "fork");
    assert_eq!(state["values"]["messages"].as_array().unwrap().len(), 2);
    assert_eq!(path(&client, &thread, ""), ["M1", "M2"]);
    let before = rewind(&json!({"message_id": "M4", "position": "before"}));
    assert_eq!(before["head_message_id"], "M3");
    assert_eq!(before["prefill"], "t4");
    store(&client, &thread, &with(user("on"), "id", "N"));
    assert_eq!(
        path(&client, &thread, "view=state"),
        ["M1", "M2", "M3", "N"]
    );
    // A run can begin there as well.
    let input = json!({"messages": [{"role": "user", "content": "run"}]});
    let run = json!({"assistant_id": "agent", "input": input, "parent_id": "M1"});
    client.run(&thread, &run);
    let page = read(&client, &thread, "");
    assert_eq!(page["messages"].as_array().unwrap().len(), 3);
    assert_eq!(page["messages"][2]["content"], "echo: run");
    assert_eq!(
        path(&client, &thread, "branch=main"),
        ["M1", "M2", "M3", "M4"]
    );
}

fn replacing_a_message_edits_it_where_it_is(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 3);
    let body = json!({"id": "M2", "role": "assistant", "content": "new", "on_existing": "replace"});
    let answer = store(&client, &thread, &body);
    assert_eq!(answer["branch"], "main");
    assert_eq!(answer["branch_created"], false);
    assert_eq!(answer["messages"][0]["message_id"], "M2");
    assert_eq!(answer["messages"][0]["edited"], true);
    assert_eq!(answer["messages"][0]["edit_of"], Value::Null);
    let page = read(&client, &thread, "");
    assert_eq!(ids(&page), ["M1", "M2", "M3"]);
    assert_eq!(page["messages"][1]["content"], "new");
    assert_eq!(page["messages"][1]["edited"], true);
    assert_eq!(page["messages"][0]["edited"], false);
    assert_eq!(post(&client, &thread, &body).status, 200);
    assert_eq!(branch_names(&client, &thread), ["main"]);
}

fn a_taken_id_is_refused_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 3);
    let body = json!({"id": "M2", "role": "user", "content": "new", "on_existing": "reject"});
    assert_eq!(code(post(&client, &thread, &body), 409), "message_exists");
    let second = json!({"on_existing": "reject", "messages": [
        {"role": "user", "content": "fine"},
        {"id": "M1", "role": "user", "content": "taken"},
    ]});
    assert_eq!(code(post(&client, &thread, &second), 409), "message_exists");
    assert_eq!(path(&client, &thread, "").len(), 3);
    // Among several every taken id gets a new one.
    let several = json!({"messages": [
        {"id": "M2", "role": "user", "content": "new"},
        {"id": "M3", "role": "user", "content": "new too"},
        {"id": "X", "role": "user", "content": "free"},
    ]});
    let answer = store(&client, &thread, &several);
    assert_eq!(answer["messages"][0]["edit_of"], "M2");
    assert_eq!(answer["messages"][1]["edit_of"], "M3");
    assert_eq!(answer["messages"][2]["message_id"], "X");
    assert_eq!(path(&client, &thread, "").len(), 4);
}

fn an_edit_of_several_messages_is_known_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let edit = json!({"messages": [
        {"id": "M3", "role": "user", "content": "other"},
        {"id": "M4", "role": "assistant", "content": "answer"},
    ]});
    let first = store(&client, &thread, &edit);
    let again = post(&client, &thread, &edit);
    assert_eq!(again.status, 200, "{}", again.text());
    let again = again.json();
    for key in ["branch", "checkpoint_id", "event_number", "messages"] {
        assert_eq!(again[key], first[key], "{key}");
    }
    assert_eq!(branch_names(&client, &thread), ["main", "main-v2"]);
    // One that goes on differently is another one.
    let mut other = edit;
    other["messages"][1]["content"] = json!("another answer");
    let other = store(&client, &thread, &other);
    assert_eq!(
        other["messages"][0]["message_id"],
        first["messages"][0]["message_id"]
    );
    assert_eq!(other["messages"][1]["edit_of"], "M4");
}

fn an_expected_head_must_be_the_head(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let empty = with(user("first"), "expected_head", Value::Null);
    let first = store(&client, &thread, &empty);
    let head = first["checkpoint_id"].as_str().unwrap().to_uppercase();
    let first = store(&client, &thread, &with(user("x"), "expected_head", head));
    assert_eq!(
        code(
            post(
                &client,
                &thread,
                &with(user("x"), "expected_head", Value::Null)
            ),
            409
        ),
        "head_conflict"
    );
    let head = first["checkpoint_id"].clone();
    let second = store(
        &client,
        &thread,
        &with(user("second"), "expected_head", head.clone()),
    );
    let late = with(user("late"), "expected_head", head);
    assert_eq!(code(post(&client, &thread, &late), 409), "head_conflict");
    let page = read(&client, &thread, "");
    assert_eq!(page["checkpoint_id"], second["checkpoint_id"]);
    assert_eq!(page["messages"].as_array().unwrap().len(), 3);
}

fn a_branch_on_which_a_run_works_takes_no_posts(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let body = json!({"assistant_id": "talk", "input": {"messages": [
        {"id": "M1", "role": "user", "content": "wait"}
    ]}});
    let mut open = client.open_stream(&thread, &with(body, "stream_mode", json!(["values"])));
    open.event_named("values");
    let busy = post(&client, &thread, &user("now"));
    assert_eq!(code(&busy, 409), "branch_busy");
    let run = open.run();
    let cancel = client.post(
        &format!("/threads/{thread}/runs/{run}/cancel?wait=true"),
        &json!({}),
    );
    assert!(cancel.status < 300, "{}", cancel.text());
    store(&client, &thread, &user("later"));
    drop(open);
}

fn unanswered_tool_calls_are_warned_of(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let call = json!({"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "name": "add", "args": {"a": 1}}
    ]});
    let first = store(&client, &thread, &call);
    assert!(first.get("warnings").is_none(), "{first}");
    let answer = store(&client, &thread, &user("never mind"));
    assert_eq!(answer["warnings"], json!(["dangling_tool_calls"]));
    let other = agent_thread(&client);
    store(&client, &other, &call);
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "1"});
    let answer = store(&client, &other, &result);
    assert!(answer.get("warnings").is_none(), "{answer}");
}

fn events_tell_of_posts(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let first = store(&client, &thread, &with(user("hi"), "id", "M1"));
    let message = &first["messages"][0];
    let number = message["event_number"].as_i64().unwrap();
    assert_eq!(
        first["event_number"].as_i64().unwrap(),
        number + 1,
        "and the checkpoint's"
    );
    let second = store(&client, &thread, &with(user("ho"), "id", "M2"));
    assert_eq!(
        second["messages"][0]["event_number"].as_i64().unwrap(),
        number + 2
    );
}

fn ids_are_the_clients_own_or_uuids(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let minted = store(&client, &thread, &user("no id"));
    let minted = minted["messages"][0]["message_id"].as_str().unwrap();
    assert!(uuid::Uuid::parse_str(minted).is_ok(), "{minted}");
    let long = "\u{e9}".repeat(255);
    for id in ["x", "a/b?c=d&e#f%20", "\"'\\", &*long] {
        let stored = store(&client, &thread, &with(user(id), "id", id));
        assert_eq!(stored["messages"][0]["message_id"], *id);
        assert_eq!(stored["messages"][0]["content"], *id);
        // It names the message wherever one is named.
        let rewound = client.post(
            &format!("/threads/{thread}/rewind"),
            &json!({"message_id": id}),
        );
        assert_eq!(rewound.status, 201, "{}", rewound.text());
        assert_eq!(path(&client, &thread, "").last().unwrap(), id);
    }
}
