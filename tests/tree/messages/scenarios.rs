//! Conversations that branch, told as the reference does.

use std::thread;

use serde_json::{Value, json};

use super::{conversation, four_in_one_step};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{
    agent_thread, branch_names, branches, code, contents, events, path, post, read, store, user,
    with,
};

on_both_storages!(
    scenario_05_a_message_behind_an_older_one_begins_a_branch,
    scenario_06_leaves_and_branches_are_listed,
    scenario_07_a_parent_that_is_not_there_is_refused_and_nothing_is_written,
    scenario_08_a_run_sees_its_own_path_only,
    scenario_09_concurrent_posts_make_one_line,
    fifty_concurrent_posts_lose_none,
    of_fifty_posts_on_one_expected_head_one_is_stored,
    scenario_18_a_fork_at_an_answer_goes_on_from_it,
    a_fork_between_messages_of_one_step_cuts_the_later_ones_off,
    scenario_24_a_known_id_with_new_text_is_an_edit,
);

fn scenario_05_a_message_behind_an_older_one_begins_a_branch(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 6);
    let body = with(with(user("other way"), "parent_id", "M2"), "id", "M7");
    let answer = store(&client, &thread, &body);
    assert_eq!(answer["thread_id"], json!(thread));
    assert_eq!(answer["branch"], "main-v2");
    assert_eq!(answer["branch_created"], true);
    assert_eq!(answer["run_id"], Value::Null);
    let message = &answer["messages"][0];
    assert_eq!(message["message_id"], "M7");
    assert_eq!(message["parent_id"], "M2");
    assert_eq!(message["depth"], 3);
    client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    let all = read(&client, &thread, "");
    let m8 = all["messages"][3]["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(all["messages"][3]["content"], "echo: other way");
    assert_eq!(all["messages"][3]["role"], "assistant");
    let expected = vec!["M1", "M2", "M7", &*m8];
    assert_eq!(path(&client, &thread, ""), expected);
    assert_eq!(path(&client, &thread, &format!("leaf_id={m8}")), expected);
    let old = ["M1", "M2", "M3", "M4", "M5", "M6"];
    assert_eq!(path(&client, &thread, "leaf_id=M6"), old);
    assert_eq!(path(&client, &thread, "branch=main"), old);
    assert_eq!(path(&client, &thread, "leaf=latest"), expected);
}

fn scenario_06_leaves_and_branches_are_listed(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 6);
    let body = with(with(user("other way"), "parent_id", "M2"), "id", "M7");
    store(&client, &thread, &body);
    client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    let found = branches(&client, &thread);
    assert_eq!(found["active"], "main-v2");
    let mut leaves: Vec<(String, i64)> = found["leaves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leaf| {
            let id = leaf["message_id"].as_str().unwrap().to_owned();
            (id, leaf["depth"].as_i64().unwrap())
        })
        .collect();
    leaves.sort_by_key(|(_, depth)| *depth);
    assert_eq!(leaves.len(), 2);
    assert_eq!(leaves[0].1, 4);
    assert_eq!(leaves[1], ("M6".to_owned(), 6));
    assert_eq!(branch_names(&client, &thread), ["main", "main-v2"]);
}

fn scenario_07_a_parent_that_is_not_there_is_refused_and_nothing_is_written(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, other) = (conversation(&client, 2), agent_thread(&client));
    let elsewhere = store(&client, &other, &user("elsewhere"));
    let elsewhere = elsewhere["messages"][0]["message_id"].clone();
    let before = read(&client, &thread, "");
    for (parent, status, expected) in [
        (json!("not-an-id"), 400, "invalid_id"),
        (
            json!("0197a1c0-0000-7000-8000-000000000000"),
            404,
            "message_not_found",
        ),
        (elsewhere, 404, "message_not_found"),
    ] {
        let answer = post(&client, &thread, &with(user("x"), "parent_id", parent));
        assert_eq!(code(&answer, status), expected);
    }
    assert_eq!(read(&client, &thread, ""), before);
    assert_eq!(branch_names(&client, &thread), ["main"]);
}

