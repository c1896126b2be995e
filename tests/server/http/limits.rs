//! Limits that hold however a value comes in: metadata, and ids of messages.

use super::*;
use test_support::client::Answer;
use test_support::on_both_storages;
use test_support::talk::{create, ok, patch, turn};

on_both_storages!(
    metadata_has_its_limits_when_it_is_merged,
    what_is_configurable_does_not_fill_every_checkpoint,
    ids_of_messages_are_short_on_every_way_in,
    texts_that_no_database_takes_are_refused_in_the_servers_own_words,
);

/// Metadata of so many keys, whose values have so many bytes.
fn metadata(prefix: &str, keys: usize, bytes: usize) -> Value {
    let key = |at| (format!("{prefix}{at}"), json!("x".repeat(bytes)));
    (0..keys).map(key).collect::<serde_json::Map<_, _>>().into()
}

/// What the database says of itself, and clients never see.
fn is_in_own_words(answer: &Answer) {
    let text = answer.text().to_lowercase();
    for word in [
        "sqlstate",
        "index row",
        "btree",
        "byte sequence",
        "postgres",
        "sqlite",
        "constraint",
    ] {
        assert!(!text.contains(word), "{text}");
    }
    assert!(answer.status < 500, "{} {text}", answer.status);
}

fn metadata_has_its_limits_when_it_is_merged(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": metadata("a", 40, 10)}));
    let path = format!("/threads/{thread}");
    let change = |metadata: Value| patch(&client, &path, &json!({ "metadata": metadata }));
    let keys = || {
        ok(client.get(&path), 200)["metadata"]
            .as_object()
            .unwrap()
            .len()
    };
    assert_eq!(change(metadata("a", 40, 20)).status, 200);
    assert_eq!(change(metadata("b", 24, 10)).status, 200);
    let refused = change(metadata("c", 1, 1)).refused(422);
    assert!(refused.contains("65 keys, at most 64"), "{refused}");
    assert_eq!(keys(), 64);
    // What the server adds itself counts for nobody.
    client.run(&thread, &counter());
    assert_eq!(keys(), 66);
    assert_eq!(change(metadata("a", 40, 20)).status, 200);
    change(metadata("c", 1, 1)).refused(422);
    // A run has that of its assistant too.
    let assistant = json!({"graph_id": "counter", "metadata": metadata("d", 40, 10)});
    let assistant = ok(client.post("/assistants", &assistant), 200)["assistant_id"].clone();
    let run = |keys: usize| {
        let mut run = counter();
        run["assistant_id"] = assistant.clone();
        run["metadata"] = metadata("e", keys, 10);
        client.post(&format!("{path}/runs/wait"), &run)
    };
    ok(run(24), 200);
    let refused = run(25).refused(422);
    assert!(refused.contains("65 keys, at most 64"), "{refused}");
    // Bytes as well, a part at a time and many parts at once.
    let thread = client.thread();
    let path = format!("/threads/{thread}");
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let patches: Vec<_> = (0..8)
            .map(|at| {
                let (client, path) = (&client, &path);
                scope.spawn(move || {
                    let part = metadata(&format!("p{at}-"), 1, 3900);
                    patch(client, path, &json!({ "metadata": part })).status
                })
            })
            .collect();
        patches.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(
        answers.iter().filter(|status| **status == 200).count(),
        4,
        "{answers:?}"
    );
    assert_eq!(
        answers.iter().filter(|status| **status == 422).count(),
        4,
        "{answers:?}"
    );
    // And of a run, what comes by its config.
    let half = metadata("m", 40, 1);
    for (of_config, own) in [
        (metadata("m", 65, 1), json!({})),
        (metadata("m", 1, 16_000), json!({})),
        (half.clone(), metadata("n", 25, 1)),
        (metadata("m", 1, 9000), metadata("n", 1, 9000)),
    ] {
        let body = with(counter(), "metadata", own);
        let body = with(body, "config", json!({ "metadata": of_config }));
        for path in [format!("{path}/runs"), "/runs".into()] {
            let refused = client.post(&path, &body).refused(422);
            assert!(refused.contains("at most"), "{refused}");
        }
        let new = with(body, "if_not_exists", "create");
        let id = uuid::Uuid::now_v7();
        client
            .post(&format!("/threads/{id}/runs"), &new)
            .refused(422);
        client.get(&format!("/threads/{id}")).refused(404);
    }
    let body = with(counter(), "metadata", metadata("m", 40, 2));
    client.run(&thread, &with(body, "config", json!({ "metadata": half })));
    // Configs do not add up in their thread either.
    for at in 0..5 {
        let own = json!({format!("own{at}"): "x".repeat(1000), "tags": ["t"]});
        client.run(&thread, &with(counter(), "config", own));
    }
    let config = ok(client.get(&path), 200)["config"].clone();
    assert_eq!(config["tags"], json!(["t"]));
    let own = config
        .as_object()
        .unwrap()
        .keys()
        .find(|key| key.starts_with("own"));
    assert_eq!(own, None);
}

