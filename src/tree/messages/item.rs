//! Messages as a page shows them: their nodes come from the index, their content from a state.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    content::{MessageContents, MessageList, id_of},
    path::MessagePath,
};
use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        error::Result,
        resolve::{is_on_path, sees},
        store::{MessageChange, MessageNode, Read, ThreadRow},
    },
    value::Value,
};

/// An entry of a page.
#[derive(Clone, Debug)]
pub enum PageEntry {
    /// A message on the path, by its node.
    OnPath(MessageNode),
    /// A message in the state, with its node if the index has it.
    InState(Value, Option<MessageNode>),
}

/// Other messages with the same parent.
#[derive(Clone, Debug)]
pub struct Siblings {
    /// The position of this message among them, from 1.
    pub index: usize,
    /// Ids of all, this one's too, oldest first.
    pub ids: Vec<Arc<str>>,
}

/// A message as a path shows it.
#[derive(Clone, Debug)]
pub struct MessageItem {
    /// Its id.
    pub id: Arc<str>,
    /// The id of the message before it.
    pub parent: Option<Arc<str>>,
    /// Its node in the message index.
    pub node: Option<MessageNode>,
    /// The stored message; `None` if its state was pruned.
    pub message: Option<Value>,
    /// The model sees it at the end of the path.
    pub in_state: bool,
    /// Its content was changed on this path.
    pub edited: bool,
    /// Others with the same parent, if requested.
    pub siblings: Option<Siblings>,
}

/// The items of a page. `state` is that at the end of the path.
///
/// # Errors
/// The storage failed.
pub async fn items(
    read: &mut dyn Read,
    values: &MessageContents<'_>,
    thread: &ThreadRow,
    path: &MessagePath,
    state: &MessageList,
    entries: Vec<PageEntry>,
) -> Result<Vec<MessageItem>> {
    let ids: HashSet<Arc<str>> = entries.iter().filter_map(PageEntry::id).collect();
    // The whole state is walked once, however many messages are shown.
    let here: HashMap<&str, &Value> = state
        .all()
        .iter()
        .filter_map(|message| Some((id_of(message)?, message)))
        .filter(|(id, _)| ids.contains(*id))
        .collect();
    let changes = Changes::find(read, thread, path, &ids).await?;
    let mut items: Vec<MessageItem> = Vec::with_capacity(entries.len());
    let mut loaded: Vec<(CheckpointId, Option<MessageList>)> = vec![];
    for entry in entries {
        let (node, shown) = match entry {
            PageEntry::OnPath(node) => (Some(node), None),
            PageEntry::InState(message, node) => (node, Some(message)),
        };
        let Some(id) = node
            .as_ref()
            .map(|node| node.message_id.clone())
            .or_else(|| shown.as_ref().and_then(id_of).map(Into::into))
        else {
            continue;
        };
        let parent = match node.as_ref().and_then(|node| node.parent) {
            Some(parent) => parent_id(read, thread, &items, parent).await?,
            None => None,
        };
        let removed = node.as_ref().and_then(|node| changes.removal(node));
        let in_state = shown.is_some() || (removed.is_none() && here.contains_key(&*id));
        let message = match (shown, in_state, &node) {
            (Some(message), ..) => Some(message),
            (None, true, _) => here.get(&*id).map(|message| (*message).clone()),
            (None, false, Some(node)) => {
                let at = match removed {
                    Some(removed) => {
                        let point = read.point(thread.tree, removed.checkpoint).await?;
                        point.and_then(|point| point.parent)
                    }
                    None => Some(node.checkpoint),
                };
                match at {
                    Some(at) => {
                        if loaded.iter().all(|(known, _)| *known != at) {
                            // A state that was pruned may still be cached.
                            let stored = read.point(thread.tree, at).await?;
                            let messages = match stored {
                                Some(_) => values.messages(at).await?,
                                None => None,
                            };
                            loaded.push((at, messages));
                        }
                        let found = loaded.iter().find(|(known, _)| *known == at);
                        let found = found.and_then(|(_, messages)| messages.as_ref());
                        found.and_then(|messages| messages.find(&id)).cloned()
                    }
                    None => None,
                }
            }
            (None, false, None) => None,
        };
        items.push(MessageItem {
            parent,
            edited: node.as_ref().is_some_and(|node| changes.edited(node)),
            in_state,
            message,
            siblings: None,
            id,
            node,
        });
    }
    Ok(items)
}

/// The id of the message before one: mostly the item before it.
async fn parent_id(
    read: &mut dyn Read,
    thread: &ThreadRow,
    items: &[MessageItem],
    parent: NodeId,
) -> Result<Option<Arc<str>>> {
    let near = items.iter().rev().take(2);
    for item in near {
        if item.node.as_ref().is_some_and(|node| node.id == parent) {
            return Ok(Some(item.id.clone()));
        }
    }
    let node = read.node(thread.tree, parent).await?;
    Ok(node.map(|node| node.message_id))
}

