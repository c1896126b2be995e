//! Processes on one Postgres database let each other know what they did, so that nobody waits for the
//! next poll; and nothing is lost when no notifications arrive.

use serde_json::{Value, json};
use test_support::client::{Client, Event};
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::{execute, rows};
use test_support::talk::{self, background, ok, until, with};

/// The connections over which processes notify each other.
const LISTENERS: &str = "FROM pg_stat_activity WHERE application_name = 'backstitch notifications' AND datname = current_database()";

/// Two servers on one database that poll once an hour, and a client of each. Each executes one run at a time.
fn two(notifications: bool) -> (Place, [Server; 2], [Client; 2]) {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_NOTIFICATIONS", notifications.to_string())
        .env("BACKSTITCH_POLL", if notifications { "3600" } else { "1" })
        .env("BACKSTITCH_LEASE", "600")
        .env("BACKSTITCH_SLOTS", "1");
    let one = place.start(setup);
    let two = one.replica();
    let listeners = if notifications { 2 } else { 0 };
    until("both processes listen", || count(&place, &one) == listeners);
    let clients = [Client::of(&one), Client::of(&two)];
    (place, [one, two], clients)
}

fn count(place: &Place, server: &Server) -> i64 {
    let count = format!("SELECT count(*)::text {LISTENERS}");
    let found = rows(place, server, &count)[0][0].clone();
    found.unwrap().parse().unwrap()
}

fn slow(ms: u64, ticks: u64) -> Value {
    with(talk::slow(ms, ticks), "stream_resumable", true)
}

fn rest(client: &Client, thread: &str, run: &str) -> Vec<Event> {
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let mut open = client.open("GET", &path, &[("last-event-id", "-1")], b"");
    assert_eq!(open.status, 200);
    std::iter::from_fn(|| open.event()).collect()
}

#[test]
fn readers_at_another_process_wait_for_no_poll() {
    let (_place, _servers, [one, two]) = two(true);
    let thread = one.thread();
    let path = format!("/threads/{thread}/stream");
    let mut watched = two.open("GET", &path, &[], b"");
    let mut live = one.open_stream(&thread, &slow(50, 10));
    let run = live.run();
    let events = rest(&two, &thread, &run);
    let expected: Vec<Event> = std::iter::from_fn(|| live.event()).collect();
    assert_eq!(events, expected);
    let mut seen = vec![];
    while seen
        .last()
        .is_none_or(|event: &Event| event.data["status"] != "run_done")
    {
        seen.push(watched.event().unwrap());
    }
    assert_eq!(seen.len(), expected.len() + 1);
    // One that cannot be resumed: who waits for its end elsewhere.
    let run = background(&one, &thread, &talk::slow(50, 5));
    let values = ok(two.get(&format!("/threads/{thread}/runs/{run}/join")), 200);
    assert_eq!(values["seen"], json!(["work", "rest", "work", "rest"]));
}

#[test]
fn a_run_begins_at_a_process_with_room_and_is_cancelled_from_another_one() {
    let (_place, _servers, [one, two]) = two(true);
    let (busy, other) = (one.thread(), one.thread());
    let long = background(&one, &busy, &slow(1000, 60));
    let queued = background(&one, &other, &slow(10, 3));
    // Who created it has no room for it, and gets its end from where it was executed.
    let values = ok(
        one.get(&format!("/threads/{other}/runs/{queued}/join")),
        200,
    );
    assert_eq!(values["seen"], json!(["work", "rest"]));
    assert_eq!(rest(&one, &other, &queued), rest(&two, &other, &queued));
    let cancel = format!("/threads/{busy}/runs/{long}/cancel?wait=true");
    assert!(two.send("POST", &cancel, &[], b"").status < 300);
    assert_eq!(two.end_of(&busy, &long), "interrupted");
    // The first process has its slot back.
    let next = background(&one, &busy, &slow(10, 1));
    assert_eq!(one.end_of(&busy, &next), "success");
}

#[test]
fn a_question_on_a_branch_that_is_not_active_reaches_whoever_waits_where_there_was_no_room() {
    let (_place, _servers, [one, two]) = two(true);
    let (busy, thread) = (one.thread(), one.thread());
    two.run(&thread, &slow(1, 1));
    let side = json!({"name": "side", "activate": false});
    ok(two.post(&format!("/threads/{thread}/branches"), &side), 201);
    let _long = background(&one, &busy, &slow(1000, 60));
    let approve = json!({"assistant_id": "approve", "input": {"request": "r"}, "branch": "side"});
    let values = one.run(&thread, &approve);
    assert_eq!(values["request"], "r", "{values}");
    assert_eq!(values["__interrupt__"].as_array().unwrap().len(), 1);
    assert_eq!(two.state(&thread)["interrupts"], json!([]));
}

#[test]
fn a_lost_connection_costs_nothing_and_notifications_come_back() {
    let (place, servers, [one, two]) = two(true);
    let thread = one.thread();
    let live = one.open_stream(&thread, &slow(100, 40));
    let run = live.run();
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let mut joined = two.open("GET", &path, &[("last-event-id", "-1")], b"");
    let mut events = vec![joined.event_named("custom")];
    let kill = format!("SELECT pg_terminate_backend(pid) {LISTENERS}");
    let connections = format!("SELECT pid::text {LISTENERS} ORDER BY pid");
    let before = rows(&place, &servers[0], &connections);
    assert_eq!(execute(&place, &servers[0], &kill), Ok(2));
    events.extend(std::iter::from_fn(|| joined.event()));
    let ticks = events
        .iter()
        .filter_map(|event| event.data["tick"].as_u64());
    assert_eq!(ticks.collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    until("both processes listen once more", || {
        let after = rows(&place, &servers[0], &connections);
        after.len() == 2 && after.iter().all(|row| !before.contains(row))
    });
    for _ in 0..3 {
        let run = background(&one, &thread, &slow(20, 5));
        let ticks = rest(&two, &thread, &run);
        assert_eq!(
            ticks.iter().filter(|event| event.name == "custom").count(),
            5
        );
    }
}

#[test]
fn without_notifications_everything_is_found_by_polling() {
    let (_place, _servers, [one, two]) = two(false);
    let (busy, other) = (one.thread(), one.thread());
    background(&one, &busy, &slow(200, 10));
    let queued = background(&one, &other, &slow(10, 3));
    assert_eq!(one.end_of(&other, &queued), "success");
    assert_eq!(rest(&one, &other, &queued), rest(&two, &other, &queued));
}
