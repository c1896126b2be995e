//! Assistants of clients: their versions, whose they are, and what their runs get of them.

mod refusals;

use std::thread;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::ok;

on_both_storages!(
    an_assistant_is_created_once_and_changed_in_versions,
    a_version_is_activated_with_all_that_it_had,
    of_many_creations_with_one_id_one_wins_and_no_change_is_lost,
    assistants_are_searched_and_counted,
    lists_of_large_assistants_and_versions_are_complete_and_in_order,
    a_run_gets_config_context_and_metadata_of_its_assistant_when_it_is_created,
    an_assistant_goes_with_its_threads_and_not_with_its_runs,
    defaults_of_a_graph_reach_its_runs,
);

const ID: &str = "7b4bd5e0-0000-4000-8000-000000000001";
/// The server's assistant of `counter`.
const COUNTER: &str = "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45";

fn create(client: &Client, body: &Value) -> Value {
    ok(client.post("/assistants", body), 200)
}

fn path(assistant: &Value) -> String {
    format!(
        "/assistants/{}",
        assistant["assistant_id"].as_str().unwrap()
    )
}

fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    client.send("PATCH", path, &[], body.to_string().as_bytes())
}

fn names(client: &Client, body: &Value) -> Vec<String> {
    let found = ok(client.post("/assistants/search", body), 200);
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    found.as_array().unwrap().iter().map(name).collect()
}

fn an_assistant_is_created_once_and_changed_in_versions(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({
        "assistant_id": ID.to_uppercase(), "graph_id": "counter", "name": "mine", "description": "d",
        "metadata": {"m": 1}, "config": {"tags": ["t"], "configurable": {"a": 1}}, "unknown": 1,
    });
    let made = create(&client, &body);
    assert_eq!(made["assistant_id"], ID);
    assert_eq!(
        (&made["version"], &made["context"]),
        (&json!(1), &json!({"a": 1}))
    );
    assert_eq!(made["created_at"], made["updated_at"]);
    assert_eq!(made.as_object().unwrap().len(), 10);
    let path = path(&made);
    assert_eq!(ok(client.get(&path), 200), made);
    let exists = client.post("/assistants", &body).refused(409);
    assert_eq!(exists, format!("Assistant {ID} already exists"));
    let other = json!({"assistant_id": ID, "graph_id": "ctx", "if_exists": "do_nothing"});
    assert_eq!(create(&client, &other), made);
    let change = json!({"metadata": {"n": 2}, "name": "renamed"});
    let second = ok(patch(&client, &path, &change), 200);
    assert_eq!(second["version"], 2);
    assert_eq!(second["metadata"], json!({"m": 1, "n": 2}));
    assert_eq!(second["config"], made["config"]);
    assert!(second["updated_at"].as_str() > made["updated_at"].as_str());
    let third = ok(
        patch(
            &client,
            &path,
            &json!({"config": {"configurable": {"a": 2}}}),
        ),
        200,
    );
    assert_eq!(third["config"], json!({"configurable": {"a": 2}}));
    assert_eq!(third["context"], json!({"a": 2}));
    let fourth = ok(
        patch(
            &client,
            &path,
            &json!({"context": {"c": "\0"}, "graph_id": "ctx"}),
        ),
        200,
    );
    assert_eq!(fourth["config"], json!({"configurable": {"c": "\0"}}));
    assert_eq!(fourth["graph_id"], "ctx");
    // A version comes of any change.
    assert_eq!(ok(patch(&client, &path, &json!({})), 200)["version"], 5);
    let versions = format!("{path}/versions");
    let all = ok(client.post(&versions, &json!({})), 200);
    let numbers: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["version"])
        .collect();
    assert_eq!(numbers, [5, 4, 3, 2, 1]);
    assert_eq!(all[4].get("updated_at"), None);
    assert_eq!(all[4]["created_at"], made["created_at"]);
    assert_eq!(all[4]["config"], made["config"]);
    let page = ok(
        client.post(&versions, &json!({"limit": 1, "offset": 1})),
        200,
    );
    assert_eq!(
        (page.as_array().unwrap().len(), &page[0]["version"]),
        (1, &json!(4))
    );
    let noted = json!({"metadata": {"n": 2}, "limit": 10});
    assert_eq!(
        ok(client.post(&versions, &noted), 200)
            .as_array()
            .unwrap()
            .len(),
        4
    );
    for shown in ["graph", "schemas", "subgraphs"] {
        ok(client.get(&format!("{path}/{shown}")), 200);
    }
    let schemas = ok(client.get(&format!("{path}/schemas")), 200);
    assert_eq!(schemas["graph_id"], "ctx");
    // A drawing and schemas are found by the name of the graph, too.
    for shown in ["graph", "schemas"] {
        let of_graph = ok(client.get(&format!("/assistants/ctx/{shown}")), 200);
        assert_eq!(of_graph, ok(client.get(&format!("{path}/{shown}")), 200));
    }
    assert_eq!(client.delete(&path).status, 204);
    let gone = client.delete(&path).refused(404);
    assert_eq!(gone, format!("Assistant with ID {ID} not found"));
    assert_eq!(client.get(&path).refused(404), "Not Found");
    let gone = patch(&client, &path, &json!({})).refused(404);
    assert_eq!(gone, format!("Assistant {ID} not found"));
    for rest in ["versions", "latest"] {
        client
            .post(&format!("{path}/{rest}"), &json!({"version": 1}))
            .refused(404);
    }
}

