//! States of threads and their history.

use schemars::JsonSchema;

use super::{
    Container, EventNumber, Flag, Id, IdOrEmpty, Limit, Name, QueryEventNumber, Timestamp,
    runs::CheckpointObject,
};
use crate::{
    tree::store::rows::Position,
    value::{Map, Value},
};

/// The state of a thread that something starts from; the head of the active branch, unless a field
/// names another.
#[derive(JsonSchema)]
pub struct Start {
    checkpoint_id: Option<Id>,
    checkpoint: Option<CheckpointObject>,
    /// The branch that is read or continued.
    branch: Option<Name>,
    tag: Option<Name>,
    message_id: Option<String>,
    parent_id: Option<String>,
    event_number: Option<EventNumber>,
    position: Option<Position>,
}

/// As [`Start`], in a query.
#[derive(JsonSchema)]
struct QueryStart {
    branch: Option<Name>,
    tag: Option<Name>,
    checkpoint_id: Option<IdOrEmpty>,
    message_id: Option<String>,
    parent_id: Option<String>,
    event_number: Option<QueryEventNumber>,
    position: Option<Position>,
}

/// Which state is read.
#[derive(JsonSchema)]
pub struct StateQuery {
    #[serde(flatten)]
    at: StateAtQuery,
    #[serde(flatten)]
    start: QueryStart,
}

/// Which state is read at a checkpoint.
#[derive(JsonSchema)]
pub struct StateAtQuery {
    /// Whether the states of subgraphs are read too.
    subgraphs: Option<Flag>,
}

/// The checkpoint whose state is read.
#[derive(JsonSchema)]
pub struct ReadState {
    checkpoint: CheckpointObject,
    subgraphs: Option<bool>,
}

/// Values to write to the state of a thread.
#[derive(JsonSchema)]
pub struct UpdateState {
    values: Option<Container>,
    /// The node that the values are written as.
    as_node: Option<String>,
    #[serde(flatten)]
    start: Start,
}

/// The checkpoint that an update made.
#[derive(JsonSchema)]
pub struct UpdatedState {
    checkpoint: CheckpointAddress,
    configurable: CheckpointAddress,
    checkpoint_id: Id,
}

#[derive(JsonSchema)]
struct CheckpointAddress {
    thread_id: Id,
    /// Not there for an unknown task of a subgraph.
    #[schemars(skip_serializing_if = "Option::is_none")]
    checkpoint_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    checkpoint_ns: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    checkpoint_map: Option<Map>,
}

/// Which states of the history are read.
#[derive(JsonSchema)]
pub struct HistoryQuery {
    /// Zero and less are an empty page.
    #[schemars(range(min = -9_223_372_036_854_775_808_i64, max = 1000))]
    limit: Option<i64>,
    /// States strictly older than this checkpoint.
    before: Option<IdOrEmpty>,
    #[serde(flatten)]
    start: QueryStart,
}

/// Which states of the history are read.
#[derive(JsonSchema)]
pub struct SearchHistory {
    limit: Option<Limit>,
    before: Option<Before>,
    /// Contained in the metadata of the checkpoint.
    metadata: Option<Map>,
    #[serde(flatten)]
    start: Start,
}

super::schemas! {
    /// States strictly older than this checkpoint: its id, the checkpoint, or a config with it.
    Before = {
        "anyOf": [
            {"type": "string", "format": "uuid", "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
            {"type": "object", "properties": {
                "checkpoint_id": {"anyOf": [{"type": "string", "format": "uuid", "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"}, {"type": "null"}]},
                "configurable": {"type": ["object", "null"], "properties": {
                    "checkpoint_id": {"anyOf": [{"type": "string", "format": "uuid", "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"}, {"type": "null"}]}
                }}
            }}
        ]
    };
}

/// A state of a thread.
#[derive(JsonSchema)]
pub struct ThreadState {
    values: Value,
    /// The nodes that run next.
    next: Vec<String>,
    tasks: Vec<Task>,
    metadata: Option<Map>,
    created_at: Option<Timestamp>,
    checkpoint: Option<CheckpointAddress>,
    parent_checkpoint: Option<CheckpointAddress>,
    interrupts: Vec<Interrupt>,
    checkpoint_id: Option<String>,
    parent_checkpoint_id: Option<String>,
}

#[derive(JsonSchema)]
struct Task {
    id: String,
    name: String,
    path: Vec<Value>,
    error: Option<String>,
    interrupts: Vec<Interrupt>,
    checkpoint: Option<CheckpointAddress>,
    /// The state of the subgraph that it runs, if that was read.
    state: Option<Box<ThreadState>>,
    result: Value,
}

#[derive(JsonSchema)]
struct Interrupt {
    id: String,
    value: Value,
}
