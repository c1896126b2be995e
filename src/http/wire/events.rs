//! Events of threads, and what is derived from their trees.

use schemars::JsonSchema;

use super::{Flag, Id, Limit, Name, Timestamp, messages::MessageItem};
use crate::{threads::tree_view::Format, value::Map};

super::schemas! {
    /// The number of an event, or 0 for the one before the first.
    After = { "type": "integer", "minimum": 0, "maximum": i64::MAX };
    /// A state: `branch:NAME`, `tag:NAME`, `checkpoint:UUID`, `message:ID` or `event:NUMBER`.
    Address = {
        "type": "string",
        "pattern": "^(branch:[A-Za-z0-9_-]+|tag:[A-Za-z0-9_-]+|message:[!-~]+|event:[1-9][0-9]{0,8}|checkpoint:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"
    };
    /// The length of a tree.
    TreeLimit = { "type": "integer", "minimum": 1, "maximum": 10_000 };
}

/// Which events are listed, or streamed if the client accepts `text/event-stream`.
#[derive(JsonSchema)]
pub struct ListQuery {
    /// Events with greater numbers.
    after: Option<After>,
    /// Whether those of the thread that this one is a fork of are listed too.
    inherited: Option<Flag>,
    limit: Option<Limit>,
}

/// A page of events.
#[derive(JsonSchema)]
pub struct EventPage {
    events: Vec<Event>,
    /// What to list after for the next page.
    next: Option<i64>,
}

#[derive(JsonSchema)]
struct Event {
    event_number: i64,
    event_id: Id,
    event_type: String,
    thread_id: Id,
    branch: Option<String>,
    checkpoint_id: Option<Id>,
    message_id: Option<String>,
    payload: Map,
    created_at: Timestamp,
}

/// Whose head is read.
#[derive(JsonSchema)]
pub struct HeadQuery {
    branch: Option<Name>,
}

/// The head of a branch.
#[derive(JsonSchema)]
pub struct Head {
    thread_id: Id,
    branch: String,
    latest_checkpoint_id: Option<Id>,
    latest_ai_message_id: Option<String>,
    event_number: i64,
}

/// The states to compare.
#[derive(JsonSchema)]
pub struct DiffQuery {
    from: Address,
    to: Address,
}

/// What differs between two states.
#[derive(JsonSchema)]
pub struct Difference {
    from: Side,
    to: Side,
    channels: ChangedChannels,
    messages: ChangedMessages,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Side {
    checkpoint_id: Option<Id>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ChangedChannels {
    added: Map,
    removed: Map,
    changed: Map,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ChangedMessages {
    removed: Vec<MessageItem>,
    added: Vec<MessageItem>,
    /// As they are now, each with what it was in `from`.
    changed: Vec<MessageItem>,
}

/// Which part of a tree is shown.
#[derive(JsonSchema)]
pub struct TreeQuery {
    format: Option<Format>,
    limit: Option<TreeLimit>,
    /// Nodes that are deeper.
    after_depth: Option<After>,
}

/// The tree of a thread.
#[derive(JsonSchema)]
pub struct Tree {
    nodes: Vec<Node>,
    branches: Vec<TreeBranch>,
    tags: Vec<TreeTag>,
    /// There are more nodes.
    truncated: bool,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Node {
    id: String,
    parent_id: Option<String>,
    role: Option<String>,
    preview: Option<String>,
    depth: i64,
    thread_id: Id,
    created_at: Timestamp,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct TreeBranch {
    name: String,
    head_message_id: Option<String>,
    head_checkpoint_id: Option<Id>,
    is_active: bool,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct TreeTag {
    name: String,
    message_id: Option<String>,
    checkpoint_id: Id,
}

/// Which tables are derived anew.
#[derive(JsonSchema)]
pub struct Rebuild {
    projection: Option<Projection>,
    /// The thread whose rows are derived anew; all, if none is named.
    thread_id: Option<Id>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Projection {
    ForkIndex,
    Search,
    ThreadHeads,
    ThreadTimeline,
}

/// The tables that are derived anew.
#[derive(JsonSchema)]
pub struct Rebuilding {
    projections: Vec<Projection>,
    thread_id: Option<Id>,
}
