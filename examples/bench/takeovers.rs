//! What becomes of runs whose process dies.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Book, Place, Storage, client::Client, page::Goal, workloads};

/// Deaths of a process.
const ROUNDS: usize = 3;

/// Runs that each of them interrupts.
const RUNS: usize = 100;

/// One that has not ended by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// From the death of a process to the end of its runs in another one: on Postgres one that is there, on SQLite one
/// that is started then.
pub async fn measure(book: &mut Book, storage: &Storage) {
    let mut times = vec![];
    for _ in 0..ROUNDS {
        let first = storage.server_for(RUNS);
        let mut runs = workloads::sleepers(&first.address, RUNS, 1.0).await;
        let there = matches!(storage.place, Place::Postgres(_)).then(|| storage.server_for(RUNS));
        first.kill();
        let begin = Instant::now();
        let second = there.unwrap_or_else(|| storage.server_for(RUNS));
        let mut client = Client::connect(&second.address).await;
        while !runs.is_empty() && begin.elapsed() < PATIENCE {
            let mut left = vec![];
            for run in runs {
                match &*workloads::status(&mut client, &run).await {
                    "success" => times.push(begin.elapsed().as_secs_f64()),
                    _ => left.push(run),
                }
            }
            runs = left;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    times.sort_by(f64::total_cmp);
    let (name, all) = (storage.name(), ROUNDS * RUNS);
    book.add(
        format!("{name}: takeover after kill -9, 99th percentile"),
        workloads::quantile(&times, 0.99),
        "s",
        Goal::AtMost(8.0),
        format!("{all} runs of {ROUNDS} processes; lease 3 s, and a run sleeps for 1 s"),
    );
    book.add(
        format!("{name}: runs that were taken over and succeeded, of {all}"),
        times.len() as f64,
        "",
        Goal::AtLeast(all as f64),
        String::new(),
    );
}
