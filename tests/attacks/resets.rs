//! A client that opens requests and resets them before anything is answered.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, ok, until, user, with};

use crate::http2::Connection;
use crate::locks::{Gate, reached};
use crate::siege::{MIB, Memory, Waits, Watch, rounds};

on_both_storages!(
    requests_that_are_reset_cost_neither_memory_nor_a_minute_of_work,
    writes_that_are_reset_are_carried_out_whole,
);

/// A thread whose history takes a megabyte.
fn heavy_thread(client: &Client) -> String {
    let thread = agent_thread(client);
    for number in 0..10 {
        let message = with(user(&"x".repeat(20_000)), "id", format!("m{number}"));
        let edit = json!({"values": {"messages": [message]}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    thread
}

fn requests_that_are_reset_cost_neither_memory_nor_a_minute_of_work(place: &Place) {
    let (server, client) = serve(place);
    let thread = heavy_thread(&client);
    let path = format!("/threads/{thread}/history");
    assert!(client.post(&path, &json!({"limit": 10})).body.len() > 1 << 20);
    let memory = Memory::of(&server);
    let waits = std::thread::scope(|scope| {
        let other = scope.spawn(|| Waits::of(&client, 40));
        run(reset_many(&server, &path, 2000 * rounds()));
        other.join().unwrap()
    });
    // Whatever was begun has ended when a request that takes every slot is answered.
    let begin = Instant::now();
    run(take_every_slot(&server));
    println!("idle after {:?}", begin.elapsed());
    waits.held("resets", Duration::from_secs(5));
    assert!(begin.elapsed() < Duration::from_secs(10));
    memory.held("resets", 512 * MIB);
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
        let mut connection = Connection::open(server, 65_535).await;
        // A server may hang up on a client that does this.
        while left > 0 && !connection.driver.is_finished() {
            let mut open = Vec::new();
            for _ in 0..100.min(left) {
                open.extend(connection.request("POST", path, "{\"limit\":10}").await);
                left -= 1;
            }
            connection.is_read().await;
            drop(open);
            connection.is_read().await;
        }
    }
}

async fn take_every_slot(server: &Server) {
    let connections = join_all((0..16).map(async |_| {
        let mut connection = Connection::open(server, 65_535).await;
        for _ in 0..32 {
            let response = connection.request("GET", "/info", "").await.unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
        }
    }));
    connections.await;
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
