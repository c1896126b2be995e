//! What runs of many clients at once cost the database: they share statements and transactions.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::server::Setup;

use super::{Cost, Measured, Meter, OfPostgres, OfSqlite};

/// Clients at once, each with a thread of its own.
const CLIENTS: usize = 16;

/// Runs of each that follow each other.
const EACH: usize = 2;

fn chain() -> Value {
    json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}})
}

/// A conversation: messages and events are in what is stored.
fn turn() -> Value {
    json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": "hello"}]},
    })
}

/// Executes runs of so many clients at once.
fn at_once(clients: &[(Client, String)], body: &Value) {
    thread::scope(|scope| {
        for (client, thread) in clients {
            scope.spawn(move || {
                for _ in 0..EACH {
                    client.run(thread, body);
                }
            });
        }
    });
}

/// `most` are bounds of what a run of one client among many costs, for each kind of run.
fn runs_at_once_cost_less_each(setup: Setup, meter: &dyn Meter, most: [(Value, Cost); 2]) {
    let server = setup.env("BACKSTITCH_LEASE", "3600").start();
    let measured = Measured::when_idle(meter);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = Client::of(&server);
            let thread = client.thread();
            (client, thread)
        })
        .collect();
    let runs = (CLIENTS * EACH) as f64;
    for (body, most) in most {
        let name = body["assistant_id"].as_str().unwrap();
        let within = |all: Cost, took: Duration| {
            let each = Cost::of(all.statements / runs, all.commits / runs);
            println!(
                "{name}: {:.2} statements and {:.2} commits a run in {took:?}",
                each.statements, each.commits
            );
            each.is_within(most)
        };
        measured.cost(within, || at_once(&clients, &body));
    }
}

#[test]
fn runs_of_many_clients_share_statements_of_postgres() {
    let (setup, meter) = OfPostgres::start();
    let most = [(chain(), Cost::of(5.0, 1.4)), (turn(), Cost::of(5.0, 1.4))];
    runs_at_once_cost_less_each(setup, &meter, most);
}

#[test]
fn runs_of_many_clients_share_transactions_of_sqlite() {
    let (setup, meter) = OfSqlite::start();
    let most = [
        (chain(), Cost::of(65.0, 1.9)),
        (turn(), Cost::of(50.0, 1.9)),
    ];
    runs_at_once_cost_less_each(setup, &meter, most);
}
