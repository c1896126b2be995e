//! Threads with a time to live, as clients and the settings give it, and their sweep.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::tables;
use test_support::talk::{self, ok, patch, until};

on_both_storages!(
    a_time_to_live_is_shown_where_it_is_asked_for,
    a_time_to_live_that_is_none_is_refused,
    threads_that_have_expired_are_deleted_or_pruned,
    a_thread_with_a_run_that_waits_is_not_swept,
    a_thread_stays_while_a_cron_makes_runs_on_it,
    the_settings_say_how_long_other_threads_live,
    two_processes_sweep_all_threads,
);

fn swept(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_SWEEP_INTERVAL", "1");
    let server = place.start(setup);
    let client = Client::of(&server);
    (server, client)
}

fn create(client: &Client, ttl: Value) -> String {
    talk::create(client, &json!({"ttl": ttl}))
}

fn shown(client: &Client, thread: &str) -> Value {
    ok(client.get(&format!("/threads/{thread}?include=ttl")), 200)["ttl"].clone()
}

/// Lets an hour pass for all threads.
fn age(place: &Place, server: &Server) {
    let hour = if place.is_postgres() {
        "interval '1 hour'"
    } else {
        "3600000000"
    };
    for sql in [
        format!("UPDATE branches SET updated_at = updated_at - {hour}"),
        format!(
            "UPDATE threads SET updated_at = updated_at - {hour}, expires_at = expires_at - {hour}"
        ),
    ] {
        tables::execute(place, server, &sql).unwrap();
    }
}

fn exists(client: &Client, thread: &str) -> bool {
    client.get(&format!("/threads/{thread}")).status == 200
}

fn a_time_to_live_is_shown_where_it_is_asked_for(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, json!(90));
    let path = format!("/threads/{thread}");
    assert!(ok(client.get(&path), 200).get("ttl").is_none());
    let first = shown(&client, &thread);
    assert_eq!(
        (&first["strategy"], &first["ttl_minutes"]),
        (&json!("delete"), &json!(90.0))
    );
    // A change moves the moment on.
    talk::say(&client, &thread, "hi");
    let moved = shown(&client, &thread);
    assert!(
        moved["expires_at"].as_str() > first["expires_at"].as_str(),
        "{moved} {first}"
    );
    let change = json!({"ttl": {"ttl": 0.5, "strategy": "keep_latest"}});
    ok(patch(&client, &path, &change), 200);
    let changed = shown(&client, &thread);
    assert_eq!(
        (&changed["strategy"], &changed["ttl_minutes"]),
        (&json!("keep_latest"), &json!(0.5))
    );
    assert!(changed["expires_at"].as_str() < moved["expires_at"].as_str());
    let without = client.thread();
    assert_eq!(shown(&client, &without), Value::Null);
}

fn a_time_to_live_that_is_none_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for wrong in [
        json!(0),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!(true),
        json!([1]),
        json!({}),
        json!({"ttl": 0}),
        json!({"ttl": -5, "strategy": "delete"}),
        json!({"ttl": "5"}),
        json!({"ttl": 5, "strategy": "bogus"}),
        json!({"strategy": "delete"}),
    ] {
        let body = json!({"ttl": wrong, "metadata": {"a": 1}});
        client.post("/threads", &body).refused(422);
        patch(&client, &format!("/threads/{thread}"), &body).refused(422);
    }
    assert_eq!(ok(client.post("/threads/count", &json!({})), 200), 1);
    assert_eq!(
        ok(client.get(&format!("/threads/{thread}")), 200)["metadata"],
        json!({})
    );
}

fn threads_that_have_expired_are_deleted_or_pruned(place: &Place) {
    let (server, client) = swept(place);
    let deleted = create(&client, json!(30));
    let pruned = create(&client, json!({"ttl": 30, "strategy": "keep_latest"}));
    let [longer, without] = [create(&client, json!(90)), client.thread()];
    for thread in [&deleted, &pruned, &longer, &without] {
        talk::say(&client, thread, "hi");
    }
    let before = client.history(&pruned).len();
    age(place, &server);
    until("one is deleted", || !exists(&client, &deleted));
    until("one is pruned", || client.history(&pruned).len() < before);
    let state = client.state(&pruned);
    assert_eq!(state["values"]["messages"][1]["content"], "echo: hi");
    assert_eq!(client.history(&longer).len(), before);
    assert!(exists(&client, &without));
    // A change of the other one moves its moment on.
    talk::say(&client, &longer, "more");
    age(place, &server);
    let short = create(&client, json!(30));
    age(place, &server);
    until("another one is deleted", || !exists(&client, &short));
    until("the longer one is deleted too", || {
        !exists(&client, &longer)
    });
}