fn what_is_configurable_does_not_fill_every_checkpoint(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let large = "x".repeat(100_000);
    let config = json!({"configurable": {"small": 1, "large": large, "other": "y"}});
    let body = json!({"assistant_id": "ctx", "input": {"text": "x"}, "config": config});
    let out = client.run(&thread, &body)["out"].clone();
    assert_eq!(out["configurable"]["large"], large, "nodes see it");
    for state in client.history(&thread) {
        let metadata = &state["metadata"];
        assert_eq!(metadata["small"], 1);
        assert_eq!(metadata["other"], "y");
        assert_eq!(metadata.get("large"), None);
    }
}

fn ids_of_messages_are_short_on_every_way_in(place: &Place) {
    let (_server, client) = serve(place);
    // Random enough that no database makes it short.
    let random = |chars: usize| {
        let many = (0..chars / 32 + 1).map(|_| uuid::Uuid::new_v4().simple().to_string());
        many.collect::<String>()[..chars].to_owned()
    };
    let thread = client.thread();
    client.run(&thread, &turn("hi"));
    let before = client.history(&thread).len();
    for (id, is_good) in [
        (random(256), false),
        (random(10_000), false),
        ("a\u{0}b".to_owned(), false),
        ("a\u{7}b".to_owned(), false),
        ("a\nb".to_owned(), false),
        (random(255), true),
        ("\u{1f600}".repeat(255), true),
        ("\u{1f600}".repeat(256), false),
    ] {
        let at = |path: &str| format!("/threads/{thread}{path}");
        let message = json!({"type": "human", "content": "x", "id": id});
        let messages = json!({ "messages": [message] });
        let run = |more: Value| {
            let body = json!({"assistant_id": "agent", "input": null});
            client.post(&at("/runs/wait"), &test_support::talk::extend(body, more))
        };
        let refused = |answer: &Answer, good: u16, bad: u16| {
            is_in_own_words(answer);
            let status = if is_good { good } else { bad };
            assert_eq!(answer.status, status, "{}", answer.text());
        };
        let update = json!([["messages", [message]]]);
        for more in [
            json!({ "input": messages }),
            json!({"input": {"messages": message}}),
            json!({"command": {"update": messages, "goto": "model"}}),
            json!({"command": {"update": update, "goto": "model"}}),
        ] {
            let answer = run(more);
            refused(&answer, 200, 400);
            let says_why = answer.text().contains("at most 255 characters");
            assert_eq!(says_why, !is_good, "{}", answer.text());
            assert_eq!(answer.json().get("__error__"), None, "{}", answer.text());
        }
        refused(
            &client.post(&at("/state"), &json!({"values": messages})),
            200,
            400,
        );
        let supersteps = json!({
            "metadata": {"graph_id": "agent"},
            "supersteps": [{"updates": [{"values": messages, "as_node": "model"}]}],
        });
        refused(&client.post("/threads", &supersteps), 200, 400);
        let post = json!({"role": "user", "content": "y", "id": id});
        refused(
            &client.post(&at("/messages"), &with(post, "on_existing", "replace")),
            201,
            422,
        );
        let send = json!({"thread_id": client.thread(), "content": "x", "message_id": id,
            "assistant_id": "agent"});
        refused(&client.post("/commands/send-message", &send), 202, 422);
        client.run(&thread, &turn("still here"));
    }
    assert!(client.history(&thread).len() > before);
}

