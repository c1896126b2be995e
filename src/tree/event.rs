//! Events of a thread: their types, the numbers that storages store for them, and the payload that
//! clients are shown, which is composed from what is stored with the event and from other rows.

use std::sync::Arc;

use self::codes::event_code;
use super::store::{
    read::Read,
    rows::{MessageNode, NewEvent, Point, ThreadEvent},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, EventId, RunId, ThreadId, TreeId},
    value::{Map, Value},
};

pub(crate) mod codes;
pub mod names;
#[cfg(test)]
mod tests;

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

/// The type and payload of an event as they are stored.
#[derive(Debug)]
pub struct EncodedEvent {
    /// The number of its type.
    pub code: i16,
    /// The payload's `run_id`, which has a column.
    pub run: Option<RunId>,
    /// The rest of the payload; `None` when it is empty.
    pub facts: Option<Map>,
}

/// Encodes an event for storage: takes out of the payload what has a column and what is the
/// default, so that nothing is left of most payloads.
///
/// # Errors
/// There is no such type.
pub fn encode(kind: &str, payload: &Map) -> Result<EncodedEvent, Error> {
    let mut stored = EncodedEvent {
        code: code(kind)?,
        run: None,
        facts: None,
    };
    if payload.is_empty() {
        return Ok(stored);
    }
    let mut facts = payload.clone();
    if let Some(run) = run_of(payload) {
        facts.remove(RUN);
        stored.run = Some(run);
    }
    if kind == RUN_FINISHED && facts.get(STATUS) == Some(&Value::str(USUAL)) {
        facts.remove(STATUS);
    }
    stored.facts = (!facts.is_empty()).then_some(facts);
    Ok(stored)
}

/// Decodes the type and payload of a stored event.
///
/// # Errors
/// The number is not one of a type.
pub fn decode(stored: EncodedEvent) -> Result<(&'static str, Map), Error> {
    let kind = kind(stored.code)?;
    let mut payload = Map::new();
    if let Some(run) = stored.run {
        payload.insert(RUN, run.to_string());
    }
    if kind == RUN_FINISHED {
        payload.insert(STATUS, USUAL);
    }
    payload.extend(stored.facts.unwrap_or_default());
    Ok((kind, payload))
}

const RUN: &str = "run_id";
const STATUS: &str = "status";
/// The status that is not stored, because most runs end with it.
const USUAL: &str = "success";

fn run_of(payload: &Map) -> Option<RunId> {
    let text = payload.get(RUN)?.as_str()?;
    let run: RunId = text.parse().ok()?;
    // A run id in another spelling stays in the payload.
    (run.to_string() == text).then_some(run)
}

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

/// Facts about an event that are read from other rows.
#[derive(Clone, Debug, Default)]
pub struct EventFacts {
    /// Name of its branch at the time of the event.
    pub branch: Option<Arc<str>>,
    /// Its checkpoint; `None` when that was deleted.
    pub point: Option<Point>,
    /// For `CheckpointCreated` the messages its run, edit or post added, oldest first.
    pub added: Vec<MessageNode>,
    /// For `LLMResponseGenerated` the message of the user that it replies to.
    pub reply_to: Option<Arc<str>>,
}

/// The whole payload for clients: what is stored with the event, and what columns and rows add.
pub fn payload(event: &ThreadEvent, facts: &EventFacts) -> Map {
    let mut map = Map::new();
    let text = |text: &Option<Arc<str>>| text.clone().map_or(Value::Null, Value::Str);
    let message = text(&event.message_id);
    let checkpoint = event
        .checkpoint
        .map_or(Value::Null, |id| id.to_string().into());
    match &*event.kind {
        USER_MESSAGE_ADDED => {
            map.insert("message_id", message);
            map.insert("role", "user");
        }
        LLM_RESPONSE_GENERATED => {
            map.insert("ai_message_id", message);
            map.insert("reply_to", text(&facts.reply_to));
        }
        MESSAGE_ADDED | MESSAGE_EDITED | MESSAGE_REMOVED => {
            map.insert("message_id", message);
        }
        CHECKPOINT_CREATED => {
            map.insert("checkpoint_id", checkpoint);
            describe(&mut map, event, facts);
        }
        BRANCH_CREATED | BRANCH_HEAD_RESET => {
            map.insert("head_checkpoint_id", checkpoint);
        }
        TAG_SET => {
            map.insert("checkpoint_id", checkpoint);
            if event.message_id.is_some() {
                map.insert("message_id", message);
            }
        }
        _ => {}
    }
    for (key, value) in &event.payload {
        let value = match (&**key, value.as_str()) {
            ("role", Some(role)) => shown_role(role).into(),
            _ => value.clone(),
        };
        map.insert(key.clone(), value);
    }
    // A fork begins with one branch, so its event need not name that.
    if event.branch.is_some() && &*event.kind != THREAD_FORKED && !map.contains_key("branch") {
        map.insert("branch", text(&facts.branch));
    }
    map
}