fn a_thread_with_a_run_that_waits_is_not_swept(place: &Place) {
    let (server, client) = swept(place);
    let [busy, idle] = [(); 2].map(|()| create(&client, json!(30)));
    let body = talk::with(talk::turn("hi"), "after_seconds", 3000);
    let run = talk::background(&client, &busy, &body);
    age(place, &server);
    until("the idle one is deleted", || !exists(&client, &idle));
    assert!(exists(&client, &busy));
    let cancel = format!("/threads/{busy}/runs/{run}/cancel?wait=true");
    client.send("POST", &cancel, &[], b"");
    age(place, &server);
    until("the other one is deleted too", || !exists(&client, &busy));
}

fn a_thread_stays_while_a_cron_makes_runs_on_it(place: &Place) {
    let (server, client) = swept(place);
    let [busy, paused, idle] = [(); 3].map(|()| create(&client, json!(30)));
    let pruned = create(&client, json!({"ttl": 30, "strategy": "keep_latest"}));
    let cron = |thread: &str| {
        let yearly =
            json!({"assistant_id": "agent", "schedule": "0 0 1 1 *", "input": {"messages": []}});
        let made = ok(
            client.post(&format!("/threads/{thread}/runs/crons"), &yearly),
            200,
        );
        format!("/runs/crons/{}", made["cron_id"].as_str().unwrap())
    };
    let [of_busy, of_paused, _] = [&busy, &paused, &pruned].map(|thread| cron(thread));
    ok(patch(&client, &of_paused, &json!({"enabled": false})), 200);
    talk::say(&client, &pruned, "hi");
    let before = client.history(&pruned).len();
    age(place, &server);
    until("the idle one is deleted", || !exists(&client, &idle));
    until("so is the one whose cron rests", || {
        !exists(&client, &paused)
    });
    // A thread that stays is pruned whatever its cron does.
    until("one is pruned", || client.history(&pruned).len() < before);
    assert!(exists(&client, &busy));
    ok(client.send("DELETE", &of_busy, &[], b""), 204);
    age(place, &server);
    until("the last one is deleted too", || !exists(&client, &busy));
}

fn the_settings_say_how_long_other_threads_live(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_THREAD_TTL", "60")
        .env("BACKSTITCH_THREAD_TTL_STRATEGY", "keep_latest");
    let server = place.start(setup);
    let client = Client::of(&server);
    let ttl = shown(&client, &client.thread());
    assert_eq!(
        (&ttl["strategy"], &ttl["ttl_minutes"]),
        (&json!("keep_latest"), &json!(60.0))
    );
    assert_eq!(
        shown(&client, &create(&client, json!(5)))["ttl_minutes"],
        5.0
    );
    // A run creates this one.
    let thread = uuid::Uuid::now_v7().to_string();
    let body = talk::with(talk::turn("hi"), "if_not_exists", "create");
    ok(
        client.post(&format!("/threads/{thread}/runs/wait"), &body),
        200,
    );
    assert_eq!(shown(&client, &thread)["ttl_minutes"], 60.0);
    // A batch creates this one.
    let keeping = talk::with(talk::turn("hi"), "on_completion", "keep");
    let runs = ok(
        client.post("/runs/batch", &json!([keeping, talk::turn("hi")])),
        200,
    );
    let thread = runs[0]["thread_id"].as_str().unwrap();
    assert_eq!(shown(&client, thread)["ttl_minutes"], 60.0);
}

fn two_processes_sweep_all_threads(place: &Place) {
    if !place.is_postgres() {
        // One process has the file for itself.
        return;
    }
    let (server, client) = swept(place);
    for _ in 0..250 {
        create(&client, json!(30));
    }
    let stays = client.thread();
    age(place, &server);
    let second = server.replica();
    until("all are deleted", || {
        ok(client.post("/threads/count", &json!({})), 200) == 1
    });
    assert!(exists(&Client::of(&second), &stays));
    for server in [&server, &second] {
        let log = server.output();
        assert!(!log.contains("could not be swept"), "{log}");
    }
}
