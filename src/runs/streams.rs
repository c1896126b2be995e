//! Streams of runs beside those of the hub: of runs that another process executes, and of logs.

mod logged;
mod remote;
