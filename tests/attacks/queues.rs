//! Long queues: what a run costs behind them, who has to wait, and where they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::processor::Taken;
use test_support::server::{Server, Setup};
use test_support::tables;
use test_support::talk::{background, slow, until, with};

use crate::siege::{MIB, Memory, Waits, Watch, patiently, pause, rounds};

on_both_storages!(
    a_run_costs_the_same_however_many_are_queued,
    a_branch_queues_so_many_runs_and_no_more,
    as_many_runs_as_there_are_slots_are_executed_and_the_next_waits,
    a_principal_with_many_runs_keeps_nobody_from_a_slot,
    runs_created_at_the_same_moment_leave_slots_to_others,
    what_waits_behind_a_run_goes_on_however_that_ends,
    a_principal_has_half_of_the_streams,
    requests_of_one_principal_leave_connections_to_another,
);

/// What some hundred runs may take that wait or are executed.
const MOST: u64 = 96 * MIB;

/// Queues runs behind one that lasts, on each of four threads.
fn fill(client: &Client, queued: usize) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let thread = client.thread();
                background(client, &thread, &slow(3_600_000, 1));
                for _ in 0..queued {
                    background(client, &thread, &slow(1, 1));
                }
            });
        }
    });
}

/// Creates runs without a thread that last, and more of them than there are slots.
fn flood(client: &Client, batches: usize) {
    let batch = json!(vec![slow(3_600_000, 1); 1000]);
    for _ in 0..batches {
        patiently(|| client.post("/runs/batch", &batch));
    }
}

/// Multiplies the rows of a flood that waits, past the server: each copy has ids of its own, which differ from those
/// that the server makes in the digit for their kind.
fn copies(place: &Place, server: &Server, principal: &str, kinds: &str) {
    let digit = |id: &str, kind: char| {
        if place.is_postgres() {
            format!("overlay({id}::text PLACING '{kind}' FROM 15 FOR 1)::uuid")
        } else {
            format!("unhex(substr(hex({id}), 1, 12) || '{kind}' || substr(hex({id}), 14))")
        }
    };
    let kind_of = |id: &str| {
        if place.is_postgres() {
            format!("substr({id}::text, 15, 1)")
        } else {
            format!("substr(hex({id}), 13, 1)")
        }
    };
    let own = [
        "tree_id",
        "thread_id",
        "branch_id",
        "active_branch_id",
        "run_id",
    ];
    // What has no other row that names it comes last, so that nobody finds a run without its thread.
    for table in ["trees", "tree_members", "threads", "branches", "runs"] {
        let mut columns = tables::columns(place, server, table);
        columns.retain(|name| name != "seq");
        let waiting = format!(
            "SELECT tree_id FROM runs WHERE principal = '{principal}' AND status = 'pending' AND {} = '7'",
            kind_of("run_id")
        );
        for kind in kinds.chars() {
            let value = |name: &String| {
                if own.contains(&&**name) {
                    digit(name, kind)
                } else {
                    name.clone()
                }
            };
            let values: Vec<String> = columns.iter().map(value).collect();
            let (columns, values) = (columns.join(", "), values.join(", "));
            let copy = format!(
                "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} WHERE tree_id IN ({waiting}) AND {} = '7'",
                kind_of("tree_id")
            );
            tables::execute(place, server, &copy).unwrap();
        }
    }
}

/// What runs cost a client.
#[derive(Debug)]
struct Cost {
    /// The median of creating one that waits.
    creation: Duration,
    /// The time in which a queue of them is worked off.
    drain: Duration,
    /// The processor time that the server and its database take for all of it.
    work: Duration,
}

