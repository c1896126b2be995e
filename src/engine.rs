//! The engine: takes a graph from checkpoint to checkpoint, superstep by superstep, with
//! LangGraph's semantics. `plan` and `apply` are pure; `drive` is the loop around them.

pub mod apply;
pub mod drive;
pub mod edit;
pub mod enter;
pub mod error;
pub mod event;
pub mod index;
pub mod journal;
pub mod level;
pub mod live;
pub mod names;
pub mod output;
pub mod plan;
pub mod prepare;
pub mod rescue;
pub mod retry;
pub mod reuse;
pub mod run;
pub mod save;
pub mod scope;
pub mod subgraph;
pub mod takeover;
pub mod task;
pub mod tell;
pub mod view;
pub mod wiring;

pub use edit::{Edit, Edited, StateUpdate};
pub use enter::{Command, Input};
pub use error::{Error, Mistake, Place};
pub use event::{Body, Event, Interrupt, Kind, Silent, Sink};
pub use index::{By, Change, Index};
pub use journal::Durability;
pub use run::{Ended, Finished, Request, Start, Tolerance, run};
pub use scope::Items;
