//! Webhooks: every end of a run reaches its receiver, however often it fails or the server dies.

mod memory;
mod urls;

use crate::receiver::{Received, Receiver, Reply};
use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables;
use test_support::talk::{background, ok, put, slow, until, with};

on_both_storages!(
    every_way_a_run_ends_is_delivered_once,
    failed_deliveries_are_tried_again_under_one_id,
    a_delivery_is_never_lost_with_a_sender_that_dies_before_it_notes_it,
    a_run_that_another_process_takes_over_is_delivered_once,
    a_receiver_that_hangs_holds_nobody_else_up,
    a_server_that_stops_leaves_what_was_not_delivered_to_the_next_one,
    after_the_last_try_a_delivery_is_given_up,
    values_are_reported_on_behalf_of_those_who_may_still_read_them,
);

const OK: Reply = Reply::Status(204);

fn setup() -> Setup {
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "2");
    setup.env("BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK", "true")
}

fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(setup());
    let client = Client::of(&server);
    (server, client)
}

fn counter(url: &str) -> Value {
    json!({"assistant_id": "counter", "input": {"count": 1, "log": []}, "webhook": url})
}

/// How many deliveries are owed, dead ones included.
fn owed(place: &Place, server: &Server) -> String {
    let rows = tables::rows(place, server, "SELECT CAST(count(*) AS text) FROM outbox");
    rows[0][0].clone().unwrap()
}

/// Lets the time come of all deliveries that wait for it.
fn hurry(place: &Place, server: &Server) {
    hurry_those(place, server, "");
}

/// The same of those that have failed: another one may be on its way, and would be sent twice.
fn hurry_failed(place: &Place, server: &Server) {
    hurry_those(place, server, " WHERE last_error IS NOT NULL");
}

fn hurry_those(place: &Place, server: &Server, which: &str) {
    let now = if place.is_postgres() { "now()" } else { "0" };
    let past = format!("UPDATE outbox SET next_at = {now}{which}");
    tables::execute(place, server, &past).unwrap();
}

fn ends(receiver: &Receiver) -> Vec<(String, String)> {
    let end = |one: &Received| {
        let status = one.body()["status"].as_str().unwrap().to_owned();
        (one.path.clone(), status)
    };
    let mut ends: Vec<_> = receiver.received().iter().map(end).collect();
    ends.sort();
    ends
}

fn every_way_a_run_ends_is_delivered_once(place: &Place) {
    let (server, client) = serve(place);
    let receiver = Receiver::replying(&[OK]);
    let hook = |body: Value, way: &str| with(body, "webhook", receiver.url(way));
    let thread = client.thread();
    let cancel = |thread: &str, run: &str, action: &str| {
        let path = format!("/threads/{thread}/runs/{run}/cancel?wait=1&action={action}");
        assert!(client.post(&path, &json!({})).status < 300);
    };
    let endless = |way: &str| hook(slow(60_000, 1), way);

    let body = with(
        counter(&receiver.url("success?x=1&y=%20")),
        "metadata",
        json!({"m": 1}),
    );
    client.run(&thread, &body);
    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    client.run(&client.thread(), &hook(failing, "error"));
    let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&client.thread(), &hook(approve, "interrupted-graph"));
    ok(
        client.post("/runs/wait", &counter(&receiver.url("stateless"))),
        200,
    );
    let kept = with(
        counter(&receiver.url("stateless-kept")),
        "on_completion",
        "keep",
    );
    ok(client.post("/runs/wait", &kept), 200);

    let thread = client.thread();
    let running = background(&client, &thread, &endless("cancelled"));
    let waiting = background(&client, &thread, &endless("cancelled-in-the-queue"));
    cancel(&thread, &waiting, "interrupt");
    cancel(&thread, &running, "interrupt");
    let row = ok(client.post("/runs", &endless("stateless-cancelled")), 200);
    let (of, run) = (
        row["thread_id"].as_str().unwrap(),
        row["run_id"].as_str().unwrap(),
    );
    cancel(of, run, "interrupt");
    let thread = client.thread();
    background(&client, &thread, &endless("superseded"));
    let next = with(
        counter(&receiver.url("successor")),
        "multitask_strategy",
        "interrupt",
    );
    client.run(&thread, &next);

    // Nothing is left of these to report.
    let thread = client.thread();
    let running = background(&client, &thread, &endless("rolled-back"));
    cancel(&thread, &running, "rollback");
    background(&client, &thread, &endless("replaced"));
    let next = with(
        counter(&receiver.url("replacement")),
        "multitask_strategy",
        "rollback",
    );
    client.run(&thread, &next);
    let thread = client.thread();
    background(&client, &thread, &endless("thread-deleted"));
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);

    let expected = [
        ("/cancelled", "interrupted"),
        ("/cancelled-in-the-queue", "interrupted"),
        ("/error", "error"),
        ("/interrupted-graph", "success"),
        ("/replacement", "success"),
        ("/stateless", "success"),
        ("/stateless-cancelled", "interrupted"),
        ("/stateless-kept", "success"),
        ("/success?x=1&y=%20", "success"),
        ("/successor", "success"),
        ("/superseded", "interrupted"),
    ];
    until("all are delivered", || {
        let ends = ends(&receiver);
        let reached = |way: &str| ends.iter().any(|(path, _)| path == way);
        expected.iter().all(|(way, _)| reached(way)) && owed(place, &server) == "0"
    });
    let ends = ends(&receiver);
    let ends: Vec<_> = ends
        .iter()
        .map(|(way, end)| (way.as_str(), end.as_str()))
        .collect();
    assert_eq!(ends, expected);
    bodies_have_what_was_left(&receiver);
}

