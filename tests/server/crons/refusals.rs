//! What is wrong with a cron is refused in words, and nothing is written.

use super::*;

on_both_storages!(
    bad_crons_are_refused_and_store_nothing,
    bad_changes_are_refused_and_change_nothing,
    bad_searches_are_refused,
    a_cron_has_a_bounded_size,
);

/// A body with one field more, or another.
fn with(name: &str, value: Value) -> Value {
    let mut body = json!({"assistant_id": "counter", "schedule": SELDOM});
    body[name] = value;
    body
}

fn bad_crons_are_refused_and_store_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let doors = [
        "/runs/crons".to_owned(),
        format!("/threads/{thread}/runs/crons"),
    ];
    let wrong = [
        json!(null),
        json!(5),
        json!([]),
        json!({}),
        json!(true),
        json!("bad"),
    ];
    let mut bodies: Vec<(Value, u16)> = vec![
        (json!({"assistant_id": "counter"}), 422),
        (json!({"schedule": SELDOM}), 422),
        (json!([]), 422),
        (with("assistant_id", json!("nope")), 404),
        (with("assistant_id", json!(uuid::Uuid::now_v7())), 404),
        (with("config", json!({"configurable": 5})), 422),
        (with("config", json!({"recursion_limit": 1_000_000})), 422),
        (with("webhook", json!("http://")), 422),
        (with("webhook", json!("http://127.0.0.1/x")), 422),
        (with("end_time", json!("2020-01-01T00:00:00Z")), 422),
        (with("end_time", json!("-009999-01-01T00:00:00Z")), 422),
        (with("end_time", json!("soon")), 422),
        (with("on_run_completed", json!("stay")), 422),
        (with("metadata", json!({"m": "x".repeat(20_000)})), 422),
        (
            with(
                "metadata",
                json!({"m": "x", "n": {"o": "x".repeat(20_000)}}),
            ),
            422,
        ),
    ];
    let mut both = with("config", json!({"configurable": {"a": 1}}));
    both["context"] = json!({"b": 1});
    bodies.push((both, 400));
    for schedule in [
        "* * * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "@every 5m",
        "*/0 * * * *",
        "",
        "a b c d e",
        "* * * * \0",
        "R * * * *",
    ] {
        bodies.push((with("schedule", json!(schedule)), 422));
    }
    for zone in ["Mars/X", "", "europe/paris", "+01:00", "\0"] {
        bodies.push((with("timezone", json!(zone)), 422));
    }
    for (field, accepted) in [
        ("schedule", vec![]),
        ("assistant_id", vec![]),
        ("timezone", vec![0]),
        ("end_time", vec![0]),
        ("enabled", vec![0, 4]),
        ("on_run_completed", vec![0]),
        ("metadata", vec![0, 3]),
        ("config", vec![0, 3]),
        ("context", vec![0, 3]),
        ("webhook", vec![0]),
        ("interrupt_before", vec![0, 2]),
        ("interrupt_after", vec![0, 2]),
        ("stream_mode", vec![0, 2]),
        ("stream_subgraphs", vec![0, 4]),
        ("stream_resumable", vec![0, 4]),
        ("durability", vec![0]),
        ("multitask_strategy", vec![0]),
    ] {
        for (at, value) in wrong.iter().enumerate() {
            // An unknown name of a graph is missing, not wrong.
            let is_name = field == "assistant_id" && at == 5;
            if !accepted.contains(&at) {
                bodies.push((with(field, value.clone()), if is_name { 404 } else { 422 }));
            }
        }
    }
    for (body, status) in &bodies {
        for door in &doors {
            let answer = client.post(door, body);
            assert_eq!(answer.status, *status, "{body}: {}", answer.text());
            let detail = answer.refused(*status);
            assert!(
                !detail.is_empty() && detail.len() < 2000,
                "{body}: {detail}"
            );
        }
    }
    for text in ["", "{", "{\"schedule\": \"\u{1}\"}", "nope"] {
        client.post_text("/runs/crons", text).refused(422);
    }
    client
        .post_text("/runs/crons", b"{\"schedule\": \"\xff\"}")
        .refused(422);
    let schedule = with("schedule", json!("bad"));
    let detail = client.post("/runs/crons", &schedule).refused(422);
    assert!(
        detail.starts_with("Invalid cron schedule: 'bad'."),
        "{detail}"
    );
    let zone = with("timezone", json!("Mars/X"));
    let detail = client.post("/runs/crons", &zone).refused(422);
    let expected =
        "Invalid timezone: 'Mars/X'. Use IANA timezone format (e.g. 'America/New_York').";
    assert_eq!(detail, expected);
    let nope = with("assistant_id", json!("nope"));
    let detail = client.post("/runs/crons", &nope).refused(404);
    assert_eq!(detail, "Assistant 'nope' not found");
    let nowhere = uuid::Uuid::now_v7();
    let missing = client.post(
        &format!("/threads/{nowhere}/runs/crons"),
        &with("x", json!(1)),
    );
    let detail = missing.refused(404);
    let expected = format!("Thread with ID '{nowhere}' not found.");
    assert!(detail.starts_with(&expected), "{detail}");
    client
        .post("/threads/nope/runs/crons", &with("x", json!(1)))
        .refused(422);
    assert_eq!(count(&client, &json!({})), 0);
}

