//! Clients that do not read what they asked for.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, ok, turn, until, user, with};

use crate::http2::Connection;
use crate::lists::thread_of_texts;
use crate::siege::{MIB, Memory, Waits, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    unread_streams_are_cut_off_before_they_take_the_memory,
    unread_streams_of_one_principal_leave_those_of_others_alone,
    streams_with_a_window_of_zero_do_not_stay,
    who_reads_now_and_then_is_served_and_who_stops_is_cut_off,
    who_takes_a_response_at_its_pace_gets_it_and_who_is_slower_is_cut_off_when_its_time_is_over,
);

/// A run whose events take several times its input.
fn loud(size: usize) -> Value {
    let modes = json!(["values", "updates", "tasks", "checkpoints", "debug"]);
    with(turn(&"x".repeat(size)), "stream_mode", modes)
}

fn unread_streams_are_cut_off_before_they_take_the_memory(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "64")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let memory = Memory::of(&server);
    let streams: Vec<(Open, String)> = (0..30 * rounds())
        .map(|_| {
            let thread = agent_thread(&ann);
            (ann.open_stream(&thread, &loud(800_000)), thread)
        })
        .collect();
    // The runs go on without their readers.
    for (stream, thread) in &streams {
        assert_eq!(ann.end_of(thread, &stream.run()), "success");
    }
    println!("peak of unread streams: {} MiB", memory.peak() / MIB);
    until("a stream was cut", || {
        server.output().contains("a stream lost frames")
    });
    // Who reads gets all of it, the same client too, and nobody else waits.
    let size = if rounds() < 10 { 20_000 } else { 100_000 };
    for client in [&ann, &bob] {
        let mut read = client.open_stream(&agent_thread(client), &loud(size));
        let events: Vec<_> = std::iter::from_fn(|| read.event()).collect();
        assert!(events.iter().all(|event| event.name != "error"));
        Waits::of(client, 30).held("unread streams", Duration::from_secs(5));
    }
    let cut = streams
        .into_iter()
        .filter_map(|(mut stream, _)| std::iter::from_fn(|| stream.chunk_or_break()).last())
        .filter(|last| String::from_utf8_lossy(last).contains("SlowReader"))
        .count();
    assert!(cut > 0, "somebody was cut off, and was told");
    memory.held("unread streams", 300 * MIB);
}

fn unread_streams_of_one_principal_leave_those_of_others_alone(place: &Place) {
    let setup = Setup::example("bench_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "192")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let tokens = |n: u64| {
        let input = json!({"n": n});
        json!({"assistant_id": "tokens_large", "input": input, "stream_mode": "custom"})
    };
    let open = |client: &Client, n| {
        let thread = client.thread();
        let stream = client.open_stream(&thread, &tokens(n));
        assert_eq!(client.end_of(&thread, &stream.run()), "success");
        stream
    };
    let watch = Watch::beside(&server, &bob);
    // About half a kilobyte each, some of which the system has: more than any stream of the others, and less than a share.
    let mut slow = open(&bob, 30_000);
    // With five of them there is half as much again as all streams together may have.
    let count = if rounds() < 10 { 5 } else { 8 * rounds() };
    let mut all: Vec<Open> = (0..count).map(|_| open(&ann, 26_000)).collect();
    let is_cut = |stream: &mut Open| {
        let last = std::iter::from_fn(|| stream.chunk_or_break()).last();
        last.is_some_and(|last| String::from_utf8_lossy(&last).contains("SlowReader"))
    };
    assert!(!is_cut(&mut slow), "a reader within its share was cut off");
    let cut = all.iter_mut().filter_map(|one| is_cut(one).then_some(()));
    assert!(cut.count() > 0);
    drop((all, slow));
    watch.held("unread streams of one principal", 150 * MIB);
}

