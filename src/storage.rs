//! The databases: each room's storage trait, implemented once per database.

pub mod sqlite;
//! The databases behind the storage traits of the other rooms.
pub mod postgres;
