//! Requests that are worked on at once: as many as the settings say, and more wait until one has ended, or are refused
//! when that takes too long.

use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use serde_json::json;
use test_support::client::{Answer, Client};
use test_support::gate::{Closed, Gate, reached};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{ok, until};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::http2::Connection;
use crate::siege::{MIB, Watch};

on_both_storages!(
    who_waits_too_long_for_a_slot_is_refused_and_nothing_of_the_request_has_happened,
    who_waits_too_long_for_its_connection_is_refused_and_probes_wait_on;
    postgres_in_long_form:
    so_many_requests_of_one_connection_are_worked_on_and_the_next_waits,
    so_many_requests_are_worked_on_half_of_them_of_one_principal_and_the_next_waits,
    so_many_requests_of_one_principal_are_worked_on_as_its_share_is,
);

/// Clients, each with the path of a thread of its own.
const KEYS: [&str; 3] = ["key-a", "key-b", "key-e"];

/// The requests themselves take next to nothing.
const MOST: u64 = 64 * MIB;

/// A server at which every request that shows a thread waits when it has read it, until the gate is opened.
struct Stuck {
    server: Server,
    paths: [String; 3],
}

impl Stuck {
    fn start(place: &Place, setup: Setup) -> (Self, Closed) {
        let gate = Gate::new();
        let setup = setup
            .env(
                "BACKSTITCH_API_KEYS",
                "ann=key-a,bob=key-b,eve=key-e,fay=key-f",
            )
            .env("FAILPOINTS", gate.at("threads.confirm"));
        let server = place.start(setup);
        let path = |key| format!("/threads/{}", Client::of(&server).with_key(key).thread());
        let paths = KEYS.map(path);
        (Self { server, paths }, gate.close())
    }

    fn client(&self, at: usize) -> Client {
        Client::of(&self.server).with_key(KEYS[at])
    }

    /// How many requests are worked on.
    fn worked_on(&self) -> usize {
        reached(&self.server)
    }

    /// Watches the server beside somebody whose requests do not wait at the gate.
    fn watch(&self) -> Watch {
        let other = Client::of(&self.server).with_key("key-f");
        Watch::beside(&self.server, &other)
    }
}

/// So that the tests below end before anybody who waits is refused.
pub const PATIENT: (&str, &str) = ("BACKSTITCH_REQUEST_WAIT", "600");

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

fn so_many_requests_of_one_connection_are_worked_on_and_the_next_waits(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTION_REQUESTS", "2")
        .env(PATIENT.0, PATIENT.1);
    let (stuck, closed) = Stuck::start(place, setup);
    let watch = stuck.watch();
    let path = &*stuck.paths[0];
    let runtime = runtime();
    let open = || runtime.block_on(Connection::open_as(&stuck.server, 65_535, KEYS[0]));
    let (mut one, mut other) = (open(), open());
    let reads: Vec<_> = (0..2)
        .map(|_| runtime.block_on(one.request("GET", path, "")).unwrap())
        .collect();
    until("two are worked on", || stuck.worked_on() == 2);
    // Nothing but its connection keeps this one from its response.
    let mut third = runtime.block_on(one.request("GET", "/ok", "")).unwrap();
    runtime.block_on(one.is_read());
    let elsewhere = runtime.block_on(other.request("GET", "/ok", "")).unwrap();
    assert_eq!(runtime.block_on(elsewhere).unwrap().status(), 200);
    runtime.block_on(one.is_read());
    assert!((&mut third).now_or_never().is_none());
    drop(closed);
    for read in runtime.block_on(join_all(reads)) {
        assert_eq!(read.unwrap().status(), 200);
    }
    assert_eq!(runtime.block_on(third).unwrap().status(), 200);
    watch.held("requests of one connection", MOST);
}

fn so_many_requests_are_worked_on_half_of_them_of_one_principal_and_the_next_waits(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_REQUESTS", "4")
        .env(PATIENT.0, PATIENT.1);
    let (stuck, closed) = Stuck::start(place, setup);
    let watch = stuck.watch();
    let worked_on = || stuck.worked_on();
    std::thread::scope(|scope| {
        let mut all = vec![];
        let mut read = |at: usize, times: usize| {
            for _ in 0..times {
                let (client, path) = (stuck.client(at), &stuck.paths[at]);
                all.push(scope.spawn(move || client.get(path)));
            }
        };
        read(0, 5);
        until("the half of one is taken", || worked_on() == 2);
        read(1, 1);
        until("another one has room", || worked_on() == 3);
        read(1, 5);
        until("all are taken", || worked_on() == 4);
        read(2, 2);
        // Probes of the server are answered all the same.
        for _ in 0..20 {
            ok(stuck.client(0).get("/ok"), 200);
            assert_eq!(worked_on(), 4);
        }
        drop(closed);
        for read in all {
            ok(read.join().unwrap(), 200);
        }
    });
    watch.held("requests of all slots", MOST);
}