fn scenario_08_a_run_sees_its_own_path_only(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 6);
    let body = with(with(user("aside"), "parent_id", "M2"), "id", "M7");
    store(&client, &thread, &body);
    let end = client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    let seen: Vec<_> = end["messages"].as_array().unwrap().iter().collect();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[0]["id"], "M1");
    assert_eq!(seen[1]["id"], "M2");
    assert_eq!(seen[2]["id"], "M7");
    assert_eq!(seen[3]["content"], "echo: aside");
}

fn scenario_09_concurrent_posts_make_one_line(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    let answers = at_once(20, |n| {
        post(&client, &thread, &user(&format!("parallel {n}"))).status
    });
    assert_eq!(answers, [201; 20]);
    assert_one_line(&client, &thread, 22);

    one_wins(&client, &thread, 20);
    assert_one_line(&client, &thread, 23);
}

fn fifty_concurrent_posts_lose_none(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let answers = at_once(50, |n| {
        post(&client, &thread, &user(&format!("parallel {n}"))).status
    });
    assert_eq!(answers, [201; 50]);
    assert_one_line(&client, &thread, 50);
}

fn of_fifty_posts_on_one_expected_head_one_is_stored(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 2);
    one_wins(&client, &thread, 50);
    assert_one_line(&client, &thread, 3);
}

/// Posts as many messages at once that all expect the present head: one is stored.
fn one_wins(client: &test_support::client::Client, thread: &str, count: usize) {
    let head = branches(client, thread)["branches"][0]["head_checkpoint_id"].clone();
    let mut answers = at_once(count, |n| {
        let body = with(user(&format!("guarded {n}")), "expected_head", head.clone());
        let answer = post(client, thread, &body);
        if answer.status != 201 {
            assert_eq!(code(&answer, 409), "head_conflict");
        }
        answer.status
    });
    answers.sort_unstable();
    assert_eq!(answers[0], 201);
    assert!(answers[1..].iter().all(|status| *status == 409));
}

fn at_once(count: usize, work: impl Fn(usize) -> u16 + Sync) -> Vec<u16> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Every message is there once, each the child of the one before.
fn assert_one_line(client: &test_support::client::Client, thread: &str, count: usize) {
    let page = read(client, thread, "");
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(messages.len(), count);
    for (index, message) in messages.iter().enumerate() {
        assert_eq!(message["depth"], json!(index + 1));
        if index > 0 {
            assert_eq!(message["parent_id"], messages[index - 1]["message_id"]);
        }
    }
    let mut texts: Vec<_> = messages
        .iter()
        .map(|one| one["content"].to_string())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), count);
    assert_eq!(branch_names(client, thread), ["main"]);
}

fn scenario_18_a_fork_at_an_answer_goes_on_from_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let send = |thread: &str, text: &str| {
        let body = json!({"thread_id": thread, "content": text});
        let answer = client.post("/commands/send-message", &body);
        assert_eq!(answer.status, 202, "{}", answer.text());
        let sent = answer.json();
        let run = sent["run_id"].as_str().unwrap();
        assert_eq!(client.end_of(thread, run), "success");
        sent
    };
    let events = |thread: &str| events(&client, thread, "limit=1000");
    send(&thread, "I am devansh");
    let told = events(&thread);
    let answered = told
        .iter()
        .find(|event| event["event_type"] == "LLMResponseGenerated")
        .unwrap();
    let numbers: Vec<_> = told
        .iter()
        .map(|event| event["event_number"].as_i64())
        .collect();
    let gapless: Vec<_> = (1..=told.len()).map(|n| i64::try_from(n).ok()).collect();
    assert_eq!(numbers, gapless);
    send(&thread, "forget it");
    let before = (read(&client, &thread, ""), events(&thread));

    let fork = client.post(
        "/commands/fork-thread",
        &json!({"source_thread_id": thread, "event_number": answered["event_number"]}),
    );
    assert_eq!(fork.status, 201, "{}", fork.text());
    let fork = fork.json();
    let forked_at = fork["fork_event_number"].as_i64().unwrap();
    assert!(forked_at >= answered["event_number"].as_i64().unwrap());
    let id = fork["new_thread_id"].as_str().unwrap();
    let sent = send(id, "what is my name");
    assert!(sent["event_number"].as_i64().unwrap() > forked_at);
    let page = read(&client, id, "");
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(
        contents(&page["messages"]),
        [
            "I am devansh",
            "echo: I am devansh",
            "what is my name",
            "echo: what is my name"
        ]
    );
    let inherited: Vec<_> = messages
        .iter()
        .map(|one| one["inherited"].as_bool().unwrap())
        .collect();
    assert_eq!(inherited, [true, true, false, false]);
    // What the model saw is what the state held.
    let state = client.state(id);
    assert_eq!(state["values"]["messages"].as_array().unwrap().len(), 4);
    let own = events(id);
    assert!(
        own.iter()
            .all(|event| event["event_number"].as_i64().unwrap() > forked_at)
    );
    assert_eq!((read(&client, &thread, ""), events(&thread)), before);
}

