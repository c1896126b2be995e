//! Pages of threads whose metadata is more than is read at once.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::ok;

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(pages_of_threads_with_much_metadata_take_little_memory);

/// How many threads there are, and how often the text of each repeats its five digits. The short form has fewer with as
/// many bytes in all: each thread costs a request that creates it, and being read alone in every list.
fn sizes() -> (usize, usize) {
    if rounds() < 10 {
        (125, 12_000)
    } else {
        (500, 3000)
    }
}

fn pages_of_threads_with_much_metadata_take_little_memory(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_METADATA_BYTES", "64000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (threads, times) = sizes();
    let metadata = |at: usize| json!({"text": format!("{at:05}").repeat(times)});
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (client, metadata) = (&client, &metadata);
            scope.spawn(move || {
                for at in (part..threads).step_by(4) {
                    let create = json!({"metadata": metadata(at)});
                    ok(client.post("/threads", &create), 200);
                }
            });
        }
    });
    let watch = Watch::of(&server);
    let ids = json!({"limit": threads, "select": ["thread_id"]});
    for _ in 0..rounds() {
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    let page = client.post("/threads/search", &ids);
                    // Two of them are what one client may have at once.
                    if page.status != 503 {
                        assert_eq!(ok(page, 200).as_array().unwrap().len(), threads);
                    }
                });
            }
        });
    }
    watch.held("pages of threads with much metadata", 64 * MIB);
    // What is not read with the others is shown all the same, in every order.
    for order in [
        json!({"sort_by": "created_at"}),
        json!({"sort_by": "thread_id", "sort_order": "asc"}),
        json!({"sort_by": "updated_at", "sort_order": "asc"}),
        json!({"sort_by": "status"}),
        json!({"sort_by": "state_updated_at"}),
    ] {
        let mut all = json!({"limit": threads, "select": ["metadata"]});
        for (name, value) in order.as_object().unwrap() {
            all[name] = value.clone();
        }
        let rows = ok(client.post("/threads/search", &all), 200);
        let rows = rows.as_array().unwrap();
        let mut found: Vec<&str> = rows.iter().map(text).collect();
        found.sort_unstable();
        assert_eq!(found.len(), threads);
        assert!(
            (found.iter().enumerate()).all(|(at, text)| metadata(at)["text"] == **text),
            "{order}"
        );
    }
}

fn text(row: &Value) -> &str {
    row["metadata"]["text"].as_str().unwrap()
}
