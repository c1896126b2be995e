//! Branches and tags of threads.

use schemars::JsonSchema;

use super::{Id, Name, Timestamp, state::Start};

/// What becomes of the queued runs of a branch that is no longer the active one.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Pending {
    Cancel,
    Keep,
}

/// A branch to create, and where it begins.
#[derive(JsonSchema)]
pub struct CreateBranch {
    name: Option<Name>,
    /// Whether it becomes the active branch.
    activate: Option<bool>,
    #[serde(flatten)]
    leaving: Activate,
    #[serde(flatten)]
    start: Start,
}

/// Where to go back to, on a new branch.
#[derive(JsonSchema)]
pub struct Rewind {
    name: Option<Name>,
    #[serde(flatten)]
    leaving: Activate,
    #[serde(flatten)]
    start: Start,
}

/// Where an aside begins.
#[derive(JsonSchema)]
pub struct SideBranch {
    name: Option<Name>,
    #[serde(flatten)]
    start: Start,
}

/// The tag to go back to, on a new branch.
#[derive(JsonSchema)]
pub struct Restore {
    tag: Name,
    name: Option<Name>,
    #[serde(flatten)]
    leaving: Activate,
}

/// How the active branch is left.
#[derive(JsonSchema)]
pub struct Activate {
    pending: Option<Pending>,
    cancel_running: Option<bool>,
}

/// The new name of a branch.
#[derive(JsonSchema)]
pub struct Rename {
    name: Name,
}

/// A branch after a change.
#[derive(JsonSchema)]
pub struct ChangedBranch {
    #[serde(flatten)]
    branch: BranchFields,
    event_number: i64,
    #[schemars(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    cancelled_runs: Option<Vec<Id>>,
    /// The text of the message that was rewound, to be edited.
    #[schemars(skip_serializing_if = "Option::is_none")]
    prefill: Option<crate::value::Value>,
}

#[derive(JsonSchema)]
struct BranchFields {
    name: String,
    is_active: bool,
    head_checkpoint_id: Option<Id>,
    head_message_id: Option<String>,
    message_count: i64,
    origin: String,
    source_branch: Option<String>,
    status: String,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// The branches of a thread.
#[derive(JsonSchema)]
pub struct Branches {
    active: Option<String>,
    branches: Vec<Branch>,
    leaves: Vec<Leaf>,
    forks: Vec<ForkOfThread>,
    /// Only where there are more forks than these: the list of forks has all of them.
    #[schemars(skip_serializing_if = "Option::is_none")]
    more_forks: Option<bool>,
}

/// A branch.
#[derive(JsonSchema)]
struct Branch {
    #[serde(flatten)]
    fields: BranchFields,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Leaf {
    message_id: String,
    depth: i64,
    created_at: Timestamp,
    branches: Vec<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ForkOfThread {
    thread_id: Id,
    parent_thread_id: Option<Id>,
    from_event_number: Option<i64>,
    created_at: Timestamp,
}

/// What a tag is put on.
#[derive(JsonSchema)]
pub struct PutTag {
    #[serde(flatten)]
    start: Start,
}

/// A tag.
#[derive(JsonSchema)]
pub struct Tag {
    name: String,
    checkpoint_id: Id,
    message_id: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The number of the event of a change.
    #[schemars(skip_serializing_if = "Option::is_none")]
    event_number: Option<i64>,
}

/// The tags of a thread.
#[derive(JsonSchema)]
pub struct Tags {
    tags: Vec<Tag>,
}
