//! Crons as clients meet them: their life, whose they are, and the runs that they create.

mod due;
mod refusals;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::{ok, patch};

on_both_storages!(
    a_cron_is_created_changed_and_deleted,
    a_change_goes_into_the_payload,
    null_takes_back_what_a_cron_need_not_have,
    crons_are_searched_and_counted,
    crons_go_with_their_thread_and_their_assistant,
    crons_are_their_owners,
    of_many_changes_at_once_none_is_lost,
    a_list_of_large_crons_is_complete_and_in_order,
    administrators_list_and_delete_the_crons_of_everybody,
);

/// The server's assistant of `counter`.
const COUNTER: &str = "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45";
/// Once a year.
const SELDOM: &str = "0 3 1 1 *";

fn create(client: &Client, body: &Value) -> Value {
    ok(client.post("/runs/crons", body), 200)
}

fn create_on(client: &Client, thread: &str, body: &Value) -> Value {
    let path = format!("/threads/{thread}/runs/crons");
    ok(client.post(&path, body), 200)
}

fn path(cron: &Value) -> String {
    format!("/runs/crons/{}", cron["cron_id"].as_str().unwrap())
}

fn search(client: &Client, body: &Value) -> Vec<Value> {
    let found = ok(client.post("/runs/crons/search", body), 200);
    found.as_array().unwrap().clone()
}

fn count(client: &Client, body: &Value) -> Value {
    ok(client.post("/runs/crons/count", body), 200)
}

fn a_cron_is_created_changed_and_deleted(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({
        "assistant_id": "counter", "schedule": SELDOM, "input": {"count": 1}, "metadata": {"m": 1},
        "webhook": null, "unknown": 1, "thread_id": "none of a cron's",
    });
    let made = create(&client, &body);
    let id = made["cron_id"].as_str().unwrap();
    let next = made["next_run_date"].as_str().unwrap();
    assert_eq!(&next[4..], "-01-01T03:00:00+00:00");
    let expected = json!({
        "cron_id": id, "assistant_id": COUNTER, "thread_id": null, "user_id": "", "end_time": null,
        "schedule": SELDOM, "timezone": null,
        "payload": {
            "assistant_id": COUNTER, "schedule": SELDOM, "input": {"count": 1},
            "metadata": {"m": 1}, "config": {"configurable": {"cron_id": id}},
        },
        "next_run_date": next, "metadata": {"m": 1}, "on_run_completed": "delete",
        "enabled": true, "created_at": made["created_at"], "updated_at": made["created_at"],
    });
    assert_eq!(made, expected);
    let names: Vec<_> = made.as_object().unwrap().keys().collect();
    let expected: Vec<_> = expected.as_object().unwrap().keys().collect();
    assert_eq!(names, expected, "in the order of LangGraph's server");
    assert_eq!(ok(client.get(&path(&made)), 200), made);
    let thread = client.thread();
    let body = json!({
        "assistant_id": COUNTER, "schedule": "0 0 * * *", "timezone": "Europe/Paris",
        "end_time": "2090-01-01T00:00:00Z", "on_run_completed": "keep", "enabled": false,
    });
    let other = create_on(&client, &thread, &body);
    assert_eq!(other["thread_id"], thread);
    assert_eq!(other["on_run_completed"], Value::Null);
    assert_eq!(
        other["end_time"], "2090-01-01T00:00:00Z",
        "as it was written"
    );
    assert_eq!(
        (&other["enabled"], &other["timezone"]),
        (&json!(false), &json!("Europe/Paris"))
    );
    ok(client.delete(&path(&made)), 204);
    for answer in [client.get(&path(&made)), client.delete(&path(&made))] {
        assert_eq!(answer.refused(404), "Not Found");
    }
    let missing = patch(&client, &path(&made), &json!({"enabled": false})).refused(404);
    assert_eq!(missing, format!("Cron '{id}' not found"));
}

