//! What happens when a cron is due: its times are set past the server, and real processes serve them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use test_support::server::Server;
use test_support::tables::{connect, execute, rows};
use test_support::talk::{self, until, until_within};

use super::*;

on_both_storages!(
    a_cron_of_a_thread_runs_on_it,
    a_cron_without_a_thread_makes_one_for_each_run,
    a_cron_of_a_principal_without_rights_is_disabled,
    a_cron_skips_a_thread_that_is_busy_if_it_is_to_reject,
    a_time_whose_run_cannot_be_created_is_skipped,
    a_server_that_serves_no_crons_says_so_and_leaves_them_to_others,
    many_crons_that_are_due_at_once_stall_nothing,
    crons_made_without_keys_make_no_runs_while_there_are_keys,
    crons_of_a_principal_whose_key_is_gone_make_no_runs,
);

/// The time of the database, in its own form.
fn now(place: &Place) -> &'static str {
    if place.is_postgres() {
        "now()"
    } else {
        "(CAST(unixepoch('subsec') * 1000000 AS INTEGER))"
    }
}

/// Makes every enabled cron due.
fn make_due(place: &Place, server: &Server) -> u64 {
    let sql = format!(
        "UPDATE crons SET next_run_at = {} WHERE enabled",
        now(place)
    );
    execute(place, server, &sql).unwrap()
}

/// How many enabled crons are due.
fn due(place: &Place, server: &Server) -> usize {
    let now = now(place);
    let sql = format!("SELECT schedule FROM crons WHERE enabled AND next_run_at <= {now}");
    rows(place, server, &sql).len()
}

fn runs(client: &Client, thread: &str) -> Vec<Value> {
    let path = format!("/threads/{thread}/runs?limit=1000");
    ok(client.get(&path), 200).as_array().unwrap().clone()
}

fn threads(client: &Client, tag: &str) -> Vec<Value> {
    let body = json!({"metadata": {"tag": tag}, "limit": 1000});
    let found = ok(client.post("/threads/search", &body), 200);
    found.as_array().unwrap().clone()
}

fn body(tag: &str) -> Value {
    json!({
        "assistant_id": "counter", "schedule": SELDOM, "input": {"count": 1, "log": []},
        "metadata": {"tag": tag},
    })
}

fn a_cron_of_a_thread_runs_on_it(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let cron = create_on(&client, &thread, &body("t"));
    make_due(place, &server);
    until("it has run", || runs(&client, &thread).len() == 1);
    let run = runs(&client, &thread).remove(0);
    assert_eq!(
        client.end_of(&thread, run["run_id"].as_str().unwrap()),
        "success"
    );
    assert_eq!(run["metadata"]["cron_id"], cron["cron_id"]);
    assert_eq!(run["metadata"]["tag"], "t");
    let configurable = &run["kwargs"]["config"]["configurable"];
    assert_eq!(configurable["cron_id"], cron["cron_id"]);
    assert!(client.state(&thread)["values"]["count"].is_number());
    let after = ok(client.get(&path(&cron)), 200);
    assert_eq!(after["next_run_date"], cron["next_run_date"]);
    assert_eq!(after["updated_at"], cron["updated_at"]);
    // A change counts from the next time on.
    ok(
        patch(&client, &path(&cron), &json!({"metadata": {"tag": "u"}})),
        200,
    );
    make_due(place, &server);
    until("it has run twice", || runs(&client, &thread).len() == 2);
    assert_eq!(runs(&client, &thread)[0]["metadata"]["tag"], "u");
}

