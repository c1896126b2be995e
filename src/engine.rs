//! The engine: takes a graph from checkpoint to checkpoint, superstep by superstep, with
//! LangGraph's semantics. `plan` and `apply` are pure; `superstep` is the loop around them.

pub mod apply;
pub mod barrier;
pub mod begin;
pub mod callback;
pub mod channels;
pub mod emit;
pub mod error;
pub mod error_handler;
pub mod event;
pub mod execution;
pub mod fan_out;
pub mod input;
pub mod long_term_memory;
pub mod message_ids;
pub mod message_index;
pub mod namespace;
pub mod node_cache;
pub mod output;
pub mod parent_execution;
pub mod pending;
pub mod persist;
pub mod plan;
pub mod recovery;
pub mod reserved;
pub mod retry;
pub mod run;
pub mod run_context;
pub mod snapshot;
pub mod subgraph;
pub mod superstep;
pub mod task;
pub mod tolerance;
pub mod topology;
pub mod update;

pub use barrier::Barrier;
pub use error::{Error, Mistake};
pub use event::{Body, Event, Interrupt, Kind, Silent, Sink};
pub use execution::counted;
pub use fan_out::MAX_TASKS;
pub use input::{ClientCommand, Input};
pub use long_term_memory::Items;
pub use message_index::{ChangeSource, MessageChange, MessageIndex};
pub use persist::{
    ahead_memory::AheadMemory,
    lead::{ClosedLead, Lead},
    pipeline::RunAhead,
    writer::Durability,
};
pub use recovery::Attempt;
pub use run::{Ended, Finished, Request, Start, run};
pub use tolerance::Tolerance;
pub use update::{StateUpdate, StateUpdater};
