//! Tests of how Postgres executes the statements of this room.

mod plans;
