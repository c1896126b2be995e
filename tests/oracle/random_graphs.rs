//! Random graphs, run by the engine with random finish orders and crashes, against a naive
//! executor that knows nothing of versions, storage or concurrency.
//!
//! `BACKSTITCH_RANDOM_CASES=n` sets how many (1,000 unless said); a failure prints the tape the
//! smallest failing case was made from, which `BACKSTITCH_RANDOM_TAPE=1,2,3` runs again.
mod check;
mod generate;
mod naive;
mod run;

use std::sync::OnceLock;

use backstitch::Local;
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use run::Place;
use tokio::runtime::Runtime;

/// Threads that run cases, each with a runtime and a storage of its own.
const THREADS: u32 = 4;
/// Choices of the largest cases.
const LONGEST: usize = 300;

#[test]
fn the_engine_does_what_the_naive_executor_does() {
    let open = |_: &Runtime| Place::of(Local::memory().unwrap());
    all(cases(1000), true, open, run::exact);
}

#[test]
fn a_run_that_is_dropped_anywhere_is_continued_in_sqlite() {
    all(cases(1000) / 4, true, |_| Place::sqlite(), run::crashing);
}

#[test]
fn a_run_that_is_dropped_anywhere_is_continued_in_postgres() {
    let open = |runtime: &Runtime| runtime.block_on(Place::postgres());
    // Time passes while the database is waited for.
    all(cases(1000) / 16, false, open, run::crashing);
}

fn cases(usual: u32) -> u32 {
    let set = std::env::var("BACKSTITCH_RANDOM_CASES");
    set.map_or(usual, |cases| cases.parse().unwrap())
}

/// Runs `case` for `count` random tapes, and for the one in the environment alone if there is one.
fn all(
    count: u32,
    paused: bool,
    open: impl Fn(&Runtime) -> Place + Sync,
    case: impl AsyncFn(&Place, &[u16]) -> Result<(), String> + Sync,
) {
    let tape = std::env::var("BACKSTITCH_RANDOM_TAPE").ok();
    let tape: Option<Vec<u16>> =
        tape.map(|tape| tape.split(',').map(|n| n.trim().parse().unwrap()).collect());
    let first = OnceLock::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    // A clock of its own: nobody waits for the nodes that sleep.
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .start_paused(paused)
                        .build()
                        .unwrap();
                    let place = open(&runtime);
                    if let Some(tape) = &tape {
                        runtime.block_on(case(&place, tape)).unwrap();
                        return;
                    }
                    let config = Config {
                        cases: count.div_ceil(THREADS),
                        failure_persistence: None,
                        max_shrink_iters: 1000,
                        ..Config::default()
                    };
                    let choices = proptest::collection::vec(any::<u16>(), 0..LONGEST);
                    let tried = TestRunner::new(config).run(&choices, |tape| {
                        let own = std::thread::current().id();
                        if first.get().is_some_and(|first| *first != own) {
                            // Another thread makes its failure small.
                            return Ok(());
                        }
                        runtime.block_on(case(&place, &tape)).map_err(|reason| {
                            first.get_or_init(|| own);
                            TestCaseError::fail(reason)
                        })
                    });
                    if let Err(TestError::Fail(reason, tape)) = tried {
                        let tape: Vec<String> = tape.iter().map(u16::to_string).collect();
                        panic!("BACKSTITCH_RANDOM_TAPE={}\n{reason}", tape.join(","));
                    }
                    tried.unwrap();
                })
            })
            .collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
