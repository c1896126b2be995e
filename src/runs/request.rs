//! Requests about runs, already validated, and their form in the row of a run.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::Strategy;
use crate::{
    id::{CheckpointId, CronId, RunId, ThreadId},
    tree,
    value::{Map, Value},
    words::words,
};

pub mod codec;
mod command;
pub mod identity;
mod kwargs;
mod requester;

pub use crate::{assistants::Assistant, stream::Mode};
pub use command::{Command, Goto};
pub use kwargs::{Ids, Kwargs};
pub use requester::Requester;

words! {
    /// When a superstep's checkpoint must be durable.
    pub enum Durability, "durability" {
        /// Before the next superstep starts.
        Sync = "sync",
        /// While the next superstep runs.
        Async = "async",
        /// Only at the end of the run.
        Exit = "exit",
    }
    /// What a lost client connection means for the run.
    pub enum OnDisconnect, "word for disconnecting" {
        /// The run is cancelled.
        Cancel = "cancel",
        /// The run continues.
        Continue = "continue",
    }
    /// What to do when the thread does not exist.
    pub enum IfNotExists, "word for a missing thread" {
        /// Create it.
        Create = "create",
        /// Refuse the run.
        Reject = "reject",
    }
    /// What becomes of the thread of a stateless run.
    pub enum OnCompletion, "word for completion" {
        /// It is deleted with the run.
        Delete = "delete",
        /// It stays.
        Keep = "keep",
    }
    /// What cancelling does with what the run has done.
    pub enum CancelAction, "action of a cancellation" {
        /// It stays.
        Interrupt = "interrupt",
        /// It is undone, and the run is deleted.
        Rollback = "rollback",
    }
    /// Which runs to cancel.
    pub enum CancelStatus, "status of runs to cancel" {
        /// Those that wait.
        Pending = "pending",
        /// Those that are executed.
        Running = "running",
        /// Both.
        All = "all",
    }
}

/// Where to start from, when it is not the head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Address {
    /// The checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// Its namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// Checkpoints of parent namespaces, for a nested one.
    pub map: Option<Map>,
    /// The address in the conversation tree, when the request uses address fields that LangGraph
    /// does not have. Then `checkpoint` is what it was resolved to, if anything.
    pub tree_address: Option<tree::Address>,
}

impl Address {
    /// Where a run starts, which is always a run of the root graph: for an address inside it the
    /// root checkpoint its map names, else the head (LangGraph's rule).
    pub fn root(&self) -> Option<CheckpointId> {
        if self.ns.is_empty() {
            self.checkpoint
        } else {
            self.mapped("")
        }
    }

    /// The checkpoint in the address's own namespace: the one that is named, else that of the map.
    pub fn own(&self) -> Option<CheckpointId> {
        self.checkpoint.or_else(|| self.mapped(&self.ns))
    }

    fn mapped(&self, ns: &str) -> Option<CheckpointId> {
        let id = self.map.as_ref()?.get(ns)?.as_str()?;
        id.parse().ok()
    }
}

/// Nodes to stop before or after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nodes {
    /// `"*"`: every node.
    All(Star),
    /// These.
    Named(Vec<Arc<str>>),
}

/// The text `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Star {
    /// Every node.
    #[serde(rename = "*")]
    Star,
}

