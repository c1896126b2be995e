//! Many more requests of one principal at once than its share allows: each has an answer soon, and nothing is done in
//! vain.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::rows;
use test_support::talk::{ok, until};

use crate::pools::thread_of_states;
use crate::siege::{MIB, Memory, Waits, rounds};

on_both_storages!(; postgres_in_long_form:
    each_of_many_requests_of_one_principal_is_answered_soon,
);

/// For so long a read of states holds its connection.
const HOLD: Duration = Duration::from_millis(500);
/// How long a request may wait for its slot, and then for its first read, in seconds.
const LIMIT: u64 = 2;
/// Requests that come at one moment. One after the other in its share they would take 50 seconds.
const REQUESTS: usize = 200;
/// Between two requests of the other client.
const PAUSE: Duration = Duration::from_millis(25);
/// How long one may take: twice the limit, and what a busy machine needs for the work.
const MOST: Duration = Duration::from_secs(2 * LIMIT + 20);

/// Connections to the database of the test, but for that of who asks.
const SESSIONS: &str = "
SELECT CAST(count(*) AS text) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// The answers to requests of several reads that come at one moment, if they came in time, and how long each took.
fn crowd(client: &Client, thread: &str) -> Vec<(Option<Answer>, Duration)> {
    let path = &format!("/threads/{thread}/history");
    let request = move |client: Client| {
        let begin = Instant::now();
        let answer = client.post_within(MOST, path, &json!({"limit": 10}));
        (answer, begin.elapsed())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let client = client.clone();
                scope.spawn(move || request(client))
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// How many requests have had a share of what reads the database.
fn begun(server: &Server) -> usize {
    server.output().matches("shares::begun").count()
}

/// Lets one principal send many requests, and how long another one waits meanwhile.
fn attack(server: &Server, thread: &str) {
    let client = |key: &str| Client::of(server).with_key(key);
    let (ann, bob) = (client("key-a"), client("key-b"));
    let before = begun(server);
    let (answers, waits) = std::thread::scope(|scope| {
        let crowd = scope.spawn(|| crowd(&ann, thread));
        let mut waits = vec![];
        while !crowd.is_finished() {
            let begin = Instant::now();
            ok(bob.post("/threads/count", &json!({})), 200);
            waits.push(begin.elapsed());
            sleep(PAUSE);
        }
        (crowd.join().unwrap(), waits.into_iter().collect::<Waits>())
    });
    let (mut served, mut longest) = (0, Duration::ZERO);
    let left = answers.iter().filter(|(answer, _)| answer.is_none());
    assert_eq!(left.count(), 0, "had no answer");
    for (answer, took) in &answers {
        let answer = answer.as_ref().unwrap();
        longest = longest.max(*took);
        if answer.status == 200 {
            served += 1;
            continue;
        }
        answer.refused(429);
        assert_eq!(answer.json()["code"], "too_many_requests");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    // The log is read behind the answers.
    let begun = || begun(server).saturating_sub(before + waits.count());
    until("what was served is in the log", || begun() >= served);
    let begun = begun();
    println!(
        "of {} requests {begun} were begun and {served} served, the last answer came after {longest:?}; another \
         client waited {:?}, 99 of 100 times",
        answers.len(),
        waits.p99(),
    );
    assert!(longest < MOST, "{longest:?}");
    // Nothing was read in vain.
    assert_eq!(begun, served);
    assert!(served >= 5, "{served}");
    assert!(waits.p99() < Duration::from_secs(5), "{:?}", waits.p99());
}

fn each_of_many_requests_of_one_principal_is_answered_soon(place: &Place) {
    let setup = Setup::example("bench_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        // Four of them are for reads.
        .env("BACKSTITCH_CONNECTIONS", "10")
        .env("BACKSTITCH_REQUESTS", "64")
        .env("BACKSTITCH_REQUEST_WAIT", LIMIT.to_string());
    let mut server = place.start(setup);
    let thread = thread_of_states(&Client::of(&server).with_key("key-a"));
    let hold = HOLD.as_millis();
    let points = format!("checkpoints::page=sleep({hold});shares::begun=sleep(0)");
    server.restart_with("FAILPOINTS", &points);
    let memory = Memory::of(&server);
    for _ in 0..rounds() {
        attack(&server, &thread);
    }
    memory.held("a crowd of requests", 192 * MIB);
    if place.is_postgres() {
        let sessions = rows(place, &server, SESSIONS)[0][0].clone().unwrap();
        println!("{sessions} sessions");
        // Besides the ten one that renews the lease and one for notifications.
        assert!(sessions.parse::<usize>().unwrap() <= 12);
    }
    // Once they are answered there is room again.
    let ann = Client::of(&server).with_key("key-a");
    ok(ann.get(&format!("/threads/{thread}/history")), 200);
}