fn describe(map: &mut Map, event: &ThreadEvent, facts: &EventFacts) {
    if has_stored_facts(event) {
        // In the order that `checkpoint_facts` uses.
        for key in OF_CHECKPOINT {
            if let Some(value) = event.payload.get(key) {
                map.insert(key, value.clone());
            }
        }
    } else if let Some(point) = &facts.point {
        let added = facts.added.iter();
        let added = added.map(|node| (&node.message_id, node.role.as_deref()));
        map.extend(checkpoint_facts(
            point.parent,
            point.source.as_str(),
            point.step,
            added,
        ));
    } else {
        // The checkpoint was deleted before its facts were stored.
        map.insert("parent_checkpoint_id", Value::Null);
        map.insert("message_ids", Value::list(vec![]));
        map.insert("source", Value::Null);
        map.insert("step", Value::Null);
    }
}

/// Keys of the facts about a checkpoint in the payload of `CheckpointCreated`.
const OF_CHECKPOINT: [&str; 5] = [
    "parent_checkpoint_id",
    "ai_message_id",
    "message_ids",
    "source",
    "step",
];

/// The facts about a checkpoint in the payload of `CheckpointCreated`: its parent, what created it,
/// and the messages that its run or update added, oldest first, with their roles. Storages store
/// them with the event before a checkpoint is deleted or gets another parent.
pub fn checkpoint_facts<'a>(
    parent: Option<CheckpointId>,
    source: &str,
    step: i64,
    added: impl Iterator<Item = (&'a Arc<str>, Option<&'a str>)>,
) -> Map {
    let (mut reply, mut ids) = (None, vec![]);
    for (id, role) in added {
        if role == Some("ai") {
            reply = Some(id);
        }
        ids.push(Value::Str(id.clone()));
    }
    let mut map = Map::new();
    map.insert("parent_checkpoint_id", parent.map(|id| id.to_string()));
    if let Some(id) = reply {
        map.insert("ai_message_id", Value::Str(id.clone()));
    }
    map.insert("message_ids", Value::list(ids));
    map.insert("source", source);
    map.insert("step", step);
    map
}

/// Whether facts about the event's checkpoint or message were stored with it before those rows
/// changed.
fn has_stored_facts(event: &ThreadEvent) -> bool {
    let keys = ["message_ids", "reply_to"];
    keys.iter().any(|key| event.payload.contains_key(key))
}

/// The name of a role in the message API.
pub fn shown_role(stored: &str) -> &str {
    match stored {
        "human" => "user",
        "ai" => "assistant",
        other => other,
    }
}

/// Reads the facts about an event from other rows, except for the name of its branch, which
/// [`names`] computes.
///
/// # Errors
/// The storage failed.
pub async fn load_facts(
    read: &mut dyn Read,
    tree: TreeId,
    event: &ThreadEvent,
) -> Result<EventFacts, Error> {
    let mut facts = EventFacts::default();
    if has_stored_facts(event) {
        return Ok(facts);
    }
    match (&*event.kind, event.checkpoint) {
        (CHECKPOINT_CREATED, Some(checkpoint)) => {
            facts.point = read.point(tree, checkpoint).await?;
            if let Some(point) = &facts.point {
                facts.added = added(read, tree, point).await?;
            }
        }
        (LLM_RESPONSE_GENERATED, Some(checkpoint)) => {
            if let Some(message) = &event.message_id {
                facts.reply_to = reply_to(read, tree, checkpoint, message).await?;
            }
        }
        _ => {}
    }
    Ok(facts)
}

/// Nodes of a chain that are read at once.
const PAGE: usize = 64;

/// The messages that a run or a state update added up to its last checkpoint, oldest first.
async fn added(
    read: &mut dyn Read,
    tree: TreeId,
    point: &Point,
) -> Result<Vec<MessageNode>, Error> {
    let mut found: Vec<MessageNode> = vec![];
    let mut next = point.last_node;
    while let Some(start) = next.take() {
        for node in read.chain(tree, start, PAGE).await? {
            let own = match point.run {
                Some(run) => node.run == Some(run),
                None => node.checkpoint == point.id,
            };
            if !own {
                next = None;
                break;
            }
            next = node.parent;
            found.push(node);
        }
    }
    found.reverse();
    Ok(found)
}

/// The last message of the user before a message of a model.
async fn reply_to(
    read: &mut dyn Read,
    tree: TreeId,
    checkpoint: CheckpointId,
    message: &Arc<str>,
) -> Result<Option<Arc<str>>, Error> {
    let nodes = read.nodes_of(tree, vec![message.clone()]).await?;
    let node = nodes.iter().find(|node| node.checkpoint == checkpoint);
    let mut next = node.and_then(|node| node.parent);
    while let Some(start) = next.take() {
        for node in read.chain(tree, start, PAGE).await? {
            if node.role.as_deref() == Some("human") {
                return Ok(Some(node.message_id));
            }
            next = node.parent;
        }
    }
    Ok(None)
}
