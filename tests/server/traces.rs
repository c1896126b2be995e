//! Traces: what a collector receives of requests and runs, and what is passed on.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{ok, slow, turn, until, with};

use crate::receiver::{Receiver, Reply};

on_both_storages!(
    a_trace_goes_from_the_client_over_a_takeover_to_the_last_commit,
    what_a_run_calls_gets_its_trace,
);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn collected(collector: &Receiver) -> Vec<Span> {
    let requests = collector.received().into_iter();
    let requests = requests.map(|request| {
        assert_eq!(request.path, "/v1/traces");
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        ExportTraceServiceRequest::decode(&*request.bytes).unwrap()
    });
    let resources = requests.flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn traced(setup: Setup, collector: &Receiver) -> Setup {
    let url = collector.url("");
    setup
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url.trim_end_matches('/'))
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn create(client: &Client, thread: &str, body: &serde_json::Value) -> String {
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", PARENT),
    ];
    let path = format!("/threads/{thread}/runs");
    let row = ok(
        client.send("POST", &path, &headers, body.to_string().as_bytes()),
        200,
    );
    // The client sees nothing of it.
    assert!(row["kwargs"].get("traceparent").is_none(), "{row}");
    row["run_id"].as_str().unwrap().to_owned()
}

fn a_trace_goes_from_the_client_over_a_takeover_to_the_last_commit(place: &Place) {
    let collector = Receiver::replying(&[Reply::Status(200)]);
    let setup = traced(Setup::example("reference_server"), &collector);
    let mut server = place.start(setup.env("BACKSTITCH_LEASE", "2"));
    let client = Client::of(&server);
    let thread = client.thread();
    let run = create(&client, &thread, &slow(200, 20));
    let is_request = |span: &Span| span.name == "POST /threads/{thread_id}/runs";
    until("the request is collected", || {
        collected(&collector).iter().any(is_request)
    });
    // A process that dies sends nothing more; the run goes on in the next one.
    server.kill();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "success");
    // What is left is sent before the process ends.
    assert!(server.terminate().success());

    let spans = collected(&collector);
    let by_id: HashMap<_, _> = spans
        .iter()
        .map(|span| (hex(&span.span_id), span))
        .collect();
    let runs: Vec<_> = spans.iter().filter(|span| span.name == "run").collect();
    let [second] = runs[..] else {
        panic!("{runs:?}");
    };
    let request = by_id[&hex(&second.parent_span_id)];
    assert!(is_request(request), "{request:?}");
    assert_eq!(hex(&request.parent_span_id), "b7ad6b7169203331");
    // From each span of the second attempt the way leads to the client's.
    for name in ["superstep", "task work", "commit"] {
        let below: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        let connected = below.iter().filter(|span| {
            let mut at = **span;
            while let Some(parent) = by_id.get(&hex(&at.parent_span_id)) {
                at = parent;
            }
            assert_eq!(hex(&at.trace_id), TRACE);
            is_request(at)
        });
        assert!(connected.count() >= 1, "{name}: {below:?}");
    }
}

fn what_a_run_calls_gets_its_trace(place: &Place) {
    let collector = Receiver::replying(&[Reply::Status(200)]);
    let webhook = Receiver::replying(&[Reply::Status(200)]);
    let setup = traced(Setup::example("reference_server"), &collector);
    let server = place.start(setup.env("BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK", "true"));
    let client = Client::of(&server);
    let thread = client.thread();
    let body = with(turn("hello"), "webhook", webhook.url("hook"));
    create(&client, &thread, &body);
    until("the webhook is called", || !webhook.received().is_empty());
    let passed_on = webhook.received()[0].headers["traceparent"].clone();
    let of_request = |span: &Span| passed_on.contains(&hex(&span.span_id));
    assert!(
        passed_on.starts_with(&format!("00-{TRACE}-")),
        "{passed_on}"
    );
    until("its span is collected", || {
        collected(&collector).iter().any(of_request)
    });
}

#[test]
fn a_server_works_without_its_collector() {
    let setup = Setup::example("reference_server")
        .env("OTEL_TRACES_EXPORTER", "otlp")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .env("OTEL_BSP_SCHEDULE_DELAY", "20");
    let mut server = setup.start();
    let client = Client::of(&server);
    for traceparent in [PARENT, "00-0-0-0", "ff-", "x"] {
        let headers = [("traceparent", traceparent)];
        assert_eq!(client.send("GET", "/ok", &headers, b"").status, 200);
    }
    client.run(&client.thread(), &turn("hello"));
    assert!(server.terminate().success());
}

#[test]
fn settings_of_traces_that_cannot_be_followed_stop_the_start() {
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ] {
        let (status, log) = Setup::example("reference_server")
            .env(name, value)
            .refused();
        assert_eq!(status.code(), Some(2), "{log}");
        assert!(log.contains(name) && log.contains(value), "{log}");
    }
    let off = Setup::example("reference_server")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_SDK_DISABLED", "true");
    assert_eq!(Client::of(&off.start()).get("/ok").status, 200);
}

#[test]
fn spans_are_no_part_of_log_lines() {
    let collector = Receiver::replying(&[Reply::Status(200)]);
    let setup = traced(Setup::example("reference_server"), &collector);
    let mut server = setup.env("LOG_LEVEL", "debug").start();
    let client = Client::of(&server);
    client.run(
        &client.thread(),
        &json!({"assistant_id": "failing", "input": {"fail": true}}),
    );
    server.terminate();
    let log = server.output();
    assert!(log.contains("run failed"), "{log}");
    assert!(
        !log.contains("otel.name") && !log.contains("superstep{"),
        "{log}"
    );
}
