//! Subscriptions that are added to a connection which has others: what they have missed comes first, and as it can be sent.

use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::Setup;
use test_support::talk::until;

use super::websocket::{Socket, connect};
use super::*;

on_both_storages!(
    what_later_subscriptions_have_missed_comes_once_and_in_the_order_in_which_they_came,
    a_command_is_carried_out_while_what_was_missed_is_sent,
    a_command_takes_a_slot_as_a_request_does,
);

const OF_RUN: [&str; 3] = ["lifecycle", "values", "updates"];

/// Runs a thread: each run keeps what those before it have left, and leaves so many bytes more.
fn grow(client: &Client, bytes: &[usize]) -> String {
    let thread = new_thread();
    for bytes in bytes {
        let input = json!({"count": 1, "log": ["x".repeat(*bytes)]});
        let run = start(client, &thread, "counter", input);
        assert_eq!(client.end_of(&thread, &run), "success");
    }
    thread
}

async fn subscribe(socket: &mut Socket, channels: &[&str]) -> Value {
    let params = json!({"channels": channels});
    let reply = socket.command("subscription.subscribe", params).await;
    assert_eq!(reply["type"], "success", "{reply}");
    reply["result"].clone()
}

fn what_later_subscriptions_have_missed_comes_once_and_in_the_order_in_which_they_came(
    place: &Place,
) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    // The first events are small, and those after the large ones too large as well.
    let thread = grow(&client, &[10, 20, 100_000, 30]);
    let all = super::events(&client, &thread, &OF_RUN, 4);
    let of = |methods: &[&str]| -> Vec<&Value> {
        let wanted = |one: &&Value| methods.contains(&one["method"].as_str().unwrap());
        all.iter().filter(wanted).collect()
    };
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        subscribe(&mut socket, &["lifecycle"]).await;
        for event in of(&["lifecycle"]) {
            assert_eq!(socket.read().await.as_ref(), Ok(event));
        }
        // Both are added before any event is read.
        for channels in [&["values", "lifecycle"][..], &OF_RUN] {
            let command = json!({"id": channels.len(), "method": "subscription.subscribe",
                                 "params": {"channels": channels}});
            socket.send(command.to_string()).await;
        }
        let (mut replies, mut events) = (vec![], vec![]);
        let missed = [of(&["values"]), of(&["updates"])];
        let count = missed.iter().map(Vec::len).sum();
        while events.len() < count || replies.len() < 2 {
            let message = socket.read().await.unwrap();
            if message["type"] == "event" {
                events.push(message);
            } else {
                replies.push(message["result"]["replayed_events"].clone());
            }
        }
        let counts: Vec<usize> = missed.iter().map(Vec::len).collect();
        assert_eq!(json!(replies), json!(counts));
        assert!(counts[0] > 4 && counts[1] >= 4, "{counts:?}");
        assert!(
            events.iter().eq(missed.concat()),
            "others, or in another order"
        );
        // And nothing more but what comes.
        start(&client, &thread, "counter", json!({"count": 1, "log": []}));
        let last = all.last().unwrap()["seq"].as_u64();
        for event in socket.run().await {
            assert!(event["seq"].as_u64() > last, "{event}");
        }
    });
}

fn a_command_is_carried_out_while_what_was_missed_is_sent(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    // More than fits between a server and a client that reads nothing.
    let mut sizes = [0; 24];
    sizes[0] = 400_000;
    let thread = grow(&client, &sizes);
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        subscribe(&mut socket, &["lifecycle"]).await;
        for _ in &sizes {
            socket.run().await;
        }
        let added = subscribe(&mut socket, &["values"]).await;
        let params = json!({"subscription_id": added["subscription_id"]});
        let command = json!({"id": 8, "method": "subscription.unsubscribe", "params": params});
        socket.send(command.to_string()).await;
        let mut before = 0;
        loop {
            let message = socket.read().await.unwrap();
            if message["type"] != "event" {
                assert_eq!(message["result"], json!({}), "{message}");
                break;
            }
            before += 1;
        }
        let missed = added["replayed_events"].as_u64().unwrap();
        assert!(missed >= 48 && before < missed, "{before} of {missed}");
        // What comes next is no event of the past.
        socket
            .send(json!({"id": 9, "method": "agent.getTree"}).to_string())
            .await;
        assert_eq!(socket.read().await.unwrap()["id"], 9);
    });
}

fn a_command_takes_a_slot_as_a_request_does(place: &Place) {
    let gate = Gate::new();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a")
        // Of which one client has the half.
        .env("BACKSTITCH_REQUESTS", "4")
        .env("BACKSTITCH_REQUEST_WAIT", "1")
        .env("FAILPOINTS", gate.at("threads.confirm"));
    let server = place.start(setup);
    let client = Client::of(&server).with_key("key-a");
    let (thread, other) = (client.thread(), client.thread());
    block_on(async {
        let mut socket = connect(&server, &thread, Some("key-a")).await.unwrap();
        let closed = gate.close();
        let stuck = [(); 2].map(|()| {
            let (client, path) = (client.clone(), format!("/threads/{other}"));
            std::thread::spawn(move || client.get(&path).status)
        });
        until("all its slots are taken", || reached(&server) == 2);
        let params = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
        let reply = socket.command("run.start", params.clone()).await;
        assert_eq!(reply["error"], "unknown_error", "{reply}");
        let told = reply["message"].as_str().unwrap();
        assert!(told.starts_with("429: Other requests of yours"), "{told}");
        drop(closed);
        for read in stuck {
            assert_eq!(read.join().unwrap(), 200);
        }
        let runs = client.get(&format!("/threads/{thread}/runs")).json();
        assert_eq!(runs, json!([]));
        let reply = socket.command("run.start", params).await;
        assert_eq!(reply["type"], "success", "{reply}");
    });
}
