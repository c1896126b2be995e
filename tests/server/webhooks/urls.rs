//! URLs of webhooks: one that may not be called is refused wherever a run is created.

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables;
use test_support::talk::{ok, with};

use super::counter;

on_both_storages!(urls_that_may_not_be_called_are_refused_and_nothing_is_written);

fn urls_that_may_not_be_called_are_refused_and_nothing_is_written(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let runs = format!("/threads/{thread}/runs");
    let paths = [
        runs.clone(),
        format!("{runs}/stream"),
        format!("{runs}/wait"),
        "/runs".into(),
        "/runs/stream".into(),
        "/runs/wait".into(),
    ];
    for (url, reason) in [
        (json!("http://127.0.0.1/x"), "loopback"),
        (json!("http://localhost:2024/x"), "loopback"),
        (json!("http://2130706433/"), "loopback"),
        (json!("http://0177.0.0.1/"), "loopback"),
        (json!("http://[::1]/"), "loopback"),
        (json!("http://[64:ff9b::7f00:1]/"), "loopback"),
        (json!("http://10.1.2.3/"), "private"),
        (json!("http://[fd00::1]/"), "private"),
        (json!("http://169.254.169.254/latest"), "link-local"),
        (json!("http://user:pass@hooks.example/"), "user name"),
        (json!("ftp://hooks.example/"), "absolute http"),
        (json!("/hook"), "absolute http"),
        (json!("http://"), "no host"),
        (json!("http://hooks.example/\u{0}"), "odd characters"),
        (json!(""), "Webhook"),
        (
            json!(format!("http://hooks.example/{}", "x".repeat(70_000))),
            "longer",
        ),
        (json!(7), "string"),
        (json!(["http://hooks.example/"]), "string"),
        (json!({"url": "http://hooks.example/"}), "string"),
    ] {
        let body = with(counter(""), "webhook", url.clone());
        for path in &paths {
            let detail = client.post(path, &body).refused(422);
            assert!(detail.contains(reason), "{path} {url}: {detail}");
        }
        let detail = client.post("/runs/batch", &json!([body])).refused(422);
        assert!(detail.contains(reason), "{url}: {detail}");
        let post = json!({"role": "user", "content": "hi", "run": body});
        let path = format!("/threads/{thread}/messages");
        client.post(&path, &post).refused(422);
    }
    assert_eq!(ok(client.get(&runs), 200), json!([]));
    let sql =
        "SELECT CAST((SELECT count(*) FROM runs) + (SELECT count(*) FROM message_nodes) AS text)";
    assert_eq!(tables::rows(place, &server, sql), [[Some("0".to_owned())]]);
    for url in [json!(null), json!("https://hooks.invalid/x?y=1")] {
        client.run(&thread, &with(counter(""), "webhook", url));
    }
    assert_eq!(client.state(&thread)["values"]["count"], 2224);
}
