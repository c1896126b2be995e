//! Many clients at one tree whose row another process has locked: one of them waits with a connection, all others in
//! the process, and nobody else waits for them.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, background, fork, id_of, note, slow, until, with};

use crate::locks::{Locked, locked, patient, waiting_statements};
use crate::siege::{MIB, TURN, Waits, Watch, patiently, pause, rounds};

/// Clients of each kind: in the short form twice as many as the server has connections.
fn clients() -> usize {
    if rounds() < 10 { 20 } else { 60 }
}

/// What requests and runs may take that wait.
const MOST: u64 = 64 * MIB;

/// For so long they wait: for less than one may wait for its turn.
const HOLD: Duration = Duration::from_secs(1);

/// Between what another client does: without it that would take a processor for itself.
const PAUSE: Duration = Duration::from_millis(150);

fn serve(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server")
        .env("DATABASE_URL", patient(place))
        // Two of them are for trees, four for reads and four for runs.
        .env("BACKSTITCH_CONNECTIONS", "10");
    let server = setup.start();
    let client = Client::of(&server);
    (server, client)
}

/// Locks the row of a thread's tree, as another process does that changes it.
fn lock(place: &Place, thread: &str) -> Locked {
    let row = format!("SELECT 1 FROM trees WHERE tree_id = '{thread}' FOR UPDATE");
    locked(place.url().unwrap(), &row)
}

/// How many wait with a connection.
fn in_line(place: &Place) -> usize {
    waiting_statements(place).len()
}

/// Looks for a while how many wait with a connection, and how long everything takes that another client does.
fn others_go_on(place: &Place, client: &Client) {
    until("one waits for the row", || in_line(place) > 0);
    sleep(Duration::from_millis(500));
    assert_eq!(in_line(place), 1);
    let begin = Instant::now();
    while begin.elapsed() < HOLD {
        Waits::of(client, 10).held("clients of one tree", Duration::from_secs(1));
        let thread = agent_thread(client);
        note(client, &thread, "n1");
        client.run(&client.thread(), &slow(1, 1));
        assert_eq!(in_line(place), 1);
        sleep(pause(PAUSE));
    }
}

/// Sends a request until it is carried out: it may be refused only after it has waited for as long as anybody does.
fn in_turn(request: impl Fn() -> Answer) -> Answer {
    patiently(|| {
        let begin = Instant::now();
        let answer = request();
        assert!(
            answer.status != 503 || begin.elapsed() >= TURN,
            "{}",
            answer.text()
        );
        answer
    })
}

/// Clients send requests that wait for the row of a thread's tree; all are carried out once it is free, also those that
/// had to come back because the ones before them took longer than anybody waits.
fn all_wait(
    place: &Place,
    server: &Server,
    client: &Client,
    thread: &str,
    request: impl Fn(usize) -> Answer + Sync,
) {
    let watch = Watch::of(server);
    let held = lock(place, thread);
    scope(|scope| {
        let request = &request;
        let clients: Vec<_> = (0..clients())
            .map(|number| scope.spawn(move || in_turn(|| request(number))))
            .collect();
        others_go_on(place, client);
        drop(held);
        for one in clients {
            one.join().unwrap();
        }
    });
    watch.held("clients that wait for one tree", MOST);
}

/// A thread with an old checkpoint, which that and as many forks as there are clients have.
fn family(client: &Client) -> (String, Vec<String>, Value) {
    let thread = client.thread();
    client.run(&thread, &slow(1, 1));
    let old = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    client.run(&thread, &slow(1, 1));
    let forks = (0..clients()).map(|_| id_of(&fork(client, &thread, &json!({}))));
    (thread.clone(), forks.collect(), old)
}

#[test]
fn crons_that_are_created_on_one_tree_wait_with_one_connection() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let (root, forks, _) = family(&client);
    let cron = json!({"assistant_id": "slow", "schedule": "0 0 1 1 *", "input": {}});
    all_wait(&place, &server, &client, &root, |number| {
        // Half of them on one thread, the others on one each.
        let thread = if number % 2 == 0 {
            &root
        } else {
            &forks[number]
        };
        client.post(&format!("/threads/{thread}/runs/crons"), &cron)
    });
}

#[test]
fn copies_of_one_tree_wait_with_one_connection() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let (root, forks, _) = family(&client);
    all_wait(&place, &server, &client, &root, |number| {
        let thread = if number % 2 == 0 {
            &root
        } else {
            &forks[number]
        };
        client.post(&format!("/threads/{thread}/copy"), &json!({}))
    });
}

#[test]
fn runs_from_old_checkpoints_of_one_tree_wait_with_one_connection() {
    let place = Place::postgres();
    let (mut server, client) = serve(&place);
    let (root, forks, old) = family(&client);
    // Which tree they are of is not known any more.
    server.restart();
    let client = Client::of(&server);
    for strategy in ["enqueue", "interrupt", "rollback"] {
        let run = with(slow(1, 1), "checkpoint_id", old.clone());
        let run = with(run, "multitask_strategy", strategy);
        all_wait(&place, &server, &client, &root, |number| {
            let thread = if number % 2 == 0 {
                &root
            } else {
                &forks[number]
            };
            client.post(&format!("/threads/{thread}/runs"), &run)
        });
        for thread in std::iter::once(&root).chain(&forks) {
            until("its runs have ended", || {
                client.get(&format!("/threads/{thread}")).json()["status"] != "busy"
            });
        }
    }
}

#[test]
fn branches_that_runs_open_in_one_tree_wait_with_one_connection() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let (root, forks, old) = family(&client);
    let run = with(slow(1, 1), "checkpoint_id", old);
    let later = with(run, "after_seconds", 3);
    let runs: Vec<_> = forks
        .iter()
        .map(|thread| (thread, background(&client, thread, &later)))
        .collect();
    let watch = Watch::of(&server);
    let held = lock(&place, &root);
    // They begin soon; whoever looks for that again and again keeps the database from its work.
    sleep(Duration::from_secs(2));
    others_go_on(&place, &client);
    drop(held);
    for (thread, run) in runs {
        assert_eq!(client.end_of(thread, &run), "success");
    }
    watch.held("branches that wait for one tree", MOST);
}
