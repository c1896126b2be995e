//! `#[derive(State)]`.
