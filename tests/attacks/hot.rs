//! Many clients that change one thread at once: nobody else waits for them, and no process looks dead.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::Setup;
use test_support::tables::{connect, file};
use test_support::talk::{background, slow, until, with};

use crate::locks::locked;
use crate::siege::{MIB, Memory, Waits, Watch, pause, rounds};

on_both_storages!(
    sixty_clients_on_one_thread_hold_up_nobody_else,
    more_waiters_than_allowed_are_told_to_come_back,
    as_many_as_may_wait_for_one_thread_are_served_and_the_next_is_refused,
);

/// Locks the branches of a thread on Postgres.
fn branches_of(thread: &str) -> String {
    format!("SELECT 1 FROM branches WHERE thread_id = '{thread}' FOR UPDATE")
}

/// How often the clients post: as fast as they can they would take the processors.
const EVERY: Duration = Duration::from_millis(400);

/// Sixty clients post to one thread at once, again and again until `work` is done; how many got which status.
fn storm(client: &Client, thread: &str, work: impl FnOnce()) -> Vec<(u16, usize)> {
    let done = AtomicBool::new(false);
    let statuses: Vec<AtomicUsize> = (0..600).map(|_| AtomicUsize::new(0)).collect();
    let post = &|number: usize| {
        let strategy = ["enqueue", "reject", "interrupt", "rollback"][number % 4];
        let body = with(slow(1, 1), "multitask_strategy", strategy);
        let answer = client.post(&format!("/threads/{thread}/runs"), &body);
        statuses[usize::from(answer.status)].fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                std::thread::scope(|scope| {
                    for number in 0..60 {
                        scope.spawn(move || post(number));
                    }
                });
                std::thread::sleep(pause(EVERY).saturating_sub(begin.elapsed()));
            }
        });
        work();
        done.store(true, Ordering::Relaxed);
    });
    let counts = statuses.iter().enumerate();
    let counts = counts.map(|(status, count)| (status as u16, count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn sixty_clients_on_one_thread_hold_up_nobody_else(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        // The clients of the thread may take every connection, so that no share keeps some for the other one.
        .env("BACKSTITCH_SHARE", "100")
        .env("BACKSTITCH_LEASE", "3")
        .env("BACKSTITCH_CONNECTIONS", "6");
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    // Somebody who would take over the runs of a process that looks dead.
    let watching = place.is_postgres().then(|| server.replica());
    let memory = Memory::of(&server);
    for _ in 0..rounds() {
        // Threads of somebody else, whose runs last longer than the lease.
        let others: Vec<(String, String)> = (0..10)
            .map(|_| {
                let thread = bob.thread();
                let run = background(&bob, &thread, &with(slow(45, 85), "durability", "sync"));
                (thread, run)
            })
            .collect();
        let hot = ann.thread();
        let mut waits = None;
        // Another process that is slow with the thread, for as long as the others run.
        let slow_process = place.url().map(|url| locked(url, &branches_of(&hot)));
        let statuses = storm(&ann, &hot, || {
            waits = Some(Waits::of(&bob, 51));
            for (thread, run) in &others {
                assert_eq!(bob.end_of(thread, run), "success");
            }
            drop(slow_process);
        });
        println!("{statuses:?}");
        let waits = waits.unwrap();
        waits.held("sixty clients on one thread", Duration::from_secs(2));
        for (status, _) in statuses {
            assert!(matches!(status, 200 | 409 | 429 | 503), "{status}");
        }
        if let Some(url) = place.url() {
            let moved = "SELECT count(*) FROM runs WHERE run_id = ANY ($1::text[]::uuid[]) AND attempt <> 1";
            let runs: Vec<&str> = others.iter().map(|(_, run)| &**run).collect();
            let moved = block_on(async {
                let row = connect(url).await.query_one(moved, &[&runs]).await;
                row.unwrap().get::<_, i64>(0)
            });
            assert_eq!(moved, 0, "runs of a healthy process were taken over");
        }
    }
    if let Some(watching) = watching {
        let text = watching.output();
        assert!(!text.contains("took over"), "{text}");
    }
    memory.held("sixty clients on one thread", 128 * MIB);
}

fn more_waiters_than_allowed_are_told_to_come_back(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_WAITING", "1");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = client.thread();
    let mut refused = 0;
    let path = format!("/threads/{thread}/messages");
    std::thread::scope(|scope| {
        let posts: Vec<_> = (0..60)
            .map(|number| {
                let (client, path) = (&client, &path);
                let body = json!({"role": "user", "content": format!("number {number}")});
                scope.spawn(move || client.post(path, &body))
            })
            .collect();
        for post in posts {
            let answer = post.join().unwrap();
            if answer.status == 503 {
                refused += 1;
                assert!(answer.header("retry-after").is_some());
                assert!(
                    answer.text().contains("wait for each other"),
                    "{}",
                    answer.text()
                );
            } else {
                assert!(answer.status < 300, "{}", answer.text());
            }
        }
    });
    println!("{refused} of 60 were refused");
    assert!(refused > 0);
    // Those who came in time are there, each once.
    let stored = client
        .get(&format!("/threads/{thread}/messages?limit=100"))
        .json();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 60 - refused);
    // And later there is room.
    let late = json!({"role": "user", "content": "late"});
    assert!(client.post(&path, &late).status < 300);
    watch.held("more waiters than allowed", 64 * MIB);
}

fn as_many_as_may_wait_for_one_thread_are_served_and_the_next_is_refused(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_WAITING", "3");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/messages");
    // The first one has its turn and waits for whoever has locked what it writes.
    let postgres = place.url().map(|url| locked(url, &branches_of(&thread)));
    let sqlite = (!place.is_postgres()).then(|| {
        let db = rusqlite::Connection::open(file(&server)).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        db
    });
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let posts: Vec<_> = (0..9)
            .map(|number| {
                let (client, path, refused) = (&client, &path, &refused);
                let body = json!({"role": "user", "content": format!("number {number}")});
                scope.spawn(move || {
                    let answer = client.post(path, &body);
                    refused.fetch_add(usize::from(answer.status == 503), Ordering::SeqCst);
                    answer
                })
            })
            .collect();
        until("all beyond the limit are refused", || {
            refused.load(Ordering::SeqCst) >= 5
        });
        drop((postgres, sqlite));
        let answers: Vec<_> = posts.into_iter().map(|post| post.join().unwrap()).collect();
        let (stored, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 201);
        assert_eq!((stored.len(), refused.len()), (1 + 3, 5));
        for answer in refused {
            assert!(answer.refused(503).ends_with("Try again."));
        }
    });
    watch.held("waiters for a locked thread", 64 * MIB);
}
