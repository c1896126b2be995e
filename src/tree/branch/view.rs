//! What clients are shown of a branch.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{BranchId, NodeId},
    tree::{
        chain,
        error::Result,
        search::ThreadStatus,
        store::{Branch, MessageNode, OpenRun, Read, ThreadRow},
    },
};

/// Whether runs are queued or running on a branch. Floating runs count for the active branch.
pub fn is_busy(open: &[OpenRun], thread: &ThreadRow, branch: BranchId) -> bool {
    open.iter()
        .any(|run| run.branch.or(thread.active_branch) == Some(branch))
}

/// Whether a run is executed on a branch.
pub fn is_running(open: &[OpenRun], branch: BranchId) -> bool {
    open.iter()
        .any(|run| run.running && run.branch == Some(branch))
}

/// A branch with what is computed for clients.
#[derive(Clone, Debug)]
pub struct BranchView {
    /// The row.
    pub row: Branch,
    /// It is the thread's active one.
    pub is_active: bool,
    /// The newest message of the path.
    pub head_message: Option<Arc<str>>,
    /// Messages of the path, removed ones too.
    pub messages: i32,
    /// Current name of the branch it was created from.
    pub source: Option<Arc<str>>,
    /// Runs are queued or running there.
    pub busy: bool,
}

impl BranchView {
    /// `idle`, `busy`, `interrupted` or `error`.
    pub fn status(&self) -> &'static str {
        ThreadStatus::of(self.busy, self.row.outcome).as_str()
    }
}

/// Computes what clients are shown of a branch.
///
/// # Errors
/// The storage failed.
pub async fn view(read: &mut dyn Read, thread: &ThreadRow, row: Branch) -> Result<BranchView> {
    let open = read.open_runs(thread.tree, thread.id).await?;
    let source = match row.source {
        Some(id) => read.branch(thread.tree, id).await?,
        None => None,
    };
    let last = last_message(read, thread, &row).await?;
    Ok(BranchView {
        is_active: thread.active_branch == Some(row.id),
        busy: is_busy(&open, thread, row.id),
        // Names mean something within one thread only.
        source: source
            .filter(|source| source.thread == thread.id)
            .map(|source| source.name),
        head_message: last.as_ref().map(|node| node.message_id.clone()),
        messages: last.map_or(0, |node| node.ordinal),
        row,
    })
}

/// The branches of a thread as clients see them, oldest first, each with the last message of its path.
/// However many there are, they are read at once.
///
/// # Errors
/// The storage failed.
pub async fn views(
    read: &mut dyn Read,
    thread: &ThreadRow,
) -> Result<Vec<(BranchView, Option<MessageNode>)>> {
    let rows = read.branches(thread.tree, thread.id).await?;
    let open = read.open_runs(thread.tree, thread.id).await?;
    let names: HashMap<_, _> = rows.iter().map(|row| (row.id, row.name.clone())).collect();
    let mut ends = HashMap::new();
    for end in read.ends(thread.tree, vec![thread.id]).await? {
        ends.extend(end.last.map(|last| (end.branch, last)));
    }
    let ids: HashSet<NodeId> = ends.values().copied().collect();
    let nodes = read.nodes(thread.tree, ids.into_iter().collect()).await?;
    let nodes: HashMap<NodeId, MessageNode> =
        nodes.into_iter().map(|node| (node.id, node)).collect();
    let view = |row: Branch| {
        let last = ends.get(&row.id).and_then(|id| nodes.get(id)).cloned();
        let view = BranchView {
            is_active: thread.active_branch == Some(row.id),
            busy: is_busy(&open, thread, row.id),
            source: row.source.and_then(|source| names.get(&source).cloned()),
            head_message: last.as_ref().map(|node| node.message_id.clone()),
            messages: last.as_ref().map_or(0, |node| node.ordinal),
            row,
        };
        (view, last)
    };
    Ok(rows.into_iter().map(view).collect())
}

/// The newest message on the path of a branch.
///
/// # Errors
/// The storage failed.
async fn last_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    branch: &Branch,
) -> Result<Option<MessageNode>> {
    match chain::last_node(read, branch).await? {
        Some(node) => Ok(read.node(thread.tree, node).await?),
        None => Ok(None),
    }
}
