//! What clients may not do with assistants: those of others, the server's own, and what makes no sense.

use super::*;

on_both_storages!(
    assistants_are_their_owners_and_those_of_the_server_are_everybodys,
    bad_requests_about_assistants_are_refused_and_store_nothing,
    how_large_an_assistant_is_and_how_many_versions_it_has_is_bounded,
);

fn assistants_are_their_owners_and_those_of_the_server_are_everybodys(place: &Place) {
    let setup =
        Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let body = json!({"graph_id": "ctx", "assistant_id": ID, "name": "anns"});
    let made = create(&ann, &body);
    let path = path(&made);
    // To others it is one that does not exist; only its id is taken.
    bob.get(&path).refused(404);
    for rest in ["graph", "schemas", "subgraphs"] {
        bob.get(&format!("{path}/{rest}")).refused(404);
    }
    patch(&bob, &path, &json!({"name": "bobs"})).refused(404);
    bob.post(&format!("{path}/versions"), &json!({}))
        .refused(404);
    bob.post(&format!("{path}/latest"), &json!({"version": 1}))
        .refused(404);
    bob.delete(&path).refused(404);
    bob.delete(&format!("{path}?delete_threads=true"))
        .refused(404);
    let taken = json!({"graph_id": "ctx", "assistant_id": ID, "if_exists": "do_nothing"});
    let refused = bob.post("/assistants", &taken).refused(409);
    assert!(!refused.contains("anns"), "{refused}");
    assert_eq!(names(&bob, &json!({"graph_id": "ctx"})), ["ctx"]);
    assert_eq!(
        ok(
            bob.post("/assistants/count", &json!({"graph_id": "ctx"})),
            200
        ),
        1
    );
    assert_eq!(names(&ann, &json!({"graph_id": "ctx"})), ["anns", "ctx"]);
    let input = json!({"assistant_id": ID, "input": {"text": "x"}});
    for rest in ["runs", "runs/wait", "runs/stream"] {
        let thread = bob.thread();
        bob.post(&format!("/threads/{thread}/{rest}"), &input)
            .refused(404);
        bob.post(&format!("/{rest}"), &input).refused(404);
    }
    bob.post("/runs/batch", &json!([input])).refused(404);
    let thread = bob.thread();
    let posted =
        json!({"messages": [{"role": "user", "content": "hi"}], "run": {"assistant_id": ID}});
    bob.post(&format!("/threads/{thread}/messages"), &posted)
        .refused(404);
    ann.run(&ann.thread(), &input);
    assert_eq!(ok(ann.get(&path), 200), made);
    // Threads of others stay when the assistant goes.
    let metadata = json!({"metadata": {"assistant_id": ID}});
    let bobs = ok(bob.post("/threads", &metadata), 200)["thread_id"].clone();
    assert_eq!(
        ann.delete(&format!("{path}?delete_threads=true")).status,
        204
    );
    ok(
        bob.get(&format!("/threads/{}", bobs.as_str().unwrap())),
        200,
    );
    for client in [&ann, &bob] {
        let system = format!("/assistants/{COUNTER}");
        assert_eq!(ok(client.get(&system), 200)["name"], "counter");
        patch(client, &system, &json!({"name": "x"})).refused(403);
        client
            .post(&format!("{system}/latest"), &json!({"version": 1}))
            .refused(403);
        client.delete(&system).refused(403);
        assert_eq!(
            ok(client.post(&format!("{system}/versions"), &json!({})), 200)[0]["version"],
            1
        );
    }
}

