//! The databases: each room's storage trait, implemented once per database.

pub mod postgres;
pub mod sqlite;
