//! Lists that are longer than memory should be, asked for by clients that do not read them.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, background, ok, until};

use crate::siege::{MIB, Memory, Waits, Watch, rounds};

on_both_storages!(
    histories_that_nobody_reads_take_little_memory,
    a_long_history_has_every_state_as_it_is_read_alone,
    a_value_above_the_limit_is_refused_and_can_be_left_out,
    pages_of_messages_and_events_end_early_and_lead_to_the_rest,
    runs_of_large_states_wait_for_memory_and_do_not_fail,
    states_that_nobody_reads_are_refused_beyond_their_memory;
    postgres_in_long_form:
    lists_of_threads_and_runs_that_nobody_reads_take_little_memory,
    lists_beyond_the_memory_for_them_are_refused_until_it_is_free,
    without_keys_each_address_has_a_share_of_the_memory,
    a_page_of_as_many_bytes_as_it_may_have_is_whole_and_one_of_a_byte_more_ends_early,
    large_states_that_are_read_at_once_are_shown_or_refused,
);

/// A thread with as many checkpoints, each of which has a text of as many bytes of its own.
pub fn thread_of_texts(client: &Client, checkpoints: usize, bytes: usize) -> String {
    let thread = client.thread();
    let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &begin);
    for at in 0..checkpoints {
        let text = format!("{at:06}").repeat(bytes / 6);
        let edit = json!({"values": {"request": text}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    thread
}

/// A server with two clients that have keys.
fn serve_two(place: &Place) -> (Server, [Client; 2]) {
    let setup = Setup::example("reference_server");
    let server = place.start(setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"));
    let clients = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    (server, clients)
}

fn open_history(client: &Client, thread: &str) -> Open {
    let body = json!({"limit": 1000}).to_string();
    client.open(
        "POST",
        &format!("/threads/{thread}/history"),
        &[],
        body.as_bytes(),
    )
}

fn histories_that_nobody_reads_take_little_memory(place: &Place) {
    let (server, [client, other]) = serve_two(place);
    let thread = thread_of_texts(&client, 42, 1 << 19);
    let memory = Memory::of(&server);
    let mut open = Vec::new();
    for _ in 0..4 * rounds() {
        let mut history = open_history(&client, &thread);
        assert_eq!(history.status, 200);
        // From here on the server writes, and nobody reads.
        history.chunk().unwrap();
        open.push(history);
    }
    for one in [&other, &client] {
        Waits::of(one, 20).held("unread histories", Duration::from_secs(2));
    }
    let mut read = open_history(&client, &thread);
    let mut bytes = 0;
    while let Some(chunk) = read.chunk() {
        bytes += chunk.len();
    }
    assert!(bytes > 21_000_000, "{bytes} bytes");
    drop(open);
    memory.held("unread histories", 50 * MIB);
}

fn a_long_history_has_every_state_as_it_is_read_alone(place: &Place) {
    let (server, client) = serve(place);
    let thread = thread_of_texts(&client, 30, 120_000);
    let watch = Watch::of(&server);
    let run = json!({"assistant_id": "approve", "input": null, "command": {"resume": "yes"}});
    client.run(&thread, &run);
    let path = format!("/threads/{thread}/history");
    let answer = client.post(&path, &json!({"limit": 1000}));
    let states: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
    assert!(states.len() > 30);
    let texts = states.iter().map(|state| {
        let id = state["checkpoint_id"].as_str().unwrap();
        let alone = client.get(&format!("/threads/{thread}/state/{id}"));
        alone.text().to_owned()
    });
    let texts: Vec<_> = texts.collect();
    assert!(
        answer.text() == format!("[{}]", texts.join(",")),
        "the list differs from its states"
    );

    // Pages join to the same list, whatever their sizes.
    let mut pages = Vec::new();
    let mut body = json!({"limit": 7});
    loop {
        let page = client.post(&path, &body).json();
        let page = page.as_array().unwrap();
        let Some(last) = page.last() else { break };
        body["before"] = last["checkpoint_id"].clone();
        pages.extend(page.iter().cloned());
    }
    assert!(pages == states, "the pages differ from the list");
    watch.held("a long history and its pages", 128 * MIB);
}

/// Runs the graph that has a text in its state.
fn run_with_text(client: &Client, thread: &str, bytes: usize) {
    let input = json!({"request": "t".repeat(bytes)});
    client.run(thread, &json!({"assistant_id": "approve", "input": input}));
}

fn lists_of_threads_and_runs_that_nobody_reads_take_little_memory(place: &Place) {
    let (server, [client, other]) = serve_two(place);
    let mut threads: Vec<String> = (0..20).map(|_| client.thread()).collect();
    for thread in &threads {
        run_with_text(&client, thread, 1 << 19);
    }
    let one = client.thread();
    for _ in 0..20 {
        run_with_text(&client, &one, 1 << 19);
    }
    threads.push(one.clone());
    let memory = Memory::of(&server);
    let all = json!({"limit": 1000}).to_string();
    let mut open = Vec::new();
    for _ in 0..4 * rounds() {
        let runs = format!("/threads/{one}/runs?limit=1000");
        for mut list in [
            client.open("POST", "/threads/search", &[], all.as_bytes()),
            client.open("GET", &runs, &[], b""),
            client.open("GET", "/threads?limit=1000", &[], b""),
        ] {
            assert_eq!(list.status, 200);
            list.chunk().unwrap();
            open.push(list);
        }
    }
    for one in [&other, &client] {
        Waits::of(one, 20).held("unread lists of threads and runs", Duration::from_secs(2));
    }
    drop(open);
    memory.held("unread lists of threads and runs", 50 * MIB);

    // They are complete, and their headers were known before.
    let answer = client.post(
        "/threads/search",
        &json!({"limit": 20, "sort_by": "created_at", "sort_order": "asc"}),
    );
    assert_eq!(answer.header("x-pagination-next"), Some("20"));
    let listed = answer.json();
    for (thread, row) in threads.iter().zip(listed.as_array().unwrap()) {
        assert_eq!(row["thread_id"], json!(thread));
        let alone = client.get(&format!("/threads/{thread}")).json();
        assert!(*row == alone, "the row of {thread} differs");
    }
    let runs = client
        .get(&format!("/threads/{one}/runs?limit=1000"))
        .json();
    assert_eq!(runs.as_array().unwrap().len(), 20);
    for run in runs.as_array().unwrap() {
        let id = run["run_id"].as_str().unwrap();
        let alone = client.get(&format!("/threads/{one}/runs/{id}")).json();
        assert!(*run == alone, "the row of {id} differs");
    }
    let ids = client
        .get(&format!(
            "/threads/{one}/runs?limit=1000&select=run_id,status"
        ))
        .json();
    let few = |run: &Value| json!({"run_id": run["run_id"], "status": run["status"]});
    let few: Vec<Value> = runs.as_array().unwrap().iter().map(few).collect();
    assert_eq!(ids, json!(few));
}

fn a_value_above_the_limit_is_refused_and_can_be_left_out(place: &Place) {
    // A third of it is for responses, half of that for one client.
    let setup = Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "64");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = client.thread();
    run_with_text(&client, &thread, 3 << 20);
    let history = client.post(&format!("/threads/{thread}/history"), &json!({}));
    assert!(history.refused(413).contains("more than the limit of"));
    let refused = client.post("/threads/search", &json!({})).refused(413);
    assert!(refused.contains("`select`"), "{refused}");
    let found = client.post("/threads/search", &json!({"select": ["thread_id"]}));
    assert_eq!(found.json(), json!([{"thread_id": thread}]));
    let runs = format!("/threads/{thread}/runs");
    let refused = client.get(&runs).refused(413);
    assert!(refused.contains("`select`"), "{refused}");
    assert_eq!(client.get(&format!("{runs}?select=status")).status, 200);
    watch.held("values above the limit", 96 * MIB);
}

fn without_keys_each_address_has_a_share_of_the_memory(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "64");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    // More than sockets hold.
    let states = if rounds() < 10 { 16 } else { 24 };
    let thread = thread_of_texts(&client, states, 1 << 19);
    let path = format!("/threads/{thread}/history");
    let history = |client: &Client| client.open("POST", &path, &[], b"{\"limit\": 1000}");
    let [one, other] =
        ["127.0.0.1", "127.0.0.3"].map(|address| client.at(address.parse().unwrap()));
    let mut open = Vec::new();
    loop {
        let mut list = history(&one);
        if list.status != 200 {
            assert_eq!(list.status, 503);
            break;
        }
        list.chunk().unwrap();
        open.push(list);
        assert!(open.len() < 20, "nothing is refused");
    }
    assert_eq!(history(&other).status, 200);
    assert_eq!(history(&one).status, 503);
    watch.held("unread lists of one address", 96 * MIB);
}

fn lists_beyond_the_memory_for_them_are_refused_until_it_is_free(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "64")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(setup);
    let ann = Client::of(&server).with_key("key-a");
    let bob = Client::of(&server).with_key("key-b");
    let watch = Watch::beside(&server, &bob);
    let states = if rounds() < 10 { 16 } else { 24 };
    let thread = thread_of_texts(&ann, states, 1 << 19);
    let other = thread_of_texts(&bob, 3, 1 << 19);
    let path = format!("/threads/{thread}/history");
    let mut open = Vec::new();
    let refused = loop {
        let mut history = ann.open("POST", &path, &[], b"{\"limit\": 1000}");
        if history.status != 200 {
            break history;
        }
        history.chunk().unwrap();
        open.push(history);
        assert!(open.len() < 20, "nothing is refused");
    };
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    // The share of another client is free, and what needs no memory goes on.
    let history = bob.post(&format!("/threads/{other}/history"), &json!({}));
    assert_eq!(history.status, 200);
    assert_eq!(ann.get(&format!("/threads/{thread}/runs")).status, 200);
    drop(open);
    until("the memory is free", || {
        ann.post(&path, &json!({"limit": 1})).status == 200
    });
    watch.held("lists beyond the memory for them", 96 * MIB);
}