fn bodies_have_what_was_left(receiver: &Receiver) {
    let of = |way: &str| {
        let received = receiver.received();
        let found = received.iter().find(|one| one.path.starts_with(way));
        found.unwrap().clone()
    };
    let success = of("/success").body();
    assert_eq!(
        success["values"],
        json!({"count": 1112, "log": ["first", "left", "right", "last"]})
    );
    assert_eq!(success["metadata"]["m"], 1);
    assert_eq!(success["kwargs"]["input"], json!({"count": 1, "log": []}));
    assert_eq!(
        success["kwargs"]["webhook"],
        receiver.url("success?x=1&y=%20")
    );
    assert!(success.get("error").is_none());
    let time = |body: &Value, key: &str| body[key].as_str().unwrap().to_owned();
    for key in [
        "created_at",
        "run_started_at",
        "run_ended_at",
        "webhook_sent_at",
    ] {
        assert!(time(&success, key).ends_with("+00:00"), "{key}");
    }
    assert!(time(&success, "run_started_at") <= time(&success, "run_ended_at"));
    assert_eq!(of("/success").headers["content-type"], "application/json");
    assert_eq!(of("/success").id(), success["run_id"].as_str().unwrap());
    assert!(!of("/success").headers.contains_key("webhook-signature"));

    let error = of("/error").body();
    assert_eq!(
        error["error"],
        json!({"error": "ValueError", "message": "boom from node bad"})
    );
    assert_eq!(error["values"], json!({"fail": true, "done": ["good"]}));
    let open = of("/interrupted-graph").body();
    assert_eq!(
        (&open["values"], open.get("error")),
        (&json!({"request": "r"}), None)
    );
    assert_eq!(of("/stateless-kept").body()["values"]["count"], 1112);
    for way in [
        "/stateless?",
        "/stateless-cancelled",
        "/cancelled-in-the-queue",
    ] {
        let body = of(way.trim_end_matches('?')).body();
        assert_eq!(
            (&body["values"], body.get("error")),
            (&Value::Null, None),
            "{way}"
        );
    }
    assert_eq!(
        of("/cancelled-in-the-queue").body()["run_started_at"],
        Value::Null
    );
}