fn bad_changes_are_refused_and_change_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let configured = with("config", json!({"configurable": {"a": 1}}));
    let made = create(&client, &configured);
    let path = path(&made);
    let empty = patch(&client, &path, &json!({})).refused(400);
    assert_eq!(empty, "Request body cannot be empty");
    for (change, status) in [
        (json!([]), 422),
        (json!({"schedule": "bad"}), 422),
        (json!({"schedule": "0 0 30 2 *"}), 422),
        (json!({"schedule": 5}), 422),
        (json!({"timezone": "Mars/X"}), 422),
        (json!({"end_time": "soon"}), 422),
        (json!({"end_time": 5}), 422),
        (json!({"enabled": "yes"}), 422),
        (json!({"metadata": []}), 422),
        (json!({"input": {"x": 1}, "webhook": "http://"}), 422),
        (json!({"stream_mode": "bogus"}), 422),
        (json!({"durability": "bogus"}), 422),
        (json!({"on_run_completed": "bogus"}), 422),
        // Together with what is configurable already.
        (json!({"context": {"b": 1}}), 400),
    ] {
        let answer = patch(&client, &path, &change);
        assert_eq!(answer.status, status, "{change}: {}", answer.text());
        answer.refused(status);
    }
    for id in [
        "nope",
        "{9e678031-2271-40b7-96db-f93e9e1db7c0}",
        "9e678031227140b796dbf93e9e1db7c0",
        "urn:uuid:9e678031-2271-40b7-96db-f93e9e1db7c0",
        "%00",
    ] {
        let path = format!("/runs/crons/{id}");
        for answer in [
            client.get(&path),
            client.delete(&path),
            patch(&client, &path, &json!({"enabled": false})),
        ] {
            assert_eq!(answer.refused(422), "Invalid cron ID: must be a UUID");
        }
    }
    assert_eq!(ok(client.get(&path), 200), made);
}

fn bad_searches_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    for body in [
        json!({"limit": 0}),
        json!({"limit": 1001}),
        json!({"limit": "1"}),
        json!({"offset": -1}),
        json!({"sort_by": "bogus"}),
        json!({"sort_order": "bogus"}),
        json!({"select": ["bogus"]}),
        json!({"select": "cron_id"}),
        json!({"assistant_id": "nope"}),
        json!({"assistant_id": 5}),
        json!({"thread_id": "nope"}),
        json!({"enabled": "yes"}),
        json!({"metadata": []}),
    ] {
        let refused = client.post("/runs/crons/search", &body).refused(422);
        assert!(!refused.is_empty(), "{body}");
    }
    client
        .post("/runs/crons/count", &json!({"thread_id": "nope"}))
        .refused(422);
    let far = json!({"offset": i64::MAX});
    assert_eq!(search(&client, &far), [] as [Value; 0]);
    let answer = client.send("PUT", "/runs/crons", &[], b"{}");
    answer.refused(405);
    assert_eq!(answer.header("allow"), Some("POST"));
}

fn a_cron_has_a_bounded_size(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_CRON_BYTES", "1000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let input = |length: usize| json!({"x": "y".repeat(length)});
    // The refusal says how many bytes the payload and the metadata have.
    let refused = client.post("/runs/crons", &with("input", input(1000)));
    let refused = refused.refused(413);
    assert!(refused.contains("at most 1000 bytes"), "{refused}");
    assert!(refused.contains("BACKSTITCH_CRON_BYTES"), "{refused}");
    let bytes = refused.split("not ").nth(1).unwrap();
    let bytes: usize = bytes.split(':').next().unwrap().parse().unwrap();
    let most = 1000 - (bytes - 1000);
    client
        .post("/runs/crons", &with("input", input(most + 1)))
        .refused(413);
    assert_eq!(count(&client, &json!({})), 0);
    create(&client, &with("input", input(most)));
    let made = create(&client, &with("input", input(0)));
    let change = |length: usize| patch(&client, &path(&made), &json!({"input": input(length)}));
    change(most + 1).refused(413);
    assert_eq!(ok(client.get(&path(&made)), 200), made);
    assert_eq!(ok(change(most), 200)["payload"]["input"], input(most));
    assert_eq!(count(&client, &json!({})), 2);
}
