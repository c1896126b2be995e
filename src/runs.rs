//! The life of a run: created, placed on a branch, queued, claimed, executed, cancelled, finished
//! and recovered.

pub mod active;
pub mod cancel;
pub mod create;
pub mod error;
mod execute;
mod finish;
pub mod listing;
mod observe;
pub mod request;
pub mod result;
pub mod service;
pub mod shared;
pub mod store;
mod streams;
mod worker;

pub use active::RunHandle;
pub(crate) use create::{PreparedRun, Registration, refusal};
pub use error::Error;
pub(crate) use execute::command_of;
pub use listing::Listing;
pub use observe::Waiting;
pub use result::RunResult;
pub use service::{Options, Service};
pub(crate) use shared::Storage;
pub use shared::{Parts, Shared};
pub use store::transitions;
pub use store::{
    ClaimedRun, ClaimedRuns, Created, CreatedBatch, DEATHS, EndedRun, Finish, Fired, Firing,
    LeftResult, NewRun, OpenPage, OpenRunState, OpenedRun, PoolState, QueueClaim, Recover,
    Recovered, RequestSlots, Run, RunsOfPrincipal, Searched, Slice, Status, Store, Strategy, Tx,
    Undo,
};
