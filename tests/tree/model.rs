//! Random operations on many trees, through HTTP, against a model that is as naive as can be.
//!
//! `BACKSTITCH_TREE_CASES=n` sets how many cases (few unless said), `BACKSTITCH_TREE_SEED=n` where
//! they begin. A failure prints the seed, the smallest operations that still fail, and their
//! requests.

use op::Op;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use test_support::client::Client;
use test_support::invariants::Tables;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::Setup;

mod compare;
mod drive;
mod find;
mod op;
mod rules;
mod world;

on_both_storages!(a_tree_is_what_the_naive_model_says,);

/// Operations of the largest cases.
const LONGEST: usize = 60;

fn number(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name);
    set.map_or(usual, |text| text.parse().unwrap())
}

fn a_tree_is_what_the_naive_model_says(place: &Place) {
    let cases = number("BACKSTITCH_TREE_CASES", 8) as u32;
    let seed = number("BACKSTITCH_TREE_SEED", 1);
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let tables = match place.url() {
        Some(url) => Tables::Url(url.to_owned()),
        None => Tables::File(server.folder().join("data/backstitch.db")),
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for case in 0..cases {
        let ops = op::ops(LONGEST).new_tree(&mut runner).unwrap().current();
        let Err(failed) = attempt(&client, &tables, &ops) else {
            continue;
        };
        let (ops, failed) = smallest(&client, &tables, ops, failed);
        let ops: Vec<String> = ops.iter().map(|op| format!("{op:?}")).collect();
        panic!(
            "seed {seed}, case {case}: {}\n\n{}\n\n{}",
            failed.differs,
            failed.trace.join("\n"),
            ops.join("\n")
        );
    }
}

/// A case that failed.
struct Failed {
    differs: String,
    trace: Vec<String>,
    /// Operations it got through.
    done: usize,
}

fn attempt(client: &Client, tables: &Tables, ops: &[Op]) -> Result<(), Failed> {
    let mut case = drive::Case::new(client);
    let mut outcome = case.run(ops);
    if outcome.is_ok() {
        let complaints = block_on(tables.complaints(case.world.pruned));
        if !complaints.is_empty() {
            outcome = Err(complaints.join("\n"));
        }
    }
    case.clean();
    outcome.map_err(|differs| Failed {
        differs,
        done: case.done,
        trace: case.trace,
    })
}

/// Leaves out operations, many at once at first, as long as it fails without them.
fn smallest(
    client: &Client,
    tables: &Tables,
    mut ops: Vec<Op>,
    mut failed: Failed,
) -> (Vec<Op>, Failed) {
    ops.truncate(failed.done + 1);
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(from..ops.len().min(from + size));
            match attempt(client, tables, &fewer) {
                Ok(()) => from += size,
                Err(still) => {
                    fewer.truncate(still.done + 1);
                    ops = fewer;
                    failed = still;
                }
            }
        }
        size /= 2;
    }
    (ops, failed)
}
