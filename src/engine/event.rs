//! The events that a run emits. The `stream` room turns them into LangGraph's modes.

use std::sync::Arc;

use super::barrier::Barrier;
use crate::{
    checkpoint::Source,
    extract::{Report, RunConfig},
    id::{CheckpointId, TaskId},
    value::{Map, Value},
};

/// Kinds of events that a sink may accept; others are not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Full state.
    Values,
    /// Results per task.
    Updates,
    /// What nodes emit.
    Custom,
    /// Chat messages and their chunks.
    Messages,
    /// Start and end of tasks.
    Tasks,
    /// Checkpoints.
    Checkpoints,
    /// Starts and ends of graphs, nodes, models and tools.
    Callbacks,
}

/// An interrupt at which a task waits for a resume value.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupt {
    /// 32 hex digits, stable while the task is.
    pub id: Arc<str>,
    /// What the node shows to whoever resumes it.
    pub value: Value,
}

impl Interrupt {
    /// `{"value", "id"}`.
    pub fn to_value(&self) -> Value {
        let mut map = Map::with_capacity(2);
        map.insert("value", self.value.clone());
        map.insert("id", Value::Str(self.id.clone()));
        Value::map(map)
    }

    /// Reads what [`to_value`](Self::to_value) wrote.
    pub fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            id: value.get("id")?.as_str()?.into(),
            value: value.get("value")?.clone(),
        })
    }
}

/// A task as events describe it.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Id.
    pub id: TaskId,
    /// Node.
    pub name: Arc<str>,
    /// What started it, sorted.
    pub triggers: Arc<[Arc<str>]>,
    /// Path as clients see it.
    pub path: Value,
    /// Its own namespace.
    pub ns: Arc<str>,
    /// Superstep number.
    pub step: i64,
}

impl TaskInfo {
    /// The fields that tell in the metadata of a checkpoint which task its graph runs in.
    pub fn metadata(&self) -> Map {
        let triggers = self.triggers.iter().map(|name| Value::Str(name.clone()));
        Map::from([
            ("langgraph_step", Value::from(self.step)),
            ("langgraph_node", Value::Str(self.name.clone())),
            ("langgraph_triggers", Value::list(triggers.collect())),
            ("langgraph_path", self.path.clone()),
            ("langgraph_checkpoint_ns", Value::Str(self.ns.clone())),
        ])
    }
}

/// A task of a checkpoint event or a state.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Id.
    pub id: TaskId,
    /// Node.
    pub name: Arc<str>,
    /// Path as clients see it.
    pub path: Value,
    /// `{"error", "message"}` of a failure.
    pub error: Option<Value>,
    /// Its open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// What it wrote, once it has finished: channel to value.
    pub result: Option<Value>,
    /// Namespace of the graph it runs, if that stores checkpoints.
    pub child_ns: Option<Arc<str>>,
}

impl TaskState {
    /// `ValueError('what happened')`: its failure as LangGraph's states and events of checkpoints show it.
    pub(crate) fn error_text(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let part = |key: &str| {
            let text = error.get(key).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let message = part("message").replace('\\', "\\\\");
        let quoted = if message.contains('\'') && !message.contains('"') {
            format!("\"{message}\"")
        } else {
            format!("'{}'", message.replace('\'', "\\'"))
        };
        Some(format!("{}({quoted})", part("error")))
    }
}

/// A checkpoint as events describe it.
#[derive(Clone, Debug)]
pub struct CheckpointInfo {
    /// Id.
    pub id: CheckpointId,
    /// The checkpoint before it.
    pub parent: Option<CheckpointId>,
    /// What made it.
    pub source: Source,
    /// Superstep number.
    pub step: i64,
    /// Checkpoints of the graphs around it, by namespace.
    pub parents: Map,
    /// State shown.
    pub values: Value,
    /// Nodes that run next.
    pub next: Vec<Arc<str>>,
    /// Tasks that run next.
    pub tasks: Vec<TaskState>,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Namespace of the graph it comes from; empty for the root.
    pub ns: Arc<str>,
    /// What happened.
    pub body: Body,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Body {
    /// The state, after a superstep or at the start of a resumed run.
    Values(Value),
    /// The state with interrupts that tasks have just come to.
    ValuesInterrupt(Value, Vec<Interrupt>),
    /// A task finished: node and its update (`Null` for none).
    Update {
        /// The node.
        node: Arc<str>,
        /// Channel to value; a list when one task wrote a channel twice.
        update: Value,
        /// It was not computed now, but comes from the storage or the node cache.
        cached: bool,
    },
    /// Tasks came to interrupts; empty at a static breakpoint.
    UpdateInterrupt(Vec<Interrupt>),
    /// Emitted by a node.
    Custom {
        /// The task it comes from.
        task: TaskId,
        /// What was emitted.
        value: Value,
    },
    /// A chat message.
    Message {
        /// Stored form of a message, or a chunk.
        message: Value,
        /// A whole message, not a chunk.
        whole: bool,
        /// The task it comes from.
        task: Arc<TaskInfo>,
    },
    /// A task starts.
    TaskStart {
        /// The task.
        task: Arc<TaskInfo>,
        /// Its input.
        input: Value,
    },
    /// A task ended.
    TaskEnd {
        /// The task.
        task: Arc<TaskInfo>,
        /// `{"error", "message"}` of a failure.
        error: Option<Value>,
        /// What it wrote.
        result: Value,
        /// Its open interrupts.
        interrupts: Vec<Interrupt>,
    },
    /// A checkpoint was made.
    Checkpoint(Box<CheckpointInfo>),
    /// A graph, a node, a model or a tool starts or ends.
    Callback(Box<Callback>),
}

/// What starts or ends.
#[derive(Clone, Debug)]
pub enum Callback {
    /// A graph starts: the task that runs it, unless it is the root, and its input.
    GraphStart(Option<Arc<TaskInfo>>, Value),
    /// A graph ends with this state.
    GraphEnd(Option<Arc<TaskInfo>>, Value),
    /// A node starts with this input.
    NodeStart(Arc<TaskInfo>, Value),
    /// A node ends: what it wrote.
    NodeEnd(Arc<TaskInfo>, Value),
    /// What a node does with models and tools.
    Report(Arc<TaskInfo>, Report),
}

/// Receives the events of a run in order. Must not block.
pub trait Sink: Send + Sync + 'static {
    /// Whether to build events of this kind for the graph at `ns` (empty for the root graph).
    fn wants(&self, kind: Kind, ns: &str) -> bool;

    /// Takes an event.
    fn emit(&self, event: Event);

    /// Called when the root graph begins a superstep: what follows is of the one after this
    /// checkpoint.
    fn superstep(&self, _checkpoint: Option<CheckpointId>) {}

    /// From here on, events are shown once the barrier is dropped; `None` from a sink that shows them at once.
    fn barrier(&self) -> Option<Barrier> {
        None
    }

    /// Called once with the run's config, which metadata events contain.
    fn started(&self, _config: &Arc<RunConfig>) {}
}

/// A sink that accepts no event.
pub struct Silent;

impl Sink for Silent {
    fn wants(&self, _: Kind, _: &str) -> bool {
        false
    }
    fn emit(&self, _: Event) {}
}
