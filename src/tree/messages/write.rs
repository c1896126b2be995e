//! Writing messages: assigning their ids, updating the state and committing it.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    Incoming, OnExisting, Post, content::MessageContents, destination::TargetGraph,
    existing::ExistingMessages,
};
use crate::{
    checkpoint::{self, Slot, buffered::BufferedSaver, frame::Decoded},
    engine::{StateUpdater, reserved::START, update::messages::Continuation},
    id::CheckpointId,
    tree::{
        error::{Error, Result},
        index::Indexer,
        resolve,
        store::{MessageNode, Outcome, ThreadRow, Tx},
    },
    value::{Map, Value},
};

/// A message to store, with the id that it was submitted with if another message has that.
pub(super) struct NewMessage {
    id: Arc<str>,
    edit_of: Option<Arc<str>>,
    message: Value,
}

/// Assigns new ids to messages without one, and to those whose id the thread has already.
pub(super) fn assign_ids(
    messages: &[Incoming],
    ids: &ExistingMessages,
    how: OnExisting,
) -> Vec<NewMessage> {
    let mint = || Arc::<str>::from(Uuid::new_v4().to_string());
    messages
        .iter()
        .map(|one| {
            let (id, edit_of) = match &one.id {
                None => (mint(), None),
                Some(id) if how != OnExisting::Replace && ids.is_taken(id) => {
                    (mint(), Some(id.clone()))
                }
                Some(id) => (id.clone(), None),
            };
            let mut message = one.message.clone();
            if let Some(map) = message.make_map_mut() {
                map.insert("id", Value::Str(id.clone()));
            }
            NewMessage {
                id,
                edit_of,
                message,
            }
        })
        .collect()
}

/// The nodes that wait to run after the messages: the start, if the last message is a user's or the
/// system's.
fn next_nodes(
    post: &Post,
    target: &TargetGraph<'_>,
    values: &MessageContents<'_>,
    messages: &[NewMessage],
) -> Continuation {
    if let Some(node) = &post.as_node {
        return if !target.assigned && &**node == START {
            Continuation::AnyStart
        } else {
            Continuation::After(node.clone())
        };
    }
    let last = messages.last().map_or("", |last| role_of(&last.message));
    match (matches!(last, "human" | "system"), target.assigned) {
        (false, _) => Continuation::Nothing,
        (true, false) => Continuation::AnyStart,
        (true, true) if target.graph.input.contains(&values.channel) => {
            Continuation::After(START.into())
        }
        // Input does not reach the messages of this graph.
        (true, true) => Continuation::Nothing,
    }
}

#[expect(clippy::too_many_arguments, reason = "what one edit is made of")]
pub(super) async fn write(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    post: &Post,
    messages: &[NewMessage],
    slot: Slot,
    base: Option<Decoded>,
) -> Result<Decoded> {
    if slot.branch != thread.active_branch.unwrap_or(slot.branch)
        && let Some(active) = thread.active_branch
        && let Some(head) = tx
            .branch(thread.tree, active)
            .await?
            .and_then(|row| row.head)
    {
        // Ids made here from now on are greater than the active branch's head.
        CheckpointId::mint(0, [head]);
    }
    let buffer = BufferedSaver::new(values.saver.clone());
    let mut metadata = Map::new();
    if let Some(value) = thread.metadata.get("graph_id") {
        metadata.insert("graph_id", value.clone());
    }
    let replaces = messages
        .iter()
        .filter_map(|one| Some((one.id.clone(), one.edit_of.clone()?)));
    let indexer = Indexer {
        replaces: replaces.collect(),
        ..Indexer::default()
    };
    let edit = StateUpdater {
        saver: buffer.clone(),
        slot,
        ns: "".into(),
        graph: target.graph.clone(),
        base,
        superseded: false,
        index: Some(Arc::new(indexer)),
        metadata,
        run: None,
    };
    let list = messages.iter().map(|one| one.message.clone()).collect();
    let then = next_nodes(post, target, values, messages);
    let (edited, state) = edit.write_messages(&values.channel, list, then).await?;
    for commit in buffer.take() {
        tx.put(commit).await.map_err(|error| match error {
            checkpoint::Error::Fenced => run_began(),
            error => error.into(),
        })?;
    }
    let outcome = Outcome::left_with(&edited.next);
    tx.set_outcome(values.tree, slot.branch, outcome).await?;
    Ok(state)
}

/// The nodes of messages that were just written, in their order.
pub(super) async fn stored_nodes(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    state: &Decoded,
    messages: &[NewMessage],
) -> Result<Vec<MessageNode>> {
    let chain = match state.checkpoint.last_node {
        Some(last) => tx.chain(thread.tree, last, messages.len()).await?,
        None => vec![],
    };
    let mut nodes = Vec::with_capacity(messages.len());
    for one in messages {
        match chain.iter().find(|node| node.message_id == one.id) {
            Some(node) => nodes.push(node.clone()),
            // It replaced a message earlier on the path.
            None => {
                let head = Some(state.checkpoint.id);
                nodes.push(resolve::message(tx, thread, &one.id, head).await?);
            }
        }
    }
    Ok(nodes)
}

/// The stored role of a message.
pub(super) fn role_of(message: &Value) -> &str {
    message
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn run_began() -> Error {
    Error::conflict(
        "branch_busy",
        "A run has begun on the branch meanwhile: wait for it to end, or post to another branch",
    )
}