/// A run to create, on a thread or stateless.
#[derive(Clone, Debug)]
pub struct Run {
    /// What to run.
    pub assistant: Assistant,
    /// Input of the graph; `None` (also for JSON null) continues from the checkpoint.
    pub input: Option<Value>,
    /// `{update, resume, goto}` of the request; it parses with [`Command::parse`]. Wins over `input`.
    pub command: Option<Value>,
    /// `{tags, recursion_limit, configurable, metadata}` of the request, fields of known type.
    pub config: Map,
    /// Static context of the graph; never filled together with `config.configurable`.
    pub context: Map,
    /// Client's metadata.
    pub metadata: Map,
    /// What the stream shows; never empty.
    pub stream_mode: Vec<Mode>,
    /// Show events of subgraphs too.
    pub stream_subgraphs: bool,
    /// Retain the events and number them, so that a client can rejoin.
    pub stream_resumable: bool,
    /// What a lost connection means (stream and wait only).
    pub on_disconnect: OnDisconnect,
    /// Where to start from.
    pub address: Address,
    /// Make the branch it works on the active one. Without a word a named branch stays as it
    /// is, and any other becomes active.
    pub activate: Option<bool>,
    /// Stop before these nodes.
    pub interrupt_before: Option<Nodes>,
    /// Stop after these nodes.
    pub interrupt_after: Option<Nodes>,
    /// How to treat other runs of the thread.
    pub multitask_strategy: Strategy,
    /// What to do when there is no such thread.
    pub if_not_exists: IfNotExists,
    /// How long it must wait.
    pub after: Duration,
    /// As requested; `None` means the default of the kind of run (`async`, stateless `exit`).
    pub durability: Option<Durability>,
    /// `checkpoint_during` of the request: the older way to request a durability.
    pub checkpoint_during: Option<bool>,
    /// Where to report the end.
    pub webhook: Option<Arc<str>>,
    /// What becomes of the thread (stateless only).
    pub on_completion: OnCompletion,
    /// Who requests it.
    pub requester: Requester,
    /// The span of the request, as the header of W3C's Trace Context names it; `None` while spans are not
    /// collected.
    pub traceparent: Option<Arc<str>>,
    /// The id it is to have; `None` for a new one. Set for requests that take effect once, so
    /// that a retry finds the run of a process that died before it responded.
    pub id: Option<RunId>,
    /// The cron that creates it.
    pub cron: Option<CronId>,
    /// It was started by a command of the event-streaming protocol.
    pub event_streaming: bool,
    /// Interrupts that it resumes: all of them must be open when it is created.
    pub open_interrupts: Vec<Arc<str>>,
}

impl Run {
    /// Whether it uses a field of the conversation tree.
    pub fn branches(&self) -> bool {
        self.activate.is_some() || self.address.tree_address.is_some()
    }

    /// A request with every field at its default, in the trace of the current span.
    pub fn of(assistant: Assistant, requester: Requester) -> Self {
        Self {
            assistant,
            input: None,
            command: None,
            config: Map::default(),
            context: Map::default(),
            metadata: Map::default(),
            stream_mode: vec![Mode::Values],
            stream_subgraphs: false,
            stream_resumable: false,
            on_disconnect: OnDisconnect::Continue,
            address: Address::default(),
            activate: None,
            interrupt_before: None,
            interrupt_after: None,
            multitask_strategy: Strategy::default(),
            if_not_exists: IfNotExists::Reject,
            after: Duration::ZERO,
            durability: None,
            checkpoint_during: None,
            webhook: None,
            on_completion: OnCompletion::Delete,
            requester,
            traceparent: crate::trace::traceparent(),
            id: None,
            cron: None,
            event_streaming: false,
            open_interrupts: vec![],
        }
    }
}

/// How to join the stream of a run.
#[derive(Clone, Debug, Default)]
pub struct Join {
    /// Only these modes; empty for all the run has.
    pub modes: Vec<Mode>,
    /// `Last-Event-ID` of the request: events after it are replayed; `-`, `-1` and `0` mean from the
    /// start; `None` means live events only.
    pub last_event_id: Option<Arc<str>>,
    /// Cancel the run when this client goes away.
    pub cancel_on_disconnect: bool,
}

/// Which runs to cancel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Every run in such a state.
    Status(CancelStatus),
    /// These of a thread.
    Runs(ThreadId, Vec<RunId>),
}

/// A run of a thread by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The thread.
    pub thread: ThreadId,
    /// The run.
    pub run: RunId,
}
