//! Pages of a tree's threads, the points at which their paths divide, and the ways to go on from each.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{NodeId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        error::{Error, Result},
        store::{BranchEnd, MessageNode, PathNode, Read, Relative, ThreadRow},
    },
};

/// Most messages on the paths of a page.
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

impl ForkPoint {
    /// How many bytes it has at most when it is shown with the beginnings of its messages, where these are plain text.
    pub fn bytes(&self) -> usize {
        const OPTION: usize = 400;
        let text = |text: Option<&Arc<str>>| text.map_or(0, |text| text.len());
        let option = |option: &ForkOption| {
            let message = option.message.as_ref().map(|node| &node.message_id);
            OPTION + option.branch.len() + text(message)
        };
        text(self.message.as_ref()) + self.options.iter().map(option).sum::<usize>()
    }
}

/// The first thread of a tree, unless it was deleted.
///
/// # Errors
/// The storage failed.
pub async fn root(read: &mut dyn Read, tree: TreeId) -> Result<Option<Relative>> {
    // A tree has the id of its first thread.
    let root = read.thread_row(ThreadId(tree.0)).await?;
    let root = root.filter(|root| root.deleted_at.is_none());
    Ok(root.map(|row| Relative {
        row,
        parent_deleted: false,
    }))
}

/// The threads of a page, the one from which the tree is viewed, and those from which the page's
/// threads were forked: oldest first.
async fn with_parents(
    read: &mut dyn Read,
    page: &[Relative],
    from: &ThreadRow,
) -> Result<Vec<ThreadRow>> {
    let mut threads: HashMap<ThreadId, ThreadRow> = page
        .iter()
        .map(|relative| &relative.row)
        .chain([from])
        .map(|row| (row.id, row.clone()))
        .collect();
    let parents: HashSet<ThreadId> = page
        .iter()
        .filter(|relative| !relative.parent_deleted)
        .filter_map(|relative| relative.row.parent)
        .collect();
    for parent in parents {
        if !threads.contains_key(&parent)
            && let Some(row) = read.thread_row(parent).await?
        {
            threads.insert(parent, row);
        }
    }
    let mut threads: Vec<ThreadRow> = threads.into_values().collect();
    threads.sort_by_key(|row| (row.created_at, row.id));
    Ok(threads)
}

/// The first thread and branch on whose path a message is.
struct Holder {
    thread: ThreadId,
    branch: Arc<str>,
}

/// The messages on the paths of a page, each with what holds it.
#[derive(Default)]
struct Paths {
    nodes: HashMap<NodeId, PathNode>,
    holders: HashMap<NodeId, Holder>,
}

impl Paths {
    /// Gives the messages on the path of a branch that have no holder yet to it; whether its thread
    /// wrote one of them.
    fn assign(&mut self, end: &BranchEnd) -> bool {
        let mut own = false;
        let mut next = end.last;
        while let Some(node) = next.and_then(|id| self.nodes.get(&id)) {
            if self.holders.contains_key(&node.id) {
                break;
            }
            own |= node.thread == end.thread;
            next = node.parent;
            let holder = Holder {
                thread: end.thread,
                branch: end.name.clone(),
            };
            self.holders.insert(node.id, holder);
        }
        own
    }

    /// The messages up to one.
    fn up_to(&self, last: Option<NodeId>) -> HashSet<NodeId> {
        let mut path = HashSet::new();
        let mut next = last;
        while let Some(id) = next
            && path.insert(id)
        {
            next = self.nodes.get(&id).and_then(|node| node.parent);
        }
        path
    }

    /// The position behind a message, or the start.
    fn behind(&self, node: Option<NodeId>) -> PathPosition {
        let known = node.and_then(|id| self.nodes.get(&id));
        PathPosition {
            ordinal: known.map_or(0, |known| known.ordinal),
            node,
        }
    }
}

/// A position on a path, behind a node or at the start, ordered along the path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PathPosition {
    ordinal: i32,
    node: Option<NodeId>,
}

/// A fork without messages of its own.
struct BareFork<'a> {
    thread: &'a ThreadRow,
    branch: Arc<str>,
    last: Option<NodeId>,
}

