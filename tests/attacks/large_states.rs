//! States that take more memory than one client may have.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{background, ok, until};

use crate::lists::thread_of_texts;
use crate::siege::{MIB, Watch, patiently};

on_both_storages!(
    a_state_of_as_many_bytes_as_a_client_may_have_is_shown_and_one_of_a_byte_more_is_not;
    postgres_in_long_form:
    a_state_above_the_share_of_a_client_is_refused_until_it_is_smaller,
    what_shows_single_messages_of_a_state_above_the_share_shows_the_rest,
    what_is_more_than_a_read_goes_on_with_a_state_above_the_share,
    results_that_a_state_shows_count_as_a_part_of_it,
);

/// Of a server with as little memory one client has room for a state of 1.8 MB.
fn started(place: &Place) -> Server {
    place.start(Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "64"))
}

/// What one client may have, and what a server takes for the work.
const MOST: u64 = 96 * MIB;

fn post_state(client: &Client, thread: &str, values: &Value) {
    let path = format!("/threads/{thread}/state");
    ok(client.post(&path, &json!({"values": values})), 200);
}

fn a_state_above_the_share_of_a_client_is_refused_until_it_is_smaller(place: &Place) {
    let mut server = started(place);
    let thread = thread_of_texts(&Client::of(&server), 1, 3 << 20);
    // It is refused whether or not it is in memory already.
    for _ in 0..2 {
        let client = Client::of(&server);
        let state = client.get(&format!("/threads/{thread}/state")).refused(413);
        let size = state.split(' ').find_map(|word| word.parse::<u64>().ok());
        assert!(size > Some(3 << 20) && size < Some(4 << 20), "{state}");
        assert!(state.contains("the limit of 1864135: raise BACKSTITCH_MEMORY_BUDGET"));
        let shown = client.get(&format!("/threads/{thread}")).refused(413);
        assert!(
            shown.contains("`select` of POST /threads/search"),
            "{shown}"
        );
        server.restart();
    }
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let ids = json!({"ids": [thread], "select": ["thread_id"]});
    let found = ok(client.post("/threads/search", &ids), 200);
    assert_eq!(found, json!([{"thread_id": thread}]));
    post_state(&client, &thread, &json!({"request": "short"}));
    let state = ok(client.get(&format!("/threads/{thread}/state")), 200);
    assert_eq!(state["values"]["request"], "short");
    let large = state["parent_checkpoint"]["checkpoint_id"]
        .as_str()
        .unwrap();
    let path = format!("/threads/{thread}/state/{large}");
    client.get(&path).refused(413);
    let body = json!({"checkpoint": {"checkpoint_id": large}});
    let path = format!("/threads/{thread}/state/checkpoint");
    client.post(&path, &body).refused(413);
    ok(client.get(&format!("/threads/{thread}")), 200);
    watch.held("a state above the share", MOST);
}

fn what_shows_single_messages_of_a_state_above_the_share_shows_the_rest(place: &Place) {
    let server = started(place);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = json!({"metadata": {"graph_id": "agent"}});
    let thread = ok(client.post("/threads", &thread), 200);
    let thread = thread["thread_id"].as_str().unwrap();
    let path = format!("/threads/{thread}/messages");
    let message = json!({"role": "user", "content": "short"});
    ok(client.post(&path, &message), 201);
    ok(client.get(&path), 200);
    for _ in 0..4 {
        let message = json!({"role": "user", "content": "x".repeat(800_000)});
        ok(client.post(&path, &message), 201);
    }
    for path in ["messages", "diff?from=branch:main&to=branch:main"] {
        let refused = client.get(&format!("/threads/{thread}/{path}"));
        let refused = refused.refused(413);
        assert!(refused.contains("BACKSTITCH_MEMORY_BUDGET"), "{refused}");
    }
    let events = ok(client.get(&format!("/threads/{thread}/events")), 200);
    assert!(events["events"].as_array().unwrap().len() > 2, "{events}");
    let tree = ok(client.get(&format!("/threads/{thread}/tree")), 200);
    assert!(tree["nodes"].is_array(), "{tree}");
    watch.held("single messages of a state above the share", MOST);
}

fn what_is_more_than_a_read_goes_on_with_a_state_above_the_share(place: &Place) {
    let mut server = started(place);
    let thread = thread_of_texts(&Client::of(&server), 1, 3 << 20);
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let create = json!({"thread_id": thread, "if_exists": "do_nothing"});
    let there = ok(client.post("/threads", &create), 200);
    let request = there["values"]["request"].as_str().unwrap();
    assert_eq!(request.len(), 3 << 20);
    let path = format!("/threads/{thread}");
    let patch = json!({"metadata": {"a": 1}}).to_string();
    ok(client.send("PATCH", &path, &[], patch.as_bytes()), 200);
    let resume = json!({"assistant_id": "approve", "command": {"resume": "yes"}});
    let run = background(&client, &thread, &resume);
    assert_eq!(client.end_of(&thread, &run), "success");
    let joined = ok(client.get(&format!("{path}/runs/{run}/join")), 200);
    assert_eq!(joined["request"].as_str().map(str::len), Some(3 << 20));
    post_state(&client, &thread, &json!({"request": "short"}));
    ok(client.get(&format!("{path}/state")), 200);
    watch.held("changes of a state above the share", MOST);
}