fn texts_that_no_database_takes_are_refused_in_the_servers_own_words(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("hi"));
    let at = |path: &str| format!("/threads/{thread}{path}");
    let long = "k".repeat(20_000);
    for text in ["a\u{0}b", &long] {
        let encoded = match text {
            "a\u{0}b" => "a%00b".to_owned(),
            long => long[..4000].to_owned(),
        };
        for (method, path, body) in [
            (
                "POST",
                at("/history"),
                json!({"checkpoint": {"checkpoint_ns": text}}),
            ),
            ("POST", at("/history"), json!({"metadata": {text: text}})),
            (
                "POST",
                at("/state/checkpoint"),
                json!({"checkpoint": {"checkpoint_ns": text}}),
            ),
            ("POST", at("/state"), json!({"values": {}, "as_node": text})),
            (
                "POST",
                at("/state"),
                json!({"values": {text: text}, "as_node": "model"}),
            ),
            (
                "POST",
                at("/state"),
                json!({"values": {}, "checkpoint": {"checkpoint_ns": text}}),
            ),
            (
                "POST",
                at("/messages"),
                json!({"role": "user", "content": text, "parent_id": text}),
            ),
            (
                "POST",
                at("/messages"),
                json!({"role": "user", "content": text, "branch": text}),
            ),
            (
                "POST",
                at("/messages"),
                json!({"role": "user", "content": text, "name": text}),
            ),
            ("POST", at("/fork"), json!({ "message_id": text })),
            (
                "POST",
                at("/fork"),
                json!({ "metadata": {"k": "a\u{0}b", "a\u{0}b": 1} }),
            ),
            ("POST", at("/rewind"), json!({ "tag": text })),
            ("POST", at("/btw"), json!({ "name": text })),
            ("PUT", at(&format!("/tags/{encoded}")), json!({})),
            (
                "PUT",
                at(&format!("/members/{encoded}")),
                json!({"level": "reader"}),
            ),
            ("GET", at(&format!("/branches/{encoded}")), Value::Null),
            (
                "GET",
                at(&format!("/messages?leaf_id={encoded}")),
                Value::Null,
            ),
            (
                "GET",
                at(&format!("/messages?after={encoded}")),
                Value::Null,
            ),
            ("GET", at(&format!("/state?branch={encoded}")), Value::Null),
            (
                "GET",
                at(&format!("/diff?from=message:{encoded}&to=tag:{encoded}")),
                Value::Null,
            ),
            (
                "POST",
                "/threads/search".into(),
                json!({"metadata": {text: text}}),
            ),
            (
                "POST",
                "/threads/search".into(),
                json!({"values": {text: text}}),
            ),
            (
                "PATCH",
                at(""),
                json!({"metadata": {"k": "a\u{0}b", "a\u{0}b": 1}}),
            ),
            (
                "POST",
                "/commands/send-message".into(),
                json!({"thread_id": thread, "content": text, "parent_id": text}),
            ),
            (
                "POST",
                at("/runs/wait"),
                json!({"assistant_id": "agent", "input": {text: text}}),
            ),
            (
                "POST",
                at("/runs/wait"),
                json!({"assistant_id": "agent", "input": {"messages": [
                    {"role": "user", "content": text, "name": text, text: text}]}}),
            ),
            (
                "POST",
                at("/runs/wait"),
                json!({"assistant_id": "agent", "command": {"goto": text, "update": {text: text}}}),
            ),
            (
                "POST",
                at("/runs/wait"),
                json!({"assistant_id": "agent", "input": null, "interrupt_before": [text],
                    "config": {"configurable": {text: text}, "tags": [text]}}),
            ),
            (
                "POST",
                at("/runs/wait"),
                json!({"assistant_id": text, "input": null}),
            ),
            (
                "POST",
                format!("/threads/{}/messages", uuid::Uuid::now_v7()),
                json!({"role": "user", "content": "x", "forkedAtConversationId": thread,
                    "forkedAtEntryId": text}),
            ),
        ] {
            let body = match &body {
                Value::Null => String::new(),
                body => body.to_string(),
            };
            let answer = client.send(method, &path, &[("x-request-id", "r")], body.as_bytes());
            if answer.status >= 500 || answer.text().contains("InternalError") {
                panic!(
                    "{method} {path} {}: {}",
                    &body[..body.len().min(200)],
                    answer.text()
                );
            }
            let own: String = answer.text().chars().filter(|c| *c != 'k').collect();
            assert!(own.len() < 40_000, "{method} {path}");
            is_in_own_words(&answer);
        }
    }
    client.run(&thread, &turn("still here"));
}
