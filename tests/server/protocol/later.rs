//! Subscriptions that are added to a connection which has others: what they have missed comes first, and as it can be sent.

use std::time::Duration;

use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::Setup;
use test_support::talk::until;

use super::websocket::{Socket, connect};
use super::*;

on_both_storages!(
    what_later_subscriptions_have_missed_comes_once_and_in_the_order_in_which_they_came,
    the_end_of_a_run_comes_after_what_a_subscription_right_behind_the_first_has_missed,
    a_command_is_carried_out_while_what_was_missed_is_sent,
    what_a_subscription_that_ends_was_not_sent_yet_comes_for_those_behind_it,
    what_came_for_a_subscription_that_has_ended_does_not_come_once_more,
    a_later_subscription_to_a_deleted_thread_is_replied_to,
    a_run_is_started_in_a_slot_as_a_request_is_and_events_go_on_meanwhile,
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

fn the_end_of_a_run_comes_after_what_a_subscription_right_behind_the_first_has_missed(
    place: &Place,
) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let interrupted = new_thread();
    let run = start(&client, &interrupted, "approve", json!({"request": "pay"}));
    assert_eq!(client.end_of(&interrupted, &run), "success");
    // Of a run that waits for an input, values come behind its end.
    for (thread, how, behind) in [
        (grow(&client, &[10]), "completed", 0),
        (interrupted, "interrupted", 1),
    ] {
        let all = super::events(&client, &thread, &["lifecycle", "values"], 1);
        assert_eq!(all.last().unwrap()["params"]["data"]["event"], how);
        // On a busy machine the second subscription may come later than the end waits.
        let as_it_was = (0..20).any(|_| {
            block_on(async {
                let mut socket = connect(&server, &thread, None).await.unwrap();
                subscribe(&mut socket, &["lifecycle"]).await;
                let mut events = vec![socket.read().await.unwrap()];
                // The end would have come by now.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let params = json!({"channels": ["values"]});
                let command =
                    json!({"id": 1, "method": "subscription.subscribe", "params": params});
                socket.send(command.to_string()).await;
                while events.len() < all.len() + behind {
                    let message = socket.read().await.unwrap();
                    events.extend(Some(message).filter(|message| message["type"] == "event"));
                }
                let methods = events[all.len()..].iter().map(|event| &event["method"]);
                assert!(methods.eq(vec!["values"; behind]));
                events[..all.len()] == all
            })
        });
        assert!(as_it_was, "{how}");
    }
}

fn a_command_is_carried_out_while_what_was_missed_is_sent(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = grow(&client, &large());
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        subscribe(&mut socket, &["lifecycle"]).await;
        for _ in large() {
            socket.run().await;
        }
        let added = subscribe(&mut socket, &["values"]).await;
        let before = unsubscribe(&mut socket, &added).await.len() as u64;
        let missed = added["replayed_events"].as_u64().unwrap();
        assert!(missed >= 48 && before < missed, "{before} of {missed}");
        // What comes next is no event of the past.
        socket
            .send(json!({"id": 9, "method": "agent.getTree"}).to_string())
            .await;
        assert_eq!(socket.read().await.unwrap()["id"], 9);
    });
}

/// More than fits between a server and a client that reads nothing, and small events as well.
fn large() -> [usize; 24] {
    let mut sizes = [0; 24];
    sizes[0] = 400_000;
    sizes
}

/// Unsubscribes, and returns the events that come before the reply.
async fn unsubscribe(socket: &mut Socket, of: &Value) -> Vec<Value> {
    let params = json!({"subscription_id": of["subscription_id"]});
    let command = json!({"id": 8, "method": "subscription.unsubscribe", "params": params});
    socket.send(command.to_string()).await;
    let mut events = vec![];
    loop {
        let message = socket.read().await.unwrap();
        if message["type"] != "event" {
            assert_eq!(message["result"], json!({}), "{message}");
            return events;
        }
        events.push(message);
    }
}

