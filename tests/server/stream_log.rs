//! Streams that can be resumed are stored: they are read after a restart, at other processes, and
//! after their process died.

mod final_row;

use std::collections::BTreeSet;
use std::sync::RwLock;

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::rows;
use test_support::talk::{self, until, with};

on_both_storages!(
    a_stream_is_read_after_a_crash_as_it_was_before,
    a_run_that_a_crash_cut_off_shows_each_event_once,
    what_is_old_goes_and_the_end_is_shown_instead,
    the_stream_of_a_run_that_is_too_long_loses_its_beginning,
    the_stream_of_a_run_within_its_limit_is_whole_and_a_longer_one_loses_its_beginning,
    the_oldest_streams_of_a_principal_go_beyond_its_share,
    the_failure_of_a_run_is_in_its_log,
    a_run_from_an_earlier_checkpoint_is_in_its_log_like_any_other,
);

/// A slow run whose stream can be resumed and whose every step is on disk before the next.
fn slow(ms: u64, ticks: u64) -> Value {
    let run = with(talk::slow(ms, ticks), "durability", "sync");
    with(run, "stream_resumable", true)
}

fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "2"));
    let client = Client::of(&server);
    (server, client)
}

fn join(client: &Client, thread: &str, run: &str, after: &str) -> Open {
    let path = format!("/threads/{thread}/runs/{run}/stream");
    client.open("GET", &path, &[("last-event-id", after)], b"")
}

fn rest(mut open: Open) -> Vec<Event> {
    assert_eq!(open.status, 200);
    std::iter::from_fn(|| open.event()).collect()
}

fn number(event: &Event) -> u64 {
    event.id.as_deref().unwrap().parse().unwrap()
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

fn ticks(events: &[Event]) -> Vec<u64> {
    let ticks = events
        .iter()
        .filter_map(|event| event.data["tick"].as_u64());
    ticks.collect()
}

/// Whether every event has a number, greater than that of the one before.
fn grows(events: &[Event]) -> bool {
    events.is_sorted_by(|a, b| number(a) < number(b))
}

fn of_thread(client: &Client, thread: &str, runs: usize) -> Vec<Event> {
    let path = format!("/threads/{thread}/stream");
    let mut open = client.open("GET", &path, &[("last-event-id", "-")], b"");
    let mut events = vec![];
    while events
        .iter()
        .filter(|event: &&Event| event.data["status"] == "run_done")
        .count()
        < runs
    {
        events.push(open.event().unwrap());
    }
    events
}

fn a_stream_is_read_after_a_crash_as_it_was_before(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(5, 3));
    let run = open.run();
    let before: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    assert_eq!(before.len(), 7);
    client.stream(&thread, &slow(1, 1));
    let whole = of_thread(&client, &thread, 2);

    server.restart();
    let client = Client::of(&server);
    for after in ["-1", "-", "0"] {
        assert_eq!(rest(join(&client, &thread, &run, after)), before, "{after}");
    }
    for at in 0..before.len() {
        let after = before[at].id.as_deref().unwrap();
        assert_eq!(rest(join(&client, &thread, &run, after)), before[at + 1..]);
    }
    assert_eq!(
        rest(join(&client, &thread, &run, &u64::MAX.to_string())),
        []
    );
    let path = format!("/threads/{thread}/runs/{run}/stream");
    assert_eq!(rest(client.open("GET", &path, &[], b"")), []);
    let custom = format!("{path}?stream_mode=custom");
    let custom = rest(client.open("GET", &custom, &[("last-event-id", "-1")], b""));
    assert_eq!((custom.len(), ticks(&custom)), (3, vec![0, 1, 2]));
    assert_eq!(of_thread(&client, &thread, 2), whole);
    // Later runs go on behind.
    client.stream(&thread, &slow(1, 1));
    assert_eq!(of_thread(&client, &thread, 3)[..whole.len()], whole);
}

/// Such a run begins a branch of its own, while its stream is written.
fn a_run_from_an_earlier_checkpoint_is_in_its_log_like_any_other(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.stream(&thread, &slow(1, 1));
    let state = client.get(&format!("/threads/{thread}/state")).json();
    let early = &state["checkpoint"]["checkpoint_id"];
    client.stream(&thread, &slow(1, 1));
    let from = with(slow(100, 5), "checkpoint_id", early.clone());
    let open = client.open_stream(&thread, &from);
    let run = open.run();
    let live = rest(open);
    assert_eq!(ticks(&live), [0, 1, 2, 3, 4]);
    assert_eq!(names(&live).last(), Some(&"values"));
    assert_eq!(rest(join(&client, &thread, &run, "-1")), live);
}

