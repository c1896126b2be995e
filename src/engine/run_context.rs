//! What all graphs of one run share: the writer, the sink, resume values, cancellation.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    event::{Body, Event, Kind, Sink},
    long_term_memory::Items,
    message_index::MessageIndex,
    node_cache::Results,
    persist::writer::RunWriter,
    recovery::Recovery,
    tolerance::Tolerance,
};
use crate::{
    budget::Reservation,
    extract::RunConfig,
    graph::Names,
    id::{BranchId, CheckpointId, RunId, ThreadId},
    value::{Map, Value},
};

/// Shared by the root graph of a run and every graph inside it.
pub struct RunContext {
    /// The writer; `None` for a run that stores nothing.
    pub writer: Option<Arc<RunWriter>>,
    /// Makes the index of the conversation's messages.
    pub index: Option<Arc<dyn MessageIndex>>,
    /// Receives events.
    pub sink: Arc<dyn Sink>,
    /// The run's config.
    pub config: Arc<RunConfig>,
    /// Metadata of every checkpoint of the run.
    pub metadata: Map,
    /// Static breakpoints of the request, on top of the graph's.
    pub interrupt_before: Option<Names>,
    /// Static breakpoints of the request, on top of the graph's.
    pub interrupt_after: Option<Names>,
    /// Resume values by interrupt id.
    pub resume_by_id: HashMap<String, Value>,
    /// Earlier attempts of the run, and the resume value for whichever task interrupts first.
    pub recovery: Recovery,
    /// Ids of messages that were streamed already.
    pub streamed_messages: Mutex<HashSet<Arc<str>>>,
    /// The newest checkpoint of the root graph that is stored or on its way: checkpoints of graphs
    /// inside name it as their root.
    pub root: Mutex<Option<CheckpointId>>,
    /// New checkpoints have greater ids than this: the head of the active branch.
    pub floor: Option<CheckpointId>,
    /// Checkpoints of graphs inside that the request names: they run from those.
    pub inside: HashMap<Arc<str>, CheckpointId>,
    /// Where the states of graphs inside are counted, if they are; empty itself.
    pub memory: Option<Reservation>,
    /// Locks of namespaces that several tasks share: they run one after the other.
    pub namespace_locks: Mutex<HashMap<Arc<str>, NamespaceLock>>,
    /// Long-term memory.
    pub items: Option<Arc<dyn Items>>,
    /// Mistakes of commands that are passed over.
    pub tolerance: Tolerance,
    /// The most tasks of one superstep.
    pub max_tasks: usize,
    /// Results that nodes may reuse.
    pub reuse: Option<Arc<Results>>,
    /// Stops the run at the next await.
    pub cancel: CancellationToken,
    /// Supersteps left, for nodes that read it.
    pub remaining: AtomicU32,
    /// The thread, stored with checkpoints.
    pub thread: ThreadId,
    /// The branch, stored with checkpoints.
    pub branch: BranchId,
    /// The run, stored with checkpoints.
    pub run: Option<RunId>,
}

/// Lets one task at a time run the graph of a namespace.
pub type NamespaceLock = Arc<tokio::sync::Mutex<()>>;

impl RunContext {
    /// The lock of a namespace that several tasks of one superstep may run in.
    pub fn namespace_lock(&self, ns: &Arc<str>) -> NamespaceLock {
        let mut locks = self.namespace_locks.lock();
        locks.entry(ns.clone()).or_default().clone()
    }

    /// Memory for a state inside that takes so many bytes, beyond what is left if need be; `None` where nobody counts.
    pub fn charge(&self, bytes: usize) -> Option<Reservation> {
        self.memory.as_ref().map(|memory| memory.another(bytes))
    }

    /// Sends an event built by `body`, if the sink accepts its kind.
    pub fn emit(&self, kind: Kind, ns: &Arc<str>, body: impl FnOnce() -> Body) {
        if self.sink.wants(kind, ns) {
            self.sink.emit(Event {
                ns: ns.clone(),
                body: body(),
            });
        }
    }

    /// Supersteps left.
    pub fn remaining(&self) -> u32 {
        self.remaining.load(Ordering::Relaxed)
    }

    /// Marks a message as streamed; false if it was before.
    pub fn mark_streamed(&self, id: &str) -> bool {
        self.streamed_messages.lock().insert(id.into())
    }
}
