//! Comparing states, where threads stand, and threads as trees.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{contents, get, say};

on_both_storages!(
    two_branches_differ_by_their_messages,
    channels_differ_by_name,
    an_edited_message_is_shown_as_it_is_and_as_it_was,
    states_are_named_in_five_ways,
    a_head_tells_where_a_branch_stands,
    a_thread_is_a_tree_of_messages,
    a_thread_is_a_tree_of_checkpoints,
    a_tree_is_cut_at_its_limit,
    a_fork_sees_what_it_inherits,
    comparisons_that_make_no_sense_are_refused,
);

fn post(client: &Client, thread: &str, path: &str, body: Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/{path}"), &body);
    assert!(answer.status < 300, "{} {}", answer.status, answer.text());
    answer.json()
}

fn ids(state: &Value) -> Vec<String> {
    let all = state["messages"].as_array().unwrap().iter();
    all.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// A thread with two turns, and a branch with another second turn, which is active.
fn forked(client: &Client) -> (String, Vec<String>, Vec<String>) {
    let thread = client.thread();
    say(client, &thread, "one");
    let main = ids(&say(client, &thread, "two"));
    post(client, &thread, "rewind", json!({"message_id": main[1]}));
    let other = ids(&say(client, &thread, "three"));
    assert_eq!(main[..2], other[..2]);
    (thread, main, other)
}

fn two_branches_differ_by_their_messages(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, main, other) = forked(&client);
    let diff = get(&client, &thread, "diff?from=branch:main&to=branch:main-v2");
    let messages = &diff["messages"];
    assert_eq!(contents(&messages["removed"]), ["two", "echo: two"]);
    assert_eq!(contents(&messages["added"]), ["three", "echo: three"]);
    assert_eq!(messages["changed"], json!([]));
    let added = &messages["added"][0];
    assert_eq!(added["message_id"], other[2]);
    assert_eq!(added["parent_id"], main[1]);
    assert_eq!(
        (&added["role"], &added["depth"]),
        (&json!("user"), &json!(3))
    );
    let nothing = json!({"from": null, "to": null});
    assert_eq!(
        diff["channels"],
        json!({"added": {}, "removed": {}, "changed": {"messages": nothing}})
    );
    let head = get(&client, &thread, "head?branch=main");
    assert_eq!(diff["from"]["checkpoint_id"], head["latest_checkpoint_id"]);
    let same = get(&client, &thread, "diff?from=branch:main&to=branch:main");
    assert_eq!(same["channels"]["changed"], json!({}));
    assert_eq!(
        same["messages"],
        json!({"removed": [], "added": [], "changed": []})
    );
}

fn channels_differ_by_name(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = json!({"assistant_id": "counter", "input": {"count": 0, "log": ["in"]}});
    client.run(&thread, &run);
    let path = format!("/threads/{thread}/tags/first");
    client.send("PUT", &path, &[], b"{}");
    client.run(&thread, &run);
    let diff = get(&client, &thread, "diff?from=tag:first&to=branch:main");
    let changed = &diff["channels"]["changed"];
    assert_eq!(changed["count"]["from"], 1111);
    assert_eq!(
        changed["count"]["to"].as_i64(),
        client.state(&thread)["values"]["count"].as_i64()
    );
    assert_eq!(changed["log"]["from"].as_array().unwrap().len(), 5);
    let back = get(&client, &thread, "diff?from=branch:main&to=tag:first");
    assert_eq!(back["channels"]["changed"]["count"]["to"], 1111);
    let first = client.history(&thread).pop().unwrap();
    let first = first["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let begun = get(
        &client,
        &thread,
        &format!("diff?from=checkpoint:{first}&to=tag:first"),
    );
    assert!(
        begun["channels"]["added"].get("log").is_some()
            || begun["channels"]["changed"].get("log").is_some()
    );
}

fn an_edited_message_is_shown_as_it_is_and_as_it_was(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let ids = ids(&say(&client, &thread, "one"));
    let path = format!("/threads/{thread}/tags/before");
    client.send("PUT", &path, &[], b"{}");
    let edit = json!({"type": "human", "id": ids[0], "content": "won"});
    post(
        &client,
        &thread,
        "state",
        json!({"values": {"messages": [edit]}, "as_node": "model"}),
    );
    let diff = get(&client, &thread, "diff?from=tag:before&to=branch:main");
    let changed = diff["messages"]["changed"].as_array().unwrap();
    assert_eq!(changed.len(), 1, "{diff}");
    assert_eq!(changed[0]["message_id"], ids[0]);
    assert_eq!(changed[0]["content"], "won");
    assert_eq!(changed[0]["edited"], true);
    assert_eq!(changed[0]["from"]["content"], "one");
    assert_eq!(changed[0]["from"]["edited"], false);
}

