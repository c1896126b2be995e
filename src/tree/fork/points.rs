//! The points at which the paths of a tree divide, and the ways to go on from each.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{NodeId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        chain,
        error::Error,
        store::{MessageNode, Read, ThreadRow},
    },
};

/// Nodes of the message index read at once.
const PAGE: usize = 256;
/// Most nodes of a tree that are read.
const MOST: usize = 100_000;

/// A point at which several paths go on.
#[derive(Clone, Debug)]
pub struct ForkPoint {
    /// The last message they share; none at the start.
    pub message: Option<Arc<str>>,
    /// What follows, oldest first.
    pub options: Vec<ForkOption>,
}

/// One way to go on.
#[derive(Clone, Debug)]
pub struct ForkOption {
    /// The thread that has it.
    pub thread: ThreadId,
    /// Its oldest branch that has it.
    pub branch: Arc<str>,
    /// Its first message; none for a fork without messages of its own.
    pub message: Option<MessageNode>,
    /// When its first message, or the fork, was created.
    pub created_at: Timestamp,
    /// It is on the active path of the thread from which the tree is viewed.
    pub active: bool,
}

/// A message with the first thread and branch on whose path it is.
struct IndexedNode {
    node: MessageNode,
    thread: ThreadId,
    branch: Arc<str>,
}

/// Finds the points of a tree, from the start on, as viewed from one of its threads.
///
/// # Errors
/// 409 `path_too_deep`, or the storage failed.
pub async fn find_points(
    read: &mut dyn Read,
    tree: TreeId,
    threads: &[ThreadRow],
    from: &ThreadRow,
) -> Result<Vec<ForkPoint>, Error> {
    let mut indexed: HashMap<NodeId, IndexedNode> = HashMap::new();
    let mut options: BTreeMap<PathPosition, Vec<ForkOption>> = BTreeMap::new();
    let (mut active, mut ends) = (None, vec![]);
    for thread in threads.iter().filter(|thread| thread.deleted_at.is_none()) {
        let mut own = false;
        let mut first = None;
        for branch in read.branches(tree, thread.id).await? {
            let last = chain::last_node(read, &branch).await?;
            if thread.id == from.id && from.active_branch == Some(branch.id) {
                active = last;
            }
            let found = follow(read, tree, last, &indexed).await?;
            own |= found.iter().any(|node| node.thread == thread.id);
            for node in found {
                let one = IndexedNode {
                    thread: thread.id,
                    branch: branch.name.clone(),
                    node,
                };
                indexed.insert(one.node.id, one);
            }
            if indexed.len() > MOST {
                return Err(Error::conflict(
                    "path_too_deep",
                    format!("The tree has more than {MOST} messages: copy a thread to go on"),
                ));
            }
            first.get_or_insert((branch.name.clone(), last));
        }
        if let (Some((branch, last)), false, Some(_)) = (first, own, thread.parent) {
            ends.push((thread, branch, last));
        }
    }
    let path = path_of(active, &indexed);
    for one in indexed.values() {
        let position = PathPosition::after(one.node.parent, &indexed);
        options.entry(position).or_default().push(ForkOption {
            thread: one.thread,
            branch: one.branch.clone(),
            created_at: one.node.created_at,
            active: path.contains(&one.node.id),
            message: Some(one.node.clone()),
        });
    }
    let mut forked = HashSet::new();
    for (thread, branch, last) in ends {
        let position = PathPosition::after(last, &indexed);
        forked.insert(position);
        options.entry(position).or_default().push(ForkOption {
            thread: thread.id,
            branch,
            message: None,
            created_at: thread.created_at,
            active: thread.id == from.id && last == active,
        });
    }
    let parted = options
        .into_iter()
        .filter(|(position, options)| options.len() > 1 || forked.contains(position));
    Ok(parted
        .map(|(position, mut options)| {
            let id = |choice: &ForkOption| choice.message.as_ref().map(|node| node.id);
            options.sort_by_key(|choice| (choice.created_at, choice.thread, id(choice)));
            let last = position.node.and_then(|id| indexed.get(&id));
            ForkPoint {
                message: last.map(|indexed| indexed.node.message_id.clone()),
                options,
            }
        })
        .collect())
}

/// A position on a path, behind a node or at the start, ordered along the path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PathPosition {
    ordinal: i32,
    node: Option<NodeId>,
}

impl PathPosition {
    fn after(node: Option<NodeId>, indexed: &HashMap<NodeId, IndexedNode>) -> Self {
        let ordinal = node.and_then(|id| indexed.get(&id));
        Self {
            ordinal: ordinal.map_or(0, |indexed| indexed.node.ordinal),
            node,
        }
    }
}

/// The messages from `last` upwards that are not indexed yet.
async fn follow(
    read: &mut dyn Read,
    tree: TreeId,
    last: Option<NodeId>,
    indexed: &HashMap<NodeId, IndexedNode>,
) -> Result<Vec<MessageNode>, Error> {
    let mut found = vec![];
    let mut next = last;
    while let Some(start) = next.filter(|id| !indexed.contains_key(id)) {
        next = None;
        for node in read.chain(tree, start, PAGE).await? {
            if indexed.contains_key(&node.id) {
                return Ok(found);
            }
            next = node.parent;
            found.push(node);
        }
        if found.len() > MOST {
            break;
        }
    }
    Ok(found)
}

fn path_of(last: Option<NodeId>, indexed: &HashMap<NodeId, IndexedNode>) -> HashSet<NodeId> {
    let mut path = HashSet::new();
    let mut next = last;
    while let Some(id) = next
        && path.insert(id)
    {
        next = indexed.get(&id).and_then(|indexed| indexed.node.parent);
    }
    path
}
