//! Tags: names of checkpoints, which stay where they are until they are set again.

use std::sync::Arc;

use super::{
    branch::MAX_PER_THREAD,
    error::{Error, Result},
    event,
    resolve::Resolved,
    store::{NewEvent, Position, Tag, ThreadRow, Tx},
};
use crate::{
    time::Timestamp,
    value::{Map, Value},
};

/// A tag that was set.
#[derive(Clone, Debug)]
pub struct TagChange {
    /// The tag.
    pub tag: Tag,
    /// There was no tag with this name.
    pub new: bool,
    /// Number of the event.
    pub event_number: i64,
}

/// Sets a tag on the checkpoint of an address, which must not be one to trim.
///
/// # Errors
/// 409 `empty_branch`: there is no checkpoint; `too_many`. Or the storage failed.
pub async fn set(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    name: Arc<str>,
    at: &Resolved,
) -> Result<TagChange> {
    let Some(point) = at.base.point() else {
        return Err(Error::conflict(
            "empty_branch",
            "There is no checkpoint yet that a tag could name",
        ));
    };
    let existing = tx.tag(thread.tree, thread.id, name.clone()).await?;
    if existing.is_none() && tx.tags(thread.tree, thread.id).await?.len() >= MAX_PER_THREAD {
        return Err(Error::conflict(
            "too_many",
            format!("The thread has {MAX_PER_THREAD} tags: delete some first"),
        ));
    }
    // A base before a message ends with another message.
    let named = at.message.as_ref().filter(|_| at.position == Position::At);
    let message_id = match (named, point.last_node) {
        (Some(node), _) => Some(node.message_id.clone()),
        (None, Some(node)) => {
            let node = tx.node(thread.tree, node).await?;
            node.map(|node| node.message_id)
        }
        (None, None) => None,
    };
    let now = Timestamp::now();
    let tag = Tag {
        name: name.clone(),
        checkpoint: point.id,
        depth: point.depth,
        message_id: message_id.clone(),
        created_at: existing.map_or(now, |tag| tag.created_at),
        updated_at: now,
    };
    let new = tx.put_tag(thread.tree, thread.id, tag.clone()).await?;
    let event = NewEvent {
        kind: event::TAG_SET,
        payload: Map::from([("tag", Value::Str(name.clone()))]),
        branch: None,
        checkpoint: Some(point.id),
        message_id,
    };
    let event_number = tx.append(thread.tree, thread.id, vec![event]).await?;
    // It is read back because stored times have the precision of the storage.
    let stored = tx.tag(thread.tree, thread.id, name).await?;
    Ok(TagChange {
        tag: stored.unwrap_or(tag),
        new,
        event_number,
    })
}

/// Deletes a tag. Returns the number of the event.
///
/// # Errors
/// 404 `tag_not_found`, or the storage failed.
pub async fn delete(tx: &mut dyn Tx, thread: &ThreadRow, name: &str) -> Result<i64> {
    let tag = super::resolve::tag(tx, thread, name).await?;
    tx.delete_tag(thread.tree, thread.id, tag.name.clone())
        .await?;
    let event = NewEvent {
        kind: event::TAG_DELETED,
        payload: Map::from([("tag", Value::Str(tag.name))]),
        branch: None,
        checkpoint: Some(tag.checkpoint),
        message_id: None,
    };
    Ok(tx.append(thread.tree, thread.id, vec![event]).await?)
}
