//! Small responses that nobody reads, on many connections: each of them is little, and there are many.

use std::collections::BTreeMap;

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{ok, until};
use tokio::runtime::{Builder, Runtime};

use crate::http2::Connection;
use crate::siege::{MIB, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    small_responses_that_nobody_reads_take_memory_of_their_client,
    responses_to_changes_that_nobody_reads_take_memory_of_their_client,
    errors_that_nobody_reads_end_without_a_response,
);

/// Connections, each with as many requests as it may have open.
const CONNECTIONS: usize = 48;
const REQUESTS: usize = 100;

/// The least budget of which one client has 10 MiB for responses, and half of that beyond it.
const BUDGET: (&str, &str) = ("BACKSTITCH_MEMORY_BUDGET", "64");
const SHARE: usize = (64 << 20) / 3 / 2;

fn start(place: &Place) -> Server {
    let setup = Setup::example("reference_server")
        .env(BUDGET.0, BUDGET.1)
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    place.start(setup)
}

/// Connections whose responses nobody reads, and how many requests ended in which way: with a status, or with 0 for none.
struct Flood {
    ended: BTreeMap<u16, usize>,
    _open: Vec<(Connection, Vec<http::Response<h2::RecvStream>>)>,
    _runtime: Runtime,
}

/// Sends the same request again and again, and reads the heads of the responses alone.
fn flood(server: &Server, connections: usize, key: &str, (method, path): (&str, &str)) -> Flood {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut ended = BTreeMap::new();
    let mut open = vec![];
    runtime.block_on(async {
        for _ in 0..connections * rounds() {
            let mut connection = Connection::open_as(server, 0, key).await;
            let mut unread = vec![];
            // As many at once as may be worked on, so that none is refused for another reason.
            for _ in 0..REQUESTS / 10 {
                let mut coming = vec![];
                for _ in 0..10 {
                    let body = if method == "PATCH" { "{}" } else { "" };
                    coming.push(connection.request(method, path, body).await.unwrap());
                }
                for response in coming {
                    let status = match response.await {
                        Ok(response) => {
                            let status = response.status().as_u16();
                            unread.push(response);
                            status
                        }
                        Err(error) => {
                            assert!(error.is_reset(), "{error}");
                            0
                        }
                    };
                    *ended.entry(status).or_default() += 1;
                }
            }
            open.push((connection, unread));
        }
    });
    println!("{method} {path}: {ended:?}");
    Flood {
        ended,
        _open: open,
        _runtime: runtime,
    }
}

/// What waits for the client is no more than twice its share, and the other client is served.
fn floods_are_bounded(place: &Place, size: usize, method: &str, path: impl Fn(&Client) -> String) {
    let server = start(place);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let path = path(&ann);
    let watch = Watch::beside(&server, &bob);
    let flood = flood(&server, CONNECTIONS, "key-a", (method, &path));
    let (answered, refused) = (flood.ended[&200], flood.ended[&503]);
    let all = CONNECTIONS * REQUESTS * rounds();
    assert_eq!(answered + refused + flood.ended.get(&0).unwrap_or(&0), all);
    assert!(
        answered * size < 2 * SHARE,
        "{answered} responses of {size} bytes"
    );
    // Somebody else has a share of its own.
    ok(bob.post("/threads", &json!({})), 200);
    watch.held("small responses", 96 * MIB);
    drop(flood);
    // What was not read is free once its connections are closed.
    until("she is served again", || ann.get(&path).status == 200);
}

fn small_responses_that_nobody_reads_take_memory_of_their_client(place: &Place) {
    floods_are_bounded(place, 60_000, "GET", |client| {
        let item =
            json!({"namespace": ["notes"], "key": "k", "value": {"text": "x".repeat(60_000)}});
        let item = item.to_string();
        let kept = client.send("PUT", "/store/items", &[], item.as_bytes());
        assert_eq!(kept.status, 204);
        "/store/items?namespace=notes&key=k".into()
    });
}

fn responses_to_changes_that_nobody_reads_take_memory_of_their_client(place: &Place) {
    floods_are_bounded(place, 15_000, "PATCH", |client| {
        let thread = json!({"metadata": {"text": "x".repeat(15_000)}});
        let thread = ok(client.post("/threads", &thread), 200);
        format!("/threads/{}", thread["thread_id"].as_str().unwrap())
    });
}

/// They are few bytes each, and take what their stream does.
fn errors_that_nobody_reads_end_without_a_response(place: &Place) {
    let server = start(place);
    let bob = Client::of(&server).with_key("key-b");
    let watch = Watch::beside(&server, &bob);
    let flood = flood(&server, 2 * CONNECTIONS, "nobody's", ("GET", "/threads"));
    let (answered, reset) = (flood.ended[&401], flood.ended[&0]);
    assert_eq!(answered + reset, 2 * CONNECTIONS * REQUESTS * rounds());
    assert!(
        answered * (3 << 10) < 2 * SHARE + MIB as usize,
        "{answered} errors"
    );
    watch.held("unread errors", 64 * MIB);
}