impl Cost {
    /// Of as many runs that wait, and as many that are worked off.
    fn of(place: &Place, server: &Server, client: &Client) -> Self {
        let before = Taken::by(place, server);
        let mut creations: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let thread = client.thread();
                let later = with(slow(1, 1), "after_seconds", 3600);
                let begin = Instant::now();
                background(client, &thread, &later);
                begin.elapsed()
            })
            .collect();
        creations.sort_unstable();
        let thread = client.thread();
        let gate = background(client, &thread, &slow(3_600_000, 1));
        let runs: Vec<String> = (0..RUNS)
            .map(|_| background(client, &thread, &slow(0, 0)))
            .collect();
        let begin = Instant::now();
        let cancel = format!("/threads/{thread}/runs/{gate}/cancel");
        assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
        for run in &runs {
            assert_eq!(client.end_of(&thread, run), "success");
        }
        Self {
            creation: creations[RUNS / 2],
            drain: begin.elapsed(),
            work: Taken::by(place, server).since(&before),
        }
    }

    /// Whether they cost as much as where nothing else waits. A queue that were looked through for each run would cost
    /// several times as much.
    fn is_about(&self, usual: &Self) -> bool {
        let least = Duration::from_millis;
        self.creation < 3 * usual.creation.max(least(3))
            && self.drain < 5 * usual.drain.max(least(100)) / 2
            && self.work < 2 * usual.work
    }
}

/// Runs whose cost is looked at.
const RUNS: usize = 15;

fn a_run_costs_the_same_however_many_are_queued(place: &Place) {
    // While one principal has them all, eight more are left for the other.
    let setup = || {
        Setup::example("reference_server")
            .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
            .env("BACKSTITCH_SLOTS", "64")
    };
    let server = place.start(setup());
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    // Another one where nothing waits: what else the machine does slows down both.
    let elsewhere = place.another();
    let quiet = elsewhere.start(setup());
    let usual = || Cost::of(&elsewhere, &quiet, &Client::of(&quiet).with_key("key-b"));
    let watch = Watch::beside(&server, &bob);
    // Some wait for a slot, and others behind a run of their branch.
    if rounds() < 10 {
        flood(&ann, rounds());
        copies(place, &server, "ann", "12345689ab");
    } else {
        flood(&ann, 10 * rounds());
    }
    fill(&bob, 50);
    // What the first ones alone have to pay.
    usual();
    Cost::of(place, &server, &bob);
    // Most of five: others may have the machine at a moment.
    let mut same = 0;
    let mut other = 0;
    while same < 3 {
        let (usual, now) = (usual(), Cost::of(place, &server, &bob));
        println!("{usual:?} where nothing is queued, {now:?} where much is");
        if now.is_about(&usual) {
            same += 1;
        } else {
            other += 1;
        }
        assert!(other < 3, "{now:?} instead of {usual:?}");
    }
    let queued = "SELECT CAST(count(*) AS text) FROM runs WHERE status = 'pending'";
    let queued = tables::rows(place, &server, queued)[0][0].clone().unwrap();
    println!("{queued} are queued");
    assert!(queued.parse::<usize>().unwrap() >= 10_000 * rounds());
    // A process knows those that it was asked for itself; in the short form these are one in ten.
    let most = if rounds() == 1 { 60 * MIB } else { MOST };
    watch.held("many queued runs", most);
}

fn a_branch_queues_so_many_runs_and_no_more(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_QUEUED", "3");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs");
    let gate = background(&client, &thread, &slow(3_600_000, 1));
    let queued: Vec<String> = (0..3)
        .map(|_| background(&client, &thread, &slow(1, 1)))
        .collect();
    for path in [&path, &format!("{path}/wait"), &format!("{path}/stream")] {
        let answer = client.post(path, &slow(1, 1));
        let detail = answer.refused(429);
        assert!(detail.contains("BACKSTITCH_MAX_QUEUED"), "{detail}");
        assert_eq!(answer.json()["code"], "queue_full");
    }
    // Those that end others wait behind nobody, and another thread has a queue of its own.
    background(&client, &client.thread(), &slow(1, 1));
    let runs = client.get(&path).json();
    assert_eq!(runs.as_array().unwrap().len(), 4);
    let cancel = format!("{path}/{}/cancel", queued[0]);
    assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
    let last = background(&client, &thread, &slow(1, 1));
    let cancel = format!("{path}/{gate}/cancel");
    assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
    assert_eq!(client.end_of(&thread, &last), "success");
    let body = with(slow(1, 1), "multitask_strategy", "interrupt");
    assert_eq!(client.post(&path, &body).status, 200);
    watch.held("a full queue", MOST);
}

