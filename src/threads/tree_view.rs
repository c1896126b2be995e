//! A thread as a tree: its head, and all messages or checkpoints that are visible in it.

use std::sync::Arc;

use super::{Result, Service, messages::sources::unchanging};
use crate::{
    id::{CheckpointId, ThreadId},
    time::Timestamp,
    tree::{
        branch::{self, BranchView},
        event::shown_role,
        outline::{self, OutlinePage},
        projection::preview,
        resolve,
        store::rows::{MessageNode, Tag, ThreadRow},
    },
    words::words,
};

/// The head of a branch.
#[derive(Clone, Debug)]
pub struct Head {
    /// Its name.
    pub branch: Arc<str>,
    /// Its newest checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The newest message of a model on its path.
    pub reply: Option<Arc<str>>,
    /// Number of the thread's last event.
    pub event_number: i64,
}

words! {
    /// What the nodes of an outline are.
    #[derive(Default)]
    pub enum Format, "format" {
        /// Messages; their depth is their position on the path, from 1.
        #[default]
        Messages = "messages",
        /// Checkpoints; their depth is the distance from the first one.
        Checkpoints = "checkpoints",
    }
}

/// Which part of an outline.
#[derive(Clone, Copy, Debug)]
pub struct OutlineSelection {
    /// What the nodes are.
    pub format: Format,
    /// At most so many.
    pub limit: usize,
    /// Only deeper ones.
    pub below: Option<i32>,
}

/// A node of an outline.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Id of the message or checkpoint.
    pub id: Arc<str>,
    /// Id of the one before.
    pub parent: Option<Arc<str>>,
    /// Role of a message.
    pub role: Option<Arc<str>>,
    /// The beginning of a message.
    pub preview: Option<Arc<str>>,
    /// How deep it is.
    pub depth: i32,
    /// The thread that wrote it.
    pub thread: ThreadId,
    /// When.
    pub created_at: Timestamp,
}

/// A thread as a tree.
#[derive(Clone, Debug)]
pub struct Outline {
    /// By depth, then age.
    pub nodes: Vec<Leaf>,
    /// Its branches, oldest first.
    pub branches: Vec<BranchView>,
    /// Its tags by name.
    pub tags: Vec<Tag>,
    /// There are more nodes.
    pub truncated: bool,
}

impl Service {
    /// The head of a branch of a thread, or of the active one.
    ///
    /// # Errors
    /// 404: no such thread or branch, or the storage failed.
    pub async fn head(&self, id: ThreadId, branch: Option<&str>) -> Result<Head> {
        let (mut reader, thread) = self.reader(id).await?;
        let read = &mut *reader;
        let branch = match branch {
            Some(name) => resolve::branch(read, &thread, name).await?,
            None => resolve::active(read, &thread).await?,
        };
        let reply = outline::last_model_message(read, &thread, &branch).await?;
        Ok(Head {
            branch: branch.name,
            checkpoint: branch.head,
            reply: reply.map(|node| node.message_id),
            event_number: thread.last_event_number,
        })
    }

    /// A thread as a tree.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn outline(&self, id: ThreadId, selection: OutlineSelection) -> Result<Outline> {
        let (mut reader, thread) = self.reader(id).await?;
        let read = &mut *reader;
        let branches = branch::views(read, &thread).await?;
        let branches: Vec<BranchView> = branches.into_iter().map(|(view, _)| view).collect();
        let tags = read.tags(thread.tree, id).await?;
        let (nodes, truncated) = match selection.format {
            Format::Checkpoints => {
                let below = selection.below.unwrap_or(-1);
                let part = outline::checkpoints(read, &thread, below, selection.limit).await?;
                let nodes = part.rows.into_iter().map(|point| Leaf {
                    id: point.id.to_string().into(),
                    parent: point.parent.map(|id| id.to_string().into()),
                    role: None,
                    preview: None,
                    depth: point.depth,
                    thread: point.thread,
                    created_at: point.created_at,
                });
                (nodes.collect(), part.truncated)
            }
            Format::Messages => {
                let after = selection.below.unwrap_or(0);
                let part = outline::messages(read, &thread, after, selection.limit).await?;
                let parents = outline::parents(read, &thread, &part.rows).await?;
                let ids = part.rows.iter().map(|node| node.message_id.clone());
                let changes = read.nodes_of(thread.tree, ids.collect()).await?;
                let previews = self.previews(&thread, &part, &changes, &branches).await?;
                let nodes = part.rows.iter().zip(previews).map(|(node, preview)| Leaf {
                    id: node.message_id.clone(),
                    parent: node.parent.and_then(|parent| parents.get(&parent).cloned()),
                    role: node.role.as_deref().map(|role| shown_role(role).into()),
                    preview,
                    depth: node.ordinal,
                    thread: node.thread,
                    created_at: node.created_at,
                });
                (nodes.collect(), part.truncated)
            }
        };
        Ok(Outline {
            nodes,
            branches,
            tags,
            truncated,
        })
    }

    /// The beginnings of messages: most are in the states at the heads of branches.
    async fn previews(
        &self,
        thread: &ThreadRow,
        part: &OutlinePage<MessageNode>,
        changes: &[MessageNode],
        branches: &[BranchView],
    ) -> Result<Vec<Option<Arc<str>>>> {
        let fixed = unchanging(changes);
        let wanted = part.rows.iter().map(|node| node.message_id.clone());
        let mut lookup = self.message_lookup(thread, wanted.collect());
        let mut heads: Vec<&BranchView> = branches.iter().collect();
        heads.sort_by_key(|branch| !branch.is_active);
        let mut heads = heads.into_iter().filter_map(|branch| branch.row.head);
        let mut found = Vec::with_capacity(part.rows.len());
        for node in &part.rows {
            let mut message = None;
            if fixed.contains(&node.message_id) {
                message = lookup.any(&node.message_id);
                while message.is_none() {
                    let Some(head) = heads.next() else { break };
                    lookup.load(head).await?;
                    message = lookup.any(&node.message_id);
                }
            }
            if message.is_none() {
                message = lookup.get(&node.message_id, node.checkpoint).await?;
            }
            found.push(message.as_ref().map(preview));
        }
        Ok(found)
    }
}