/// The points at which a thread of a page parts from others, from the start on; on the first page also those
/// of the thread from which the tree is viewed. It costs what the threads of the page and their messages are,
/// however many others the tree has.
///
/// # Errors
/// 409 `path_too_deep`, or the storage failed.
pub async fn of_threads(
    read: &mut dyn Read,
    page: &[Relative],
    from: &ThreadRow,
    is_first: bool,
) -> Result<Vec<ForkPoint>> {
    let tree = from.tree;
    let threads = with_parents(read, page, from).await?;
    let ids = threads.iter().map(|thread| thread.id).collect();
    let mut ends: HashMap<ThreadId, Vec<BranchEnd>> = HashMap::new();
    for end in read.ends(tree, ids).await? {
        ends.entry(end.thread).or_default().push(end);
    }
    let lasts: HashSet<NodeId> = ends.values().flatten().filter_map(|end| end.last).collect();
    let nodes = read
        .paths_to(tree, lasts.into_iter().collect(), MOST + 1)
        .await?;
    if nodes.len() > MOST {
        return Err(Error::conflict(
            "path_too_deep",
            format!(
                "The threads of this page have more than {MOST} messages: take a smaller limit, or \
                 copy a thread to go on"
            ),
        ));
    }
    let mut paths = Paths {
        nodes: nodes.into_iter().map(|node| (node.id, node)).collect(),
        ..Paths::default()
    };
    let listed: HashSet<ThreadId> = page.iter().map(|relative| relative.row.id).collect();
    let (mut active, mut bare) = (None, vec![]);
    for thread in &threads {
        let mut own = false;
        let ends = ends.remove(&thread.id).unwrap_or_default();
        for end in &ends {
            if thread.id == from.id && from.active_branch == Some(end.branch) {
                active = end.last;
            }
            own |= paths.assign(end);
        }
        let is_shown = listed.contains(&thread.id) || thread.id == from.id;
        if let (Some(first), false, true, Some(_)) = (ends.first(), own, is_shown, thread.parent) {
            bare.push(BareFork {
                thread,
                branch: first.name.clone(),
                last: first.last,
            });
        }
    }
    let mut ways: BTreeMap<PathPosition, Vec<NodeId>> = BTreeMap::new();
    for id in paths.holders.keys() {
        let parent = paths.nodes.get(id).and_then(|node| node.parent);
        ways.entry(paths.behind(parent)).or_default().push(*id);
    }
    for fork in &bare {
        ways.entry(paths.behind(fork.last)).or_default();
    }
    let forked: HashSet<PathPosition> = bare.iter().map(|fork| paths.behind(fork.last)).collect();
    ways.retain(|position, ways| ways.len() > 1 || forked.contains(position));
    let mut options = options(read, &paths, from, active, &ways).await?;
    for fork in bare {
        let position = paths.behind(fork.last);
        options.entry(position).or_default().push(ForkOption {
            thread: fork.thread.id,
            branch: fork.branch,
            message: None,
            created_at: fork.thread.created_at,
            active: fork.thread.id == from.id && fork.last == active,
        });
    }
    let is_of_page = |choice: &ForkOption| is_first || listed.contains(&choice.thread);
    options.retain(|_, options| options.iter().any(is_of_page));
    let mut last: Vec<NodeId> = options
        .keys()
        .filter_map(|position| position.node)
        .collect();
    last.dedup();
    let last = read.nodes(tree, last).await?;
    let names: HashMap<NodeId, Arc<str>> = last
        .into_iter()
        .map(|node| (node.id, node.message_id))
        .collect();
    let points = options.into_iter().map(|(position, mut options)| {
        let id = |choice: &ForkOption| choice.message.as_ref().map(|node| node.id);
        options.sort_by_key(|choice| (choice.created_at, choice.thread, id(choice)));
        ForkPoint {
            message: position.node.and_then(|id| names.get(&id).cloned()),
            options,
        }
    });
    Ok(points.collect())
}

/// The ways to go on that begin with a message.
async fn options(
    read: &mut dyn Read,
    paths: &Paths,
    from: &ThreadRow,
    active: Option<NodeId>,
    ways: &BTreeMap<PathPosition, Vec<NodeId>>,
) -> Result<BTreeMap<PathPosition, Vec<ForkOption>>> {
    let wanted = ways.values().flatten().copied().collect();
    let mut messages: HashMap<NodeId, MessageNode> = HashMap::new();
    for node in read.nodes(from.tree, wanted).await? {
        messages.insert(node.id, node);
    }
    let path = paths.up_to(active);
    let mut options: BTreeMap<PathPosition, Vec<ForkOption>> = BTreeMap::new();
    for (position, ways) in ways {
        for id in ways {
            if let (Some(holder), Some(message)) = (paths.holders.get(id), messages.remove(id)) {
                options.entry(*position).or_default().push(ForkOption {
                    thread: holder.thread,
                    branch: holder.branch.clone(),
                    created_at: message.created_at,
                    active: path.contains(id),
                    message: Some(message),
                });
            }
        }
    }
    Ok(options)
}
