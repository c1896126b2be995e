//! Writing messages: their ids, the edit of the state, and its commit.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    Incoming, OnExisting, Post, content::MessageContents, existing::ExistingMessages,
    post::TargetGraph,
};
use crate::{
    checkpoint::{self, Slot, buffered::BufferedSaver, frame::Decoded},
    engine::{Edit, edit::messages::Then, names::START},
    id::CheckpointId,
    tree::{
        error::Error,
        index::Indexer,
        resolve,
        store::{
            rows::{MessageNode, Outcome, ThreadRow},
            tx::Tx,
        },
    },
    value::{Map, Value},
};

/// A message as it is stored, and the id it came with if that is another's.
pub(super) struct Named {
    id: Arc<str>,
    edit_of: Option<Arc<str>>,
    message: Value,
}

/// Gives ids: new ones to messages without, and to those whose id the thread has already.
pub(super) fn with_ids(
    messages: &[Incoming],
    ids: &ExistingMessages,
    how: OnExisting,
) -> Vec<Named> {
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
            Named {
                id,
                edit_of,
                message,
            }
        })
        .collect()
}

/// What waits to run after the messages: a person's or the system's call for an answer.
fn then(
    post: &Post,
    target: &TargetGraph<'_>,
    values: &MessageContents<'_>,
    messages: &[Named],
) -> Then {
    if let Some(node) = &post.as_node {
        return match target.assigned {
            false if &**node == START => Then::AnyStart,
            _ => Then::After(node.clone()),
        };
    }
    let last = messages.last().map_or("", |last| role_of(&last.message));
    match (matches!(last, "human" | "system"), target.assigned) {
        (false, _) => Then::Nothing,
        (true, false) => Then::AnyStart,
        (true, true) if target.graph.input.contains(&values.channel) => Then::After(START.into()),
        // Input does not reach the messages of this graph.
        (true, true) => Then::Nothing,
    }
}

#[expect(clippy::too_many_arguments, reason = "what one edit is made of")]
pub(super) async fn write(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    post: &Post,
    messages: &[Named],
    slot: Slot,
    base: Option<Decoded>,
) -> Result<Decoded, Error> {
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
    let edit = Edit {
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
    let then = then(post, target, values, messages);
    let (edited, state) = edit.write_messages(&values.channel, list, then).await?;
    for commit in buffer.take() {
        tx.put(commit).await.map_err(|error| match error {
            checkpoint::Error::Fenced => taken_over(),
            error => error.into(),
        })?;
    }
    let outcome = match edited.next.is_empty() {
        true => Outcome::Idle,
        false => Outcome::Interrupted,
    };
    tx.set_outcome(values.tree, slot.branch, outcome).await?;
    Ok(state)
}

/// The nodes of messages that were just written, in their order.
pub(super) async fn written(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    state: &Decoded,
    messages: &[Named],
) -> Result<Vec<MessageNode>, Error> {
    let chain = match state.checkpoint.last_node {
        Some(last) => tx.chain(thread.tree, last, messages.len()).await?,
        None => vec![],
    };
    let mut nodes = Vec::with_capacity(messages.len());
    for one in messages {
        match chain.iter().find(|node| node.message_id == one.id) {
            Some(node) => nodes.push(node.clone()),
            // Replaced where it was.
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

fn taken_over() -> Error {
    Error::conflict(
        "branch_busy",
        "A run has begun on the branch meanwhile: wait for it to end, or post to another branch",
    )
}
