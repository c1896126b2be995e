//! Tests of how Postgres executes the statements of this room, and of who waits for its connections.

mod plans;
mod shares;