fn so_many_requests_of_one_principal_are_worked_on_as_its_share_is(place: &Place) {
    for (share, most) in [("25", 1), ("75", 3)] {
        let setup = Setup::example("reference_server")
            .env("BACKSTITCH_REQUESTS", "4")
            .env("BACKSTITCH_SHARE", share)
            .env(PATIENT.0, PATIENT.1);
        let (stuck, closed) = Stuck::start(place, setup);
        let watch = Watch::probing(&stuck.server);
        std::thread::scope(|scope| {
            let read = |at: usize| {
                let (client, path) = (stuck.client(at), &stuck.paths[at]);
                scope.spawn(move || client.get(path))
            };
            let mut all: Vec<_> = (0..most).map(|_| read(0)).collect();
            until("the share of one is taken", || stuck.worked_on() == most);
            all.push(read(0));
            // Whoever comes later and needs no share of it is served before.
            ok(stuck.client(0).get("/ok"), 200);
            all.push(read(1));
            until("another one has room", || stuck.worked_on() == most + 1);
            drop(closed);
            for read in all {
                ok(read.join().unwrap(), 200);
            }
        });
        watch.held("requests of a share", MOST);
    }
}

/// The answer to a request that was refused after it had waited as long as it may, and its text.
fn refused_after_the_wait(status: u16, begin: Instant, answer: &Answer) -> String {
    assert!(begin.elapsed() >= WAIT);
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.refused(status)
}

/// How long requests may wait in the tests below.
const WAIT: Duration = Duration::from_secs(1);

fn who_waits_too_long_for_a_slot_is_refused_and_nothing_of_the_request_has_happened(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_REQUESTS", "4")
        .env("BACKSTITCH_REQUEST_WAIT", WAIT.as_secs().to_string());
    let (stuck, closed) = Stuck::start(place, setup);
    let watch = stuck.watch();
    let (ann, eve) = (stuck.client(0), stuck.client(2));
    let thread = "11111111-1111-4111-8111-111111111111";
    let create = |client: &Client| client.post("/threads", &json!({ "thread_id": thread }));
    std::thread::scope(|scope| {
        let read = |at: usize| {
            let (client, path) = (stuck.client(at), &stuck.paths[at]);
            scope.spawn(move || client.get(path))
        };
        let mut reads = vec![read(0), read(0)];
        until("the half of one is taken", || stuck.worked_on() == 2);
        let begin = Instant::now();
        let refused = create(&ann);
        let text = refused_after_the_wait(429, begin, &refused);
        assert!(text.contains("Other requests of yours"), "{text}");
        assert_eq!(refused.json()["code"], "too_many_requests");
        reads.extend([read(1), read(1)]);
        until("all are taken", || stuck.worked_on() == 4);
        let begin = Instant::now();
        let text = refused_after_the_wait(503, begin, &create(&eve));
        assert!(text.contains("Too many requests are worked on"), "{text}");
        ok(eve.get("/ok"), 200);
        drop(closed);
        for read in reads {
            ok(read.join().unwrap(), 200);
        }
    });
    ok(ann.get(&format!("/threads/{thread}")), 404);
    ok(create(&eve), 200);
    // While all slots are taken nobody is served.
    watch.held_within("requests that wait too long", MOST, 5 * WAIT);
}

fn who_waits_too_long_for_its_connection_is_refused_and_probes_wait_on(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTION_REQUESTS", "2")
        .env("BACKSTITCH_REQUEST_WAIT", WAIT.as_secs().to_string());
    let (stuck, closed) = Stuck::start(place, setup);
    let watch = stuck.watch();
    let path = &*stuck.paths[0];
    let runtime = runtime();
    let one = Connection::open_as(&stuck.server, 65_535, KEYS[0]);
    let mut one = runtime.block_on(one);
    let reads: Vec<_> = (0..2)
        .map(|_| runtime.block_on(one.request("GET", path, "")).unwrap())
        .collect();
    until("two are worked on", || stuck.worked_on() == 2);
    let mut probe = runtime.block_on(one.request("GET", "/ok", "")).unwrap();
    let begin = Instant::now();
    let refused = runtime.block_on(one.request("GET", "/info", "")).unwrap();
    let refused = runtime.block_on(async { timeout(30 * WAIT, refused).await });
    let refused = refused.unwrap().unwrap();
    assert!(begin.elapsed() >= WAIT);
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!((&mut probe).now_or_never().is_none());
    drop(closed);
    for read in runtime.block_on(join_all(reads)) {
        assert_eq!(read.unwrap().status(), 200);
    }
    assert_eq!(runtime.block_on(probe).unwrap().status(), 200);
    watch.held("requests that wait for their connection", MOST);
}
