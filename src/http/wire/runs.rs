//! Runs, on threads and stateless.

use schemars::JsonSchema;

use super::{
    Container, Flag, Id, Limit, Metadata, OneOrMany, QueryOffset, Timestamp, assistants::Config,
    state::Start,
};
use crate::{
    runs::{
        Strategy,
        request::{
            CancelAction, CancelStatus, Durability, IfNotExists, OnCompletion, OnDisconnect,
        },
    },
    value::{Map, Value},
};

/// What a run emits.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "kebab-case")]
pub enum StreamMode {
    Values,
    Messages,
    MessagesTuple,
    Tasks,
    Checkpoints,
    Updates,
    Events,
    Debug,
    Custom,
}

/// What a run gets beside its input; `resume`, `update` and `goto`.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Command {
    update: Option<CommandUpdate>,
    resume: Option<Value>,
    goto: Option<Goto>,
}

super::schemas! {
    /// Values to write: an object, or a list of pairs.
    CommandUpdate = {
        "anyOf": [
            {"type": "object"},
            {"type": "array", "items": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {}],
                "items": false,
                "minItems": 2
            }}
        ]
    };
    /// Nodes to run next.
    Goto = {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"node": {"type": "string"}, "input": {}}, "required": ["node"]},
            {"type": "array", "items": {"anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"node": {"type": "string"}, "input": {}}, "required": ["node"]}
            ]}}
        ]
    };
    /// Every node, or those with these names.
    Nodes = {
        "anyOf": [{"const": "*"}, {"type": "array", "items": {"type": "string"}}]
    };
    /// Several modes, with commas; empty for those that the run was created with.
    Modes = {
        "type": "string",
        "pattern": "^((values|messages|messages-tuple|tasks|checkpoints|updates|events|debug|custom)(,(values|messages|messages-tuple|tasks|checkpoints|updates|events|debug|custom))*)?$"
    };
}

/// The checkpoint that something starts from.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct CheckpointObject {
    checkpoint_id: Option<super::IdOrEmpty>,
    checkpoint_ns: Option<String>,
    checkpoint_map: Option<Map>,
}

/// What runs and crons are created with.
#[derive(JsonSchema)]
pub struct RunOptions {
    config: Option<Config>,
    /// Static context of the graph; not together with `config.configurable`.
    context: Option<Map>,
    stream_mode: Option<OneOrMany<StreamMode>>,
    stream_subgraphs: Option<bool>,
    /// Whether the events are stored, so that clients may come back for them.
    stream_resumable: Option<bool>,
    interrupt_before: Option<Nodes>,
    interrupt_after: Option<Nodes>,
    durability: Option<Durability>,
    /// An `http` or `https` URL to which each run is posted when it has ended.
    webhook: Option<super::Webhook>,
}

/// What runs are created with, on threads and stateless.
#[derive(JsonSchema)]
struct RunRequest {
    /// The id of an assistant, or the name of a graph.
    assistant_id: String,
    #[serde(flatten)]
    options: RunOptions,
    metadata: Option<Metadata>,
    on_disconnect: Option<OnDisconnect>,
    /// The run starts after so many seconds.
    #[schemars(range(max = 31_622_400.0))]
    after_seconds: Option<f64>,
    /// Deprecated: false is the durability `exit`.
    checkpoint_during: Option<bool>,
    /// Accepted and ignored: this server collects no feedback.
    feedback_keys: Option<Vec<String>>,
    /// Accepted and ignored: this server does not trace to LangSmith.
    langsmith_tracer: Option<Value>,
    /// Accepted and ignored: a resume is always matched to its interrupt.
    strict_resume: Option<Value>,
}

/// A run on a thread to create.
#[derive(JsonSchema)]
pub struct CreateRun {
    /// The input of the graph; null continues from the checkpoint.
    input: Option<Value>,
    command: Option<Command>,
    #[serde(flatten)]
    request: RunRequest,
    multitask_strategy: Option<Strategy>,
    if_not_exists: Option<IfNotExists>,
    #[serde(flatten)]
    start: Start,
    /// Whether a branch that the run opens becomes the active one.
    activate: Option<bool>,
}

/// A stateless run to create.
#[derive(JsonSchema)]
pub struct CreateStatelessRun {
    input: Option<Value>,
    /// A stateless run has nothing to resume.
    command: Option<Command>,
    #[serde(flatten)]
    request: RunRequest,
    /// What becomes of the thread that the run has.
    on_completion: Option<OnCompletion>,
}

/// Stateless runs to create together.
#[derive(JsonSchema)]
pub struct CreateBatch(#[schemars(length(min = 1, max = 1000))] Vec<CreateStatelessRun>);

/// Which runs to cancel: `status`, or `thread_id` and `run_ids`.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum CancelRuns {
    Status(CancelByStatus),
    Ids(CancelByIds),
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct CancelByStatus {
    status: CancelStatus,
    #[schemars(with = "Option<()>")]
    thread_id: (),
    #[schemars(with = "Option<()>")]
    run_ids: (),
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct CancelByIds {
    thread_id: Id,
    run_ids: Vec<Id>,
    #[schemars(with = "Option<()>")]
    status: (),
}

/// Which runs to list.
#[derive(JsonSchema)]
pub struct ListQuery {
    limit: Option<Limit>,
    offset: Option<QueryOffset>,
    /// An unknown status has no runs.
    status: Option<String>,
    /// The fields to show; all, if none is named.
    select: Option<Vec<Column>>,
}

/// The fields that a client may select.
pub const COLUMNS: [&str; 9] = [
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
];

super::schemas! {
    Column = { "type": "string", "enum": COLUMNS };
}

/// How a run is cancelled.
#[derive(JsonSchema)]
pub struct CancelQuery {
    /// Whether the response comes when the run has ended.
    wait: Option<Flag>,
    action: Option<CancelAction>,
}

/// How runs are cancelled.
#[derive(JsonSchema)]
pub struct CancelManyQuery {
    action: Option<CancelAction>,
}

/// How the end of a run is waited for.
#[derive(JsonSchema)]
pub struct JoinQuery {
    /// Whether the run is cancelled when the client leaves.
    cancel_on_disconnect: Option<Flag>,
}

/// Which events of a run are streamed.
#[derive(JsonSchema)]
pub struct JoinStreamQuery {
    stream_mode: Option<Modes>,
    cancel_on_disconnect: Option<Flag>,
}

/// A run.
#[derive(JsonSchema)]
pub struct Run {
    run_id: Id,
    thread_id: Id,
    assistant_id: Id,
    metadata: Map,
    status: crate::runs::Status,
    /// The request as it was understood.
    kwargs: Map,
    multitask_strategy: Strategy,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// How a run ended: its values, with `__interrupt__` if it waits, or `__error__`.
#[derive(JsonSchema)]
pub struct Outcome(Value);

/// The values of a state.
#[derive(JsonSchema)]
pub struct Values(Container);