/// The parts of a list that its pages have, each page with less than it might have.
fn pages(client: &Client, thread: &str, query: &str, list: &str, key: &str) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/threads/{thread}/{list}?{query}{cursor}");
        let page = ok(client.get(&path), 200);
        pages.push(page[list].as_array().unwrap().clone());
        let (field, direction) = key.split_once(' ').unwrap();
        let Some(next) = page.get(field).filter(|next| !next.is_null()) else {
            return pages;
        };
        let next = next
            .as_str()
            .map_or_else(|| next.to_string(), str::to_owned);
        cursor = format!("&{direction}={next}");
    }
}

fn pages_of_messages_and_events_end_early_and_lead_to_the_rest(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_PAGE_BYTES", "20000");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = agent_thread(&client);
    let sizes = [10, 6000, 6000, 30_000, 6000, 10, 10, 6000, 6000, 6000, 10];
    for (at, size) in sizes.iter().enumerate() {
        let content = "m".repeat(*size);
        let body = json!({"id": format!("m{at}"), "role": "user", "content": content});
        ok(
            client.post(&format!("/threads/{thread}/messages"), &body),
            201,
        );
    }
    let expected: Vec<String> = (0..sizes.len()).map(|at| format!("m{at}")).collect();
    let ids = |messages: &[Value]| -> Vec<String> {
        let id = |one: &Value| one["message_id"].as_str().unwrap().to_owned();
        messages.iter().map(id).collect()
    };
    for view in ["path", "state"] {
        let forward = pages(
            &client,
            &thread,
            &format!("view={view}"),
            "messages",
            "next after",
        );
        assert!(forward.len() > 3, "{} pages", forward.len());
        assert_eq!(ids(&forward.concat()), expected, "{view}");
        // One message above the limit has a page of its own.
        assert!(forward.iter().any(|page| ids(page) == ["m3"]));
        let tail = client.get(&format!("/threads/{thread}/messages?view={view}&tail=true"));
        let tail = tail.json();
        let (last, before) = (ids(tail["messages"].as_array().unwrap()), &tail["prev"]);
        assert!(
            last.ends_with(&["m10".into()]) && last.len() == 6,
            "{last:?}"
        );
        let query = format!("view={view}&before={}", before.as_str().unwrap());
        let page = client
            .get(&format!("/threads/{thread}/messages?{query}"))
            .json();
        let earlier = ids(page["messages"].as_array().unwrap());
        let first = expected.iter().position(|id| *id == last[0]).unwrap();
        assert_eq!(earlier.last(), Some(&expected[first - 1]), "{view}");
    }
    let events = pages(&client, &thread, "limit=1000", "events", "next after");
    let number = |event: &Value| event["event_number"].as_i64().unwrap();
    let numbers: Vec<i64> = events.concat().iter().map(number).collect();
    assert!(events.len() > 2, "{} pages", events.len());
    assert!(numbers.len() > sizes.len() && numbers.is_sorted_by(|a, b| a + 1 == *b));
    watch.held("pages that end early", 96 * MIB);
}

