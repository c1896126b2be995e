//! The OpenAPI document tells the truth: responses are held against it.

use base64::Engine as _;
use serde_json::json;
use sha2::{Digest, Sha256};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk;

on_both_storages!(
    every_response_is_as_the_document_says,
    every_operation_succeeds_and_fails_as_written_down,
    an_offset_beyond_everything_is_an_empty_page,
);

/// Of one good request for each operation, and of made-up ones: a few, or for
/// `BACKSTITCH_SCHEMATHESIS_SECONDS`.
fn every_response_is_as_the_document_says(place: &Place) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = place.start(Setup::example("reference_server"));
    python.run("openapi.py", &[server.base_url()]);
}

/// The success of every operation, and each of its errors of the kinds that clients tell apart.
fn every_operation_succeeds_and_fails_as_written_down(place: &Place) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    // A principal for each operation, so that lists have nothing of others.
    let keys: String = (0..150).map(|n| format!(",p{n}=key-{n}")).collect();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", format!("root=key-root{keys}"))
        .env("BACKSTITCH_ADMINS", "root")
        .env("BACKSTITCH_MAX_CRONS", "3")
        .env("BACKSTITCH_MAX_ASSISTANTS", "4")
        .env("BACKSTITCH_MAX_STORE_ITEMS", "2")
        .env("BACKSTITCH_ASSISTANT_VERSIONS", "3");
    let server = place.start(setup);
    python.run("endpoints.py", &[server.base_url()]);
}

fn an_offset_beyond_everything_is_an_empty_page(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    talk::ok(client.post("/threads", &json!({})), 200);
    let page = client.get(&format!("/threads?offset={}", i64::MAX));
    assert_eq!(talk::ok(page, 200), json!([]));
    for path in ["/threads/search", "/assistants/search"] {
        for offset in [i64::MAX as u64, u64::MAX] {
            let page = client.post(path, &json!({"offset": offset, "limit": 1000}));
            assert_eq!(talk::ok(page, 200), json!([]), "{path} {offset}");
        }
    }
}

#[test]
fn the_document_and_its_page_need_a_key_unless_a_setting_opens_them() {
    let keyed = || Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a");
    let closed = keyed().start();
    let opened = keyed().env("BACKSTITCH_PUBLIC_DOCS", "true").start();
    for path in ["/docs", "/openapi.json"] {
        assert_eq!(Client::of(&closed).get(path).status, 401, "{path}");
        let ann = Client::of(&closed).with_key("key-a");
        assert_eq!(ann.get(path).status, 200, "{path}");
        assert_eq!(Client::of(&opened).get(path).status, 200, "{path}");
    }
    assert_eq!(Client::of(&opened).get("/info").status, 401);
    assert_eq!(
        Client::of(&opened)
            .post("/threads/search", &json!({}))
            .status,
        401
    );
}

#[test]
fn the_page_has_no_scripts_and_nothing_from_elsewhere() {
    let server = Setup::example("reference_server").start();
    let answer = Client::of(&server).get("/docs");
    assert_eq!(answer.status, 200);
    let policy = answer.header("content-security-policy").unwrap().to_owned();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains("script"),
        "{policy}"
    );
    let page = answer.text();
    // A browser applies the style only if the policy names its hash.
    let (_, rest) = page.split_once("<style>").unwrap();
    let (style, _) = rest.split_once("</style>").unwrap();
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(style));
    assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy}");
    assert!(!page.contains("<script") && page.contains("create_run"));
}

#[test]
fn the_headers_that_the_document_names_are_read() {
    let server = Setup::example("reference_server").start();
    let client = Client::of(&server);
    let document = client.get("/openapi.json").json();
    let id = uuid::Uuid::now_v7().to_string();
    for (template, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let names: Vec<&str> = operation["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["in"] == "header")
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            for of_all in ["x-request-id", "traceparent"] {
                assert!(names.contains(&of_all), "{method} {template}");
            }
            let parts = template.split('/').map(|part| match part {
                "{name}" | "{principal}" | "{namespace}" => "n",
                part if part.starts_with('{') => &id,
                part => part,
            });
            let path = parts.collect::<Vec<_>>().join("/");
            let method = method.to_uppercase();
            let refused = |header: (&str, &str)| {
                let json = ("content-type", "application/json");
                let answer = client.send(&method, &path, &[json, header], b"{}");
                answer.status == 422 && answer.text().contains("Invalid Idempotency-Key")
            };
            if names.contains(&"Idempotency-Key") {
                assert!(refused(("idempotency-key", "a b")), "{method} {path}");
            }
        }
    }
    // An id that no event of a thread can have.
    let path = format!("/threads/{}/stream", client.thread());
    let refused = client.send("GET", &path, &[("last-event-id", "bogus")], b"");
    assert!(refused.refused(422).contains("last-event-id"));
}

#[test]
fn a_method_that_a_path_has_not_is_told_which_ones_it_has() {
    let server = Setup::example("reference_server").start();
    let client = Client::of(&server);
    let document = client.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        let answer = client.send("TRACE", &path, &[], b"");
        assert_eq!(answer.status, 405, "{path}");
        let allow = answer.header("allow").unwrap().to_lowercase();
        let allow: Vec<_> = allow
            .split(", ")
            .filter(|method| *method != "head")
            .collect();
        let mut known: Vec<_> = methods.as_object().unwrap().keys().collect();
        known.sort();
        let mut allow = allow;
        allow.sort();
        assert_eq!(allow, known, "{path}");
    }
}