fn a_version_is_activated_with_all_that_it_had(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({"graph_id": "ctx", "metadata": {"v": 1}, "context": {"who": "one"}, "description": "d"});
    let first = create(&client, &body);
    assert_eq!(first["name"], "Untitled");
    let path = path(&first);
    let change =
        json!({"name": "two", "metadata": {"v": 2}, "context": {"who": "two"}, "description": "e"});
    ok(patch(&client, &path, &change), 200);
    let latest = format!("{path}/latest");
    let active = ok(client.post(&latest, &json!({"version": 1})), 200);
    assert!(active["updated_at"].as_str() > first["updated_at"].as_str());
    let mut alike = active.clone();
    alike["updated_at"] = first["updated_at"].clone();
    assert_eq!(alike, first);
    assert_eq!(ok(client.get(&path), 200), active);
    for version in [0, -1, 99, i64::MAX] {
        let body = json!({"version": version});
        let missing = client.post(&latest, &body).refused(404);
        assert!(
            missing.starts_with(&format!("Version {version} not found")),
            "{missing}"
        );
    }
    client.post(&latest, &json!({"version": "1"})).refused(422);
    // The next number follows the greatest one.
    let next = ok(patch(&client, &path, &json!({"name": "three"})), 200);
    assert_eq!(
        (&next["version"], &next["context"]),
        (&json!(3), &json!({"who": "one"}))
    );
}

