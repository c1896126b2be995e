//! How much metadata there may be, and how much of the streams one principal may have, where settings say so.

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{ok, slow, with};

use super::{limit, members};

on_both_storages!(
    metadata_has_the_limits_of_the_settings,
    a_principal_has_the_share_that_the_setting_says,
);

fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    client.send("PATCH", path, &headers, body.to_string().as_bytes())
}

fn metadata_has_the_limits_of_the_settings(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_METADATA_KEYS", "100")
        .env("BACKSTITCH_METADATA_BYTES", "2000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let wordy = |bytes: usize| json!({"k": "x".repeat(bytes - r#"{"k":""}"#.len())});
    let run = slow(0, 0);
    let assistant = json!({"graph_id": "counter"});
    let cron = json!({"assistant_id": "counter", "schedule": "0 0 1 1 *"});
    let doors = [
        ("/threads", json!({})),
        ("/assistants", assistant.clone()),
        ("/runs/crons", cron.clone()),
        ("/runs", run.clone()),
    ];
    for (path, body) in &doors {
        let post = |metadata| client.post(path, &with(body.clone(), "metadata", metadata));
        limit(path, 100, 422, "BACKSTITCH_METADATA_KEYS", |keys| {
            post(members(keys))
        });
        limit(path, 2000, 422, "BACKSTITCH_METADATA_BYTES", |bytes| {
            post(wordy(bytes))
        });
    }
    let in_config = |config: Value| client.post("/runs", &with(run.clone(), "config", config));
    limit("config", 100, 422, "BACKSTITCH_METADATA_KEYS", |keys| {
        in_config(json!({"metadata": members(keys)}))
    });
    limit("tags", 2000, 422, "BACKSTITCH_METADATA_BYTES", |bytes| {
        in_config(json!({"tags": ["t".repeat(bytes - r#"[""]"#.len())]}))
    });
    // What is merged has the same ones.
    let made = |path: &str, body: &Value, id: &str| {
        let row = ok(
            client.post(path, &with(body.clone(), "metadata", members(60))),
            200,
        );
        format!("{path}/{}", row[id].as_str().unwrap())
    };
    let merged = |path: String| {
        limit(&path, 100, 422, "BACKSTITCH_METADATA_KEYS", |keys| {
            patch(&client, &path, &json!({"metadata": members(keys)}))
        });
    };
    merged(made("/threads", &json!({}), "thread_id"));
    merged(made("/assistants", &assistant, "assistant_id"));
    merged(made("/runs/crons", &cron, "cron_id"));
}

fn a_principal_has_the_share_that_the_setting_says(place: &Place) {
    for (share, most) in [("25", 1), ("75", 3), ("100", 4)] {
        let setup = Setup::example("reference_server")
            .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
            .env("BACKSTITCH_MAX_STREAMS", "4")
            .env("BACKSTITCH_SHARE", share);
        let server = place.start(setup);
        let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
        let open = |client: &Client| {
            let path = format!("/threads/{}/stream", client.thread());
            client.open("GET", &path, &[], b"")
        };
        let held: Vec<_> = (0..most).map(|_| open(&ann)).collect();
        assert!(held.iter().all(|stream| stream.status == 200), "{share} %");
        let mut refused = open(&ann);
        assert_eq!(refused.status, 429, "{share} %");
        let detail = String::from_utf8(refused.chunk_or_break().unwrap()).unwrap();
        assert!(detail.contains("BACKSTITCH_SHARE"), "{detail}");
        let of_others = if most < 4 { 200 } else { 503 };
        assert_eq!(open(&bob).status, of_others, "beside {share} %");
        drop(held);
    }
}
