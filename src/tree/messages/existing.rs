//! The messages of a thread that a request submits again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Incoming, POST_MAX,
    content::{MessageContents, content_matches},
    placement::{ExistingMessage, Predecessor, find_duplicate},
};
use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        error::Result,
        resolve::{is_on_path, sees},
        store::{MessageChange, MessageNode, Read, ThreadRow},
    },
};

/// The nodes that a thread has for the ids of a request: the messages with these ids, and those
/// that replaced them.
pub struct ExistingMessages {
    by_id: HashMap<Arc<str>, Vec<MessageNode>>,
}

impl ExistingMessages {
    /// Looks up the ids of `messages` among the messages that the thread sees.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn find(
        read: &mut dyn Read,
        thread: &ThreadRow,
        messages: &[Incoming],
    ) -> Result<Self> {
        let ids: Vec<Arc<str>> = messages.iter().filter_map(|one| one.id.clone()).collect();
        let mut by_id: HashMap<Arc<str>, Vec<MessageNode>> = HashMap::new();
        if ids.is_empty() {
            return Ok(Self { by_id });
        }
        for node in read.nodes_of(thread.tree, ids).await? {
            if node.change != MessageChange::Add || !sees(read, thread, &node).await? {
                continue;
            }
            for edit in read.children(thread.tree, node.parent).await? {
                if edit.edit_of.as_ref() == Some(&node.message_id)
                    && sees(read, thread, &edit).await?
                {
                    let nodes = by_id.entry(node.message_id.clone()).or_default();
                    insert(nodes, edit);
                }
            }
            by_id.entry(node.message_id.clone()).or_default().push(node);
        }
        Ok(Self { by_id })
    }

    /// Looks up the messages behind `parent` that replaced the one with an id, wherever that one is.
    async fn find_at(
        &mut self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        id: &Arc<str>,
        parent: Predecessor,
    ) -> Result<()> {
        if !self.is_taken(id) {
            return Ok(());
        }
        for edit in read.children(thread.tree, parent).await? {
            if edit.edit_of.as_ref() == Some(id) && sees(read, thread, &edit).await? {
                insert(self.by_id.entry(id.clone()).or_default(), edit);
            }
        }
        Ok(())
    }

    /// Whether the thread has a message with this id, without looking up anything else.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn contains(read: &mut dyn Read, thread: &ThreadRow, id: &Arc<str>) -> Result<bool> {
        Self::contains_all(read, thread, std::slice::from_ref(id)).await
    }

    /// Whether the thread has a message with each of these ids.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn contains_all(
        read: &mut dyn Read,
        thread: &ThreadRow,
        ids: &[Arc<str>],
    ) -> Result<bool> {
        for ids in ids.chunks(POST_MAX) {
            let mut missing: HashSet<Arc<str>> = ids.iter().cloned().collect();
            for node in read.nodes_of(thread.tree, ids.to_vec()).await? {
                if node.change == MessageChange::Add
                    && missing.contains(&node.message_id)
                    && sees(read, thread, &node).await?
                {
                    missing.remove(&node.message_id);
                }
            }
            if !missing.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the thread has a message with this id.
    pub fn is_taken(&self, id: &str) -> bool {
        self.nodes_of(id).iter().any(|node| &*node.message_id == id)
    }

    /// The nodes for an id.
    pub fn nodes_of(&self, id: &str) -> &[MessageNode] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// A node by its key.
    pub fn node(&self, id: NodeId) -> Option<&MessageNode> {
        let mut all = self.by_id.values().flatten();
        all.find(|node| node.id == id)
    }

    /// What the thread has for one message of a request, as seen from the head of a branch.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn candidates(
        &self,
        read: &mut dyn Read,
        values: &MessageContents<'_>,
        message: &Incoming,
        head: Option<CheckpointId>,
    ) -> Result<Vec<ExistingMessage>> {
        let Some(id) = &message.id else {
            return Ok(vec![]);
        };
        let mut found = vec![];
        for node in self.nodes_of(id) {
            let on_path = match head {
                Some(head) => is_on_path(read, values.tree, head, node).await?,
                None => false,
            };
            // Its content at the head of the path, or else its first content.
            let now = match head.filter(|_| on_path) {
                Some(head) => values.messages(head).await?,
                None => None,
            };
            let first = match &now {
                Some(now) if now.find(&node.message_id).is_some() => None,
                _ => values.messages(node.checkpoint).await?,
            };
            let content = first.as_ref().or(now.as_ref());
            let content = content.and_then(|list| list.find(&node.message_id));
            found.push(ExistingMessage {
                node: node.id,
                parent: node.parent,
                content_equal: content
                    .is_some_and(|content| content_matches(content, &message.message)),
                is_edit: node.message_id != *id,
                on_path,
            });
        }
        Ok(found)
    }

    /// The messages at the beginning of a request that are stored already, one behind the other,
    /// and what the thread has for the first one that is not.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn stored_prefix(
        &mut self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        values: &MessageContents<'_>,
        messages: &[Incoming],
        mut after: Option<Predecessor>,
        head: Option<CheckpointId>,
    ) -> Result<(Vec<MessageNode>, Vec<ExistingMessage>)> {
        let mut stored = vec![];
        for message in messages {
            if let (Some(id), Some(parent)) = (&message.id, after) {
                self.find_at(read, thread, id, parent).await?;
            }
            let existing = self.candidates(read, values, message, head).await?;
            let duplicate = find_duplicate(&existing, after).and_then(|id| self.node(id));
            let Some(node) = duplicate else {
                return Ok((stored, existing));
            };
            after = Some(Some(node.id));
            stored.push(node.clone());
        }
        Ok((stored, vec![]))
    }
}

fn insert(nodes: &mut Vec<MessageNode>, edit: MessageNode) {
    if nodes.iter().all(|one| one.id != edit.id) {
        nodes.push(edit);
    }
}