fn streams_with_a_window_of_zero_do_not_stay(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STALL", "1");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = agent_thread(&client);
    for number in 0..5 {
        let message = with(user(&"x".repeat(100_000)), "id", format!("m{number}"));
        let edit = json!({"values": {"messages": [message]}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    let watch = Watch::of(&server);
    block_on(async {
        let mut connection = Connection::open(&server, 0).await;
        let path = format!("/threads/{thread}/history");
        let mut open = Vec::new();
        for _ in 0..50 {
            let response = connection.request("POST", &path, "{\"limit\":5}").await;
            open.push(response.unwrap());
        }
        for response in open {
            let mut body = response.await.unwrap().into_body();
            let ended = async { while let Some(Ok(_)) = body.data().await {} };
            let limit = Duration::from_secs(20);
            tokio::time::timeout(limit, ended).await.unwrap();
        }
        // Only the streams that nobody read have gone.
        let response = connection.request("HEAD", "/ok", "").await.unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    watch.held("windows of zero", 256 * MIB);
}

fn who_reads_now_and_then_is_served_and_who_stops_is_cut_off(place: &Place) {
    let stall = Duration::from_secs(5);
    let setup = Setup::example("reference_server").env("BACKSTITCH_STALL", "5");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = thread_of_texts(&client, 16, 1 << 20);
    let watch = Watch::of(&server);
    let path = format!("/threads/{thread}/history");
    let client = client.with_window(64 << 10);
    let mut open = client.open("POST", &path, &[], b"{\"limit\": 1000}");
    let begin = Instant::now();
    // Longer than it may take nothing, and never for so long at once.
    while begin.elapsed() < 2 * stall {
        let mut read = 0;
        while read < 1 << 20 {
            read += open.chunk().unwrap().len();
        }
        sleep(stall / 4);
    }
    sleep(stall + Duration::from_secs(3));
    assert!(open.breaks());
    watch.held("a reader that stops", 96 * MIB);
}

/// Reads a response in as many pieces as there are, evenly within this time: whether all of it came, and when that or its
/// end was.
async fn read_evenly(server: &Server, path: &str, time: Duration) -> (bool, Duration) {
    let window = 16 << 10;
    let mut connection = Connection::open(server, window).await;
    let response = connection.request("GET", path, "").await.unwrap();
    let response = response.await.unwrap();
    let begin = Instant::now();
    let length = response.headers()["content-length"].to_str().unwrap();
    let length: usize = length.parse().unwrap();
    let mut body = response.into_body();
    let mut read = 0;
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else {
            return (false, begin.elapsed());
        };
        read += piece.len();
        let due = time.mul_f64(read as f64 / length as f64);
        tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    (read == length, begin.elapsed())
}

fn who_takes_a_response_at_its_pace_gets_it_and_who_is_slower_is_cut_off_when_its_time_is_over(
    place: &Place,
) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_STALL", "2")
        .env("BACKSTITCH_RESPONSE_PACE", "200000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = thread_of_texts(&client, 1, 1_200_000);
    let path = format!("/threads/{thread}/state");
    let length = client.get(&path).body.len() as f64;
    // Two seconds, and one for each 200,000 bytes.
    let most = Duration::from_secs_f64(2.0 + length / 200_000.0);
    let watch = Watch::of(&server);
    // It is served by one thread of its own for each, so that neither waits for the other.
    let read = |time| block_on(read_evenly(&server, &path, time));
    let (in_time, late) = std::thread::scope(|scope| {
        let in_time = scope.spawn(|| read(most.mul_f64(0.75)));
        let late = scope.spawn(|| read(2 * most));
        (in_time.join().unwrap(), late.join().unwrap())
    });
    println!("{length} bytes within {most:?}: {in_time:?}, {late:?}");
    assert!(in_time.0);
    assert!(!late.0, "it was served after {:?}", late.1);
    // The server begins to count when it has made the response.
    let early = most.saturating_sub(Duration::from_millis(500));
    assert!(
        late.1 >= early && late.1 < most + Duration::from_secs(5),
        "{late:?}"
    );
    watch.held("a reader below the pace", 64 * MIB);
}