fn a_run_that_a_crash_cut_off_shows_each_event_once(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(1000, 6));
    let run = open.run();
    let mut early = vec![];
    while ticks(&early) != [0, 1, 2] {
        early.push(open.event().unwrap());
    }
    server.restart();
    let client = Client::of(&server);
    let late = rest(join(
        &client,
        &thread,
        &run,
        &number(&early[early.len() - 1]).to_string(),
    ));
    // The next attempt says which one it is, and sends what the first one did anew.
    assert_eq!(
        (&*late[0].name, &late[0].data["attempt"]),
        ("metadata", &json!(2))
    );
    assert_eq!(ticks(&late), [0, 1, 2, 3, 4, 5]);
    let whole = rest(join(&client, &thread, &run, "-1"));
    assert!(grows(&whole), "{whole:?}");
    assert_eq!(whole[0].name, "metadata");
    assert_eq!(ticks(&whole), [0, 1, 2, 3, 4, 5]);
    assert!(whole.ends_with(&late));
    let last = &whole[whole.len() - 1].data;
    assert_eq!(last["seen"], json!(["work", "rest"]));
    let early: Vec<_> = early.into_iter().chain(late).collect();
    assert!(grows(&early));
    let replayed = of_thread(&client, &thread, 1);
    assert_eq!(ticks(&replayed), [0, 1, 2, 3, 4, 5]);
}

fn what_is_old_goes_and_the_end_is_shown_instead(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STREAM_RETENTION", "1s");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(1, 2));
    let run = open.run();
    while open.event().is_some() {}
    server.restart();
    let client = Client::of(&server);
    let gone = || rest(join(&client, &thread, &run, "1"));
    until("the log is swept", || gone()[0].name == "gap");
    let events = gone();
    assert_eq!(names(&events), ["gap", "metadata", "values"]);
    assert_eq!(events[0].data, json!({"first": 2, "last": null}));
    assert_eq!(events[2].data["seen"], json!(["work", "rest"]));
}

fn the_stream_of_a_run_that_is_too_long_loses_its_beginning(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STREAM_LOG", "1048576");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let mut body = slow(1, 60);
    // Every state has it.
    body["input"]["seen"] = json!(["x".repeat(700_000)]);
    body["stream_mode"] = json!(["values", "custom"]);
    let mut open = client.open_stream(&thread, &body);
    let run = open.run();
    let mut whole: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    // A slow reader learns of the beginning that it goes.
    whole.retain(|event| event.name != "gap");
    assert!(grows(&whole));
    // The last frames are shown a moment before the first ones go.
    until("the beginning is gone", || {
        rest(join(&client, &thread, &run, "-1"))[0].name == "gap"
    });
    server.restart();
    let client = Client::of(&server);
    let left = rest(join(&client, &thread, &run, "-1"));
    assert_eq!(left[0].name, "gap");
    let last = left[0].data["last"].as_u64().unwrap();
    assert_eq!(left[0].data["first"], 1);
    let expected: Vec<_> = whole
        .into_iter()
        .filter(|event| number(event) > last)
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(left[1..], expected);
}

fn the_stream_of_a_run_within_its_limit_is_whole_and_a_longer_one_loses_its_beginning(
    place: &Place,
) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STREAM_LOG", "3145728");
    let server = place.start(setup);
    let client = Client::of(&server);
    // A text that is in the state before the first superstep and after each of the two: what is stored of the
    // stream besides has less than 10,000 bytes.
    let stream = |length: usize| {
        let thread = client.thread();
        let mut body = slow(1, 1);
        body["input"]["seen"] = json!(["x".repeat(length)]);
        let mut open = client.open_stream(&thread, &body);
        let run = open.run();
        let events: Vec<_> = std::iter::from_fn(|| open.event()).collect();
        (thread, run, events)
    };
    let most = (3 << 20) / 3;
    let (thread, run, events) = stream(most - 10_000);
    assert_eq!(rest(join(&client, &thread, &run, "-1")), events);
    let (thread, run, _) = stream(most + 1);
    until("the beginning is gone", || {
        rest(join(&client, &thread, &run, "-1"))[0].name == "gap"
    });
}