fn what_a_subscription_that_ends_was_not_sent_yet_comes_for_those_behind_it(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = grow(&client, &large());
    let all = super::events(&client, &thread, &OF_RUN, large().len());
    let mut wanted: Vec<&Value> = all
        .iter()
        .filter(|one| one["method"] != "lifecycle")
        .collect();
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        subscribe(&mut socket, &["lifecycle"]).await;
        for _ in large() {
            socket.run().await;
        }
        let ends = subscribe(&mut socket, &["values"]).await;
        let command = json!({"id": 3, "method": "subscription.subscribe",
                             "params": {"channels": ["values", "updates"]}});
        socket.send(command.to_string()).await;
        let (mut events, mut added) = (vec![], None);
        while added.is_none() {
            let message = socket.read().await.unwrap();
            if message["type"] == "event" {
                events.push(message);
            } else {
                added = message["result"]["replayed_events"].as_u64();
            }
        }
        let updates = wanted
            .iter()
            .filter(|one| one["method"] == "updates")
            .count();
        assert_eq!(added, Some(updates as u64));
        events.extend(unsubscribe(&mut socket, &ends).await);
        assert!(events.len() < wanted.len() - updates, "it had all of them");
        while events.len() < wanted.len() {
            events.push(socket.read().await.unwrap());
        }
        let number = |event: &Value| event["seq"].as_u64().unwrap();
        events.sort_by_key(number);
        wanted.sort_by_key(|event| number(event));
        assert!(events.iter().eq(wanted), "others, or some of them twice");
    });
}

fn what_came_for_a_subscription_that_has_ended_does_not_come_once_more(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = grow(&client, &large());
    let all = super::events(&client, &thread, &OF_RUN, large().len());
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        let first = subscribe(&mut socket, &["updates", "lifecycle"]).await;
        for _ in large() {
            socket.run().await;
        }
        let added = subscribe(&mut socket, &OF_RUN).await;
        let values: Vec<&Value> = all.iter().filter(|one| one["method"] == "values").collect();
        assert_eq!(added["replayed_events"], values.len());
        let mut events = unsubscribe(&mut socket, &first).await;
        while events.len() < values.len() {
            events.push(socket.read().await.unwrap());
        }
        assert!(events.iter().eq(values));
    });
}

fn a_later_subscription_to_a_deleted_thread_is_replied_to(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = grow(&client, &[10]);
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        subscribe(&mut socket, &["lifecycle"]).await;
        socket.run().await;
        let path = format!("/threads/{thread}");
        assert_eq!(client.send("DELETE", &path, &[], b"").status, 204);
        let added = subscribe(&mut socket, &["values"]).await;
        assert_eq!(added["replayed_events"], 0);
    });
}

fn a_run_is_started_in_a_slot_as_a_request_is_and_events_go_on_meanwhile(place: &Place) {
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
        subscribe(&mut socket, &["custom"]).await;
        let input = json!({"ms": 50, "ticks": 12_000});
        let run = start(&client, &thread, "slow", input);
        socket.read().await.unwrap();
        let closed = gate.close();
        let stuck = [(); 2].map(|()| {
            let (client, path) = (client.clone(), format!("/threads/{other}"));
            std::thread::spawn(move || client.get(&path).status)
        });
        until("all its slots are taken", || reached(&server) == 2);
        // What changes nothing takes none.
        let tree = socket.command("agent.getTree", json!({})).await;
        assert_eq!(tree["type"], "success", "{tree}");
        let params = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
        let command = json!({"id": 3, "method": "run.start", "params": params});
        socket.send(command.to_string()).await;
        let (mut events, mut reply) = (0, Value::Null);
        while reply.is_null() {
            let message = socket.read().await.unwrap();
            if message["type"] == "event" {
                events += 1;
            } else {
                reply = message;
            }
        }
        assert_eq!(reply["error"], "unknown_error", "{reply}");
        let told = reply["message"].as_str().unwrap();
        assert!(told.starts_with("429: Other requests of yours"), "{told}");
        assert!(events > 0, "they waited for the slot as well");
        drop(closed);
        for read in stuck {
            assert_eq!(read.join().unwrap(), 200);
        }
        let runs = client.get(&format!("/threads/{thread}/runs")).json();
        assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
        let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=true");
        client.post(&cancel, &json!({}));
        let reply = socket.command("run.start", params).await;
        assert_eq!(reply["type"], "success", "{reply}");
    });
}
