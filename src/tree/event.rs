//! Events of a thread: their types, the numbers that storages store for them, and the payload that
//! clients are shown, which is composed from what is stored with the event and from other rows.

use self::codes::event_code;
use super::store::NewEvent;
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, EventId, RunId, ThreadId},
    value::Map,
};

pub(crate) mod codes;
mod encoding;
pub mod names;
mod payload;
pub mod row;
#[cfg(test)]
mod tests;

pub use encoding::{EncodedEvent, decode, encode};
pub use payload::{EventFacts, checkpoint_facts, load_facts, payload, shown_role};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// Types with their numbers.
        const CODES: &[(&str, i16)] = &[$(($text, event_code!($name))),*];
    };
}

kinds! {
    /// A thread was created.
    THREAD_CREATED = "ThreadCreated";
    /// A thread began as a fork of another one.
    THREAD_FORKED = "ThreadForked";
    /// A message of the user.
    USER_MESSAGE_ADDED = "UserMessageAdded";
    /// A message of a model, added by a run.
    LLM_RESPONSE_GENERATED = "LLMResponseGenerated";
    /// Any other message.
    MESSAGE_ADDED = "MessageAdded";
    /// The content of a message changed.
    MESSAGE_EDITED = "MessageEdited";
    /// A message left the state.
    MESSAGE_REMOVED = "MessageRemoved";
    /// A run, edit or post ended with this checkpoint.
    CHECKPOINT_CREATED = "CheckpointCreated";
    /// A branch was created.
    BRANCH_CREATED = "BranchCreated";
    /// A branch became the active one.
    BRANCH_ACTIVATED = "BranchActivated";
    /// Its head moved back: a run on it was rolled back.
    BRANCH_HEAD_RESET = "BranchHeadReset";
    /// A branch was renamed.
    BRANCH_RENAMED = "BranchRenamed";
    /// A branch was deleted.
    BRANCH_DELETED = "BranchDeleted";
    /// A tag was set or moved.
    TAG_SET = "TagSet";
    /// A tag was deleted.
    TAG_DELETED = "TagDeleted";
    /// A run was created.
    RUN_ENQUEUED = "RunEnqueued";
    /// A run was claimed.
    RUN_STARTED = "RunStarted";
    /// A run ended.
    RUN_FINISHED = "RunFinished";
}

/// The number of a type.
///
/// # Errors
/// There is no such type.
pub fn code(kind: &str) -> Result<i16, Error> {
    CODES
        .iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, code)| *code)
        .ok_or_else(|| Error::Database(format!("`{kind}` is not a type of event")))
}

/// The type of a number.
///
/// # Errors
/// The number is not one of a type.
pub fn kind(code: i16) -> Result<&'static str, Error> {
    CODES
        .iter()
        .find(|(_, known)| *known == code)
        .map(|(name, _)| *name)
        .ok_or_else(|| Error::Corrupt(format!("{code} is not a type of event")))
}

/// The id of an event.
pub fn id(thread: ThreadId, number: i64) -> EventId {
    EventId::of(thread, number)
}

const RUN: &str = "run_id";
const STATUS: &str = "status";

/// The payload of an event about a run.
pub fn about_run(run: RunId) -> Map {
    Map::from([(RUN, run.to_string().into())])
}

/// The payload of a run's end.
pub fn end_of_run(run: RunId, status: &str) -> Map {
    Map::from([(RUN, run.to_string().into()), (STATUS, status.into())])
}

/// The payload of a new branch.
pub fn new_branch(name: &str, origin: &str, source: &str) -> Map {
    Map::from([
        ("branch", name.into()),
        ("origin", origin.into()),
        ("source_branch", source.into()),
    ])
}

/// The event of a branch created at `base` from branch `source`.
pub fn branch_created(
    branch: BranchId,
    name: &str,
    origin: &str,
    source: &str,
    base: Option<CheckpointId>,
) -> NewEvent {
    NewEvent {
        kind: BRANCH_CREATED,
        payload: new_branch(name, origin, source),
        branch: Some(branch),
        checkpoint: base,
        message_id: None,
    }
}

/// The event of a branch that became the active one.
pub fn branch_activated(branch: BranchId, name: &str) -> NewEvent {
    NewEvent {
        kind: BRANCH_ACTIVATED,
        payload: about_branch(name),
        branch: Some(branch),
        ..NewEvent::default()
    }
}

/// The payload of an event that names its branch, which may have another name later.
pub fn about_branch(name: &str) -> Map {
    Map::from([("branch", name.into())])
}