/// The entries for messages in a state, each with its newest node on the path.
///
/// # Errors
/// The storage failed.
pub async fn in_state(
    read: &mut dyn Read,
    thread: &ThreadRow,
    path: &MessagePath,
    messages: &[Value],
) -> Result<Vec<PageEntry>> {
    let ids = messages.iter().filter_map(|one| id_of(one).map(Into::into));
    let nodes = read.nodes_of(thread.tree, ids.collect()).await?;
    let mut entries = Vec::with_capacity(messages.len());
    for message in messages {
        let id = id_of(message).unwrap_or_default();
        let mut found = None;
        let of = |node: &&MessageNode| node.change == MessageChange::Add && &*node.message_id == id;
        let candidates: Vec<&MessageNode> = nodes.iter().filter(of).collect();
        for node in &candidates {
            let on_path = match (&path.point, candidates.len()) {
                (Some(point), 2..) => is_on_path(read, thread.tree, point.id, node).await?,
                // The only node of a message in the state is on the path.
                _ => true,
            };
            if on_path {
                found = Some((*node).clone());
                break;
            }
        }
        entries.push(PageEntry::InState(message.clone(), found));
    }
    Ok(entries)
}

/// Fills in the other messages with the same parent that the thread sees.
///
/// # Errors
/// The storage failed.
pub async fn siblings(
    read: &mut dyn Read,
    thread: &ThreadRow,
    items: &mut [MessageItem],
) -> Result<()> {
    let parents: HashSet<Option<NodeId>> = items
        .iter()
        .filter_map(|item| Some(item.node.as_ref()?.parent))
        .collect();
    let mut all = if parents.contains(&None) {
        read.children(thread.tree, None).await?
    } else {
        vec![]
    };
    let parents = parents.into_iter().flatten().collect();
    all.extend(read.followers(thread.tree, parents).await?);
    let on_page: HashSet<NodeId> = items
        .iter()
        .filter_map(|item| Some(item.node.as_ref()?.id))
        .collect();
    let mut families: HashMap<Option<NodeId>, Vec<MessageNode>> = HashMap::new();
    for node in all {
        // What a page shows is on a path of the thread.
        if on_page.contains(&node.id) || sees(read, thread, &node).await? {
            families.entry(node.parent).or_default().push(node);
        }
    }
    for item in items {
        let Some(node) = &item.node else {
            continue;
        };
        let family = families.get(&node.parent).map_or(&[][..], Vec::as_slice);
        let index = family.iter().position(|other| other.id == node.id);
        let index = index.unwrap_or_default();
        let ids = family.iter().map(|other| other.message_id.clone());
        let mut ids: Vec<_> = ids.collect();
        if ids.is_empty() {
            ids.push(item.id.clone());
        }
        item.siblings = Some(Siblings {
            index: index + 1,
            ids,
        });
    }
    Ok(())
}

impl PageEntry {
    fn id(&self) -> Option<Arc<str>> {
        match self {
            Self::OnPath(node) => Some(node.message_id.clone()),
            Self::InState(message, _) => id_of(message).map(Into::into),
        }
    }
}

/// The edits and removals on a path of the messages of a page.
struct Changes(Vec<MessageNode>);

impl Changes {
    async fn find(
        read: &mut dyn Read,
        thread: &ThreadRow,
        path: &MessagePath,
        ids: &HashSet<Arc<str>>,
    ) -> Result<Self> {
        let Some(end) = &path.point else {
            return Ok(Self(vec![]));
        };
        if ids.is_empty() {
            return Ok(Self(vec![]));
        }
        let rows = read
            .nodes_of(thread.tree, ids.iter().cloned().collect())
            .await?;
        let mut found = vec![];
        for row in rows {
            // Messages are mostly neither changed nor removed, and then nothing is walked.
            if row.change != MessageChange::Add
                && row.depth <= end.depth
                && read.on_path(thread.tree, end.id, row.checkpoint).await?
            {
                found.push(row);
            }
        }
        Ok(Self(found))
    }

    /// How a message left the state. It may have come back later as another node.
    fn removal(&self, node: &MessageNode) -> Option<&MessageNode> {
        let mut removals = self.0.iter().filter(|row| {
            row.change == MessageChange::Remove
                && row.message_id == node.message_id
                && row.depth >= node.depth
        });
        removals.next_back()
    }

    fn edited(&self, node: &MessageNode) -> bool {
        let gone = self.removal(node).map(|row| row.depth);
        self.0.iter().any(|row| {
            row.change == MessageChange::Edit
                && row.message_id == node.message_id
                && row.depth >= node.depth
                && gone.is_none_or(|gone| row.depth <= gone)
        })
    }
}
