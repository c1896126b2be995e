//! One run seen from outside: what goes into it, what it emits on its way, and how it ended.
//!
//! [`Thread::invoke`](crate::Thread::invoke) returns a [`RunOutput`] and
//! [`Thread::stream`](crate::Thread::stream) a [`StreamEvent`] for each thing that happens. Below them
//! [`Thread::run`](crate::Thread::run) takes an [`Input`] and returns a [`Finished`]; a [`Sink`] in
//! its [options](crate::RunOptions) receives every [`Event`]. The state of a thread is read as
//! [`ThreadState`] and changed by [`StateUpdate`].

pub use crate::{
    engine::{
        Barrier, Body, ClientCommand, Durability, Ended, Error, Event, Finished, Input, Interrupt,
        Kind, Mistake, RunAhead, Silent, Sink, StateUpdate, Tolerance,
        error::{ErrorLocation, ToParent},
        event::{Callback, CheckpointInfo, TaskInfo, TaskState},
        snapshot::Snapshot,
    },
    extract::report::{ModelCall, Report, ToolRun},
    id::{CheckpointId, RunId, TaskId, ThreadId},
    local::{Branch, Diff, Error as LocalError, History, NodeOutput, RunOutput, StreamEvent, Tag},
    tree::{Address, AddressTarget, ThreadState},
};
/// Cancels a run: see [`RunOptions::cancel`](crate::RunOptions).
pub use tokio_util::sync::CancellationToken;