fn a_change_goes_into_the_payload(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({
        "assistant_id": "counter", "schedule": SELDOM, "metadata": {"a": {"x": 1}, "b": 2},
        "config": {"tags": ["t"], "configurable": {"z": 1}}, "input": {"count": 1},
    });
    let made = create(&client, &body);
    let id = &made["cron_id"];
    assert_eq!(
        made["payload"]["config"],
        json!({"tags": ["t"], "configurable": {"z": 1, "cron_id": id}})
    );
    let path = path(&made);
    let change = |change: Value| ok(patch(&client, &path, &change), 200);
    let off = change(json!({"enabled": false}));
    assert_eq!(
        (&off["enabled"], &off["payload"]["enabled"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(off["next_run_date"], made["next_run_date"]);
    assert!(off["updated_at"].as_str() > made["updated_at"].as_str());
    // Metadata is merged field by field, that of the runs too.
    let metadata = change(json!({"metadata": {"a": {"y": 1}, "c": 3}}));
    assert_eq!(metadata["metadata"], json!({"a": {"y": 1}, "b": 2, "c": 3}));
    assert_eq!(metadata["payload"]["metadata"], metadata["metadata"]);
    let config = change(json!({"config": {"tags": ["u"]}, "assistant_id": "agent"}));
    assert_eq!(
        config["payload"]["config"],
        json!({"tags": ["u"], "configurable": {"cron_id": id}})
    );
    assert_eq!(config["payload"]["assistant_id"], COUNTER);
    let context = change(json!({"context": {"q": 1}}));
    assert_eq!(context["payload"]["context"], json!({"q": 1}));
    let end = change(json!({"end_time": "2090-01-01", "schedule": "1 1 * * *", "enabled": true}));
    assert_eq!(end["end_time"], "2090-01-01");
    assert_eq!(
        &end["next_run_date"].as_str().unwrap()[10..],
        "T01:01:00+00:00"
    );
    let no_end = change(json!({"end_time": null, "on_run_completed": "keep"}));
    assert_eq!(no_end["end_time"], Value::Null);
    assert_eq!(no_end["payload"].get("end_time"), Some(&Value::Null));
    assert_eq!(no_end["on_run_completed"], "keep");
    let last = change(json!({"end_time": "9999-12-31T23:59:59Z"}));
    assert_eq!(last["end_time"], "9999-12-31T23:59:59Z");
    assert_eq!(last["next_run_date"], no_end["next_run_date"]);
    for wrong in [
        json!({"end_time": "2020-01-01T00:00:00Z"}),
        json!({"config": 5}),
        json!({"config": {"configurable": 5}}),
        json!({"context": 5, "enabled": false}),
        json!({"webhook": "/relative"}),
    ] {
        patch(&client, &path, &wrong).refused(422);
    }
    assert_eq!(ok(client.get(&path), 200), last);
}

fn null_takes_back_what_a_cron_need_not_have(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({
        "assistant_id": "counter", "schedule": SELDOM, "timezone": "Europe/Paris",
        "input": {"count": 1}, "webhook": "https://hooks.example/x", "metadata": {"m": 1},
    });
    let made = create(&client, &body);
    let nulls = json!({
        "timezone": null, "input": null, "webhook": null, "metadata": null, "schedule": null,
        "enabled": null, "on_run_completed": null, "assistant_id": null, "config": null,
        "thread_id": "x", "unknown": 1,
    });
    let changed = ok(patch(&client, &path(&made), &nulls), 200);
    assert_eq!(changed["timezone"], Value::Null);
    let next = changed["next_run_date"].as_str().unwrap();
    assert_eq!(&next[4..], "-01-01T03:00:00+00:00");
    let expected = json!({
        "assistant_id": COUNTER, "schedule": SELDOM, "metadata": {"m": 1},
        "config": {"configurable": {"cron_id": made["cron_id"]}},
    });
    assert_eq!(changed["payload"], expected);
    for name in ["metadata", "schedule", "enabled", "on_run_completed"] {
        assert_eq!(changed[name], made[name], "{name}");
    }
}

fn crons_are_searched_and_counted(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = |schedule: &str, tag: u64| json!({"assistant_id": "counter", "schedule": schedule, "metadata": {"tag": tag, "all": 1}});
    let first = create(&client, &body("0 0 1 3 *", 1));
    let mut agents = body("0 0 1 1 *", 2);
    agents["assistant_id"] = json!("agent");
    agents["enabled"] = json!(false);
    let second = create(&client, &agents);
    let third = create_on(&client, &thread, &body("0 0 1 2 *", 3));
    let ids = |crons: &[Value]| -> Vec<Value> {
        crons.iter().map(|cron| cron["cron_id"].clone()).collect()
    };
    let [one, two, three] = [&first, &second, &third].map(|cron| cron["cron_id"].clone());
    let newest = vec![three.clone(), two.clone(), one.clone()];
    assert_eq!(ids(&search(&client, &json!({}))), newest);
    assert_eq!(search(&client, &json!({"select": []}))[0], third);
    for (body, expected) in [
        (
            json!({"sort_by": "created_at", "sort_order": "asc"}),
            vec![&one, &two, &three],
        ),
        (json!({"assistant_id": "counter"}), vec![&three, &one]),
        (json!({"assistant_id": COUNTER}), vec![&three, &one]),
        (json!({"assistant_id": "agent", "enabled": true}), vec![]),
        (json!({"enabled": false}), vec![&two]),
        (json!({"thread_id": thread}), vec![&three]),
        (json!({"metadata": {"tag": 2, "all": 1}}), vec![&two]),
        (json!({"limit": 1, "offset": 1}), vec![&two]),
    ] {
        let expected: Vec<Value> = expected.into_iter().cloned().collect();
        assert_eq!(ids(&search(&client, &body)), expected, "{body}");
        if body.get("limit").is_none() {
            assert_eq!(count(&client, &body), expected.len(), "{body}");
        }
    }
    let selected = json!({"thread_id": thread, "select": ["cron_id", "schedule"]});
    let expected = json!([{"cron_id": three, "schedule": "0 0 1 2 *"}]);
    assert_eq!(Value::Array(search(&client, &selected)), expected);
    let page = client.post("/runs/crons/search", &json!({"limit": 2}));
    assert_eq!(page.header("x-pagination-total"), Some("3"));
    assert_eq!(page.header("x-pagination-next"), Some("2"));
    let flags = ok(client.get("/info"), 200)["flags"].clone();
    assert_eq!(flags["crons"], true);
}

fn crons_go_with_their_thread_and_their_assistant(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"assistant_id": "counter", "schedule": SELDOM});
    let on_thread = create_on(&client, &thread, &body);
    let alone = create(&client, &body);
    // A thread whose forks live leaves a tombstone, and no cron.
    client.run(
        &thread,
        &json!({"assistant_id": "counter", "input": {"count": 1, "log": []}}),
    );
    ok(
        client.post(&format!("/threads/{thread}/fork"), &json!({})),
        201,
    );
    ok(client.delete(&format!("/threads/{thread}")), 204);
    client.get(&path(&on_thread)).refused(404);
    let assistant = ok(
        client.post("/assistants", &json!({"graph_id": "counter"})),
        200,
    );
    let id = assistant["assistant_id"].as_str().unwrap();
    let of_assistant = create(&client, &json!({"assistant_id": id, "schedule": SELDOM}));
    ok(client.delete(&format!("/assistants/{id}")), 204);
    client.get(&path(&of_assistant)).refused(404);
    assert_eq!(search(&client, &json!({})), [alone]);
}

fn crons_are_their_owners(place: &Place) {
    let keys = "ann=key-a,bob=key-b";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let body = json!({"assistant_id": "counter", "schedule": SELDOM});
    let (alone, thread) = (create(&ann, &body), ann.thread());
    let on_thread = create_on(&ann, &thread, &body);
    assert_eq!(alone["user_id"], "ann");
    for cron in [&alone, &on_thread] {
        let nobodys = path(&json!({"cron_id": uuid::Uuid::now_v7().to_string()}));
        for path in [path(cron), nobodys] {
            assert_eq!(bob.get(&path).refused(404), "Not Found");
            assert_eq!(bob.delete(&path).refused(404), "Not Found");
            let refused = patch(&bob, &path, &json!({"enabled": false})).refused(404);
            assert!(refused.ends_with("not found"), "{refused}");
        }
    }
    assert_eq!(search(&bob, &json!({})), [] as [Value; 0]);
    assert_eq!(
        search(&bob, &json!({"thread_id": thread})),
        [] as [Value; 0]
    );
    assert_eq!(count(&bob, &json!({})), 0);
    assert_eq!(count(&ann, &json!({})), 2);
    // Whose thread it is decides who schedules runs on it, and whose assistant it is.
    let on = format!("/threads/{thread}/runs/crons");
    let nowhere = format!("/threads/{}/runs/crons", uuid::Uuid::now_v7());
    let detail = |path: &str| {
        bob.post(path, &body)
            .refused(404)
            .replace(&path[9..45], "ID")
    };
    assert_eq!(detail(&on), detail(&nowhere));
    let hers = ok(
        ann.post("/assistants", &json!({"graph_id": "counter"})),
        200,
    );
    let body = json!({"assistant_id": hers["assistant_id"], "schedule": SELDOM});
    bob.post("/runs/crons", &body).refused(404);
    assert_eq!(ok(ann.get(&path(&alone)), 200), alone);
}

fn a_list_of_large_crons_is_complete_and_in_order(place: &Place) {
    let (_server, client) = serve(place);
    let made: Vec<Value> = (0..12)
        .map(|number| {
            // Of the sixth what is stored is more than what is read together.
            let bytes = if number == 6 { 250_000 } else { 150_000 };
            create(
                &client,
                &json!({
                    "assistant_id": "counter", "schedule": SELDOM, "metadata": {"n": number},
                    "input": {"text": "x".repeat(bytes)}, "end_time": "2999-01-01",
                }),
            )
        })
        .collect();
    let oldest = json!({"sort_order": "asc", "limit": 11, "offset": 1});
    assert_eq!(search(&client, &oldest), made[1..]);
    for columns in [
        json!(["cron_id", "next_run_date"]),
        json!(["cron_id", "metadata"]),
        json!(["cron_id", "end_time"]),
    ] {
        let found = search(
            &client,
            &json!({"sort_order": "asc", "limit": 12, "select": columns}),
        );
        let expected = made.iter().map(|cron| {
            let names = columns.as_array().unwrap().iter();
            let fields = names.map(|name| {
                let name = name.as_str().unwrap();
                (name.to_owned(), cron[name].clone())
            });
            Value::Object(fields.collect())
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

fn administrators_list_and_delete_the_crons_of_everybody(place: &Place) {
    let (mut server, client) = serve(place);
    let body = json!({"assistant_id": "counter", "schedule": SELDOM});
    let orphan = create(&client, &body);
    server.restart_with("BACKSTITCH_ADMINS", "root");
    server.restart_with("BACKSTITCH_API_KEYS", "ann=key-a,root=key-r");
    let [ann, root] = ["key-a", "key-r"].map(|key| Client::of(&server).with_key(key));
    assert_eq!(ann.get(&path(&orphan)).refused(404), "Not Found");
    assert_eq!(ann.delete(&path(&orphan)).refused(404), "Not Found");
    assert_eq!(search(&ann, &json!({})), [] as [Value; 0]);
    let hers = create(&ann, &body);
    let roots = create(&root, &body);
    let all = [roots, hers.clone(), orphan.clone()];
    assert_eq!(search(&root, &json!({})), all);
    assert_eq!(count(&root, &json!({})), 3);
    assert_eq!(count(&ann, &json!({})), 1);
    assert_eq!(ok(root.get(&path(&orphan)), 200), orphan);
    // What it does stays with whoever made it.
    patch(&root, &path(&hers), &json!({"enabled": false})).refused(404);
    assert_eq!(ok(ann.get(&path(&hers)), 200), hers);
    for cron in [&orphan, &hers] {
        ok(root.delete(&path(cron)), 204);
        assert_eq!(root.delete(&path(cron)).refused(404), "Not Found");
    }
    assert_eq!(count(&root, &json!({})), 1);
}

fn of_many_changes_at_once_none_is_lost(place: &Place) {
    let (_server, client) = serve(place);
    let made = create(
        &client,
        &json!({"assistant_id": "counter", "schedule": SELDOM}),
    );
    let path = path(&made);
    std::thread::scope(|scope| {
        for number in 0..50 {
            let (client, path) = (&client, &path);
            let change = json!({"metadata": {format!("k{number}"): number}});
            scope.spawn(move || ok(patch(client, path, &change), 200));
        }
    });
    let metadata = ok(client.get(&path), 200)["metadata"].clone();
    assert_eq!(metadata.as_object().unwrap().len(), 50);
}