fn a_cron_without_a_thread_makes_one_for_each_run(place: &Place) {
    let (server, client) = serve(place);
    let mut keep = body("kept");
    keep["on_run_completed"] = json!("keep");
    let kept = create(&client, &keep);
    let deleted = create(&client, &body("deleted"));
    for number in 1..=2 {
        make_due(place, &server);
        until("it has run", || {
            let threads = threads(&client, "kept");
            threads.len() == number && threads.iter().all(|one| one["status"] == "idle")
        });
        until("both are served", || due(place, &server) == 0);
    }
    let threads_kept = threads(&client, "kept");
    assert_eq!(threads_kept[0]["metadata"]["cron_id"], kept["cron_id"]);
    assert!(threads_kept[0]["values"]["count"].is_number());
    until("those of the other one are gone", || {
        threads(&client, "deleted").is_empty()
    });
    let deleted = ok(client.get(&path(&deleted)), 200);
    assert_eq!(deleted["enabled"], true);
}

fn a_cron_of_a_principal_without_rights_is_disabled(place: &Place) {
    let keys = "ann=key-a,bob=key-b";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let thread = ann.thread();
    let level = |level: &str| {
        let path = format!("/threads/{thread}/members/bob");
        let answer = talk::put(&ann, &path, &json!({"level": level}));
        assert!(answer.status < 300, "{}", answer.text());
    };
    level("reader");
    bob.post(&format!("/threads/{thread}/runs/crons"), &body("b"))
        .refused(403);
    level("writer");
    let on_thread = create_on(&bob, &thread, &body("b"));
    let mut keep = body("alone");
    keep["on_run_completed"] = json!("keep");
    let alone = create(&bob, &keep);
    make_due(place, &server);
    until("bob's cron has run", || runs(&ann, &thread).len() == 1);
    let run = runs(&ann, &thread).remove(0);
    let user = &run["kwargs"]["config"]["configurable"]["langgraph_auth_user_id"];
    assert_eq!(user, "bob");
    // What it makes for itself is bob's.
    until("the other one has run", || {
        threads(&bob, "alone").len() == 1
    });
    assert!(threads(&ann, "alone").is_empty());
    ann.delete(&format!("/threads/{thread}/members/bob"));
    make_due(place, &server);
    until("it is disabled", || {
        ok(bob.get(&path(&on_thread)), 200)["enabled"] == false
    });
    until("the other one is not", || threads(&bob, "alone").len() == 2);
    assert_eq!(ok(bob.get(&path(&alone)), 200)["enabled"], true);
    assert_eq!(runs(&ann, &thread).len(), 1);
    let log = server.output();
    assert!(log.contains("a cron was disabled"), "{log}");
}

fn a_cron_skips_a_thread_that_is_busy_if_it_is_to_reject(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let run = talk::background(&client, &thread, &talk::slow(100, 200));
    let mut reject = body("r");
    reject["multitask_strategy"] = json!("reject");
    create_on(&client, &thread, &reject);
    make_due(place, &server);
    until("it is past", || due(place, &server) == 0);
    assert_eq!(runs(&client, &thread).len(), 1);
    // The next time it interrupts.
    let cron = search(&client, &json!({})).remove(0);
    let interrupt = json!({"multitask_strategy": "interrupt"});
    ok(patch(&client, &path(&cron), &interrupt), 200);
    make_due(place, &server);
    until("it has run", || runs(&client, &thread).len() == 2);
    assert_eq!(client.end_of(&thread, &run), "interrupted");
}

fn a_time_whose_run_cannot_be_created_is_skipped(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    create_on(&client, &thread, &body("x"));
    // As if its graph were of another version of the program.
    let assistant = ok(
        client.post("/assistants", &json!({"graph_id": "counter"})),
        200,
    );
    let id = assistant["assistant_id"].as_str().unwrap();
    let mut other = body("y");
    other["assistant_id"] = json!(id);
    create_on(&client, &thread, &other);
    let sql = "UPDATE assistants SET graph_id = 'gone' WHERE graph_id = 'counter' AND owner <> ''";
    execute(place, &server, sql).unwrap();
    make_due(place, &server);
    until("both are past", || due(place, &server) == 0);
    until("one has run", || runs(&client, &thread).len() == 1);
    let log = server.output();
    assert!(log.contains("a cron cannot create its run"), "{log}");
    assert!(server.is_alive());
}

