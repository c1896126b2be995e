//! What a thread knows already of the messages of a request.

use std::{collections::HashMap, sync::Arc};

use super::{
    Incoming,
    content::{MessageContents, content_matches},
    placement::{ExistingMessage, Predecessor, find_duplicate},
};
use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        error::Error,
        resolve::{is_on_path, sees},
        store::{
            read::Read,
            rows::{MessageChange, MessageNode, ThreadRow},
        },
    },
};

/// Nodes that a thread has for ids of a request: the messages with these ids, and those that
/// were written in their place.
pub struct ExistingMessages {
    by_id: HashMap<Arc<str>, Vec<MessageNode>>,
}

impl ExistingMessages {
    /// Looks the ids of `messages` up, as far as the thread sees them.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn find(
        read: &mut dyn Read,
        thread: &ThreadRow,
        messages: &[Incoming],
    ) -> Result<Self, Error> {
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
                    let known = by_id.entry(node.message_id.clone()).or_default();
                    insert(known, edit);
                }
            }
            by_id.entry(node.message_id.clone()).or_default().push(node);
        }
        Ok(Self { by_id })
    }

    /// Looks up what was written behind `spot` in place of a taken id, wherever the message with
    /// that id is.
    async fn find_at(
        &mut self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        id: &Arc<str>,
        spot: Predecessor,
    ) -> Result<(), Error> {
        if !self.is_taken(id) {
            return Ok(());
        }
        for edit in read.children(thread.tree, spot).await? {
            if edit.edit_of.as_ref() == Some(id) && sees(read, thread, &edit).await? {
                insert(self.by_id.entry(id.clone()).or_default(), edit);
            }
        }
        Ok(())
    }

    /// Whether the thread has a message with this id; asks for nothing else.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn contains(
        read: &mut dyn Read,
        thread: &ThreadRow,
        id: &Arc<str>,
    ) -> Result<bool, Error> {
        for node in read.nodes_of(thread.tree, vec![id.clone()]).await? {
            if node.change == MessageChange::Add && sees(read, thread, &node).await? {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// What is known of one message of a request, seen from the head of a branch.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn candidates(
        &self,
        read: &mut dyn Read,
        values: &MessageContents<'_>,
        message: &Incoming,
        head: Option<CheckpointId>,
    ) -> Result<Vec<ExistingMessage>, Error> {
        let Some(id) = &message.id else {
            return Ok(vec![]);
        };
        let mut found = vec![];
        for node in self.nodes_of(id) {
            let on_path = match head {
                Some(head) => is_on_path(read, values.tree, head, node).await?,
                None => false,
            };
            // What it says now on the path, else what it said first.
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

    /// How many messages at the beginning of a request are stored already, one behind the other,
    /// with what is known of the first that is not.
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
    ) -> Result<(Vec<MessageNode>, Vec<ExistingMessage>), Error> {
        let mut there = vec![];
        for message in messages {
            if let (Some(id), Some(spot)) = (&message.id, after) {
                self.find_at(read, thread, id, spot).await?;
            }
            let known = self.candidates(read, values, message, head).await?;
            let same = find_duplicate(&known, after).and_then(|id| self.node(id));
            let Some(node) = same else {
                return Ok((there, known));
            };
            after = Some(Some(node.id));
            there.push(node.clone());
        }
        Ok((there, vec![]))
    }
}

fn insert(known: &mut Vec<MessageNode>, edit: MessageNode) {
    if known.iter().all(|one| one.id != edit.id) {
        known.push(edit);
    }
}
