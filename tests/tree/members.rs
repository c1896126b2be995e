//! Keys, owners and sharing.

mod codes;

use serde_json::{Value, json};

use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};

on_both_storages!(
    a_request_without_a_good_key_is_refused_everywhere_but_at_health,
    scenario_13_a_reader_sees_the_whole_tree_and_changes_nothing,
    a_thread_is_nobody_elses_business,
    each_level_may_do_what_those_below_it_may,
    the_last_owner_stays,
    lists_and_bulk_operations_keep_to_ones_own_threads,
    a_fork_joins_its_tree_and_a_copyist_owns_nothing_of_it,
    idempotency_keys_of_two_principals_are_two_keys,
    members_are_listed_and_changed_without_keys_too,
    sharing_that_makes_no_sense_is_refused,
);

const KEYS: &str = "ann=key-a,bob=key-b,cid=key-c,ann=key-a2";

fn serve(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS);
    let server = place.start(setup);
    let client = Client::of(&server);
    (server, client)
}

/// A client with a key.
struct Keyed(Client);

impl Keyed {
    fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        self.0.send(method, path, &[], text.as_bytes())
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &Value::Null)
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, body)
    }

    fn thread(&self, metadata: &Value) -> String {
        let answer = self.post("/threads", &json!({"metadata": metadata}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["thread_id"].as_str().unwrap().to_owned()
    }

    fn say(&self, thread: &str, id: &str) {
        let body = json!({"id": id, "role": "user", "content": id});
        let answer = self.post(&format!("/threads/{thread}/messages"), &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    fn fork(&self, thread: &str) -> String {
        let answer = self.post(&format!("/threads/{thread}/fork"), &json!({}));
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["thread_id"].as_str().unwrap().to_owned()
    }

    fn grant(&self, thread: &str, who: &str, level: &str) -> Answer {
        let path = format!("/threads/{thread}/members/{who}");
        self.send("PUT", &path, &json!({"level": level}))
    }

    fn members(&self, thread: &str) -> Value {
        let answer = self.get(&format!("/threads/{thread}/members"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["members"].clone()
    }

    fn visible(&self) -> Vec<String> {
        let answer = self.get("/threads?limit=100");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut ids: Vec<String> = answer
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["thread_id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    }
}

/// Ann, Bob and Cid.
fn people(client: &Client) -> [Keyed; 3] {
    ["key-a", "key-b", "key-c"].map(|key| Keyed(client.with_key(key)))
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn a_request_without_a_good_key_is_refused_everywhere_but_at_health(place: &Place) {
    let (server, client) = serve(place);
    for path in ["/", "/ok", "/live", "/ready"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    for (method, path) in [
        ("GET", "/threads"),
        ("POST", "/threads"),
        ("POST", "/threads/search"),
        ("POST", "/runs/wait"),
        ("GET", "/info"),
        ("GET", "/assistants/x"),
        ("GET", "/nowhere"),
        ("PUT", "/threads"),
    ] {
        for headers in [
            &[][..],
            &[("x-api-key", "key-x")],
            &[("x-api-key", "key-")],
            &[("authorization", "Bearer key-a")],
            &[("x-api-key", "key-a"), ("x-api-key", "key-b")],
        ] {
            let answer = client.send(method, path, headers, b"{}");
            let detail = answer.refused(401);
            assert!(!detail.contains("key-a"), "{detail}");
        }
    }
    for key in ["key-a", "key-b", "key-a2"] {
        assert_eq!(Keyed(client.with_key(key)).get("/threads").status, 200);
    }
    // No page may use the key of whoever looks at it.
    let origin = [("origin", "https://evil.example"), ("x-api-key", "key-a")];
    let answer = client.send("GET", "/threads", &origin, b"");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let preflight = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "GET"),
    ];
    let answer = client.send("OPTIONS", "/threads", &preflight, b"");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert!(!server.output().contains("key-a"));
}

fn scenario_13_a_reader_sees_the_whole_tree_and_changes_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, _] = people(&client);
    let root = ann.thread(&json!({}));
    ann.say(&root, "m1");
    let child = ann.fork(&root);
    let grand = ann.fork(&child);
    let family = sorted(vec![root.clone(), child.clone(), grand.clone()]);
    assert!(bob.visible().is_empty());
    let granted = ann.grant(&child, "bob", "reader");
    assert_eq!(granted.status, 201, "{}", granted.text());
    assert_eq!(granted.json()["level"], "reader");
    assert_eq!(bob.visible(), family);
    let post = json!({"role": "user", "content": "x"});
    for thread in &family {
        for path in [
            "",
            "/state",
            "/history",
            "/messages",
            "/forks",
            "/branches",
            "/events",
            "/runs",
        ] {
            let answer = bob.get(&format!("/threads/{thread}{path}"));
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
        assert_eq!(
            bob.post(&format!("/threads/{thread}/history"), &json!({}))
                .status,
            200
        );
        let refused = |method: &str, path: &str, body: &Value| {
            let answer = bob.send(method, &format!("/threads/{thread}{path}"), body);
            answer.refused(403);
        };
        refused("POST", "/messages", &post);
        refused("POST", "/fork", &json!({}));
        refused("POST", "/runs", &json!({"assistant_id": "counter"}));
        refused("POST", "/runs/wait", &json!({"assistant_id": "counter"}));
        refused("POST", "/state", &json!({"values": {}}));
        refused("POST", "/btw", &json!({}));
        refused("PUT", "/tags/t", &json!({}));
        refused("PATCH", "", &json!({"metadata": {}}));
        refused("DELETE", "", &Value::Null);
        refused("PUT", "/members/cid", &json!({"level": "reader"}));
        refused("DELETE", "/members/ann", &Value::Null);
        assert_eq!(
            bob.members(thread),
            json!([{"principal": "ann", "level": "owner"}, {"principal": "bob", "level": "reader"}])
        );
    }
    let by_command = json!({"source_thread_id": root});
    bob.post("/commands/fork-thread", &by_command).refused(403);
    let send = json!({"thread_id": root, "content": "x", "assistant_id": "agent"});
    bob.post("/commands/send-message", &send).refused(403);
    let first = json!({"role": "user", "content": "x", "forkedAtConversationId": root});
    let id = uuid::Uuid::now_v7();
    bob.post(&format!("/threads/{id}/messages"), &first)
        .refused(403);
    assert_eq!(ann.visible(), family);
    // Taken back, everything is gone at once.
    let path = format!("/threads/{grand}/members/bob");
    assert_eq!(ann.send("DELETE", &path, &Value::Null).status, 204);
    assert!(bob.visible().is_empty());
    bob.get(&format!("/threads/{root}")).refused(404);
}

fn a_thread_is_nobody_elses_business(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, _] = people(&client);
    let thread = ann.thread(&json!({}));
    let run = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
    let created = ann.post(&format!("/threads/{thread}/runs"), &run).json();
    let run_id = created["run_id"].as_str().unwrap();
    ann.get(&format!("/threads/{thread}/runs/{run_id}/join"));
    for (method, path, body) in [
        ("GET", "", Value::Null),
        ("PATCH", "", json!({"metadata": {}})),
        ("DELETE", "", Value::Null),
        ("GET", "/state", Value::Null),
        ("POST", "/state", json!({"values": {}})),
        ("POST", "/history", json!({})),
        ("GET", "/messages", Value::Null),
        ("POST", "/messages", json!({"role": "user", "content": "x"})),
        ("GET", "/events", Value::Null),
        ("GET", "/members", Value::Null),
        ("PUT", "/members/bob", json!({"level": "owner"})),
        ("POST", "/runs", run.clone()),
        ("POST", "/runs/stream", run.clone()),
        ("POST", "/copy", Value::Null),
        ("POST", "/fork", json!({})),
        ("GET", &*format!("/runs/{run_id}"), Value::Null),
        ("GET", &*format!("/runs/{run_id}/join"), Value::Null),
        ("GET", &*format!("/runs/{run_id}/stream"), Value::Null),
        ("POST", &*format!("/runs/{run_id}/cancel"), Value::Null),
        ("DELETE", &*format!("/runs/{run_id}"), Value::Null),
    ] {
        let answer = bob.send(method, &format!("/threads/{thread}{path}"), &body);
        answer.refused(404);
    }
    // Nor can the id be taken over.
    let taken = json!({"thread_id": thread, "if_exists": "do_nothing"});
    bob.post("/threads", &taken).refused(409);
    bob.post("/commands/create-thread", &taken).refused(409);
    let mut creating = run.clone();
    creating["if_not_exists"] = json!("create");
    for end in ["", "/stream", "/wait"] {
        let path = format!("/threads/{thread}/runs{end}");
        let detail = bob.post(&path, &creating).refused(409);
        assert_eq!(detail, format!("Thread with ID {thread} already exists"));
    }
    let fork = json!({"thread_id": thread});
    let own = bob.thread(&json!({}));
    bob.post(&format!("/threads/{own}/fork"), &fork)
        .refused(409);
    // A run that creates its thread owns it.
    let id = uuid::Uuid::now_v7().to_string();
    let answer = bob.post(&format!("/threads/{id}/runs"), &creating);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        bob.members(&id),
        json!([{"principal": "bob", "level": "owner"}])
    );
    ann.get(&format!("/threads/{id}")).refused(404);
    // So does a stateless one, while it is there.
    let mut kept = run;
    kept["on_completion"] = json!("keep");
    let kept = bob.post("/runs", &kept).json();
    let kept = kept["thread_id"].as_str().unwrap();
    assert_eq!(bob.get(&format!("/threads/{kept}")).status, 200);
    ann.get(&format!("/threads/{kept}")).refused(404);
}

fn each_level_may_do_what_those_below_it_may(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, _] = people(&client);
    let thread = ann.thread(&json!({}));
    ann.grant(&thread, "bob", "writer");
    bob.say(&thread, "m1");
    let fork = bob.fork(&thread);
    let row = bob.get(&format!("/threads/{fork}")).json();
    assert_eq!(row["metadata"]["created_by"], "bob");
    bob.grant(&thread, "cid", "reader").refused(403);
    let changed = ann.grant(&thread, "bob", "manager");
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(bob.grant(&thread, "cid", "manager").status, 201);
    bob.grant(&thread, "cid", "owner").refused(403);
    bob.grant(&thread, "ann", "reader").refused(403);
    let remove = |who: &str| format!("/threads/{thread}/members/{who}");
    bob.send("DELETE", &remove("ann"), &Value::Null)
        .refused(403);
    assert_eq!(bob.send("DELETE", &remove("cid"), &Value::Null).status, 204);
    bob.send("DELETE", &remove("cid"), &Value::Null)
        .refused(404);
    bob.send("DELETE", &format!("/threads/{thread}"), &Value::Null)
        .refused(403);
    bob.send(
        "DELETE",
        &format!("/threads/{fork}?scope=tree"),
        &Value::Null,
    )
    .refused(403);
    assert_eq!(ann.grant(&thread, "bob", "owner").status, 200);
    assert_eq!(
        bob.send("DELETE", &format!("/threads/{fork}"), &Value::Null)
            .status,
        204
    );
}

fn the_last_owner_stays(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, _] = people(&client);
    let thread = ann.thread(&json!({}));
    let me = format!("/threads/{thread}/members/ann");
    let answer = ann.send("DELETE", &me, &Value::Null);
    assert_eq!(answer.json()["code"], "last_owner");
    answer.refused(409);
    ann.grant(&thread, "ann", "reader").refused(409);
    assert_eq!(ann.grant(&thread, "ann", "owner").status, 200);
    assert_eq!(ann.grant(&thread, "bob", "owner").status, 201);
    assert_eq!(ann.grant(&thread, "ann", "reader").status, 200);
    assert_eq!(
        bob.members(&thread),
        json!([{"principal": "bob", "level": "owner"}, {"principal": "ann", "level": "reader"}])
    );
    ann.grant(&thread, "cid", "reader").refused(403);
    bob.grant(&thread, "bob", "writer").refused(409);
    assert_eq!(bob.send("DELETE", &me, &Value::Null).status, 204);
    ann.get(&format!("/threads/{thread}")).refused(404);
}

fn lists_and_bulk_operations_keep_to_ones_own_threads(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, _] = people(&client);
    let mine = ann.thread(&json!({"tag": "x"}));
    let his = bob.thread(&json!({"tag": "x"}));
    let search = |who: &Keyed, body: Value| {
        let rows = who.post("/threads/search", &body).json();
        let id = |row: &Value| row["thread_id"].as_str().unwrap().to_owned();
        rows.as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(search(&ann, json!({"metadata": {"tag": "x"}})), [&*mine]);
    assert_eq!(search(&bob, json!({"ids": [mine, his]})), [&*his]);
    assert_eq!(bob.post("/threads/count", &json!({})).json(), json!(1));
    let slow = json!({"assistant_id": "slow", "input": {"ms": 30, "ticks": 400}});
    let run = ann.post(&format!("/threads/{mine}/runs"), &slow).json();
    let run = run["run_id"].as_str().unwrap().to_owned();
    bob.post("/runs/cancel", &json!({"status": "all"}))
        .refused(404);
    let named = json!({"thread_id": mine, "run_ids": [run]});
    bob.post("/runs/cancel", &named).refused(404);
    let status = ann.get(&format!("/threads/{mine}/runs/{run}")).json();
    assert!(["pending", "running"].contains(&status["status"].as_str().unwrap()));
    ann.grant(&mine, "bob", "reader");
    bob.post("/runs/cancel", &named).refused(403);
    bob.post("/runs/cancel", &json!({"status": "all"}))
        .refused(404);
    let pruned = bob.post("/threads/prune", &json!({"thread_ids": [mine]}));
    pruned.refused(403);
    let pruned = ann.post("/threads/prune", &json!({"thread_ids": [his]}));
    assert_eq!(pruned.json(), json!({"pruned_count": 0}));
    assert_eq!(
        ann.post("/runs/cancel", &json!({"status": "all"})).status,
        204
    );
    let pruned = ann.post("/threads/prune", &json!({"thread_ids": [mine, his]}));
    assert_eq!(pruned.json(), json!({"pruned_count": 1}));
    assert_eq!(bob.visible(), [his]);
}

fn a_fork_joins_its_tree_and_a_copyist_owns_nothing_of_it(place: &Place) {
    let (_server, client) = serve(place);
    let [ann, bob, cid] = people(&client);
    let thread = ann.thread(&json!({}));
    ann.say(&thread, "m1");
    ann.grant(&thread, "bob", "writer");
    ann.grant(&thread, "cid", "reader");
    let fork = bob.fork(&thread);
    assert_eq!(cid.visible(), sorted(vec![thread.clone(), fork.clone()]));
    assert_eq!(
        ann.members(&fork)[0],
        json!({"principal": "ann", "level": "owner"})
    );
    // A copy is a thread of one's own, for whoever may read.
    let copy = cid.post(&format!("/threads/{thread}/copy"), &Value::Null);
    assert_eq!(copy.status, 200, "{}", copy.text());
    let copy = copy.json()["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(
        cid.members(&copy),
        json!([{"principal": "cid", "level": "owner"}])
    );
    ann.get(&format!("/threads/{copy}")).refused(404);
}

fn idempotency_keys_of_two_principals_are_two_keys(place: &Place) {
    let (_server, client) = serve(place);
    let create = |key: &str| {
        let headers = [("x-api-key", key), ("idempotency-key", "same")];
        let answer = client.send("POST", "/threads", &headers, b"{}");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["thread_id"].clone()
    };
    let (ann, bob) = (create("key-a"), create("key-b"));
    assert_ne!(ann, bob);
    assert_eq!(create("key-a2"), ann, "another key of the same principal");
}

fn members_are_listed_and_changed_without_keys_too(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/members");
    let listed = || client.get(&path).json()["members"].clone();
    assert_eq!(listed(), json!([{"principal": "local", "level": "owner"}]));
    let put = |who: &str, level: &str| {
        let body = json!({"level": level}).to_string();
        client.send("PUT", &format!("{path}/{who}"), &[], body.as_bytes())
    };
    let new = put("zo%C3%AB@example.org", "writer");
    assert_eq!(new.status, 201, "{}", new.text());
    assert_eq!(new.json()["principal"], "zoë@example.org");
    assert_eq!(put("zo%C3%AB@example.org", "reader").status, 200);
    assert_eq!(
        listed(),
        json!([
            {"principal": "local", "level": "owner"},
            {"principal": "zoë@example.org", "level": "reader"},
        ])
    );
    let local = format!("{path}/local");
    client.delete(&local).refused(409);
    assert_eq!(
        client
            .delete(&format!("{path}/zo%C3%AB@example.org"))
            .status,
        204
    );
    assert_eq!(listed(), json!([{"principal": "local", "level": "owner"}]));
}

fn sharing_that_makes_no_sense_is_refused(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let gone = uuid::Uuid::now_v7();
    let put = |path: &str, body: &str| client.send("PUT", path, &[], body.as_bytes());
    let of = |thread: &str, who: &str| format!("/threads/{thread}/members/{who}");
    let good = r#"{"level":"reader"}"#;
    for body in ["", "{}", r#"{"level":"king"}"#, r#"{"level":1}"#, "[]", "{"] {
        put(&of(&thread, "bob"), body).refused(422);
    }
    let long = "x".repeat(256);
    for who in [&*long, "a%2Fb", "%00", "a%0Ab"] {
        put(&of(&thread, who), good).refused(422);
    }
    put(&of("nope", "bob"), good).refused(422);
    put(&of(&gone.to_string(), "bob"), good).refused(404);
    client.get(&format!("/threads/{gone}/members")).refused(404);
    client.delete(&of(&thread, "bob")).refused(404);
    client.delete(&of(&gone.to_string(), "bob")).refused(404);
    assert_eq!(client.post(&of(&thread, "bob"), &json!({})).status, 405);
}
