//! What all graphs of one run share: the writer, the sink, answers, cancellation.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    event::{Body, Event, Kind, Sink},
    index::Index,
    journal::Journal,
    reuse::Results,
    run::Tolerance,
    takeover::Given,
};
use crate::{
    extract::RunConfig,
    graph::Names,
    id::{BranchId, CheckpointId, RunId, ThreadId},
    value::{Map, Value},
};

/// Long-term memory shared between threads. Keys are namespaces and names.
#[async_trait]
pub trait Items: Send + Sync + 'static {
    /// One value.
    async fn get(&self, namespace: &[String], key: &str) -> anyhow::Result<Option<Value>>;
    /// Writes a value, for as long as `ttl` says; `None` deletes.
    async fn put(
        &self,
        namespace: &[String],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()>;
}

/// Shared by the root graph of a run and every graph inside it.
pub struct Scope {
    /// The writer; `None` for a run that stores nothing.
    pub journal: Option<Arc<Journal>>,
    /// Keeps the index of the conversation's messages.
    pub index: Option<Arc<dyn Index>>,
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
    /// Answers by interrupt id.
    pub answers: HashMap<String, Value>,
    /// The answer for whichever task asks first.
    pub answer: Mutex<Option<Value>>,
    /// Where it is noted that this answer is there to be taken, until it is noted that it was.
    pub given: Mutex<Option<Given>>,
    /// An earlier attempt of the run may have got further than where the root graph stands.
    pub again: bool,
    /// The root graph stands where an earlier attempt of the run stopped.
    pub continues: bool,
    /// Ids of messages that were streamed already.
    pub said: Mutex<HashSet<Arc<str>>>,
    /// The newest checkpoint of the root graph that is stored or on its way: graphs inside note
    /// it as their root.
    pub root: Mutex<Option<CheckpointId>>,
    /// New checkpoints have greater ids than this: the head of the active branch.
    pub floor: Option<CheckpointId>,
    /// Checkpoints of graphs inside that the request names: they run from those.
    pub inside: HashMap<Arc<str>, CheckpointId>,
    /// Who runs in a namespace that several tasks share: one after the other.
    pub doors: Mutex<HashMap<Arc<str>, Door>>,
    /// Long-term memory.
    pub items: Option<Arc<dyn Items>>,
    /// Mistakes of commands that are passed over.
    pub tolerance: Tolerance,
    /// Results that nodes may use again.
    pub reuse: Option<Arc<Results>>,
    /// Stops the run at the next await.
    pub cancel: CancellationToken,
    /// Supersteps left, for nodes that ask.
    pub remaining: AtomicU32,
    /// The thread, noted in checkpoints.
    pub thread: ThreadId,
    /// The branch, noted in checkpoints.
    pub branch: BranchId,
    /// The run, noted in checkpoints.
    pub run: Option<RunId>,
}

/// Lets one visitor in at a time.
pub type Door = Arc<tokio::sync::Mutex<()>>;

impl Scope {
    /// The door of a namespace that several tasks of one superstep may run in.
    pub fn door(&self, ns: &Arc<str>) -> Door {
        self.doors.lock().entry(ns.clone()).or_default().clone()
    }

    /// Sends an event built by `body`, if somebody wants its kind.
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

    /// Notes messages of a state, so that nodes that return them again do not stream them.
    pub fn heard<'a>(&self, messages: impl IntoIterator<Item = &'a Value>) {
        let mut said = self.said.lock();
        for message in messages {
            if let Some(id) = message.get("id").and_then(Value::as_str) {
                said.insert(id.into());
            }
        }
    }
}
