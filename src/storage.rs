//! The databases: each room's storage trait, implemented once per database.

#[macro_use]
mod operations;

pub mod postgres;
pub mod sqlite;
