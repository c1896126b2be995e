//! Large values on SQLite: who asks for one makes the server read that one, once, and none of its neighbours.

mod assistants;
mod requests;

use serde_json::json;
use test_support::client::Client;
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::talk::{ok, put};

/// Bytes of each value; there are several of them beside each other.
const VALUE: usize = 768 << 10;
const VALUES: usize = 6;
/// Of the client, where the server has keys.
const KEY: &str = "key-a";

fn text(number: usize) -> String {
    format!("{number:08}").repeat(VALUE / 8)
}

/// What the server reads out of its files for a response, in values; nothing of it is in memory before.
fn read_for(server: &mut Server, what: &str, ask: impl FnOnce(&Client)) -> f64 {
    // What it wrote last is in the file itself then: it is moved there by reading it.
    server.terminate();
    server.restart();
    // Servers without keys look at none.
    let client = Client::of(server).with_key(KEY);
    // What a server reads when it begins to work, and when it writes first.
    assert_eq!(client.get("/threads?limit=1").status, 200);
    client.thread();
    let before = server.read_bytes();
    ask(&client);
    let read = (server.read_bytes() - before) as f64 / VALUE as f64;
    println!("{what}: {read:.2} values were read");
    read
}

#[test]
fn states_and_histories_read_each_value_once() {
    let (mut server, client) = serve(&Place::sqlite());
    let thread = client.thread();
    let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &begin);
    for number in 0..VALUES {
        let edit = json!({"values": {"request": text(number)}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    let path = format!("/threads/{thread}");
    let state = read_for(&mut server, "a state", |client| {
        let state = ok(client.get(&format!("{path}/state")), 200);
        assert_eq!(state["values"]["request"], text(VALUES - 1));
    });
    let row = read_for(&mut server, "a thread", |client| {
        let row = ok(client.get(&path), 200);
        assert_eq!(row["values"]["request"], text(VALUES - 1));
    });
    let history = read_for(&mut server, "a history", |client| {
        let history = json!({"limit": 100});
        let history = ok(client.post(&format!("{path}/history"), &history), 200);
        assert_eq!(history[0]["values"]["request"], text(VALUES - 1));
        let whole = history.as_array().unwrap().len();
        assert!(whole > VALUES, "{whole}");
    });
    assert!(state < 1.5 && row < 1.5, "{state:.2} {row:.2}");
    // Each edit is a value and the result of the task that made it.
    let whole = (2 * VALUES) as f64;
    assert!(history < 1.25 * whole, "{history:.2}");
}

#[test]
fn an_item_of_long_term_memory_is_read_once() {
    let (mut server, client) = serve(&Place::sqlite());
    for number in 0..VALUES {
        let value = json!({"text": text(number)});
        // When an item expires is compared whenever it is looked for.
        let item =
            json!({"namespace": ["n"], "key": number.to_string(), "value": value, "ttl": 60});
        assert_eq!(put(&client, "/store/items", &item).status, 204);
    }
    let item = read_for(&mut server, "an item", |client| {
        let item = ok(
            client.get("/store/items?namespace=n&key=3&refresh_ttl=false"),
            200,
        );
        assert_eq!(item["value"]["text"], text(3));
    });
    let search = read_for(&mut server, "a search", |client| {
        let search = json!({"namespace_prefix": ["n"], "limit": 10, "refresh_ttl": false});
        let found = ok(client.post("/store/items/search", &search), 200);
        assert_eq!(found["items"].as_array().unwrap().len(), VALUES);
    });
    let last = read_for(&mut server, "a search from an offset", |client| {
        let search = json!({
            "namespace_prefix": ["n"], "limit": 10, "offset": VALUES - 1, "refresh_ttl": false,
        });
        let found = ok(client.post("/store/items/search", &search), 200);
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
    });
    let names = read_for(&mut server, "a list of namespaces", |client| {
        let found = ok(client.post("/store/namespaces", &json!({})), 200);
        assert_eq!(found, json!({"namespaces": [["n"]]}));
    });
    assert!(
        item < 1.5 && last < 1.5 && names < 0.5,
        "{item:.2} {last:.2} {names:.2}"
    );
    assert!(search < 1.25 * VALUES as f64, "{search:.2}");
}