fn failed_deliveries_are_tried_again_under_one_id(place: &Place) {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let server = place.start(setup().env("BACKSTITCH_WEBHOOK_SECRET", secret));
    let client = Client::of(&server);
    let failures = [
        Reply::Status(500),
        Reply::Close,
        Reply::Status(302),
        Reply::Status(404),
    ];
    let receiver = Receiver::replying(&[&failures[..], &[OK]].concat());
    let thread = client.thread();
    let run = background(&client, &thread, &counter(&receiver.url("x")));
    assert_eq!(client.end_of(&thread, &run), "success");
    for tries in 1..5 {
        until("it is tried", || receiver.received().len() >= tries);
        // What became of the try is recorded before the next one. Of the tries before nothing is left.
        let failed = "UPDATE outbox SET last_error = NULL WHERE last_error IS NOT NULL";
        until("the failure is recorded", || {
            tables::execute(place, &server, failed) == Ok(1) || owed(place, &server) == "0"
        });
        hurry(place, &server);
    }
    until("the delivery is done", || owed(place, &server) == "0");
    for one in receiver.received() {
        assert_eq!((one.id(), one.path.as_str()), (run.as_str(), "/x"));
        assert_eq!(one.body()["values"]["count"], 1112);
        assert!(one.headers["webhook-signature"].starts_with("v1,"));
    }
    assert_eq!(receiver.received().len(), 5);
    assert!(!server.output().contains(secret));
}

fn a_delivery_is_never_lost_with_a_sender_that_dies_before_it_notes_it(place: &Place) {
    let receiver = Receiver::replying(&[OK]);
    let mut server = place.start(setup().env("FAILPOINTS", "webhooks::delivered=abort"));
    let client = Client::of(&server);
    let thread = client.thread();
    let run = background(&client, &thread, &counter(&receiver.url("x")));
    assert!(!server.wait().success());
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(owed(place, &server), "1");
    // As if the lease of the dead sender had lapsed.
    hurry(place, &server);
    server.restart_with("FAILPOINTS", "");
    until("it is delivered once more", || owed(place, &server) == "0");
    let ids: Vec<_> = receiver
        .received()
        .iter()
        .map(|one| one.id().to_owned())
        .collect();
    assert_eq!(ids, [run.clone(), run]);
}

fn a_run_that_another_process_takes_over_is_delivered_once(place: &Place) {
    let receiver = Receiver::replying(&[OK]);
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let body = with(slow(300, 3), "webhook", receiver.url("x"));
    let run = background(&client, &thread, &body);
    server.kill();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "success");
    until("it is delivered", || {
        !receiver.received().is_empty() && owed(place, &server) == "0"
    });
    let received = receiver.received();
    assert_eq!((received.len(), received[0].id()), (1, run.as_str()));
    assert_eq!(
        received[0].body()["values"]["seen"],
        json!(["work", "rest"])
    );
}

fn a_receiver_that_hangs_holds_nobody_else_up(place: &Place) {
    let (server, client) = serve(place);
    let (stuck, good) = (
        Receiver::replying(&[Reply::Hang]),
        Receiver::replying(&[OK]),
    );
    let begin = std::time::Instant::now();
    // More than are read at once.
    let many: Vec<_> = (0..140).map(|_| counter(&stuck.url("stuck"))).collect();
    ok(client.post("/runs/batch", &Value::Array(many)), 200);
    until("all are owed", || {
        owed(place, &server) == "140" && stuck.received().len() >= 4
    });
    let one = counter(&good.url("good"));
    ok(client.post("/runs/wait", &one), 200);
    until("the other one is reached", || good.received().len() == 1);
    // The receiver still counts those that were given up, after 10 seconds each.
    let open = stuck.most_open();
    let given_up = 4 * (begin.elapsed().as_secs() as usize / 10);
    assert!((4..=4 + given_up).contains(&open), "{open}");
    stuck.reply(&[OK]);
    until("the rest is delivered", || owed(place, &server) == "0");
    assert!(stuck.received().len() >= 140);
}

fn a_server_that_stops_leaves_what_was_not_delivered_to_the_next_one(place: &Place) {
    let (mut server, client) = serve(place);
    let receiver = Receiver::replying(&[Reply::Hang]);
    let thread = client.thread();
    let run = background(&client, &thread, &counter(&receiver.url("x")));
    until("it is being delivered", || receiver.received().len() == 1);
    assert!(server.terminate().success());
    let sql = "SELECT CAST(attempts AS text) FROM outbox";
    assert_eq!(tables::rows(place, &server, sql), [[Some("0".to_owned())]]);
    receiver.reply(&[OK]);
    server.restart();
    until("it is delivered", || owed(place, &server) == "0");
    let ids: Vec<_> = receiver
        .received()
        .iter()
        .map(|one| one.id().to_owned())
        .collect();
    assert_eq!(ids, [run.clone(), run]);
}

