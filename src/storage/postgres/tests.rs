//! Tests of how Postgres executes the statements of this room, and of who waits for its connections.

mod labels;
mod plans;
mod shares;
