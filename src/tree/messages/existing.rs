//! What a thread knows already of the messages of a request.

use std::{collections::HashMap, sync::Arc};

use super::{
    Incoming,
    content::{Values, says},
    placement::{Known, Spot, stored},
};
use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        error::Error,
        resolve::{is_on_path, sees},
        store::{
            read::Read,
            rows::{Change, Node, ThreadRow},
        },
    },
};

/// Nodes that a thread has for ids of a request: the messages with these ids, and those that
/// were written in their place.
pub struct Ids {
    by_id: HashMap<Arc<str>, Vec<Node>>,
}

impl Ids {
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
        let mut by_id: HashMap<Arc<str>, Vec<Node>> = HashMap::new();
        if ids.is_empty() {
            return Ok(Self { by_id });
        }
        for node in read.nodes_of(thread.tree, ids).await? {
            if node.change != Change::Add || !sees(read, thread, &node).await? {
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
        spot: Spot,
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
    pub async fn has(
        read: &mut dyn Read,
        thread: &ThreadRow,
        id: &Arc<str>,
    ) -> Result<bool, Error> {
        for node in read.nodes_of(thread.tree, vec![id.clone()]).await? {
            if node.change == Change::Add && sees(read, thread, &node).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the thread has a message with this id.
    pub fn is_taken(&self, id: &str) -> bool {
        self.of(id).iter().any(|node| &*node.message_id == id)
    }

    /// The nodes for an id.
    pub fn of(&self, id: &str) -> &[Node] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// A node by its key.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        let mut all = self.by_id.values().flatten();
        all.find(|node| node.id == id)
    }

    /// What is known of one message of a request, seen from the head of a branch.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn known(
        &self,
        read: &mut dyn Read,
        values: &Values<'_>,
        message: &Incoming,
        head: Option<CheckpointId>,
    ) -> Result<Vec<Known>, Error> {
        let Some(id) = &message.id else {
            return Ok(vec![]);
        };
        let mut found = vec![];
        for node in self.of(id) {
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
            found.push(Known {
                node: node.id,
                parent: node.parent,
                same: content.is_some_and(|content| says(content, &message.message)),
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
    pub async fn prefix(
        &mut self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        values: &Values<'_>,
        messages: &[Incoming],
        mut after: Option<Spot>,
        head: Option<CheckpointId>,
    ) -> Result<(Vec<Node>, Vec<Known>), Error> {
        let mut there = vec![];
        for message in messages {
            if let (Some(id), Some(spot)) = (&message.id, after) {
                self.find_at(read, thread, id, spot).await?;
            }
            let known = self.known(read, values, message, head).await?;
            let same = stored(&known, after).and_then(|id| self.node(id));
            let Some(node) = same else {
                return Ok((there, known));
            };
            after = Some(Some(node.id));
            there.push(node.clone());
        }
        Ok((there, vec![]))
    }
}

fn insert(known: &mut Vec<Node>, edit: Node) {
    if known.iter().all(|one| one.id != edit.id) {
        known.push(edit);
    }
}
