//! Where the paths of a tree part, and what follows there.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{NodeId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        error::Error,
        store::{
            read::Read,
            rows::{Branch, MessageNode, ThreadRow},
        },
    },
};

/// Nodes of the message index read at once.
const PAGE: usize = 256;
/// Most nodes of a tree that are looked at.
const MOST: usize = 100_000;

/// A place at which several paths go on.
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
    /// When it came to be.
    pub created_at: Timestamp,
    /// It is on the active path of the thread that was asked for.
    pub active: bool,
}

/// A message with who was first to hold it.
struct Held {
    node: MessageNode,
    thread: ThreadId,
    branch: Arc<str>,
}

/// The points of a tree, seen from one of its threads, from the start on.
///
/// # Errors
/// 409 `path_too_deep`, or the storage failed.
pub async fn find_points(
    read: &mut dyn Read,
    tree: TreeId,
    threads: &[ThreadRow],
    from: &ThreadRow,
) -> Result<Vec<ForkPoint>, Error> {
    let mut held: HashMap<NodeId, Held> = HashMap::new();
    let mut options: BTreeMap<Place, Vec<ForkOption>> = BTreeMap::new();
    let (mut active, mut ends) = (None, vec![]);
    for thread in threads.iter().filter(|thread| thread.deleted_at.is_none()) {
        let mut own = false;
        let mut first = None;
        for branch in read.branches(tree, thread.id).await? {
            let last = last_node(read, tree, &branch).await?;
            if thread.id == from.id && from.active_branch == Some(branch.id) {
                active = last;
            }
            let found = follow(read, tree, last, &held).await?;
            own |= found.iter().any(|node| node.thread == thread.id);
            for node in found {
                let one = Held {
                    thread: thread.id,
                    branch: branch.name.clone(),
                    node,
                };
                held.insert(one.node.id, one);
            }
            if held.len() > MOST {
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
    let path = path_of(active, &held);
    for one in held.values() {
        let place = Place::after(one.node.parent, &held);
        options.entry(place).or_default().push(ForkOption {
            thread: one.thread,
            branch: one.branch.clone(),
            created_at: one.node.created_at,
            active: path.contains(&one.node.id),
            message: Some(one.node.clone()),
        });
    }
    let mut forked = HashSet::new();
    for (thread, branch, last) in ends {
        let place = Place::after(last, &held);
        forked.insert(place);
        options.entry(place).or_default().push(ForkOption {
            thread: thread.id,
            branch,
            message: None,
            created_at: thread.created_at,
            active: thread.id == from.id && last == active,
        });
    }
    let parted = options
        .into_iter()
        .filter(|(place, options)| options.len() > 1 || forked.contains(place));
    Ok(parted
        .map(|(place, mut options)| {
            let id = |choice: &ForkOption| choice.message.as_ref().map(|node| node.id);
            options.sort_by_key(|choice| (choice.created_at, choice.thread, id(choice)));
            let last = place.node.and_then(|id| held.get(&id));
            ForkPoint {
                message: last.map(|held| held.node.message_id.clone()),
                options,
            }
        })
        .collect())
}

/// A node, or the start, in the order of paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    ordinal: i32,
    node: Option<NodeId>,
}

impl Place {
    fn after(node: Option<NodeId>, held: &HashMap<NodeId, Held>) -> Self {
        let ordinal = node.and_then(|id| held.get(&id));
        Self {
            ordinal: ordinal.map_or(0, |held| held.node.ordinal),
            node,
        }
    }
}

async fn last_node(
    read: &mut dyn Read,
    tree: TreeId,
    branch: &Branch,
) -> Result<Option<NodeId>, Error> {
    match branch.head {
        Some(head) => {
            let point = read.point(tree, head).await?;
            Ok(point.and_then(|point| point.last_node))
        }
        None => Ok(None),
    }
}

/// The messages from `last` up to one that is known, which nobody has held so far.
async fn follow(
    read: &mut dyn Read,
    tree: TreeId,
    last: Option<NodeId>,
    held: &HashMap<NodeId, Held>,
) -> Result<Vec<MessageNode>, Error> {
    let mut found = vec![];
    let mut next = last;
    while let Some(start) = next.filter(|id| !held.contains_key(id)) {
        next = None;
        for node in read.chain(tree, start, PAGE).await? {
            if held.contains_key(&node.id) {
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

fn path_of(last: Option<NodeId>, held: &HashMap<NodeId, Held>) -> HashSet<NodeId> {
    let mut path = HashSet::new();
    let mut next = last;
    while let Some(id) = next
        && path.insert(id)
    {
        next = held.get(&id).and_then(|held| held.node.parent);
    }
    path
}
