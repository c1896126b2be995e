//! The databases behind the storage traits of the other rooms.

pub mod postgres;
