//! Pages of values that are large together: of as many as come at once a few are read at the same time.

use std::sync::Mutex;
use std::thread::scope;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{background, ok, put, slow, until};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(
    searches_of_items_at_once_take_what_was_reserved;
    postgres_in_long_form:
    pages_of_events_with_waiting_messages_at_once_take_what_was_reserved,
);

/// Clients at the same time.
const CLIENTS: usize = 20;

/// Items of long-term memory.
const ITEMS: usize = 10;

/// Messages that wait on one branch.
const WAITING: usize = 66;

fn setup() -> Setup {
    Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "192")
}

/// One with the least memory that a server may have.
fn least() -> Setup {
    setup()
        .env("BACKSTITCH_MEMORY_BUDGET", "64")
        // As much of it as the usual page is of 192 MiB.
        .env("BACKSTITCH_PAGE_BYTES", "2800000")
}

/// All clients ask at the same time: each is answered, or refused for lack of memory. A page that has the same bytes as
/// the one before is not checked again, since to parse it takes longer than to make it.
fn all_at_once(ask: impl Fn() -> Answer + Sync, check: impl Fn(&Value) + Sync) {
    let checked = Mutex::new(Vec::<u8>::new());
    let check = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut checked = checked.lock().unwrap();
        if answer.body != *checked {
            check(&answer.json());
            *checked = answer.body;
        }
    };
    for _ in 0..rounds() {
        scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let answer = ask();
                    if answer.status == 503 {
                        assert!(answer.header("retry-after").is_some());
                    } else {
                        check(answer);
                    }
                });
            }
        });
        until("the memory is free", || {
            let answer = ask();
            let is_free = answer.status == 200;
            if is_free {
                check(answer);
            }
            is_free
        });
    }
}

fn searches_of_items_at_once_take_what_was_reserved(place: &Place) {
    let server = place.start(least());
    let client = Client::of(&server);
    // Each takes more than a mebibyte in memory, and a sixteenth of one where it is stored.
    let value = json!({"tiny": vec![Value::Null; 63_000]});
    for key in 0..ITEMS {
        let item = json!({"namespace": ["dense"], "key": key.to_string(), "value": value});
        ok_empty(&put(&client, "/store/items", &item));
    }
    let watch = Watch::of(&server);
    for filter in [json!(null), json!({"other": {"$ne": 1}})] {
        let search = json!({"namespace_prefix": ["dense"], "limit": ITEMS, "filter": filter});
        all_at_once(
            || client.post("/store/items/search", &search),
            |page| assert_eq!(page["items"].as_array().unwrap().len(), ITEMS),
        );
    }
    watch.held("searches of items at once", 70 * MIB);
}

fn ok_empty(answer: &Answer) {
    assert_eq!(answer.status, 204, "{}", answer.text());
}

fn pages_of_events_with_waiting_messages_at_once_take_what_was_reserved(place: &Place) {
    let server = place.start(setup());
    let client = Client::of(&server);
    let thread = client.thread();
    background(&client, &thread, &slow(600_000, 1));
    let text = "x".repeat(300_000);
    for number in 0..WAITING {
        let send = json!({
            "thread_id": thread, "assistant_id": "agent", "content": text,
            "message_id": format!("m{number}"),
        });
        ok(client.post("/commands/send-message", &send), 202);
    }
    let watch = Watch::of(&server);
    all_at_once(
        || client.get(&format!("/threads/{thread}/events?limit=1000")),
        |page| {
            let events = page["events"].as_array().unwrap();
            let mut contents = events
                .iter()
                .filter(|event| event["payload"]["content"] == text);
            assert!(contents.next().is_some());
            assert!(page["next"].is_i64(), "the page ends early");
        },
    );
    // What has less than a mebibyte takes none.
    watch.held("pages of waiting messages at once", 300 * MIB);
    // A page goes on where the last one ended.
    let (mut after, mut found) = (Some(0), 0);
    while let Some(number) = after {
        let path = format!("/threads/{thread}/events?limit=1000&after={number}");
        let page = ok(client.get(&path), 200);
        let events = page["events"].as_array().unwrap();
        let is_message = |event: &&Value| event["payload"]["content"] == text;
        found += events.iter().filter(is_message).count();
        after = page["next"].as_i64();
    }
    assert_eq!(found, WAITING);
}
