//! Pages of threads whose metadata is more than is read at once.

use serde_json::{Value, json};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::ok;

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(pages_of_threads_with_much_metadata_take_little_memory);

const THREADS: usize = 500;

fn pages_of_threads_with_much_metadata_take_little_memory(place: &Place) {
    let (server, client) = serve(place);
    let metadata = |at: usize| json!({"text": format!("{at:05}").repeat(3000)});
    std::thread::scope(|scope| {
        for part in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for at in (part..THREADS).step_by(4) {
                    let create = json!({"metadata": metadata(at)});
                    ok(client.post("/threads", &create), 200);
                }
            });
        }
    });
    let watch = Watch::of(&server);
    let ids = json!({"limit": THREADS, "select": ["thread_id"]});
    for _ in 0..rounds() {
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    let page = client.post("/threads/search", &ids);
                    // Two of them are what one client may have at once.
                    if page.status != 503 {
                        assert_eq!(ok(page, 200).as_array().unwrap().len(), THREADS);
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
        let mut all = json!({"limit": THREADS, "select": ["metadata"]});
        for (name, value) in order.as_object().unwrap() {
            all[name] = value.clone();
        }
        let rows = ok(client.post("/threads/search", &all), 200);
        let rows = rows.as_array().unwrap();
        let mut found: Vec<&str> = rows.iter().map(text).collect();
        found.sort_unstable();
        assert_eq!(found.len(), THREADS);
        assert!(
            (found.iter().enumerate()).all(|(at, text)| metadata(at)["text"] == **text),
            "{order}"
        );
    }
}

fn text(row: &Value) -> &str {
    row["metadata"]["text"].as_str().unwrap()
}
