//! What reads of the database one principal's unfinished responses take.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::{Client, Open};
use test_support::gate::{Gate, reached};
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{ok, until};

use crate::lists::thread_of_texts;
use crate::locks::{locked, patient, waiting};
use crate::siege::{MIB, Memory, Waits, rounds};

/// Between two requests of the other client.
fn pause() -> Duration {
    Duration::from_millis(if rounds() < 10 { 100 } else { 25 })
}

fn setup() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        // Who has no share for as long is refused.
        .env("BACKSTITCH_REQUEST_WAIT", "2")
}

/// Lists whose rows are still being read have their share of the connections and no more. What
/// reads a table that somebody has locked takes for ever.
#[test]
fn lists_of_one_principal_take_its_share_of_the_connections_and_others_are_answered() {
    let place = Place::postgres();
    // Four of them are for reads.
    let setup = setup().env("BACKSTITCH_CONNECTIONS", "10");
    let mut server = setup.env("DATABASE_URL", patient(&place)).start();
    let thread = thread_of_lists(&server);
    for (share, most) in [("50", 2), ("75", 3)] {
        server.restart_with("BACKSTITCH_SHARE", share);
        let lock = "LOCK TABLE checkpoint_blobs IN ACCESS EXCLUSIVE MODE";
        let hold = || locked(place.url().unwrap(), lock);
        let waiting = || waiting(&place);
        so_many_reads_of_one_principal_go_on(&server, &thread, most, hold, waiting);
    }
}

/// Of the four threads that read SQLite as many. There nobody's lock keeps a reader waiting, so that the reads
/// of these lists themselves wait.
#[test]
fn lists_of_one_principal_take_its_share_of_the_threads_of_sqlite_and_others_are_answered() {
    let mut server = setup().env("BACKSTITCH_READ_LIMIT", "60").start();
    let thread = thread_of_lists(&server);
    for (share, most) in [("25", 1), ("50", 2)] {
        let gate = Gate::new();
        server.restart_with("BACKSTITCH_SHARE", share);
        server.restart_with("FAILPOINTS", &gate.at("checkpoints::page"));
        let before = reached(&server);
        // None of them goes on before the gate is open.
        let hold = || gate.close();
        let waiting = || reached(&server) - before;
        so_many_reads_of_one_principal_go_on(&server, &thread, most, hold, waiting);
    }
}

/// What a request reads of a tree, row by row, is part of that share. A transaction of the same principal that keeps
/// everybody else from writing waits for none of it.
#[test]
fn reads_of_a_tree_take_the_share_of_their_principal_and_its_open_transaction_waits_for_none() {
    let mut server = setup().env("BACKSTITCH_READ_LIMIT", "60").start();
    let (reads, sends) = (Gate::new(), Gate::new());
    let points = [reads.at("events::weights"), sends.at("threads.send")];
    server.restart_with("FAILPOINTS", &points.join(";"));
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let thread = ann.thread();
    // It is looked up while the transaction is open.
    let made = ok(ann.post("/assistants", &json!({"graph_id": "agent"})), 200);
    let message = json!({
        "thread_id": thread, "content": "hi", "assistant_id": made["assistant_id"],
    });
    let before = reached(&server);
    let waiting = || reached(&server) - before;
    let path = format!("/threads/{thread}/events");
    let list = || ann.get(&path);
    std::thread::scope(|scope| {
        let open = sends.close();
        let sent = scope.spawn(|| ann.post("/commands/send-message", &message));
        until("the transaction is open", || waiting() == 1);
        let held = reads.close();
        let lists: Vec<_> = (0..6).map(|_| scope.spawn(list)).collect();
        until("the share is taken", || waiting() == 3);
        drop(open);
        ok(sent.join().unwrap(), 202);
        let begin = Instant::now();
        for _ in 0..10 {
            bob.thread();
            ok(bob.post("/threads/count", &json!({})), 200);
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "others waited");
        let refused = ann.post("/threads/count", &json!({}));
        assert!(refused.refused(429).contains("send fewer at once"));
        assert_eq!(waiting(), 3, "more than the share is taken");
        drop(held);
        let answers: Vec<_> = lists.into_iter().map(|list| list.join().unwrap()).collect();
        let served = answers.iter().filter(|answer| answer.status == 200);
        assert_eq!(served.count(), 2, "the others have waited for too long");
    });
    ok(list(), 200);
}

/// A thread of ann's whose lists take several reads, one for each of its states. In the short form half as many states
/// have as many bytes.
fn thread_of_lists(server: &Server) -> String {
    let (states, bytes) = if rounds() < 10 {
        (20, 1 << 20)
    } else {
        (40, 1 << 19)
    };
    thread_of_texts(&Client::of(server).with_key("key-a"), states, bytes)
}

/// Keeps the reads of one principal's lists from ending, and looks how many have begun and what another one notices.
fn so_many_reads_of_one_principal_go_on<H>(
    server: &Server,
    thread: &str,
    most: usize,
    hold: impl FnOnce() -> H,
    waiting: impl Fn() -> usize,
) {
    let ann = Client::of(server).with_key("key-a");
    let bob = Client::of(server).with_key("key-b");
    let path = format!("/threads/{thread}/history");
    let open = || ann.open("POST", &path, &[], b"{\"limit\": 1000}");
    let memory = Memory::of(server);
    // More than may go on at once, and than fit the memory below if each were read as a whole.
    let count = if rounds() < 10 { 5 } else { 6 };
    let lists: Vec<Open> = (0..count).map(|_| open()).collect();
    assert!(lists.iter().all(|list| list.status == 200));
    let mut waits = vec![];
    std::thread::scope(|scope| {
        let held = hold();
        let read: Vec<_> = lists
            .into_iter()
            .map(|mut list| scope.spawn(move || list.breaks()))
            .collect();
        until("the share is taken", || waiting() == most);
        let refused = scope.spawn(|| ann.post("/threads/count", &json!({})));
        while !refused.is_finished() {
            let begin = Instant::now();
            ok(bob.post("/threads/count", &json!({})), 200);
            waits.push(begin.elapsed());
            assert_eq!(waiting(), most, "more than the share is taken");
            sleep(pause());
        }
        let refused = refused.join().unwrap();
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.refused(429).contains("send fewer at once"));
        drop(held);
        for list in read {
            assert!(!list.join().unwrap(), "a list has begun and breaks off");
        }
    });
    let waits: Waits = waits.into_iter().collect();
    waits.held("lists whose reads wait", Duration::from_secs(5));
    assert!(
        waits.longest() < Duration::from_secs(5),
        "{:?}",
        waits.longest()
    );
    ok(ann.post("/threads/count", &json!({})), 200);
    memory.held("lists whose reads wait", 128 * MIB);
}