fn the_oldest_streams_of_a_principal_go_beyond_its_share(place: &Place) {
    const SHARE: usize = 16 << 20;
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_STREAM_LOG_SHARE", "16777216");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let stream = |client: &Client| {
        let thread = client.thread();
        let mut body = slow(1, 1);
        body["input"]["seen"] = json!(["x".repeat(700_000)]);
        let mut open = client.open_stream(&thread, &body);
        let run = open.run();
        let events: Vec<_> = std::iter::from_fn(|| open.event()).collect();
        (thread, run, events)
    };
    let of_bob = stream(&bob);
    let read = |client: &Client, (thread, run, _): &(String, String, Vec<Event>)| {
        rest(join(client, thread, run, "-1"))
    };
    let stored = || -> usize {
        let sql = "SELECT CAST(sum(bytes) AS text) FROM run_events WHERE principal = 'ann'";
        let sum = rows(place, &server, sql)[0][0].clone();
        sum.unwrap().parse().unwrap()
    };
    // Each has three states: 2 MiB. As many as fit into the share are whole.
    let mut of_ann = vec![stream(&ann)];
    let each = stored();
    while stored() + each <= SHARE {
        of_ann.push(stream(&ann));
    }
    for whole in &of_ann {
        assert_eq!(read(&ann, whole), whole.2);
    }
    // Beyond it, and what may be written between two checks, the oldest go and no more.
    while of_ann.len() * each <= SHARE + SHARE / 16 + each {
        of_ann.push(stream(&ann));
    }
    until("the oldest have gone", || {
        read(&ann, &of_ann[0])[0].name == "gap"
    });
    until("no more is stored than a principal may have", || {
        stored() <= SHARE + SHARE / 16
    });
    assert!(stored() > SHARE - 2 * each, "{}", stored());
    let newest = of_ann.last().unwrap();
    assert_eq!(read(&ann, newest), newest.2);
    assert_eq!(read(&bob, &of_bob), of_bob.2);
}

fn the_failure_of_a_run_is_in_its_log(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let body = json!({
        "assistant_id": "failing", "input": {"fail": true}, "stream_resumable": true,
    });
    let mut open = client.open_stream(&thread, &body);
    let run = open.run();
    let events: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    assert_eq!(names(&events).last(), Some(&"error"));
    assert!(grows(&events));
    server.restart();
    let client = Client::of(&server);
    assert_eq!(rest(join(&client, &thread, &run, "-1")), events);
}

/// Two servers on one database, and a client of each. One that waits for a processor keeps its runs.
fn two() -> (Place, [Server; 2], [Client; 2]) {
    let place = Place::postgres();
    let one = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "6"));
    let two = one.replica();
    let clients = [Client::of(&one), Client::of(&two)];
    (place, [one, two], clients)
}

#[test]
fn a_run_is_followed_at_another_process_while_it_runs() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    let path = format!("/threads/{thread}/stream");
    let mut watched = two.open("GET", &path, &[], b"");
    let mut open = one.open_stream(&thread, &slow(300, 30));
    let run = open.run();
    let mut elsewhere = join(&two, &thread, &run, "-1");
    let mut early = vec![];
    while ticks(&early) != [0, 1, 2] {
        early.push(elsewhere.event().unwrap());
    }
    let status = talk::get(&two, &thread, &format!("runs/{run}"))["status"].clone();
    assert_eq!(status, "running", "its events came while it ran");
    let live = two.open(
        "GET",
        &format!("/threads/{thread}/runs/{run}/stream"),
        &[],
        b"",
    );
    let own: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    early.extend(rest(elsewhere));
    assert_eq!(early, own);
    let live = rest(live);
    assert!(own.ends_with(&live) && !live.is_empty() && live.len() < own.len());
    let mut shown = vec![];
    while shown.len() < own.len() + 1 {
        shown.push(watched.event().unwrap());
    }
    assert_eq!(ticks(&shown), ticks(&own));
    assert_eq!(shown[own.len()].data["status"], "run_done");
    assert_eq!(of_thread(&two, &thread, 1), of_thread(&one, &thread, 1));
}