fn as_many_runs_as_there_are_slots_are_executed_and_the_next_waits(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_SLOTS", "3"));
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let runs: Vec<(String, String)> = (0..4)
        .map(|_| begin(&client, &slow(3_600_000, 1)))
        .collect();
    let executed = |(thread, run): &&(String, String)| {
        client.get(&format!("/threads/{thread}/runs/{run}")).json()["status"] == "running"
    };
    let count = || runs.iter().filter(executed).count();
    until("all slots are taken", || count() == 3);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(count(), 3);
    let (thread, run) = runs.iter().find(executed).unwrap();
    let path = format!("/threads/{thread}/runs/{run}/cancel");
    assert_eq!(client.send("POST", &path, &[], b"").status, 202);
    until("the next has its slot", || count() == 3);
    watch.held("runs of all slots", MOST);
}

fn a_principal_with_many_runs_keeps_nobody_from_a_slot(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_SLOTS", "4");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let watch = Watch::beside(&server, &bob);
    // All slots are taken until everybody's runs wait.
    let gates: Vec<(String, String)> = (0..4).map(|_| begin(&ann, &slow(3_600_000, 1))).collect();
    for (thread, run) in &gates {
        until("a run that lasts has its slot", || {
            ann.get(&format!("/threads/{thread}/runs/{run}")).json()["status"] == "running"
        });
    }
    let many: Vec<(String, String)> = (0..80).map(|_| begin(&ann, &slow(20, 1))).collect();
    let few: Vec<(String, String)> = (0..4).map(|_| begin(&bob, &slow(20, 1))).collect();
    for (thread, run) in &gates {
        let path = format!("/threads/{thread}/runs/{run}/cancel");
        assert_eq!(ann.send("POST", &path, &[], b"").status, 202);
    }
    // When a run ended stands in its row, however slowly this test asks for it.
    let ends = |client: &Client, runs: &[(String, String)]| -> Vec<String> {
        runs.iter()
            .map(|(thread, run)| {
                assert_eq!(client.end_of(thread, run), "success");
                let run = client.get(&format!("/threads/{thread}/runs/{run}")).json();
                run["updated_at"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    let last = ends(&bob, &few).into_iter().max().unwrap();
    let ends = ends(&ann, &many);
    let later = ends.iter().filter(|end| **end > last).count();
    println!("{later} runs of the other ended later");
    assert!(later > 40, "{later}");
    watch.held("many runs of one principal", MOST);
}

fn runs_created_at_the_same_moment_leave_slots_to_others(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_SLOTS", "8");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let watch = Watch::beside(&server, &bob);
    let threads: Vec<String> = (0..40).map(|_| ann.thread()).collect();
    let moment = std::sync::Barrier::new(threads.len());
    std::thread::scope(|scope| {
        for thread in &threads {
            scope.spawn(|| {
                moment.wait();
                background(&ann, thread, &slow(3_600_000, 1));
            });
        }
    });
    let running = || {
        let is_running = |thread: &&String| {
            let path = format!("/threads/{thread}/runs?status=running");
            !ann.get(&path).json().as_array().unwrap().is_empty()
        };
        threads.iter().filter(is_running).count()
    };
    until("all slots are taken", || running() >= 8);
    for _ in 0..3 {
        let (thread, run) = begin(&bob, &slow(1, 1));
        assert_eq!(bob.end_of(&thread, &run), "success");
    }
    assert_eq!(running(), 8, "one principal has no more than the 8 slots");
    watch.held("runs created at the same moment", MOST);
}

/// Queues a run on a thread of its own.
fn begin(client: &Client, body: &serde_json::Value) -> (String, String) {
    let thread = client.thread();
    let run = background(client, &thread, body);
    (thread, run)
}

fn what_waits_behind_a_run_goes_on_however_that_ends(place: &Place) {
    let (server, client) = serve(place);
    let watch = Watch::of(&server);
    let ends = |path: &str, method: &str, query: &str| {
        let thread = client.thread();
        let gate = background(&client, &thread, &slow(3_600_000, 1));
        let next = background(&client, &thread, &slow(1, 1));
        let last = background(&client, &thread, &slow(1, 1));
        let path = format!("/threads/{thread}/runs/{gate}{path}{query}");
        let answer = client.send(method, &path, &[], b"");
        assert!(answer.status < 300, "{} {}", answer.status, answer.text());
        assert_eq!(client.end_of(&thread, &next), "success");
        assert_eq!(client.end_of(&thread, &last), "success");
    };
    ends("/cancel", "POST", "");
    ends("/cancel", "POST", "?action=rollback");
    ends("", "DELETE", "");

    // The queue of a branch goes on when the branch is made the active one, and a run that floats
    // follows it.
    let thread = client.thread();
    client.run(&thread, &slow(1, 1));
    let gate = background(&client, &thread, &slow(3_600_000, 1));
    let floats = background(&client, &thread, &slow(1, 1));
    let head = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    let other = json!({"checkpoint_id": head, "activate": true});
    let made = client.post(&format!("/threads/{thread}/branches"), &other);
    assert!(made.status < 300, "{}", made.text());
    until("the run that floats goes on", || {
        client.end_of(&thread, &floats) == "success"
    });
    let gate = client.get(&format!("/threads/{thread}/runs/{gate}")).json();
    assert_eq!(gate["status"], "running");
    watch.held("runs that wait behind others", MOST);
}

fn a_principal_has_half_of_the_streams(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_MAX_STREAMS", "4");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let watch = Watch::beside(&server, &bob);
    let open = |client: &Client| client.open_stream(&client.thread(), &slow(3_600_000, 1));
    let mut held = vec![open(&ann), open(&ann)];
    let path = format!("/threads/{}/runs/stream", ann.thread());
    let refused = ann.post(&path, &slow(1, 1));
    let detail = refused.refused(429);
    assert!(detail.contains("BACKSTITCH_MAX_STREAMS"), "{detail}");
    let others = [open(&bob), open(&bob)];
    watch.held("streams of one principal", MOST);
    held.pop();
    until("a stream that was closed leaves room for another", || {
        ann.post(&path, &slow(1, 1)).status == 200
    });
    drop((held, others));

    // Without keys there is nobody to leave any to.
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_MAX_STREAMS", "4"));
    let client = Client::of(&server);
    let all: Vec<_> = (0..4).map(|_| open(&client)).collect();
    let path = format!("/threads/{}/runs/stream", client.thread());
    client.post(&path, &slow(1, 1)).refused(503);
    drop(all);
}

fn requests_of_one_principal_leave_connections_to_another(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_CONNECTIONS", "6");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let memory = Memory::of(&server);
    let thread = ann.thread();
    for _ in 0..if rounds() < 10 { 8 } else { 20 } {
        ann.run(&thread, &slow(0, 0));
    }
    let done = AtomicBool::new(false);
    let waits = std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let path = format!("/threads/{thread}/history?limit=100");
                while !done.load(Ordering::Relaxed) {
                    let status = ann.get(&path).status;
                    assert!(matches!(status, 200 | 429 | 503), "{status}");
                    std::thread::sleep(pause(Duration::from_millis(100)));
                }
            });
        }
        let waits = Waits::of(&bob, 50 * rounds());
        done.store(true, Ordering::Relaxed);
        waits
    });
    waits.held("histories of one principal", Duration::from_secs(2));
    memory.held("histories of one principal", 192 * MIB);
}
