//! How much is stored of a thread, as clients see it.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{self, get, ok};

on_both_storages!(
    what_is_stored_of_a_thread_is_shown_by_channel,
    a_fork_has_what_it_wrote_itself,
);

fn stored(client: &Client, thread: &str) -> Value {
    get(client, thread, "storage")
}

fn sum(usage: &Value) -> i64 {
    let parts = ["checkpoints", "channel_values", "pending_writes"];
    parts
        .iter()
        .map(|part| usage[part]["bytes"].as_i64().unwrap())
        .sum()
}

fn what_is_stored_of_a_thread_is_shown_by_channel(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let nothing = json!({"count": 0, "bytes": 0});
    let expected = json!({
        "thread_id": thread, "total_bytes": 0, "checkpoints": nothing,
        "channel_values": {"count": 0, "bytes": 0, "by_channel": {}}, "pending_writes": nothing
    });
    assert_eq!(stored(&client, &thread), expected);
    let mut last = 0;
    for turn in 1..=3 {
        talk::say(&client, &thread, &"word ".repeat(200));
        let usage = stored(&client, &thread);
        assert_eq!(usage["checkpoints"]["count"], client.history(&thread).len());
        let total = usage["total_bytes"].as_i64().unwrap();
        assert_eq!(total, sum(&usage), "{usage}");
        let messages = &usage["channel_values"]["by_channel"]["messages"];
        assert!(messages["versions"].as_i64().unwrap() > turn, "{usage}");
        assert!(messages["bytes"].as_i64().unwrap() > turn * 2000, "{usage}");
        assert!(total > last + 2000, "{usage}");
        last = total;
    }
    let answer = client.get("/threads/nope/storage");
    assert_eq!(answer.refused(422), "Invalid thread ID: must be a UUID");
    let nowhere = uuid::Uuid::now_v7();
    let answer = client.get(&format!("/threads/{nowhere}/storage"));
    assert_eq!(
        answer.refused(404),
        format!("Thread with ID {nowhere} not found")
    );
    // What is pruned is not there any more.
    let body = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    ok(client.post("/threads/prune", &body), 200);
    let usage = stored(&client, &thread);
    assert_eq!(usage["checkpoints"]["count"], client.history(&thread).len());
    assert!(usage["total_bytes"].as_i64().unwrap() < last, "{usage}");
}

fn a_fork_has_what_it_wrote_itself(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    talk::say(&client, &thread, "before");
    let usage = stored(&client, &thread);
    let fork = talk::id_of(&talk::fork(&client, &thread, &json!({})));
    assert_eq!(stored(&client, &fork)["total_bytes"], 0);
    talk::say(&client, &fork, "after");
    assert!(
        stored(&client, &fork)["checkpoints"]["count"]
            .as_i64()
            .unwrap()
            > 0
    );
    assert_eq!(stored(&client, &thread), usage);
}