#[test]
fn a_reader_at_another_process_goes_on_when_the_run_is_taken_over() {
    let (_place, mut servers, [one, two]) = two();
    let thread = one.thread();
    let run = talk::background(&one, &thread, &slow(1000, 6));
    let mut open = join(&two, &thread, &run, "-1");
    let mut events = vec![];
    while ticks(&events) != [0, 1] {
        events.push(open.event().unwrap());
    }
    servers[0].kill();
    events.extend(std::iter::from_fn(|| open.event()));
    assert!(grows(&events));
    let again = events.iter().position(|event| event.data["attempt"] == 2);
    let (before, after) = events.split_at(again.unwrap());
    assert_eq!(ticks(after), [0, 1, 2, 3, 4, 5]);
    assert!([0, 1, 2, 3, 4, 5].starts_with(&ticks(before)));
    assert_eq!(
        events[events.len() - 1].data["seen"],
        json!(["work", "rest"])
    );
}

/// A number that looks random, from one that changes.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Reads a run to its end, cut off at many places and going on at either process.
fn read_in_pieces(
    clients: &[Client; 2],
    dead: &RwLock<bool>,
    thread: &str,
    run: &str,
    seed: u64,
) -> Vec<Event> {
    let (mut state, mut events) = (seed | 1, Vec::<Event>::new());
    let mut cuts = 0;
    loop {
        let after = events
            .last()
            .map_or("-1".into(), |last| number(last).to_string());
        let mut open = {
            let dead = dead.read().unwrap();
            let at = if *dead { 1 } else { random(&mut state) % 2 };
            join(&clients[usize::try_from(at).unwrap()], thread, run, &after)
        };
        if open.status == 503 {
            // All readers come back to one process at once: it says when to try anew.
            let pause = open.header("retry-after").unwrap().parse().unwrap();
            std::thread::sleep(std::time::Duration::from_secs(pause));
            continue;
        }
        assert_eq!(open.status, 200);
        let most = if cuts < 20 {
            random(&mut state) % 60
        } else {
            u64::MAX
        };
        cuts += 1;
        let mut count = 0;
        while count < most {
            match open.event_or_break() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return events,
                Err(_) => break,
            }
            count += 1;
        }
    }
}

/// The long form: `BACKSTITCH_STREAM_RUNS=1000`.
#[test]
fn readers_that_are_cut_off_and_move_get_every_event_once() {
    let runs = std::env::var("BACKSTITCH_STREAM_RUNS").ok();
    let runs: u64 = runs.map_or(8, |runs| runs.parse().unwrap());
    let (_place, mut servers, clients) = two();
    let dead = RwLock::new(false);
    let started: Vec<(String, String)> = (0..runs)
        .map(|n| {
            let client = &clients[usize::try_from(n % 2).unwrap()];
            let thread = client.thread();
            let run = talk::background(client, &thread, &slow(4, 500));
            (thread, run)
        })
        .collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = started
            .iter()
            .zip(1..)
            .map(|((thread, run), seed)| {
                let (clients, dead) = (&clients, &dead);
                scope.spawn(move || read_in_pieces(clients, dead, thread, run, seed * 0x9E37_79B9))
            })
            .collect();
        // In the middle of the runs.
        until("the first run is under way", || {
            let (thread, run) = &started[0];
            // The readers may have all connections.
            let row = clients[1].get(&format!("/threads/{thread}/runs/{run}"));
            row.status == 200 && row.json()["status"] != "pending"
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        {
            let mut dead = dead.write().unwrap();
            *dead = true;
            servers[0].kill();
        }
        for reader in readers {
            let events = reader.join().unwrap();
            assert!(grows(&events));
            let mut attempts = events
                .split(|event| !event.data["attempt"].is_null())
                .skip(1)
                .peekable();
            let numbers: BTreeSet<_> = events
                .iter()
                .filter_map(|event| event.data["attempt"].as_u64())
                .collect();
            assert!(numbers.len() <= 2, "{numbers:?}");
            let (all, mut before): (Vec<u64>, _) = ((0..500).collect(), vec![]);
            while let Some(attempt) = attempts.next() {
                let ticks = ticks(attempt);
                // Of an attempt that died, a reader has what it got before. What is stored when it dies is
                // not executed anew.
                let is_whole = if attempts.peek().is_some() {
                    all.starts_with(&ticks)
                } else {
                    ticks == all || (ticks.is_empty() && before == all)
                };
                assert!(is_whole, "{ticks:?} after {before:?}");
                before = ticks;
            }
        }
    });
}