fn after_the_last_try_a_delivery_is_given_up(place: &Place) {
    let (server, client) = serve(place);
    let receiver = Receiver::replying(&[Reply::Status(503)]);
    client.run(&client.thread(), &counter(&receiver.url("x")));
    until("it has failed", || {
        server.output().contains("webhook not delivered")
    });
    tables::execute(place, &server, "UPDATE outbox SET attempts = 7").unwrap();
    hurry(place, &server);
    until("it is given up", || {
        server.output().contains("not tried any more")
    });
    let sql = "SELECT last_error FROM outbox WHERE dead_at IS NOT NULL";
    let expected = "the receiver answered with status 503".to_owned();
    until("its row says why", || {
        tables::rows(place, &server, sql) == [[Some(expected.clone())]]
    });
    hurry(place, &server);
    let before = receiver.received().len();
    client.run(&client.thread(), &counter(&receiver.url("y")));
    until("another one is tried", || {
        receiver.received().len() > before
    });
    assert_eq!(receiver.received().last().unwrap().path, "/y");
}

fn values_are_reported_on_behalf_of_those_who_may_still_read_them(place: &Place) {
    let server = place.start(setup().env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"));
    let (ann, bob) = (
        Client::of(&server).with_key("key-a"),
        Client::of(&server).with_key("key-b"),
    );
    let receiver = Receiver::replying(&[Reply::Status(503), OK]);
    let thread = ann.thread();
    let member = format!("/threads/{thread}/members/bob");
    assert!(put(&ann, &member, &json!({"level": "writer"})).status < 300);
    bob.run(&thread, &counter(&receiver.url("ended")));
    let failed = "SELECT last_error FROM outbox WHERE last_error IS NOT NULL";
    until("the first try has failed", || {
        tables::rows(place, &server, failed).len() == 1
    });
    let first = background(&ann, &thread, &slow(60_000, 1));
    let queued = with(slow(1, 1), "webhook", receiver.url("denied"));
    let queued = background(&bob, &thread, &queued);
    assert_eq!(ann.delete(&member).status, 204);
    let cancel = format!("/threads/{thread}/runs/{first}/cancel?wait=true");
    ok(ann.send("POST", &cancel, &[], b""), 200);
    assert_eq!(ann.end_of(&thread, &queued), "error");
    hurry_failed(place, &server);
    until("all are delivered", || owed(place, &server) == "0");
    let of = |path: &str| {
        let mut received = receiver.received();
        received.retain(|one| one.path == path);
        received.iter().map(Received::body).collect::<Vec<_>>()
    };
    let ended = of("/ended");
    assert_eq!(ended.len(), 2);
    assert_eq!(ended[0]["values"]["count"], 1112);
    assert_eq!(
        (&ended[1]["values"], &ended[1]["status"]),
        (&json!(null), &json!("success"))
    );
    let denied = of("/denied");
    assert_eq!(denied.len(), 1);
    assert_eq!(
        (&denied[0]["values"], &denied[0]["status"]),
        (&json!(null), &json!("error"))
    );
    assert_eq!(denied[0]["error"]["error"], "permission_denied");
}

#[test]
fn replicas_share_deliveries_and_send_each_once() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let second = server.replica();
    let receiver = Receiver::replying(&[OK]);
    let bodies: Vec<_> = (0..40).map(|_| counter(&receiver.url("x"))).collect();
    for client in [client, Client::of(&second)] {
        ok(
            client.post("/runs/batch", &Value::Array(bodies.clone())),
            200,
        );
    }
    until("all are delivered", || {
        receiver.received().len() >= 80 && owed(&place, &server) == "0"
    });
    let mut ids: Vec<_> = receiver
        .received()
        .iter()
        .map(|one| one.id().to_owned())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), receiver.received().len()), (80, 80));
}
