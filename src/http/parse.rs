//! Reading and checking requests: fields of bodies, parameters of paths and queries, addresses.

pub mod address;
pub mod fields;
pub mod ids;
pub mod metadata;
pub mod params;
