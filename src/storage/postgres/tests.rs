//! Tests of how Postgres executes the statements of this room, and of who waits for its connections and for the disk.

mod connections;
mod disk;
mod indexes;
mod labels;
mod plans;
mod shares;