fn bad_requests_about_assistants_are_refused_and_store_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let before = ok(client.post("/assistants/count", &json!({})), 200);
    let graph = |more: Value| test_support::talk::extend(json!({"graph_id": "ctx"}), more);
    for (body, status, detail) in [
        (json!([]), 422, "object"),
        (json!({}), 422, "\"graph_id\" is a required property"),
        (
            json!({"graph_id": "nope"}),
            404,
            "Graph 'nope' not found. Expected one of: ['agent'",
        ),
        (json!({"graph_id": 5}), 422, "string"),
        (
            graph(json!({"assistant_id": "x"})),
            422,
            "Invalid assistant ID: must be a UUID",
        ),
        (
            graph(json!({"assistant_id": format!("{{{ID}}}")})),
            422,
            "must be a UUID",
        ),
        (
            graph(json!({"assistant_id": format!("urn:uuid:{ID}")})),
            422,
            "must be a UUID",
        ),
        (
            graph(json!({"assistant_id": ID.replace('-', "")})),
            422,
            "must be a UUID",
        ),
        (graph(json!({"assistant_id": 1})), 422, "string"),
        (graph(json!({"if_exists": "bogus"})), 422, "bogus"),
        (graph(json!({"config": []})), 422, "object"),
        (graph(json!({"config": {"tags": "x"}})), 422, "array"),
        (graph(json!({"context": 1})), 422, "object"),
        (graph(json!({"metadata": []})), 422, "object"),
        (graph(json!({"name": 1})), 422, "string"),
        (graph(json!({"description": 1})), 422, "string"),
        (
            graph(json!({"metadata": {"x": "y".repeat(16_000)}})),
            422,
            "at most 16000",
        ),
        (
            graph(json!({"context": {"x": "y".repeat(300_000)}})),
            413,
            "at most 262144 bytes",
        ),
        (
            graph(json!({"config": {"configurable": {"a": 1}}, "context": {"b": 2}})),
            400,
            "configurable and context",
        ),
    ] {
        let refused = client.post("/assistants", &body).refused(status);
        assert!(refused.contains(detail), "{refused}");
    }
    assert_eq!(
        ok(client.post("/assistants/count", &json!({})), 200),
        before
    );
    for id in [
        "counter",
        "x",
        &format!("%7B{ID}%7D"),
        &ID.replace('-', ""),
        &format!("urn:uuid:{ID}"),
    ] {
        for (method, rest, body) in [
            ("GET", "", ""),
            ("PATCH", "", "{}"),
            ("DELETE", "", ""),
            ("GET", "/subgraphs", ""),
            ("POST", "/versions", "{}"),
            ("POST", "/latest", "{\"version\":1}"),
        ] {
            let path = format!("/assistants/{id}{rest}");
            let refused = client
                .send(method, &path, &[], body.as_bytes())
                .refused(422);
            assert_eq!(
                refused, "Invalid assistant ID: must be a UUID",
                "{method} {path}"
            );
        }
    }
    for rest in ["graph", "schemas"] {
        let refused = client.get(&format!("/assistants/x/{rest}")).refused(422);
        assert!(
            refused.starts_with("Invalid assistant: 'x'. Must be either"),
            "{refused}"
        );
    }
    let made = create(&client, &json!({"graph_id": "ctx"}));
    for (body, status) in [
        (json!({"graph_id": "nope"}), 404),
        (json!({"name": 1}), 422),
        (
            json!({"config": {"configurable": {"a": 1}}, "context": {"b": 1}}),
            400,
        ),
        (json!([]), 422),
    ] {
        patch(&client, &path(&made), &body).refused(status);
    }
    assert_eq!(ok(client.get(&path(&made)), 200), made);
    for body in [
        json!({"limit": 0}),
        json!({"limit": 1001}),
        json!({"offset": -1}),
        json!({"sort_by": "x"}),
        json!({"select": ["bogus"]}),
        json!({"metadata": 1}),
        json!({"sort_order": "up"}),
        json!({"name": 1}),
    ] {
        client.post("/assistants/search", &body).refused(422);
    }
    for rest in ["search", "count"] {
        client
            .post(&format!("/assistants/{rest}"), &json!({"graph_id": "nope"}))
            .refused(404);
    }
    let run = json!({"assistant_id": ID, "input": {}});
    client.post("/runs", &run).refused(404);
}

fn how_large_an_assistant_is_and_how_many_versions_it_has_is_bounded(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_ASSISTANT_BYTES", "4000")
        .env("BACKSTITCH_ASSISTANT_VERSIONS", "3");
    let server = place.start(setup);
    let client = Client::of(&server);
    let made = create(
        &client,
        &json!({"graph_id": "ctx", "metadata": {"a": "x".repeat(3000)}}),
    );
    let path = path(&made);
    // What a change makes of it counts.
    let more = json!({"metadata": {"b": "x".repeat(3000)}});
    let refused = patch(&client, &path, &more).refused(413);
    assert!(refused.contains("at most 4000 bytes"), "{refused}");
    for version in [2, 3] {
        assert_eq!(
            ok(patch(&client, &path, &json!({})), 200)["version"],
            version
        );
    }
    let refused = patch(&client, &path, &json!({})).refused(409);
    assert!(refused.contains("3 versions"), "{refused}");
    assert_eq!(ok(client.get(&path), 200)["version"], 3);
}
