//! Requests about threads and their state, already validated, and the view of a thread.

use std::sync::Arc;

use super::search::Extent;
pub use crate::tree::search::{Columns, ForkMode, SortBy, ThreadStatus};
use crate::{
    id::{CheckpointId, ThreadId},
    tree::{self, ttl::Ttl},
    value::{Map, Value},
};
use crate::{runs::request::Address, words::words};

words! {
    /// What the stream of a whole thread shows.
    pub enum ThreadMode, "mode of a thread's stream" {
        /// Everything of every run.
        RunModes = "run_modes",
        /// Starts and ends of runs.
        Lifecycle = "lifecycle",
        /// State edits.
        StateUpdate = "state_update",
    }
    /// What pruning leaves of a thread.
    pub enum Prune, "pruning strategy" {
        /// Nothing.
        Delete = "delete",
        /// The thread with its latest checkpoint.
        KeepLatest = "keep_latest",
    }
}

/// A thread to create.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id; `None` for a new one.
    pub id: Option<ThreadId>,
    /// The new one: what has it was created by an earlier attempt of the request. `None` for any.
    pub id_of_key: Option<ThreadId>,
    /// Client's metadata.
    pub metadata: Map,
    /// What to do when the id is taken.
    pub if_exists: tree::IfExists,
    /// State updates to apply, in order.
    pub supersteps: Vec<Vec<Update>>,
    /// The principal of the request.
    pub principal: Arc<str>,
    /// How long it lives; `None` for what the settings say.
    pub ttl: Option<Ttl>,
}

/// One update of a superstep that is applied at creation.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Channel values; `None` for null.
    pub values: Option<Value>,
    /// A command, see [`Command::parse`](crate::runs::request::Command::parse).
    pub command: Option<Value>,
    /// The node it is written as.
    pub as_node: Option<Arc<str>>,
}

/// A thread as clients see it.
#[derive(Clone, Debug)]
pub struct View {
    /// The row.
    pub row: tree::Thread,
    /// State of the last checkpoint in wire form; null without one.
    pub values: Value,
    /// Open interrupts by task id.
    pub interrupts: Map,
}

/// Which threads to count or list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these; `None` for all.
    pub ids: Option<Vec<ThreadId>>,
    /// Containment on metadata.
    pub metadata: Map,
    /// Containment on the values of the last checkpoint.
    pub values: Map,
    /// Only this status.
    pub status: Option<ThreadStatus>,
    /// Which of a fork family.
    pub mode: ForkMode,
    /// Only those this principal may see; `None` for all.
    pub principal: Option<Arc<str>>,
    /// Wait until the derived tables are up to date with these events of threads.
    pub min_event: Vec<(ThreadId, i64)>,
}

/// A page of threads.
#[derive(Clone, Debug)]
pub struct Search {
    /// Which ones.
    pub filter: Filter,
    /// At most so many; one more than the client requested, to know whether there are more.
    pub limit: usize,
    /// How many to skip.
    pub offset: usize,
    /// Order.
    pub sort_by: SortBy,
    /// Smallest first.
    pub ascending: bool,
    /// The response shows values; else they are not read.
    pub with_values: bool,
    /// The response shows interrupts.
    pub with_interrupts: bool,
    /// What else is read of the threads.
    pub columns: Columns,
}

impl Search {
    /// What is read of a thread's head; one on which no node waits has no interrupts.
    pub fn extent(&self, thread: &tree::Thread) -> Extent {
        if self.with_values {
            Extent::State
        } else if self.with_interrupts && thread.outcome != tree::Outcome::Idle {
            Extent::Interrupts
        } else {
            Extent::Row
        }
    }
}

/// A page of a thread's history.
#[derive(Clone, Debug)]
pub struct History {
    /// At most so many; zero is an empty page of an existing thread.
    pub limit: usize,
    /// Strictly older than this checkpoint.
    pub before: Option<CheckpointId>,
    /// Containment on checkpoint metadata.
    pub metadata: Option<Map>,
    /// Namespace, and one checkpoint when it names one.
    pub at: Address,
}

/// A state edit.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Channel values; `None` for null.
    pub values: Option<Value>,
    /// The node it is written as.
    pub as_node: Option<Arc<str>>,
    /// The checkpoint to build on; the head without one.
    pub at: Address,
}
