//! A client that opens requests and resets them before anything is answered.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, ok, until, user, with};

use crate::http2::Connection;
use crate::siege::{MIB, Memory, Waits, Watch, rounds, until_idle};

on_both_storages!(
    requests_that_are_reset_cost_neither_memory_nor_a_minute_of_work,
    writes_that_are_reset_are_carried_out_whole,
);

/// A thread whose newest state takes much more to be decoded and written than to be read.
fn heavy_thread(client: &Client) -> String {
    let thread = agent_thread(client);
    let message = |at: usize| with(user(&"x".repeat(400)), "id", format!("m{at}"));
    let messages: Vec<Value> = (0..2_000).map(message).collect();
    let edit = json!({"values": {"messages": messages}});
    ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    thread
}

/// What one client may have worked on at once: half of all, and as much of each connection.
const SHARE: usize = 32;

/// Asks for the newest state of a thread.
const NEWEST: &str = "{\"limit\":1}";

fn requests_that_are_reset_cost_neither_memory_nor_a_minute_of_work(place: &Place) {
    let gate = Gate::new();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_REQUESTS", (2 * SHARE).to_string())
        .env("BACKSTITCH_CONNECTION_REQUESTS", SHARE.to_string())
        // Those that wait for the database are not refused before this test gives up.
        .env("BACKSTITCH_REQUEST_WAIT", "120")
        .env("FAILPOINTS", gate.at("checkpoints::page"));
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let thread = heavy_thread(&ann);
    let path = format!("/threads/{thread}/history");
    let memory = Memory::of(&server);
    let whole = ticks(&server, || {
        for _ in 0..SHARE {
            assert!(ann.post_text(&path, NEWEST).body.len() > 200_000);
        }
    });

    let reset = ticks(&server, || {
        let closed = gate.close();
        run(async {
            let mut connection = Connection::open_as(&server, 65_535, "key-a").await;
            let mut open = vec![];
            for _ in 0..2 * SHARE {
                open.extend(connection.request("POST", &path, NEWEST).await);
            }
            connection.is_read().await;
            until("every slot of the client is taken by reads", || {
                reached(&server) > 0 && !is_answered(&ann)
            });
            drop(open);
            connection.is_read().await;
            // What the database was asked for goes on, and nothing else does.
            until("a request of the client has a slot", || is_answered(&ann));
        });
        drop(closed);
    });
    println!("{SHARE} requests: {whole} ticks, and {reset} when they are reset");
    assert!(4 * reset < whole, "{reset} of {whole} ticks");

    let many = 2000 * rounds();
    let mut last = None;
    let flood = ticks(&server, || {
        let waits = std::thread::scope(|scope| {
            let other = scope.spawn(|| Waits::of(&bob, 40));
            run(reset_many(&server, &path, many));
            other.join().unwrap()
        });
        last = Some(Instant::now());
        waits.held("resets", Duration::from_secs(5));
    });
    let idle = last.unwrap().elapsed();
    println!("{many} requests: {flood} ticks when they are reset, and idle after {idle:?}");
    assert!(idle < Duration::from_secs(10), "{idle:?}");
    assert!(
        flood * SHARE as u64 * 4 < whole * many as u64,
        "{flood} ticks"
    );
    memory.held("resets", 512 * MIB);
}

/// The processor time that a server takes for what a client does, until nothing of it goes on.
fn ticks(server: &Server, work: impl FnOnce()) -> u64 {
    let before = server.ticks();
    work();
    until_idle(server);
    server.ticks() - before
}

/// Whether a small request is answered soon. One that is not is left.
fn is_answered(client: &Client) -> bool {
    let socket = client.begin("GET", "/info", &[], b"");
    let soon = Duration::from_millis(200);
    socket.set_read_timeout(Some(soon)).unwrap();
    socket.peek(&mut [0]).is_ok()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

async fn reset_many(server: &Server, path: &str, many: usize) {
    let mut left = many;
    while left > 0 {
        let mut connection = Connection::open_as(server, 65_535, "key-a").await;
        // A server may hang up on a client that does this.
        while left > 0 && !connection.driver.is_finished() {
            let mut open = Vec::new();
            for _ in 0..100.min(left) {
                open.extend(connection.request("POST", path, NEWEST).await);
                left -= 1;
            }
            connection.is_read().await;
            drop(open);
            connection.is_read().await;
        }
    }
}

/// Requests of one connection that are worked on at once.
const BEGUN: usize = 16;

/// Each creates a thread and then writes a state to it: a client that leaves between the two leaves nothing half done.
fn writes_that_are_reset_are_carried_out_whole(place: &Place) {
    let gate = Gate::new();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTION_REQUESTS", BEGUN.to_string())
        .env("FAILPOINTS", gate.at("threads.before_updates"));
    let server = place.start(setup);
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let closed = gate.close();
    run(async {
        let mut connection = Connection::open(&server, 65_535).await;
        let mut open = Vec::new();
        for number in 0..4 * BEGUN {
            let message = with(user("whole"), "id", format!("m{number}"));
            let update = json!({"values": {"messages": [message]}, "as_node": "model"});
            let body = json!({
                "metadata": {"graph_id": "agent", "n": number}, "supersteps": [{"updates": [update]}],
            });
            open.extend(
                connection
                    .request("POST", "/threads", &body.to_string())
                    .await,
            );
        }
        until("as many as have slots have begun", || {
            reached(&server) == BEGUN
        });
        drop(open);
        connection.is_read().await;
    });
    drop(closed);
    // Those that had a slot are carried out; of the rest nothing is begun, or all of it done.
    let is_whole = |row: &Value| {
        let written = &row["values"]["messages"][0];
        written["content"] == "whole" && written["id"] == format!("m{}", row["metadata"]["n"])
    };
    until("all that were begun are carried out", || {
        let found = client.post("/threads/search", &json!({"limit": 100}));
        let rows = ok(found, 200);
        let rows = rows.as_array().unwrap();
        assert!(rows.len() >= BEGUN, "{rows:?}");
        rows.iter().all(is_whole)
    });
    watch.held("writes that are reset", 64 * MIB);
}
