//! Attacks of one client on a real server, and what another client and the machine notice of them.
//!
//! Every attack runs in seconds; `BACKSTITCH_ATTACKS=n` repeats it n times, or makes it n times as large.
//! What is the same code on either storage is attacked on SQLite alone, and on Postgres where ignored tests are asked for.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a panic is the failure of the test, and child processes live in real time"
)]

use test_support::http2;

mod bodies;
mod copies;
mod crowds;
mod dense;
mod departures;
mod fairness;
mod fan_outs;
mod floods;
mod foreign_bodies;
mod foreign_ids;
mod foreign_queries;
mod hot;
mod large_states;
mod lists;
mod locks;
mod many_pages;
mod pages;
mod pools;
mod queues;
mod readers;
mod reads;
mod requests;
mod resets;
mod running;
mod shares;
mod siege;
mod slow_bodies;
mod small_responses;
mod sockets;
mod streams;
mod thread_pages;
mod together;
mod trees;
mod unread;
mod waiting;
mod withdrawals;