fn a_server_that_serves_no_crons_says_so_and_leaves_them_to_others(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_CRONS", "false");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    assert_eq!(ok(client.get("/info"), 200)["flags"]["crons"], false);
    let thread = client.thread();
    create_on(&client, &thread, &body("t"));
    make_due(place, &server);
    // It polls its queue meanwhile.
    client.run(
        &thread,
        &json!({"assistant_id": "counter", "input": {"count": 1, "log": []}}),
    );
    assert_eq!(due(place, &server), 1);
    server.restart_with("BACKSTITCH_CRONS", "true");
    let client = Client::of(&server);
    until("what was missed has run", || {
        runs(&client, &thread).len() == 2
    });
    assert_eq!(due(place, &server), 0);
}

fn crons_made_without_keys_make_no_runs_while_there_are_keys(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    create_on(&client, &thread, &body("orphan"));
    server.restart_with("BACKSTITCH_API_KEYS", "ann=key-a");
    let ann = Client::of(&server).with_key("key-a");
    make_due(place, &server);
    until("its time is past", || due(place, &server) == 0);
    let mine = ann.thread();
    create_on(&ann, &mine, &body("hers"));
    make_due(place, &server);
    until("hers has run", || runs(&ann, &mine).len() == 1);
    until("the times of both are past", || due(place, &server) == 0);
    let sql = "SELECT CAST(count(*) AS text) FROM runs WHERE principal IS NULL";
    assert_eq!(rows(place, &server, sql)[0][0].as_deref(), Some("0"));
}

