//! A client that opens requests and resets them before anything is answered.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::talk::{agent_thread, ok, until, user, with};

use crate::http2::Connection;
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

fn writes_that_are_reset_are_carried_out_whole(place: &Place) {
    let (server, client) = serve(place);
    let count = || {
        ok(client.post("/threads/count", &json!({})), 200)
            .as_u64()
            .unwrap()
    };
    let before = count();
    let watch = Watch::of(&server);
    run(async {
        let mut connection = Connection::open(&server, 65_535).await;
        let mut open = Vec::new();
        for number in 0..64 {
            let body = format!("{{\"metadata\":{{\"n\":{number}}}}}");
            open.extend(connection.request("POST", "/threads", &body).await);
        }
        connection.is_read().await;
        drop(open);
        connection.is_read().await;
    });
    // Those that had a slot are carried out, one after the other; the rest is not begun.
    until("one is carried out", || count() > before);
    let found = client.post("/threads/search", &json!({"limit": 100}));
    let rows = ok(found, 200);
    let is_whole = |row: &serde_json::Value| row["metadata"]["n"].is_number();
    assert!(rows.as_array().unwrap().iter().all(is_whole), "{rows}");
    watch.held("writes that are reset", 64 * MIB);
}
