//! What a turn of a conversation reads, however long the conversation is.

use std::fs;

use serde_json::Value as Json;
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::rows;
use test_support::talk::{agent_thread, say, until};

/// Blocks that statements have read of the tables and indexes of a database, from the disk or not,
/// but for the values of channels: a turn needs all of them, however many they are.
fn blocks(place: &Place, server: &Server) -> u64 {
    number(
        place,
        server,
        "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::text \
         FROM pg_statio_user_tables WHERE relname <> 'checkpoint_blobs'",
    )
}

fn number(place: &Place, server: &Server, sql: &str) -> u64 {
    let row = rows(place, server, sql).remove(0);
    row[0].as_ref().unwrap().parse().unwrap()
}

/// The same once the connections have counted what they read: each does so with the first statement
/// that comes a second later. What this asks for meanwhile reads no table.
fn counted(place: &Place, server: &Server, client: &Client) -> u64 {
    let inserted = "SELECT n_tup_ins::text FROM pg_stat_user_tables WHERE relname = 'events'";
    // Asked for once: it reads the table.
    let there = number(place, server, "SELECT count(*)::text FROM events");
    until("what was written is counted", || {
        client.get("/ok?check_db=1");
        number(place, server, inserted) >= there
    });
    blocks(place, server)
}

/// Conversations whose first turns are measured: as many turns as are measured late in one of them. What is not counted
/// yet at either end is little beside so many.
const CONVERSATIONS: usize = 12;
/// Turns of a conversation that are measured, once the first two have filled caches.
const EARLY: usize = 5;
/// Turns of one conversation before the last ones are measured.
const TURNS: usize = 200;

/// What a turn reads early and late in a conversation, each the mean of sixty, if `read` says what all turns
/// until now have read.
fn early_and_late(client: &Client, read: impl Fn() -> u64) -> (u64, u64) {
    let threads: Vec<_> = (0..CONVERSATIONS).map(|_| agent_thread(client)).collect();
    let turns = |thread: &String, count: usize| {
        for _ in 0..count {
            say(client, thread, "hello");
        }
    };
    let measured = |turns: &dyn Fn()| {
        let before = read();
        turns();
        (read() - before) / (CONVERSATIONS * EARLY) as u64
    };
    threads.iter().for_each(|thread| turns(thread, 2));
    let early = measured(&|| threads.iter().for_each(|thread| turns(thread, EARLY)));
    turns(&threads[0], TURNS - 2 - EARLY);
    let late = measured(&|| turns(&threads[0], CONVERSATIONS * EARLY));
    (early, late)
}

#[test]
fn a_turn_reads_as_much_of_a_new_database_after_two_hundred_turns_as_after_two() {
    let place = Place::postgres();
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let (early, late) = early_and_late(&client, || counted(&place, &server, &client));
    println!("a turn reads {early} blocks early and {late} late");
    assert!(late < early * 3 / 2, "{early} blocks, then {late}");
}

/// The instructions of all statements until now, but for those that read the values of channels.
fn instructions(file: &std::path::Path) -> u64 {
    let log = fs::read_to_string(file).unwrap();
    let executions = log.lines().filter(|line| line.ends_with(']'));
    let cost = |line: &str| {
        let execution: Json = serde_json::from_str(line).unwrap();
        let reads_values = execution[0].as_str().unwrap().contains("checkpoint_blobs");
        if reads_values {
            0
        } else {
            execution[1].as_u64().unwrap()
        }
    };
    executions.map(cost).sum()
}

#[test]
fn a_turn_takes_as_many_instructions_of_sqlite_after_two_hundred_turns_as_after_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let setup = Setup::example("reference_server").env("SQLITE_STATEMENTS", file.to_str().unwrap());
    let server = setup.start();
    let client = Client::of(&server);
    let (early, late) = early_and_late(&client, || instructions(&file));
    println!("a turn takes {early} instructions early and {late} late");
    assert!(late < early * 5 / 4, "{early} instructions, then {late}");
}