fn states_are_named_in_five_ways(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, main, _) = forked(&client);
    let path = format!("/threads/{thread}/tags/a%2Fb");
    let body = json!({"branch": "main"}).to_string();
    client.send("PUT", &path, &[], body.as_bytes());
    let head = get(&client, &thread, "head?branch=main");
    let checkpoint = head["latest_checkpoint_id"].as_str().unwrap();
    let events = get(&client, &thread, "events?limit=1000");
    let settled = events["events"].as_array().unwrap().iter().find(|event| {
        event["event_type"] == "CheckpointCreated" && event["checkpoint_id"] == checkpoint
    });
    let event = &settled.unwrap()["event_number"];
    for name in [
        "branch:main".to_owned(),
        "tag:a%2Fb".to_owned(),
        format!("checkpoint:{checkpoint}"),
        format!("message:{}", main[3]),
        format!("event:{event}"),
    ] {
        let diff = get(&client, &thread, &format!("diff?from={name}&to={name}"));
        assert_eq!(diff["from"]["checkpoint_id"], checkpoint, "{name}");
        assert_eq!(diff["to"]["checkpoint_id"], checkpoint, "{name}");
    }
    let turn = format!("diff?from=message:{}&to=message:{}", main[1], main[3]);
    let diff = get(&client, &thread, &turn);
    assert_eq!(contents(&diff["messages"]["added"]), ["two", "echo: two"]);
}

fn a_head_tells_where_a_branch_stands(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let empty = get(&client, &thread, "head");
    assert_eq!(
        empty,
        json!({"thread_id": thread, "branch": "main", "latest_checkpoint_id": null,
               "latest_ai_message_id": null, "event_number": 1})
    );
    let (thread, main, other) = forked(&client);
    let active = get(&client, &thread, "head");
    assert_eq!(active["branch"], "main-v2");
    assert_eq!(active["latest_ai_message_id"], other[3]);
    let old = get(&client, &thread, "head?branch=main");
    assert_eq!(old["latest_ai_message_id"], main[3]);
    assert_eq!(old["event_number"], active["event_number"]);
    assert_ne!(old["latest_checkpoint_id"], active["latest_checkpoint_id"]);
}