fn results_that_a_state_shows_count_as_a_part_of_it(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    // The reply repeats the text. It is stored once, as what the last value has more than the one before: the result of
    // the checkpoint before it refers to that.
    for (id, length) in [("m1", 2000), ("m2", 2_500_000)] {
        let message = json!({"type": "human", "id": id, "content": "x".repeat(length)});
        let input = json!({"assistant_id": "agent", "input": {"messages": [message]}});
        client.run(&thread, &input);
    }
    let head = client.state(&thread);
    let id = |key: &str| head[key]["checkpoint_id"].as_str().unwrap().to_owned();
    let (head, before) = (id("checkpoint"), id("parent_checkpoint"));
    let state = format!("/threads/{thread}/state/{before}");
    let history = format!("/threads/{thread}/history");
    let page = json!({"limit": 1, "before": head});

    // Room for the state of 2.5 MB, and not for its result too.
    server.restart_with("BACKSTITCH_MEMORY_BUDGET", "128");
    let client = Client::of(&server);
    client.get(&state).refused(413);
    client.post(&history, &page).refused(413);

    // Room for both once.
    server.restart_with("BACKSTITCH_MEMORY_BUDGET", "192");
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    for _ in 0..2 {
        let shown = ok(client.get(&state), 200);
        let result = &shown["tasks"][0]["result"]["messages"][0]["content"];
        assert!(result.as_str().unwrap().len() > 2_500_000);
        let first = client.open("GET", &state, &[], b"");
        assert_eq!(first.status, 200);
        assert_eq!(client.get(&state).status, 503);
        drop(first);
        until("the memory is free", || client.get(&state).status == 200);
        let listed = ok(client.post(&history, &page), 200);
        assert_eq!(
            listed[0]["tasks"][0]["result"]["messages"][0]["content"],
            *result
        );
    }
    // A list has memory for its largest state, and does not wait for what it has itself.
    let read = || {
        let begin = Instant::now();
        let whole = ok(client.post(&history, &json!({"limit": 10})), 200);
        (begin.elapsed(), whole)
    };
    // Once more where something else may have had the processors.
    let (mut time, mut whole) = read();
    for _ in 0..2 {
        if time >= Duration::from_secs(5) {
            (time, whole) = read();
        }
    }
    assert!(time < Duration::from_secs(5), "it has waited: {time:?}");
    let whole = whole.as_array().unwrap();
    assert!(whole.len() > 4, "{} states", whole.len());
    let is_shown = |state: &Value| {
        let result = &state["tasks"][0]["result"]["messages"][0]["content"];
        result.as_str().is_some_and(|text| text.len() > 2_500_000)
    };
    assert!(whole.iter().any(is_shown));
    watch.held("results that a state shows", MOST);
}

fn a_state_of_as_many_bytes_as_a_client_may_have_is_shown_and_one_of_a_byte_more_is_not(
    place: &Place,
) {
    let mut server = started(place);
    let client = Client::of(&server);
    let text = |bytes: usize| {
        let thread = thread_of_texts(&client, 0, 0);
        post_state(&client, &thread, &json!({"request": "x".repeat(bytes)}));
        thread
    };
    // The refusal says how many bytes such a state has, and how many it may have.
    let long = 1_900_000;
    let path = |thread: String| format!("/threads/{thread}/state");
    let refused = client.get(&path(text(long))).refused(413);
    let words = refused.split(|one: char| !one.is_ascii_digit());
    let mut numbers = words.filter_map(|word| word.parse::<usize>().ok());
    let (bytes, most) = (numbers.next().unwrap(), numbers.next().unwrap());
    let fits = most - (bytes - long);
    let [less, fits, more] = [fits - 1, fits, fits + 1].map(|bytes| path(text(bytes)));
    // Nothing of them is in memory.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    // The response before may still have its memory.
    for path in [&less, &fits] {
        patiently(|| client.get(path));
    }
    let refused = client.get(&more).refused(413);
    assert!(refused.contains(&(most + 1).to_string()), "{refused}");
    watch.held("states at the limit", MOST);
    // It is half of the memory, unless the setting says otherwise: the same state is too large for less, and one of
    // more bytes is not for more.
    for (share, path, status) in [("49", &fits, 413), ("51", &more, 200)] {
        server.restart_with("BACKSTITCH_SHARE", share);
        ok(Client::of(&server).get(path), status);
    }
}
