//! Configs of assistants: searches and lists of versions read those that they show.

use serde_json::json;
use test_support::{
    client::Client,
    server::Setup,
    talk::{ok, patch},
};

use super::{VALUES, read_for, text};

fn setup() -> Setup {
    Setup::example("reference_server").env("BACKSTITCH_ASSISTANT_BYTES", "4000000")
}

#[test]
fn a_search_of_assistants_reads_no_config_that_it_does_not_show() {
    let mut server = setup().start();
    let client = Client::of(&server);
    for number in 0..VALUES {
        let config = json!({"text": text(number)});
        let new =
            json!({"graph_id": "counter", "name": format!("mine {number}"), "config": config});
        ok(client.post("/assistants", &new), 200);
    }
    let search = read_for(&mut server, "a search of assistants", |client| {
        let body = json!({
            "name": "mine", "select": ["name", "updated_at"], "sort_by": "updated_at", "limit": 100,
        });
        let found = ok(client.post("/assistants/search", &body), 200);
        assert_eq!(found.as_array().unwrap().len(), VALUES);
    });
    let count = read_for(&mut server, "a count of assistants", |client| {
        let found = ok(
            client.post("/assistants/count", &json!({"name": "mine"})),
            200,
        );
        assert_eq!(found, VALUES);
    });
    let one = read_for(&mut server, "an assistant found", |client| {
        let body = json!({"name": "mine 3", "limit": 1});
        let found = ok(client.post("/assistants/search", &body), 200);
        assert_eq!(found[0]["config"]["text"], text(3));
    });
    assert!(search < 0.5 && count < 0.5, "{search:.2} {count:.2}");
    assert!(one < 1.5, "{one:.2}");
}

#[test]
fn a_version_of_an_assistant_is_read_once() {
    let mut server = setup().start();
    let client = Client::of(&server);
    let new = json!({"graph_id": "counter", "name": "mine", "config": {"text": text(0)}});
    let made = ok(client.post("/assistants", &new), 200);
    let path = format!("/assistants/{}", made["assistant_id"].as_str().unwrap());
    for number in 1..VALUES {
        let change = json!({"config": {"text": text(number)}});
        ok(patch(&client, &path, &change), 200);
    }
    let one = read_for(&mut server, "a version", |client| {
        let page = json!({"limit": 1, "offset": 3});
        let found = ok(client.post(&format!("{path}/versions"), &page), 200);
        assert_eq!(found[0]["config"]["text"], text(VALUES - 4));
    });
    let all = read_for(&mut server, "all versions", |client| {
        let found = ok(client.post(&format!("{path}/versions"), &json!({})), 200);
        assert_eq!(found.as_array().unwrap().len(), VALUES);
    });
    let activate = read_for(&mut server, "an activation", |client| {
        ok(
            client.post(&format!("{path}/latest"), &json!({"version": 2})),
            200,
        );
    });
    let change = read_for(&mut server, "a change", |client| {
        ok(
            patch(client, &path, &json!({"config": {"text": text(7)}})),
            200,
        );
    });
    assert!(one < 1.5, "{one:.2}");
    assert!(all < 1.25 * VALUES as f64, "{all:.2}");
    // The version that is activated, and the assistant as it was, whose row is written anew.
    assert!(activate < 3.5 && change < 3.5, "{activate:.2} {change:.2}");
}