fn a_fork_between_messages_of_one_step_cuts_the_later_ones_off(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, _) = four_in_one_step(&client);
    let fork = uuid::Uuid::now_v7().to_string();
    let body = json!({
        "role": "user", "content": "mine", "id": "F1",
        "forkedAtConversationId": thread, "forkedAtEntryId": "M3",
    });
    let answer = store(&client, &fork, &body);
    assert_eq!(answer["messages"][0]["parent_id"], "M2");
    assert_eq!(path(&client, &fork, ""), ["M1", "M2", "F1"]);
    assert_eq!(path(&client, &fork, "view=state"), ["M1", "M2", "F1"]);
    let page = read(&client, &fork, "");
    assert_eq!(page["messages"][1]["inherited"], true);
    assert_eq!(page["messages"][1]["thread_id"], json!(thread));
    assert_eq!(page["messages"][2]["inherited"], false);
    let end = client.run(&fork, &json!({"assistant_id": "agent", "input": null}));
    assert_eq!(end["messages"][3]["content"], "echo: mine");
    let again = client.post(
        "/commands/fork-thread",
        &json!({
            "source_thread_id": thread, "message_id": "M2"
        }),
    );
    assert_eq!(again.status, 201, "{}", again.text());
    let other = again.json()["new_thread_id"].as_str().unwrap().to_owned();
    assert_eq!(path(&client, &other, ""), ["M1", "M2"]);
}

fn scenario_24_a_known_id_with_new_text_is_an_edit(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 3);
    let edit = json!({"id": "M2", "role": "assistant", "content": "better"});
    let first = store(&client, &thread, &edit);
    assert_eq!(first["branch"], "main-v2");
    assert_eq!(first["branch_created"], true);
    let new = first["messages"][0].clone();
    assert_eq!(new["edit_of"], "M2");
    assert_eq!(new["parent_id"], "M1");
    assert_eq!(new["depth"], 2);
    assert_ne!(new["message_id"], "M2");
    let new_id = new["message_id"].as_str().unwrap();
    assert_eq!(path(&client, &thread, ""), ["M1", new_id]);
    let main = read(&client, &thread, "branch=main");
    assert_eq!(main["messages"][1]["content"], "text 2");
    assert_eq!(main["messages"][1]["edit_of"], Value::Null);

    let again = post(&client, &thread, &edit);
    assert_eq!(again.status, 200, "{}", again.text());
    let again = again.json();
    assert_eq!(again["messages"][0]["message_id"], new["message_id"]);
    assert_eq!(again["branch_created"], false);
    assert_eq!(again["event_number"], first["event_number"]);
    assert_eq!(again["checkpoint_id"], first["checkpoint_id"]);

    let root = json!({"id": "M1", "role": "user", "content": "from the start"});
    let third = store(&client, &thread, &root);
    assert_eq!(third["messages"][0]["parent_id"], Value::Null);
    assert_eq!(third["messages"][0]["depth"], 1);
    assert_eq!(third["messages"][0]["edit_of"], "M1");
    let only = read(&client, &thread, "view=state");
    assert_eq!(only["messages"].as_array().unwrap().len(), 1);
    assert_eq!(only["messages"][0]["content"], "from the start");
    let names = branch_names(&client, &thread);
    assert_eq!(names.len(), 3, "{names:?}");
}
