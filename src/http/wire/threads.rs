//! Threads as resources: their bodies, lists, copies, forks and members.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{
    Container, EventNumber, Flag, Id, IdOrEmpty, Limit, Metadata, Name, Offset, QueryOffset,
    Selected, SortOrder, Timestamp,
};
use crate::{
    threads::request::{ForkMode, Prune, SortBy, ThreadStatus},
    tree::{
        IfExists,
        members::Level,
        store::rows::Position,
        ttl::{MINUTES_MAX, TtlStrategy},
    },
    value::{Map, Value},
};

/// A thread to create.
#[derive(JsonSchema)]
pub struct CreateThread {
    thread_id: Option<IdOrEmpty>,
    metadata: Option<Metadata>,
    if_exists: Option<IfExists>,
    ttl: Option<Ttl>,
    /// State updates to apply, in order.
    supersteps: Option<Vec<Superstep>>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Superstep {
    updates: Vec<Update>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Update {
    values: Option<Container>,
    command: Option<Map>,
    as_node: String,
}

super::schemas! {
    /// Minutes from the last change on until the thread expires, alone or with what becomes of it then.
    Ttl = {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": MINUTES_MAX},
            {
                "type": "object",
                "properties": {
                    "ttl": {"type": "number", "exclusiveMinimum": 0, "maximum": MINUTES_MAX},
                    "strategy": {"type": ["string", "null"], "enum": ["delete", "keep_latest", null]}
                },
                "required": ["ttl"]
            }
        ]
    };
}

/// What of a thread is shown besides.
#[derive(JsonSchema)]
pub struct ThreadQuery {
    /// `ttl`: when the thread expires.
    include: Option<String>,
}

/// When a thread expires, unless it changes before.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Expiry {
    strategy: TtlStrategy,
    ttl_minutes: f64,
    expires_at: Timestamp,
}

/// What changes of a thread.
#[derive(JsonSchema)]
pub struct PatchThread {
    /// Merged with what is there.
    metadata: Option<Metadata>,
    ttl: Option<Ttl>,
}

/// Which threads to list.
#[derive(JsonSchema)]
pub struct SearchThreads {
    #[serde(flatten)]
    filter: CountThreads,
    limit: Option<Limit>,
    offset: Option<Offset>,
    sort_by: Option<SortBy>,
    sort_order: Option<SortOrder>,
    /// The fields to show; all, if none is named.
    select: Option<Vec<Column>>,
    extract: Option<Extract>,
}

/// Which threads to count.
#[derive(JsonSchema)]
pub struct CountThreads {
    ids: Option<Vec<Id>>,
    /// Contained in the metadata of the thread.
    metadata: Option<Map>,
    /// Contained in its values.
    values: Option<Map>,
    status: Option<ThreadStatus>,
    mode: Option<ForkMode>,
    /// Threads whose logs have these events.
    min_event: Option<MinEvent>,
}

/// The fields that a client may select.
pub const COLUMNS: [&str; 11] = [
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "config",
    "context",
    "status",
    "values",
    "interrupts",
    "error",
];

super::schemas! {
    Column = { "type": "string", "enum": COLUMNS };
}

super::schemas! {
    /// Event numbers by thread.
    MinEvent = {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": i64::MAX}
    };
    /// Paths such as `values.messages[-1].content`, by the names that their values are shown by.
    Extract = {
        "type": "object",
        "maxProperties": 10,
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {
            "type": "string",
            "pattern": "^(config|interrupts|metadata|values)([.\\[]|$)"
        }
    };
    /// `<thread_id>:<event number>`.
    MinEventText = {
        "type": "string",
        "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]{1,9}$"
    };
}

/// Which threads the plain list shows.
#[derive(JsonSchema)]
pub struct ListQuery {
    limit: Option<Limit>,
    offset: Option<QueryOffset>,
    status: Option<ThreadStatus>,
    mode: Option<ForkMode>,
    min_event: Option<Vec<MinEventText>>,
}

/// The threads to prune.
#[derive(JsonSchema)]
pub struct PruneThreads {
    thread_ids: Vec<Id>,
    strategy: Option<Prune>,
}

/// How many threads were pruned.
#[derive(JsonSchema)]
pub struct Pruned {
    pruned_count: i64,
}

