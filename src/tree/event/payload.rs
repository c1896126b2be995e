//! The payload of an event for clients, composed from the event and facts in other rows.

use std::sync::Arc;

use super::{
    BRANCH_CREATED, BRANCH_HEAD_RESET, CHECKPOINT_CREATED, LLM_RESPONSE_GENERATED, MESSAGE_ADDED,
    MESSAGE_EDITED, MESSAGE_REMOVED, TAG_SET, THREAD_FORKED, USER_MESSAGE_ADDED,
};
use crate::{
    checkpoint::Error,
    id::{CheckpointId, TreeId},
    tree::{
        chain,
        store::{MessageNode, Point, Read, ThreadEvent},
    },
    value::{Map, Value},
};

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
/// [`names`](super::names) computes.
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

/// The messages that a run or a state update added up to its last checkpoint, oldest first.
async fn added(
    read: &mut dyn Read,
    tree: TreeId,
    point: &Point,
) -> Result<Vec<MessageNode>, Error> {
    let mut found = chain::take_while(read, tree, point.last_node, |node| match point.run {
        Some(run) => node.run == Some(run),
        None => node.checkpoint == point.id,
    })
    .await?;
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
    let before = node.and_then(|node| node.parent);
    let is_human = |node: &MessageNode| node.role.as_deref() == Some("human");
    let human = chain::find(read, tree, before, is_human).await?;
    Ok(human.map(|node| node.message_id))
}