fn a_page_of_as_many_bytes_as_it_may_have_is_whole_and_one_of_a_byte_more_ends_early(
    place: &Place,
) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_PAGE_BYTES", "4096");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    // Whether the messages and the events of a thread with two messages have one page, by the bytes of their texts.
    let are_whole = |bytes: usize| -> [bool; 2] {
        let thread = agent_thread(&client);
        for (id, length) in [("a", 1000), ("b", bytes - 1000)] {
            let body = json!({"id": id, "role": "user", "content": "m".repeat(length)});
            let path = format!("/threads/{thread}/messages");
            ok(client.post(&path, &body), 201);
        }
        ["messages", "events"].map(|list| {
            let page = ok(
                client.get(&format!("/threads/{thread}/{list}?limit=100")),
                200,
            );
            let (length, next) = (page[list].as_array().unwrap().len(), &page["next"]);
            if list == "messages" {
                assert_eq!(length, if next.is_null() { 2 } else { 1 });
            }
            next.is_null()
        })
    };
    // What was looked at for one list is known for the other.
    let mut known = HashMap::new();
    let mut are_whole = |bytes: usize| *known.entry(bytes).or_insert_with(|| are_whole(bytes));
    for list in 0..2 {
        // What is around the texts counts too, so that the last whole page is found by halving.
        let (mut whole, mut split) = (1100, 4096);
        assert!(are_whole(whole)[list] && !are_whole(split)[list]);
        while split - whole > 1 {
            let middle = usize::midpoint(whole, split);
            let half = if are_whole(middle)[list] {
                &mut whole
            } else {
                &mut split
            };
            *half = middle;
        }
        println!("a whole page has {whole} bytes of texts");
        assert!(whole > 4096 / 2, "{whole}");
    }
    watch.held("pages at their limit", 96 * MIB);
}

