//! The cases, by what they are about, and the storages they run against.

pub mod backend;
pub mod branches;
pub mod commits;
pub mod copies;
pub mod counts;
pub mod cron_lists;
pub mod crons;
pub mod expiry;
pub mod lifecycle;
pub mod lists;
pub mod loads;
pub mod log;
pub mod lost_firings;
pub mod open_runs;
pub mod outbox;
pub mod outbox_sweeps;
pub mod paths;
pub mod postgres;
pub mod queue;
pub mod run_events;
pub mod runs;
pub mod sessions;
pub mod sqlite;
pub mod strategies;
pub mod takeovers;
pub mod threads;