fn crons_of_a_principal_whose_key_is_gone_make_no_runs(place: &Place) {
    let mut server = place.start(
        Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"),
    );
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let thread = bob.thread();
    create(&bob, &body("gone"));
    create_on(&bob, &thread, &body("gone"));
    create(&ann, &body("hers"));
    server.restart_with("BACKSTITCH_API_KEYS", "ann=key-a");
    let ann = Client::of(&server).with_key("key-a");
    assert_eq!(make_due(place, &server), 3);
    until("their times are past", || due(place, &server) == 0);
    let sql = "SELECT DISTINCT principal FROM runs";
    let of = |principals: Vec<Vec<Option<String>>>| -> Vec<Option<String>> {
        principals.into_iter().flatten().collect()
    };
    // That of a temporary thread goes when it has ended.
    let hers = of(rows(place, &server, sql));
    assert!(
        hers.iter().all(|name| name.as_deref() == Some("ann")),
        "{hers:?}"
    );
    // With the key they go on.
    server.restart_with("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let bob = Client::of(&server).with_key("key-b");
    assert_eq!(runs(&bob, &thread), [] as [Value; 0]);
    make_due(place, &server);
    until("his has run", || runs(&bob, &thread).len() == 1);
    drop(ann);
}

/// The crons of the test below: few enough for every build, or as many as the variable says.
fn many() -> usize {
    let many = std::env::var("BACKSTITCH_TEST_MANY_CRONS");
    many.map_or(150, |many| many.parse().unwrap())
}

fn many_crons_that_are_due_at_once_stall_nothing(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut first = body("many");
    first["on_run_completed"] = json!("keep");
    create(&client, &first);
    let id = if place.is_postgres() {
        "gen_random_uuid()"
    } else {
        "randomblob(16)"
    };
    let (now, most) = (now(place), many());
    let sql = format!(
        "WITH RECURSIVE n (at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < {most})
         INSERT INTO crons (cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled,
                on_run_completed, metadata, type, payload, next_run_at, last_run_at, created_at, updated_at)
         SELECT {id}, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled,
                on_run_completed, metadata, type, payload, {now}, last_run_at, created_at, updated_at FROM crons, n"
    );
    assert_eq!(execute(place, &server, &sql).unwrap(), most as u64);
    let begin = Instant::now();
    let patience = Duration::from_secs(60) + most as u32 * Duration::from_millis(100);
    // Others run meanwhile.
    let counted = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
    let (mut others, mut slowest) = (0, Duration::ZERO);
    until_within(patience, "all are served", || {
        let asked = Instant::now();
        assert!(client.run(&thread, &counted)["count"].is_number());
        slowest = slowest.max(asked.elapsed());
        others += 1;
        others >= 3 && due(place, &server) == 0
    });
    let served = begin.elapsed();
    let tagged = json!({"metadata": {"tag": "many"}});
    until_within(patience, "each has one thread", || {
        ok(client.post("/threads/count", &tagged), 200) == most
    });
    until_within(patience, "all have run", || {
        let idle = json!({"metadata": {"tag": "many"}, "status": "idle"});
        ok(client.post("/threads/count", &idle), 200) == most
    });
    let ended = begin.elapsed();
    println!(
        "{most} crons: served after {served:?}, run after {ended:?}; the slowest of {others} others: {slowest:?}"
    );
}

/// How many due times the test below serves: few for every build, or as many as the variable says.
fn firings() -> usize {
    let firings = std::env::var("BACKSTITCH_TEST_FIRINGS");
    firings.map_or(12, |firings| firings.parse().unwrap())
}

#[test]
fn each_due_time_has_one_run_over_replicas_one_of_which_is_killed() {
    const CRONS: usize = 4;
    let place = Place::postgres();
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "2");
    let one = place.start(setup);
    let mut two = one.replica();
    let client = Client::of(&one);
    let threads: Vec<String> = (0..CRONS).map(|_| client.thread()).collect();
    for thread in &threads {
        create_on(&client, thread, &body("t"));
    }
    let rounds = firings().div_ceil(CRONS);
    for round in 0..rounds {
        assert_eq!(make_due(&place, &one), CRONS as u64);
        if round % 2 == 1 {
            // In the middle of it, if it is.
            until("somebody has begun", || due(&place, &one) < CRONS);
        }
        two.kill();
        until("all are served", || due(&place, &one) == 0);
        two.restart();
    }
    for thread in &threads {
        let runs = runs(&client, thread);
        assert_eq!(runs.len(), rounds, "{runs:?}");
        let ids: BTreeSet<&str> = runs
            .iter()
            .map(|run| run["run_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), rounds);
        for id in ids {
            assert_eq!(client.end_of(thread, id), "success");
        }
    }
}

/// A transaction that has locked the tree of a thread, until it is dropped.
fn locked(url: &str, thread: &str) -> (tokio::runtime::Runtime, tokio_postgres::Client) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(async {
        let client = connect(url).await;
        let lock = format!("BEGIN; SELECT 1 FROM trees WHERE tree_id = '{thread}' FOR UPDATE");
        client.batch_execute(&lock).await.unwrap();
        client
    });
    (runtime, client)
}

#[test]
fn many_crons_of_a_locked_thread_hold_no_other_one_up() {
    const CRONS: usize = 64;
    let place = Place::postgres();
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let (busy, free) = (client.thread(), client.thread());
    for _ in 0..CRONS {
        create_on(&client, &busy, &body("busy"));
    }
    let lock = locked(place.url().unwrap(), &busy);
    assert_eq!(make_due(&place, &server), CRONS as u64);
    for round in 1..=2 {
        create_on(&client, &free, &body("free"));
        let sql = format!("UPDATE crons SET next_run_at = now() WHERE thread_id = '{free}'");
        let due = execute(&place, &server, &sql).unwrap() as usize;
        assert_eq!(due, round);
        until("those of the other thread have run", || {
            runs(&client, &free).len() == (1..=round).sum::<usize>()
        });
    }
    assert!(runs(&client, &busy).is_empty());
    drop(lock);
    until("the others are served too", || due(&place, &server) == 0);
    until("each has run once", || runs(&client, &busy).len() == CRONS);
}