/// How a thread is deleted.
#[derive(JsonSchema)]
pub struct DeleteQuery {
    /// Whether the other threads of its tree are deleted too.
    scope: Option<Scope>,
    /// Only says which threads would be deleted.
    dry_run: Option<Flag>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Scope {
    Thread,
    Tree,
}

/// The threads that a deletion would delete.
#[derive(JsonSchema)]
pub struct Deletable {
    threads: Vec<Id>,
}

super::schemas! {
    /// Several modes, with commas; `run_modes` if there is none.
    ThreadModes = {
        "type": "string",
        "pattern": "^((run_modes|lifecycle|state_update)(,(run_modes|lifecycle|state_update))*)?$"
    };
}

/// What the stream of a thread shows.
#[derive(JsonSchema)]
pub struct StreamQuery {
    stream_modes: Option<ThreadModes>,
    stream_mode: Option<ThreadModes>,
}

/// What every list shows of a thread.
#[derive(JsonSchema)]
pub struct ThreadFields {
    thread_id: Id,
    created_at: Timestamp,
    updated_at: Timestamp,
    state_updated_at: Timestamp,
    metadata: Map,
    status: ThreadStatus,
    config: Map,
    /// The values of its state; null before the first.
    values: Value,
    /// How the last run failed; not there before the first run.
    #[schemars(skip_serializing_if = "Option::is_none")]
    error: Option<Map>,
    /// Open interrupts by task; not there before the first run.
    #[schemars(skip_serializing_if = "Option::is_none")]
    interrupts: Option<Map>,
}

/// A thread.
#[derive(JsonSchema)]
pub struct Thread {
    #[serde(flatten)]
    fields: ThreadFields,
    /// Only where it is asked for, of a thread that expires.
    #[schemars(skip_serializing_if = "Option::is_none")]
    ttl: Option<Expiry>,
}

/// The selected fields of a thread, and what was extracted from it.
#[derive(JsonSchema)]
pub struct SelectedThread {
    #[serde(flatten)]
    fields: Selected<ThreadFields>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    extracted: Option<BTreeMap<String, Value>>,
}

/// A thread that a command created.
#[derive(JsonSchema)]
pub struct CreatedThread {
    thread_id: Id,
    event_id: Id,
    event_number: i64,
}

/// Where a fork of a thread begins.
#[derive(JsonSchema)]
struct NewFork {
    /// The id of the fork.
    thread_id: Option<Id>,
    metadata: Option<Metadata>,
    branch: Option<Name>,
    tag: Option<Name>,
    checkpoint_id: Option<Id>,
    message_id: Option<String>,
    parent_id: Option<String>,
    event_number: Option<EventNumber>,
    position: Option<Position>,
}

/// Where a fork of the thread of the path begins.
#[derive(JsonSchema)]
pub struct ForkThread {
    /// The thread of the path.
    source_thread_id: Option<Id>,
    #[serde(flatten)]
    fork: NewFork,
}

/// The thread to fork, and where.
#[derive(JsonSchema)]
pub struct CommandForkThread {
    source_thread_id: Id,
    #[serde(flatten)]
    fork: NewFork,
}

/// A fork.
#[derive(JsonSchema)]
pub struct Forked {
    new_thread_id: Id,
    thread_id: Id,
    tree_id: Id,
    fork_checkpoint_id: Option<Id>,
    fork_event_number: Option<i64>,
    event_id: Id,
    event_number: i64,
    #[schemars(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// How many threads and fork points are listed, and behind which.
#[derive(JsonSchema)]
pub struct ForksQuery {
    limit: Option<Limit>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// The fork family of a thread.
#[derive(JsonSchema)]
pub struct Family {
    tree_id: Id,
    root_thread_id: Id,
    threads: Vec<Relative>,
    fork_points: Vec<ForkPoint>,
    /// The `after` of the next page; null on the last one.
    next: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Relative {
    thread_id: Id,
    parent_thread_id: Option<Id>,
    parent_deleted: bool,
    forked_at_message_id: Option<String>,
    position: Option<Position>,
    fork_checkpoint_id: Option<Id>,
    fork_event_number: Option<i64>,
    fork_level: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
    metadata: Map,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ForkPoint {
    message_id: Option<String>,
    options: Vec<ForkOption>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ForkOption {
    thread_id: Id,
    branch: String,
    message_id: Option<String>,
    preview: Option<String>,
    created_at: Timestamp,
    active: bool,
}

/// The level of a principal.
#[derive(JsonSchema)]
pub struct PutMember {
    level: Level,
}

/// Who may do what with a thread.
#[derive(JsonSchema)]
pub struct Member {
    principal: String,
    level: Level,
}

/// A level that was granted.
#[derive(JsonSchema)]
pub struct GrantedMember {
    principal: String,
    level: Level,
    event_number: i64,
}

/// Everybody who may do something with a thread.
#[derive(JsonSchema)]
pub struct Members {
    members: Vec<Member>,
}

/// How much is stored of the checkpoints that a thread has written. What a fork inherits is its parent's.
#[derive(JsonSchema)]
pub struct Storage {
    thread_id: Id,
    /// The sum of the others.
    total_bytes: u64,
    /// Checkpoints with their metadata.
    checkpoints: Amount,
    channel_values: StoredValues,
    /// Results of tasks and what they wait for.
    pending_writes: Amount,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Amount {
    count: u64,
    bytes: u64,
}

/// Versions of the values of channels.
#[derive(JsonSchema)]
#[schemars(inline)]
struct StoredValues {
    count: u64,
    bytes: u64,
    by_channel: BTreeMap<String, StoredChannel>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct StoredChannel {
    versions: u64,
    bytes: u64,
}