fn of_many_creations_with_one_id_one_wins_and_no_change_is_lost(place: &Place) {
    let (_server, client) = serve(place);
    let many = |work: &(dyn Fn(usize) -> u16 + Sync)| -> Vec<u16> {
        thread::scope(|scope| {
            // Who waited too long for the row on a busy machine has changed nothing and asks again.
            let patiently = move |at| {
                let mut statuses = std::iter::repeat_with(|| work(at));
                statuses.find(|status| *status != 503).unwrap()
            };
            let all: Vec<_> = (0..50)
                .map(|at| scope.spawn(move || patiently(at)))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let statuses = many(&|at| {
        let body = json!({"assistant_id": ID, "graph_id": "counter", "name": format!("{at}")});
        client.post("/assistants", &body).status
    });
    let won = statuses.iter().filter(|status| **status == 200).count();
    let lost = statuses.iter().filter(|status| **status == 409).count();
    assert_eq!((won, lost), (1, 49));
    let path = format!("/assistants/{ID}");
    let statuses = many(&|at| {
        let body = json!({"metadata": {(at.to_string()): at}});
        patch(&client, &path, &body).status
    });
    assert_eq!(statuses, [200; 50]);
    let versions = ok(
        client.post(&format!("{path}/versions"), &json!({"limit": 1000})),
        200,
    );
    let numbers: Vec<_> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["version"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=51).rev().collect::<Vec<_>>());
    assert_eq!(versions[0]["metadata"].as_object().unwrap().len(), 50);
}

fn assistants_are_searched_and_counted(place: &Place) {
    let (_server, client) = serve(place);
    for (number, graph) in ["counter", "router", "counter"].iter().enumerate() {
        let metadata = json!({"tag": {"a": [1, number]}, "n": number});
        create(
            &client,
            &json!({"graph_id": graph, "name": format!("Mine-{number}"), "metadata": metadata}),
        );
    }
    for (body, wanted) in [
        (json!({"name": "mine"}), &["Mine-2", "Mine-1", "Mine-0"][..]),
        (json!({"name": "MINE-1"}), &["Mine-1"]),
        (json!({"name": "%"}), &[]),
        (json!({"metadata": {"n": 1}}), &["Mine-1"]),
        (json!({"metadata": {"tag": {"a": [2]}}}), &["Mine-2"]),
        (
            json!({"name": "mine", "graph_id": "counter", "sort_by": "name", "sort_order": "asc"}),
            &["Mine-0", "Mine-2"],
        ),
        (
            json!({"name": "mine", "limit": 1, "offset": 1}),
            &["Mine-1"],
        ),
        (json!({"graph_id": "slow"}), &["slow"]),
        (
            json!({"graph_id": "counter", "sort_by": "created_at", "sort_order": "asc", "limit": 2}),
            &["counter", "Mine-0"],
        ),
        (
            json!({"name": "mine", "sort_by": "graph_id", "sort_order": "desc", "limit": 1}),
            &["Mine-1"],
        ),
        (
            json!({"name": "mine", "sort_by": "updated_at"}),
            &["Mine-2", "Mine-1", "Mine-0"],
        ),
        (json!({"offset": i64::MAX}), &[]),
    ] {
        assert_eq!(names(&client, &body), wanted, "{body}");
    }
    let page = client.post("/assistants/search", &json!({"name": "mine", "limit": 2}));
    assert_eq!(page.header("x-pagination-next"), Some("2"));
    let select = json!({"name": "mine-0", "select": ["name", "graph_id"]});
    assert_eq!(
        ok(client.post("/assistants/search", &select), 200),
        json!([{"graph_id": "counter", "name": "Mine-0"}])
    );
    let all = json!({"name": "mine-0", "select": []});
    assert_eq!(
        ok(client.post("/assistants/search", &all), 200)[0]
            .as_object()
            .unwrap()
            .len(),
        10
    );
    for (body, wanted) in [
        (json!({"name": "mine"}), 3),
        (json!({"graph_id": "counter"}), 3),
        (
            json!({"metadata": {"created_by": "system"}, "graph_id": "counter"}),
            1,
        ),
        (json!({"metadata": {"n": 9}}), 0),
    ] {
        assert_eq!(
            ok(client.post("/assistants/count", &body), 200),
            wanted,
            "{body}"
        );
    }
}

fn lists_of_large_assistants_and_versions_are_complete_and_in_order(place: &Place) {
    let (_server, client) = serve(place);
    let body = |number: usize| {
        // More than a few are not read together.
        let config = json!({"configurable": {"text": "x".repeat(120_000)}});
        json!({"graph_id": "counter", "name": format!("n{number}"), "metadata": {"large": 1}, "config": config})
    };
    let made: Vec<Value> = (0..12)
        .map(|number| create(&client, &body(number)))
        .collect();
    let search = json!({"metadata": {"large": 1}, "sort_order": "asc", "limit": 10, "offset": 1});
    let answer = client.post("/assistants/search", &search);
    assert_eq!(answer.header("x-pagination-next"), Some("11"));
    assert_eq!(ok(answer, 200), json!(made[1..11]));
    let search = json!({"metadata": {"large": 1}, "limit": 12, "select": ["name", "version"]});
    let answer = client.post("/assistants/search", &search);
    assert_eq!(answer.header("x-pagination-next"), None);
    let names = (0..12)
        .rev()
        .map(|number| json!({"name": format!("n{number}"), "version": 1}));
    assert_eq!(ok(answer, 200), Value::Array(names.collect()));

    let path = path(&made[0]);
    for number in 1..12 {
        ok(patch(&client, &path, &body(number)), 200);
    }
    let list = json!({"limit": 11, "offset": 1});
    let found = ok(client.post(&format!("{path}/versions"), &list), 200);
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 11);
    for (version, number) in found.iter().zip((0..11).rev()) {
        assert_eq!(version["version"], number + 1);
        assert_eq!(version["name"], format!("n{number}"));
        assert_eq!(version["config"], made[0]["config"]);
    }
}

fn a_run_gets_config_context_and_metadata_of_its_assistant_when_it_is_created(place: &Place) {
    let (_server, client) = serve(place);
    let made = create(
        &client,
        &json!({
            "graph_id": "ctx", "metadata": {"m": "one", "k": "assistant", "graph_id": "forged"},
            "config": {"tags": ["t"], "recursion_limit": 7, "configurable": {"who": "ann", "n": {"x": 1}}},
        }),
    );
    let id = made["assistant_id"].clone();
    let thread = client.thread();
    let seen = |more: Value| {
        let body = json!({"assistant_id": id, "input": {"text": "x"}});
        let body = test_support::talk::extend(body, more);
        client.run(&thread, &body)["out"].clone()
    };
    let out = seen(json!({}));
    assert_eq!(
        (
            &out["context"]["who"],
            &out["tags"],
            &out["recursion_limit"]
        ),
        (&json!("ann"), &json!(["t"]), &json!(7))
    );
    let last = || {
        let runs = ok(client.get(&format!("/threads/{thread}/runs?limit=1")), 200);
        runs[0]["kwargs"].clone()
    };
    assert_eq!(last()["config"]["configurable"]["n"], json!({"x": 1}));
    assert_eq!(out["configurable"]["assistant_id"], id);
    assert_eq!(
        (&out["metadata"]["m"], &out["metadata"]["k"]),
        (&json!("one"), &json!("assistant"))
    );
    assert_eq!(out["metadata"]["graph_id"], "ctx");
    let config =
        json!({"tags": ["r"], "configurable": {"n": {"y": 2}}, "metadata": {"k": "config"}});
    let out = seen(json!({"config": config, "metadata": {"k": "run"}}));
    assert_eq!(
        (&out["tags"], &out["recursion_limit"]),
        (&json!(["r"]), &json!(7))
    );
    let kwargs = last();
    assert_eq!(kwargs["config"]["configurable"]["n"], json!({"y": 2}));
    assert_eq!(kwargs["context"], json!({"who": "ann", "n": {"y": 2}}));
    assert_eq!(
        (&out["context"]["who"], &out["metadata"]["k"]),
        (&json!("ann"), &json!("run"))
    );
    let out = seen(json!({"context": {"who": "bob"}}));
    assert_eq!(
        (&out["context"]["who"], &out["configurable"]["who"]),
        (&json!("bob"), &json!("bob"))
    );
    // What was created goes on as it was created, whatever becomes of the assistant meanwhile.
    let path = format!("/threads/{thread}/runs");
    let body = json!({"assistant_id": id, "input": {"text": "later"}, "after_seconds": 2});
    let run = ok(client.post(&path, &body), 200);
    ok(
        patch(
            &client,
            &self::path(&made),
            &json!({"graph_id": "counter", "context": {"who": "eve"}}),
        ),
        200,
    );
    assert_eq!(client.delete(&self::path(&made)).status, 204);
    let run = run["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&thread, run), "success");
    let out = client.state(&thread)["values"]["out"].clone();
    assert_eq!(
        (&out["context"]["who"], &out["configurable"]["graph_id"]),
        (&json!("ann"), &json!("ctx"))
    );
    let missing = client
        .post(&path, &json!({"assistant_id": id}))
        .refused(404);
    assert_eq!(missing, "Thread or assistant not found.");
}

fn an_assistant_goes_with_its_threads_and_not_with_its_runs(place: &Place) {
    let (_server, client) = serve(place);
    let made = create(&client, &json!({"graph_id": "slow"}));
    let [mine, other] = [made["assistant_id"].clone(), json!("counter")].map(|assistant| {
        let thread = client.thread();
        let input = json!({"count": 0, "log": [], "steps": 1, "seconds": 0.01});
        client.run(&thread, &json!({"assistant_id": assistant, "input": input}));
        thread
    });
    let system = client
        .delete(&format!("/assistants/{COUNTER}?delete_threads=true"))
        .refused(403);
    assert!(system.contains("the server's own"), "{system}");
    ok(client.get(&format!("/threads/{mine}")), 200);
    let deleted = client.delete(&format!("{}?delete_threads=true", path(&made)));
    assert_eq!(deleted.status, 204);
    client.get(&format!("/threads/{mine}")).refused(404);
    ok(client.get(&format!("/threads/{other}")), 200);
}

fn defaults_of_a_graph_reach_its_runs(place: &Place) {
    let config = json!({"ctx": {"config": {"tags": ["d"], "recursion_limit": 9}, "context": {"who": "default"}}});
    let setup = Setup::example("reference_server").env("LANGGRAPH_CONFIG", config.to_string());
    let server = place.start(setup);
    let client = Client::of(&server);
    let found = ok(
        client.post("/assistants/search", &json!({"graph_id": "ctx"})),
        200,
    );
    assert_eq!(found[0]["context"], json!({"who": "default"}));
    assert_eq!(found[0]["config"]["recursion_limit"], 9);
    let run = |more: Value| {
        let body = json!({"assistant_id": "ctx", "input": {"text": "x"}});
        client.run(&client.thread(), &test_support::talk::extend(body, more))["out"].clone()
    };
    let out = run(json!({}));
    assert_eq!(
        (
            &out["context"]["who"],
            &out["tags"],
            &out["recursion_limit"]
        ),
        (&json!("default"), &json!(["d"]), &json!(9))
    );
    assert_eq!(
        run(json!({"context": {"who": "me"}}))["context"]["who"],
        "me"
    );
    // An assistant of a client has only what it was made of.
    let made = create(&client, &json!({"graph_id": "ctx"}));
    assert_eq!(
        run(json!({"assistant_id": made["assistant_id"]}))["tags"],
        json!([])
    );
}
