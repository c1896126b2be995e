//! The server as its clients meet it: a process of its own, requests over HTTP, a database that
//! may fail, and processes that are killed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a panic is the failure of the test, and child processes live in real time"
)]

mod access;
mod agents;
mod allocations;
mod assistants;
mod bad_input;
mod batches;
mod browser;
mod callbacks;
mod codec;
mod compat;
mod crons;
mod embedded;
mod expiry;
mod factories;
mod final_rows;
mod freed_runs;
mod front_ends;
mod full_disk;
mod growth;
mod guide;
mod harness;
mod hot_heads;
mod hot_states;
mod http;
mod idempotency;
mod javascript;
mod large_values;
mod limits;
mod long_writes;
mod masked_errors;
mod metrics;
mod notifications;
mod openapi;
mod outage;
mod own;
mod people;
mod prebuilt;
mod protocol;
mod quiet;
mod receiver;
mod replicas;
mod restart;
mod round_trips;
mod run_ahead;
mod sdk;
mod selects;
mod shutdown;
mod slow_reads;
mod start;
mod stateless;
mod steps;
mod storage_bytes;
mod store;
mod stream_log;
mod taken_back;
mod takeover;
mod thread_lists;
mod thread_orders;
mod thread_streams;
mod threads;
#[cfg(feature = "mcp")]
mod tool_programs;
#[cfg(feature = "otel")]
mod traces;
mod usage;
mod webhooks;
