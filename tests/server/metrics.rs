//! `/metrics`, `/info` and `/ok`: what operators see of a server.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::{background, code, ok, slow, until, with};

on_both_storages!(
    requests_and_runs_are_counted_by_route_and_status,
    runs_that_another_one_ends_are_counted_once,
    what_waits_and_what_runs_is_measured,
    metrics_are_for_clients_with_a_key_or_for_administrators_or_for_everybody,
    labels_name_no_thread_no_principal_and_no_path_as_it_was_sent,
);

/// The value of a sample.
fn sample(text: &str, sample: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

fn text(client: &Client) -> String {
    let answer = client.get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version="), "{kind}");
    answer.text().to_owned()
}

fn requests_and_runs_are_counted_by_route_and_status(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "counter", "input": {"count": 0, "log": []}}),
    );
    client.run(
        &thread,
        &json!({"assistant_id": "failing", "input": {"fail": true}}),
    );
    client.get(&format!("/threads/{thread}")).json();
    for _ in 0..2 {
        client.get("/threads/nope").refused(422);
    }
    client.get("/nowhere").refused(404);
    let text = text(&client);
    let requests = |method: &str, path: &str, status: u16| {
        let labels = format!(r#"method="{method}",path="{path}",status="{status}""#);
        sample(&text, &format!("lg_api_http_requests_total{{{labels}}}"))
    };
    assert_eq!(requests("POST", "/threads", 200), Some(1.0));
    assert_eq!(
        requests("POST", "/threads/{thread_id}/runs/wait", 200),
        Some(2.0)
    );
    assert_eq!(requests("GET", "/threads/{thread_id}", 200), Some(1.0));
    assert_eq!(requests("GET", "/threads/{thread_id}", 422), Some(2.0));
    assert_eq!(requests("GET", "", 404), Some(1.0));
    let latencies =
        r#"lg_api_http_requests_latency_count{method="GET",path="/threads/{thread_id}"}"#;
    assert_eq!(sample(&text, latencies), Some(3.0));
    for status in ["success", "error"] {
        let ended = format!(r#"backstitch_runs_ended_total{{status="{status}"}}"#);
        assert_eq!(sample(&text, &ended), Some(1.0), "{text}");
    }
    let metrics = client.get("/metrics?format=json").json();
    let counted = metrics["api"]["http_requests_total"].as_array().unwrap();
    let entry = json!({"method": "GET", "path": "/threads/{thread_id}", "status": 422, "count": 2});
    assert!(counted.contains(&entry), "{metrics}");
    client.get("/metrics?format=xml").refused(422);
    assert_eq!(client.post("/metrics", &json!({})).status, 405);
}

fn runs_that_another_one_ends_are_counted_once(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let interrupted = || {
        let ended = r#"backstitch_runs_ended_total{status="interrupted"}"#;
        sample(&text(&client), ended).unwrap_or_default()
    };
    let mut ended = 0.0;
    for strategy in ["interrupt", "rollback"] {
        let mut open = client.open_stream(&thread, &slow(100, 1000));
        open.event_named("custom");
        let next = with(slow(1, 1), "multitask_strategy", strategy);
        client.run(&thread, &next);
        ended += 1.0;
        assert_eq!(interrupted(), ended, "{strategy}");
    }
    let mut open = client.open_stream(&thread, &slow(100, 1000));
    open.event_named("custom");
    let path = format!("/threads/{thread}/runs/{}/cancel?wait=true", open.run());
    client.send("POST", &path, &[], b"");
    assert_eq!(interrupted(), ended + 1.0);
}

fn what_waits_and_what_runs_is_measured(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_SLOTS", "3"));
    let client = Client::of(&server);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(100, 1000));
    open.event_named("custom");
    background(&client, &thread, &slow(1, 1));
    background(&client, &thread, &slow(1, 1));
    let queue = || client.get("/metrics?format=json").json()["queue"].clone();
    until("two runs wait", || queue()["n_pending"] == 2);
    let metrics = client.get("/metrics?format=json").json();
    assert_eq!(metrics["queue"]["n_running"], 1);
    assert_eq!(
        metrics["workers"],
        json!({"max": 3, "active": 1, "available": 2})
    );
    assert!(metrics["queue"]["pending_runs_wait_time_max_secs"].is_number());
    let text = text(&client);
    for (name, value) in [
        ("lg_api_workers_max", 3.0),
        ("lg_api_workers_active", 1.0),
        ("lg_api_num_pending_runs", 2.0),
        ("lg_api_num_running_runs", 1.0),
        ("backstitch_streams_open", 1.0),
    ] {
        assert_eq!(sample(&text, name), Some(value), "{name}\n{text}");
    }
    assert!(sample(&text, r#"backstitch_memory_limit_bytes{budget="events"}"#).unwrap() > 0.0);
    let pools = sample(&text, r#"lg_api_pg_pool_max{pool="critical"}"#);
    assert_eq!(pools.is_some(), place.is_postgres());
}

fn metrics_are_for_clients_with_a_key_or_for_administrators_or_for_everybody(place: &Place) {
    let keys =
        || Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,root=key-r");
    let status = |client: &Client, key: Option<&str>| match key {
        Some(key) => client.with_key(key).get("/metrics").status,
        None => client.get("/metrics").status,
    };
    let server = place.start(keys());
    let client = Client::of(&server);
    assert_eq!(status(&client, None), 401);
    assert_eq!(status(&client, Some("key-a")), 200);
    drop(server);
    let server = place.start(keys().env("BACKSTITCH_ADMINS", "root"));
    let client = Client::of(&server);
    assert_eq!(status(&client, None), 401);
    assert_eq!(
        code(client.with_key("key-a").get("/metrics"), 403),
        "forbidden"
    );
    assert_eq!(status(&client, Some("key-r")), 200);
    drop(server);
    let open = keys()
        .env("BACKSTITCH_ADMINS", "root")
        .env("BACKSTITCH_PUBLIC_METRICS", "true");
    let server = place.start(open);
    let client = Client::of(&server);
    assert_eq!(status(&client, None), 200);
    client.get("/info").refused(401);
}

fn labels_name_no_thread_no_principal_and_no_path_as_it_was_sent(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "somebody=key-a");
    let server = place.start(keys);
    let client = Client::of(&server).with_key("key-a");
    let thread = client.thread();
    client
        .get(&format!("/threads/{thread}/secret-path"))
        .refused(404);
    client.send("SECRETMETHOD", "/threads", &[], b"");
    let text = text(&client);
    for secret in [&*thread, "somebody", "key-a", "secret-path", "SECRETMETHOD"] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
    assert!(text.contains(r#"method="other""#), "{text}");
}

#[test]
fn health_can_ask_the_database_too() {
    let server = Setup::example("reference_server").start();
    let client = Client::of(&server);
    let fine = json!({"ok": true, "services": {}});
    for query in ["", "?check_db=0", "?check_db=1", "?check_db=true"] {
        assert_eq!(ok(client.get(&format!("/ok{query}")), 200), fine);
    }
    client.get("/ok?check_db=perhaps").refused(422);
}

#[test]
fn a_server_says_what_it_is_and_has() {
    let server = Setup::example("reference_server").start();
    let info: Value = Client::of(&server).get("/info").json();
    assert_eq!(info["flags"]["assistants"], true);
    assert_eq!(info["langgraph_py_version"], "1.2.22");
    for flag in [
        "langsmith",
        "langsmith_tracing_replicas",
        "langsmith_tracing_session_on_runs",
    ] {
        assert_eq!(info["flags"][flag], false, "{flag}");
    }
}