fn runs_of_large_states_wait_for_memory_and_do_not_fail(place: &Place) {
    // 10 MiB are for the states of one principal: enough for one of these.
    let setup = Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "64");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let threads: Vec<String> = (0..8).map(|_| client.thread()).collect();
    for thread in &threads {
        run_with_text(&client, thread, 3 << 19);
    }
    // Nothing of them is in memory.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let resume =
        json!({"assistant_id": "approve", "command": {"resume": "yes"}, "stream_mode": []});
    let path = |thread: &String| format!("/threads/{thread}/runs");
    let runs: Vec<String> = threads
        .iter()
        .map(|thread| {
            let run = ok(client.post(&path(thread), &resume), 200);
            run["run_id"].as_str().unwrap().to_owned()
        })
        .collect();
    for (thread, run) in threads.iter().zip(&runs) {
        assert_eq!(client.end_of(thread, run), "success");
    }
    watch.held("runs of large states", 100 * MIB);
}

fn states_that_nobody_reads_are_refused_beyond_their_memory(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "320");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = thread_of_texts(&client, 1, 8 << 20);
    let watch = Watch::of(&server);
    let path = format!("/threads/{thread}/state");
    let open: Vec<Open> = (0..30 * rounds())
        .map(|_| client.open("GET", &path, &[], b""))
        .collect();
    let with = |status: u16| open.iter().filter(|open| open.status == status).count();
    assert!(with(200) > 0 && with(503) > 0);
    assert_eq!(with(200) + with(503), open.len());
    // What changes something is answered, however little memory is left.
    let edit = json!({"values": {"request": "short"}});
    ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    drop(open);
    until("the memory is free", || client.get(&path).status == 200);
    watch.held("unread states", 200 * MIB);
}

fn large_states_that_are_read_at_once_are_shown_or_refused(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MEMORY_BUDGET", "64");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = json!({"metadata": {"graph_id": "agent"}});
    let thread = client.post("/threads", &thread).json()["thread_id"].clone();
    let thread = thread.as_str().unwrap();
    // Messages take more memory than their bytes, unlike a long text.
    for part in 0..2 {
        let message = |at: usize| {
            let id = format!("m{part}-{at}");
            json!({"type": "human", "content": "x".repeat(1500), "id": id})
        };
        let messages: Vec<Value> = (0..500).map(message).collect();
        let edit = json!({"values": {"messages": messages}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    let ended = json!({"assistant_id": "agent", "input": {"messages": []}});
    let ended = background(&client, thread, &ended);
    assert_eq!(client.end_of(thread, &ended), "success");
    // Nothing of it is in memory.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let refusing = [
        "/state".to_owned(),
        String::new(),
        "/diff?from=branch:main&to=branch:main".to_owned(),
        "/messages?limit=10".to_owned(),
    ];
    // Its head is out before it has the values, so it waits for the memory.
    let waiting = [format!("/runs/{ended}/join")];
    for (path, may_refuse) in refusing
        .iter()
        .map(|path| (path, true))
        .chain(waiting.iter().map(|path| (path, false)))
    {
        let path = format!("/threads/{thread}{path}");
        for _ in 0..rounds() {
            std::thread::scope(|scope| {
                let one = || scope.spawn(|| client.get(&path).status);
                let all: Vec<_> = (0..24).map(|_| one()).collect();
                let all: Vec<u16> = all.into_iter().map(|one| one.join().unwrap()).collect();
                assert!(all.contains(&200), "{all:?}");
                let fits = |status: &u16| *status == 200 || may_refuse && *status == 503;
                assert!(all.iter().all(fits), "{path}: {all:?}");
            });
        }
        until("the memory is free", || client.get(&path).status == 200);
        println!("{path}: peak {} MiB", watch.memory.peak() / MIB);
    }
    watch.held("large states at once", 64 * MIB);
}
