//! Requests that are worked on at once: as many as the settings say, and more wait until one has ended, or are refused
//! when that takes too long.

use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use serde_json::json;
use test_support::client::{Answer, Client};
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{ok, until};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::http2::Connection;
use crate::locks::{Locked, locked, patient, waiting};

/// What waits for the lock of [`stuck`].
pub const COUNT: &str = "/assistants/count";

/// A server at which every count of assistants waits until the lock is dropped.
pub fn stuck(place: &Place, setup: Setup) -> (Server, Locked) {
    let setup = setup.env("BACKSTITCH_READ_LIMIT", "60");
    let server = setup.env("DATABASE_URL", patient(place)).start();
    let lock = "LOCK TABLE assistants IN ACCESS EXCLUSIVE MODE";
    let locked = locked(place.url().unwrap(), lock);
    (server, locked)
}

/// So that the tests below end before anybody who waits is refused.
pub const PATIENT: (&str, &str) = ("BACKSTITCH_REQUEST_WAIT", "600");

#[test]
fn so_many_requests_of_one_connection_are_worked_on_and_the_next_waits() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTION_REQUESTS", "2")
        .env(PATIENT.0, PATIENT.1);
    let (server, locked) = stuck(&place, setup);
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut one = runtime.block_on(Connection::open(&server, 65_535));
    let mut other = runtime.block_on(Connection::open(&server, 65_535));
    let counts: Vec<_> = (0..2)
        .map(|_| runtime.block_on(one.request("POST", COUNT, "{}")).unwrap())
        .collect();
    until("two are worked on", || waiting(&place, &server) == 2);
    // Nothing but its connection keeps this one from its response.
    let mut third = runtime.block_on(one.request("GET", "/ok", "")).unwrap();
    runtime.block_on(one.is_read());
    let elsewhere = runtime.block_on(other.request("GET", "/ok", "")).unwrap();
    assert_eq!(runtime.block_on(elsewhere).unwrap().status(), 200);
    runtime.block_on(one.is_read());
    assert!((&mut third).now_or_never().is_none());
    drop(locked);
    for count in runtime.block_on(join_all(counts)) {
        assert_eq!(count.unwrap().status(), 200);
    }
    assert_eq!(runtime.block_on(third).unwrap().status(), 200);
}

#[test]
fn so_many_requests_are_worked_on_half_of_them_of_one_principal_and_the_next_waits() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_REQUESTS", "4")
        .env(PATIENT.0, PATIENT.1)
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b,eve=key-e");
    let (server, locked) = stuck(&place, setup);
    let client = Client::of(&server);
    std::thread::scope(|scope| {
        let mut all = vec![];
        let mut count = |key: &str, times: usize| {
            for _ in 0..times {
                let client = client.with_key(key);
                all.push(scope.spawn(move || client.post(COUNT, &json!({}))));
            }
        };
        let worked_on = || waiting(&place, &server);
        count("key-a", 5);
        until("the half of one is taken", || worked_on() == 2);
        count("key-b", 1);
        until("another one has room", || worked_on() == 3);
        count("key-b", 5);
        until("all are taken", || worked_on() == 4);
        count("key-e", 2);
        // Probes of the server are answered all the same.
        for _ in 0..20 {
            ok(client.get("/ok"), 200);
            assert_eq!(worked_on(), 4);
        }
        drop(locked);
        for count in all {
            ok(count.join().unwrap(), 200);
        }
    });
}

/// The answer to a request that was refused after it had waited as long as it may, and its text.
fn refused_after_the_wait(status: u16, begin: Instant, answer: &Answer) -> String {
    assert!(begin.elapsed() >= WAIT);
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.refused(status)
}

/// How long requests may wait in the tests below.
const WAIT: Duration = Duration::from_secs(2);

#[test]
fn who_waits_too_long_for_a_slot_is_refused_and_nothing_of_the_request_has_happened() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_REQUESTS", "4")
        .env("BACKSTITCH_REQUEST_WAIT", WAIT.as_secs().to_string())
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b,eve=key-e");
    let (server, locked) = stuck(&place, setup);
    let client = |key: &str| Client::of(&server).with_key(key);
    let (ann, eve) = (client("key-a"), client("key-e"));
    let thread = "11111111-1111-4111-8111-111111111111";
    let create = |client: &Client| client.post("/threads", &json!({ "thread_id": thread }));
    std::thread::scope(|scope| {
        let count = |key: &str| {
            let client = client(key);
            scope.spawn(move || client.post(COUNT, &json!({})))
        };
        let mut counts = vec![count("key-a"), count("key-a")];
        until("the half of one is taken", || waiting(&place, &server) == 2);
        let begin = Instant::now();
        let refused = create(&ann);
        let text = refused_after_the_wait(429, begin, &refused);
        assert!(text.contains("Other requests of yours"), "{text}");
        assert_eq!(refused.json()["code"], "too_many_requests");
        counts.extend([count("key-b"), count("key-b")]);
        until("all are taken", || waiting(&place, &server) == 4);
        let begin = Instant::now();
        let text = refused_after_the_wait(503, begin, &create(&eve));
        assert!(text.contains("Too many requests are worked on"), "{text}");
        ok(eve.get("/ok"), 200);
        drop(locked);
        for count in counts {
            ok(count.join().unwrap(), 200);
        }
    });
    ok(ann.get(&format!("/threads/{thread}")), 404);
    ok(create(&eve), 200);
}

#[test]
fn who_waits_too_long_for_its_connection_is_refused_and_probes_wait_on() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTION_REQUESTS", "2")
        .env("BACKSTITCH_REQUEST_WAIT", WAIT.as_secs().to_string());
    let (server, locked) = stuck(&place, setup);
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut one = runtime.block_on(Connection::open(&server, 65_535));
    let counts: Vec<_> = (0..2)
        .map(|_| runtime.block_on(one.request("POST", COUNT, "{}")).unwrap())
        .collect();
    until("two are worked on", || waiting(&place, &server) == 2);
    let mut probe = runtime.block_on(one.request("GET", "/ok", "")).unwrap();
    let begin = Instant::now();
    let refused = runtime.block_on(one.request("GET", "/info", "")).unwrap();
    let refused = runtime.block_on(async { timeout(30 * WAIT, refused).await });
    let refused = refused.unwrap().unwrap();
    assert!(begin.elapsed() >= WAIT);
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!((&mut probe).now_or_never().is_none());
    drop(locked);
    for count in runtime.block_on(join_all(counts)) {
        assert_eq!(count.unwrap().status(), 200);
    }
    assert_eq!(runtime.block_on(probe).unwrap().status(), 200);
}
