//! How far a run may be ahead of what is durable.

use std::sync::Arc;

use backstitch::{
    Local, RunOptions,
    graph::Compiled,
    prelude::*,
    run::{Input, RunAhead},
    value,
};
use test_support::{postgres::database, tables::rows_at};

#[derive(State)]
struct Count {
    n: i64,
}

const STEPS: i64 = 12;

async fn one(count: Count) -> Update<Count> {
    Count::update().n(count.n + 1)
}

fn next(count: &Count) -> &'static str {
    if count.n < STEPS { "one" } else { END }
}

fn counting() -> Arc<Compiled> {
    let graph = Graph::<Count>::new().node("one", one).edge(START, "one");
    graph.route("one", next, ["one", END]).build().unwrap()
}

/// How many transactions wrote the checkpoints of a run, and how many checkpoints there are.
async fn written(run_ahead: RunAhead) -> (usize, usize) {
    let database = database().await;
    let local = Local::postgres(&database.url).await.unwrap();
    let thread = local.thread(&counting());
    let options = RunOptions {
        run_ahead,
        ..RunOptions::default()
    };
    let input = Input::Value(value!({"n": 0}));
    thread.run(input, options).await.unwrap();
    let url = database.url.clone();
    let rows = "SELECT count(DISTINCT xmin::text)::text, count(*)::text FROM checkpoints";
    let rows = tokio::task::spawn_blocking(move || rows_at(&url, rows));
    let counts = rows.await.unwrap().remove(0);
    let count = |at: usize| counts[at].as_deref().unwrap().parse().unwrap();
    (count(0), count(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn supersteps_share_transactions_as_far_as_a_run_may_be_ahead() {
    let alone = RunAhead {
        supersteps: 1,
        ..RunAhead::default()
    };
    let (transactions, checkpoints) = written(alone).await;
    assert_eq!(transactions, checkpoints, "each superstep is written alone");
    let (transactions, all) = written(RunAhead::default()).await;
    assert_eq!(all, checkpoints);
    assert!(transactions < all / 2, "{transactions} of {all}");
}
