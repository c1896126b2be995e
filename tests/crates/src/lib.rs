//! The crates that every part of the workspace is built on: see `Cargo.toml`.