fn a_thread_is_a_tree_of_messages(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, main, other) = forked(&client);
    client.send("PUT", &format!("/threads/{thread}/tags/here"), &[], b"{}");
    let tree = get(&client, &thread, "tree");
    let nodes = tree["nodes"].as_array().unwrap();
    let shape: Vec<_> = nodes
        .iter()
        .map(|node| {
            (
                node["id"].as_str().unwrap(),
                node["parent_id"].as_str(),
                node["depth"].as_i64().unwrap(),
                node["preview"].as_str().unwrap(),
                node["role"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shape,
        [
            (&*main[0], None, 1, "one", "user"),
            (&*main[1], Some(&*main[0]), 2, "echo: one", "assistant"),
            (&*main[2], Some(&*main[1]), 3, "two", "user"),
            (&*other[2], Some(&*main[1]), 3, "three", "user"),
            (&*main[3], Some(&*main[2]), 4, "echo: two", "assistant"),
            (&*other[3], Some(&*other[2]), 4, "echo: three", "assistant"),
        ]
    );
    let keys: Vec<&String> = nodes[0].as_object().unwrap().keys().collect();
    let expected = [
        "id",
        "parent_id",
        "role",
        "preview",
        "depth",
        "thread_id",
        "created_at",
    ];
    assert_eq!(keys, expected);
    assert_eq!(tree["truncated"], false);
    let head = get(&client, &thread, "head");
    assert_eq!(
        tree["branches"][1],
        json!({"name": "main-v2", "head_message_id": other[3],
               "head_checkpoint_id": head["latest_checkpoint_id"], "is_active": true})
    );
    assert_eq!(
        tree["tags"],
        json!([{"name": "here", "message_id": other[3], "checkpoint_id": head["latest_checkpoint_id"]}])
    );
}

fn a_thread_is_a_tree_of_checkpoints(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, ..) = forked(&client);
    let tree = get(&client, &thread, "tree?format=checkpoints");
    let nodes = tree["nodes"].as_array().unwrap();
    let history = client.history(&thread);
    assert_eq!(nodes.len(), history.len());
    for state in &history {
        let id = &state["checkpoint"]["checkpoint_id"];
        let node = nodes.iter().find(|node| node["id"] == *id).unwrap();
        let parent = &state["parent_checkpoint"]["checkpoint_id"];
        assert_eq!(node["parent_id"], *parent);
        let deep = nodes.iter().find(|node| node["id"] == *parent);
        let depth = deep.map_or(-1, |node| node["depth"].as_i64().unwrap());
        assert_eq!(node["depth"], depth + 1);
    }
    let depths: Vec<_> = nodes.iter().map(|node| node["depth"].as_i64()).collect();
    assert!(depths.is_sorted());
}

fn a_tree_is_cut_at_its_limit(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, main, _) = forked(&client);
    let cut = get(&client, &thread, "tree?limit=2");
    assert_eq!(cut["truncated"], true);
    let nodes = cut["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    assert_eq!(nodes[1]["id"], main[1]);
    let rest = get(&client, &thread, "tree?after_depth=2");
    assert_eq!(rest["truncated"], false);
    let nodes = rest["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert_eq!(nodes[0]["parent_id"], main[1]);
    let deeper = get(&client, &thread, "tree?after_depth=2147483648");
    assert_eq!(deeper["nodes"], json!([]));
    let all = get(&client, &thread, "tree?limit=6");
    assert_eq!(all["truncated"], false);
    for format in ["messages", "checkpoints"] {
        let empty = client.thread();
        let tree = get(&client, &empty, &format!("tree?format={format}"));
        assert_eq!(
            (&tree["nodes"], &tree["truncated"]),
            (&json!([]), &json!(false))
        );
    }
}

fn a_fork_sees_what_it_inherits(place: &Place) {
    let (_server, client) = serve(place);
    let (thread, main, _) = forked(&client);
    let forked = client.post(
        &format!("/threads/{thread}/fork"),
        &json!({"message_id": main[1]}),
    );
    assert_eq!(forked.status, 201, "{}", forked.text());
    let fork = forked.json();
    let id = fork["thread_id"].as_str().unwrap();
    let number = fork["fork_event_number"].as_i64().unwrap();
    say(&client, id, "four");
    let tree = get(&client, id, "tree");
    let nodes = tree["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert_eq!(nodes[1]["id"], main[1]);
    assert_eq!(nodes[1]["thread_id"], *thread);
    assert_eq!(nodes[1]["preview"], "echo: one");
    assert_eq!(nodes[2]["parent_id"], main[1]);
    assert_eq!(nodes[2]["thread_id"], *id);
    let diff = get(
        &client,
        id,
        &format!("diff?from=message:{}&to=branch:main", main[1]),
    );
    assert_eq!(contents(&diff["messages"]["added"]), ["four", "echo: four"]);

    let own = get(&client, id, "events");
    assert_eq!(own["events"][0]["event_number"], number + 1);
    let all = get(&client, id, "events?inherited=true&limit=1000");
    let all = all["events"].as_array().unwrap();
    let numbers: Vec<i64> = all
        .iter()
        .map(|one| one["event_number"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..).take(all.len()).collect::<Vec<_>>());
    for event in all {
        let inherited = event["event_number"].as_i64().unwrap() <= number;
        assert_eq!(event["thread_id"] == *thread, inherited);
    }
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page = get(
            &client,
            id,
            &format!("events?inherited=true&limit=2&after={after}"),
        );
        paged.extend(page["events"].as_array().unwrap().clone());
        match page["next"].as_i64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(&paged, all);
}

fn comparisons_that_make_no_sense_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "one");
    let nowhere = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
    for (status, query) in [
        (422, "diff".to_owned()),
        (422, "diff?from=branch:main".to_owned()),
        (422, "diff?from=main&to=main".to_owned()),
        (422, "diff?from=branch:&to=branch:main".to_owned()),
        (422, "diff?from=checkpoint:x&to=branch:main".to_owned()),
        (422, "diff?from=event:none&to=branch:main".to_owned()),
        (422, "diff?from=branch:no%20good&to=branch:main".to_owned()),
        (404, "diff?from=branch:none&to=branch:main".to_owned()),
        (404, "diff?from=tag:none&to=branch:main".to_owned()),
        (404, "diff?from=message:none&to=branch:main".to_owned()),
        (404, "diff?from=event:9999&to=branch:main".to_owned()),
        (
            404,
            format!("diff?from=checkpoint:{nowhere}&to=branch:main"),
        ),
    ] {
        let answer = client.get(&format!("/threads/{thread}/{query}"));
        answer.refused(status);
        assert!(
            answer.json()["code"].is_string(),
            "{query}: {}",
            answer.text()
        );
    }
    let other = client.thread();
    say(&client, &other, "other");
    let foreign = client.state(&other)["checkpoint"]["checkpoint_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let query = format!("diff?from=checkpoint:{foreign}&to=branch:main");
    client
        .get(&format!("/threads/{thread}/{query}"))
        .refused(404);
    client
        .get(&format!(
            "/threads/{nowhere}/diff?from=branch:main&to=branch:main"
        ))
        .refused(404);
    client
        .get("/threads/none/diff?from=branch:main&to=branch:main")
        .refused(422);
}
