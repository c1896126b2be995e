//! Pages of a conversation: which path is read, and which part of it.

use std::{collections::HashSet, sync::Arc};

use super::{
    content::{MessageContents, MessageList},
    cursor::Cursor,
    item::{self, MessageItem},
    path::{MessagePath, PathSelector, find_path},
};
use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        error::{Error, Result},
        resolve,
        store::{MessageChange, MessageNode, Read, ThreadRow},
    },
    value::Value,
    words::words,
};

/// Messages of a path that a request may walk.
const WALK_MAX: i32 = 100_000;

words! {
    /// Which messages of a path a page shows.
    #[derive(Default)]
    pub enum PageView, "view of messages" {
        /// The whole conversation, removed messages too.
        #[default]
        Path = "path",
        /// The messages in the state, which the model sees.
        State = "state",
    }
}

/// Where on the path a page is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PagePosition {
    /// At the beginning.
    #[default]
    Oldest,
    /// At the end.
    Newest,
    /// Behind a cursor or a message.
    After(Arc<str>),
    /// Before a cursor or a message.
    Before(Arc<str>),
}

impl PagePosition {
    /// Whether the page is read towards the end of the path.
    fn is_forward(&self) -> bool {
        matches!(self, Self::Oldest | Self::After(_))
    }
}

/// The page to read.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The path to read.
    pub at: PathSelector,
    /// Which messages of a path a page shows.
    pub view: PageView,
    /// Where on the path a page is.
    pub from: PagePosition,
    /// Most messages of it.
    pub limit: usize,
    /// Most bytes of their content, unless one alone has more.
    pub bytes: usize,
    /// Whether to list other messages with the same parent.
    pub siblings: bool,
}

/// A page, oldest first.
#[derive(Clone, Debug)]
pub struct MessagePage {
    /// A branch with that path.
    pub branch: Option<Arc<str>>,
    /// The last message of the path.
    pub leaf: Option<Arc<str>>,
    /// The checkpoint at the end of the path; `None` if that was pruned.
    pub checkpoint: Option<CheckpointId>,
    /// The messages.
    pub items: Vec<MessageItem>,
    /// The cursor of what follows.
    pub next: Option<String>,
    /// The cursor of what comes before.
    pub prev: Option<String>,
    /// The page ends between a tool call and its result.
    pub splits: bool,
}

/// Reads a page.
///
/// # Errors
/// 400 `invalid_id` or `invalid_cursor`, 404, or the storage failed.
pub async fn read_page(
    read: &mut dyn Read,
    values: &MessageContents<'_>,
    thread: &ThreadRow,
    request: &PageRequest,
) -> Result<MessagePage> {
    let path = find_path(read, thread, &request.at).await?;
    let state = match &path.point {
        Some(point) => values.messages(point.id).await?.unwrap_or_default(),
        None => MessageList::default(),
    };
    let mut part = match request.view {
        PageView::Path => on_path(read, thread, &path, request).await?,
        PageView::State => in_state(read, thread, &path, &state, request).await?,
    };
    let nodes = std::mem::take(&mut part.nodes);
    let mut items = item::items(read, values, thread, &path, &state, nodes).await?;
    part.fit(&mut items, &path, request);
    if request.siblings {
        item::siblings(read, thread, &mut items).await?;
    }
    Ok(MessagePage {
        branch: path.branch,
        leaf: path.last.map(|node| node.message_id),
        checkpoint: path.checkpoint,
        items,
        next: part.next,
        prev: part.prev,
        splits: part.splits,
    })
}

/// A part of a path.
#[derive(Default)]
struct Part {
    nodes: Vec<item::PageEntry>,
    next: Option<String>,
    prev: Option<String>,
    splits: bool,
}

impl Part {
    /// Ends the page early when its messages have more bytes than requested, with a cursor for the
    /// rest.
    fn fit(&mut self, items: &mut Vec<MessageItem>, path: &MessagePath, request: &PageRequest) {
        let mut left = request.bytes;
        let mut fits = |item: &MessageItem| {
            let bytes = item.message.as_ref().map_or(0, Value::rough_size);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        let is_forward = request.from.is_forward();
        let count = if is_forward {
            items.iter().take_while(|item| fits(item)).count()
        } else {
            items.iter().rev().take_while(|item| fits(item)).count()
        };
        let count = count.max(1);
        if count >= items.len() {
            return;
        }
        let is_tool = |item: &MessageItem| {
            let role = item.node.as_ref().and_then(|node| node.role.as_deref());
            let kind = item
                .message
                .as_ref()
                .and_then(|message| message.get("type"));
            role.or(kind.and_then(Value::as_str)) == Some("tool")
        };
        let cursor = |item: &MessageItem| match (&item.node, &path.last) {
            (Some(node), Some(end)) => Cursor::new(end, node.id).text(),
            _ => item.id.to_string(),
        };
        if is_forward {
            self.splits = items.get(count).is_some_and(is_tool);
            items.truncate(count);
            self.next = items.last().map(cursor);
        } else {
            items.drain(..items.len() - count);
            self.splits = items.first().is_some_and(is_tool);
            self.prev = items.first().map(cursor);
        }
    }
}

async fn on_path(
    read: &mut dyn Read,
    thread: &ThreadRow,
    path: &MessagePath,
    request: &PageRequest,
) -> Result<Part> {
    let Some(end) = &path.last else {
        return match &request.from {
            PagePosition::After(_) | PagePosition::Before(_) => Err(off_path()),
            _ => Ok(Part::default()),
        };
    };
    let nodes = match &request.from {
        PagePosition::Oldest => nodes_after(read, thread, end, 0, request.limit).await?,
        PagePosition::After(text) => {
            let after = match find_target(read, thread, end, text).await? {
                CursorTarget::At(node) => node.ordinal,
                CursorTarget::Outside(_) => 0,
            };
            nodes_after(read, thread, end, after, request.limit).await?
        }
        PagePosition::Newest => newest(read, thread, Some(end.id), request.limit).await?,
        PagePosition::Before(text) => {
            let last = match find_target(read, thread, end, text).await? {
                CursorTarget::At(node) => node.parent,
                CursorTarget::Outside(end) => Some(end.id),
            };
            newest(read, thread, last, request.limit).await?
        }
    };
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else {
        return Ok(empty_part(end, &request.from));
    };
    let more = last.ordinal < end.ordinal;
    let next = more.then(|| Cursor::new(end, last.id).text());
    let prev = first
        .parent
        .is_some()
        .then(|| Cursor::new(end, first.id).text());
    let is_tool = |node: &MessageNode| node.role.as_deref() == Some("tool");
    let splits = if !request.from.is_forward() {
        prev.is_some() && is_tool(first)
    } else if more {
        let after = nodes_after(read, thread, end, last.ordinal, 1).await?;
        after.first().is_some_and(is_tool)
    } else {
        false
    };
    Ok(Part {
        nodes: nodes.into_iter().map(item::PageEntry::OnPath).collect(),
        next,
        prev,
        splits,
    })
}

/// A page past either end of a path, with a cursor to its other side.
fn empty_part(end: &MessageNode, from: &PagePosition) -> Part {
    let cursor = Some(Cursor::outside(end).text());
    let (next, prev) = if from.is_forward() {
        (None, cursor)
    } else {
        (cursor, None)
    };
    Part {
        next,
        prev,
        ..Part::default()
    }
}

/// What a cursor or the id of a message stands for.
enum CursorTarget {
    At(MessageNode),
    /// Outside the path that ends, or once ended, with this message.
    Outside(MessageNode),
}

/// Up to `limit` messages that end with one, oldest first.
async fn newest(
    read: &mut dyn Read,
    thread: &ThreadRow,
    last: Option<NodeId>,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    let mut nodes = match last {
        Some(last) => read.chain(thread.tree, last, limit).await?,
        None => vec![],
    };
    nodes.reverse();
    Ok(nodes)
}

/// Up to `limit` messages whose ordinal is greater than `after`, oldest first.
async fn nodes_after(
    read: &mut dyn Read,
    thread: &ThreadRow,
    end: &MessageNode,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    if end.ordinal.saturating_sub(after) > WALK_MAX {
        return Err(too_deep());
    }
    Ok(read.segment(thread.tree, end.id, after, limit).await?)
}

/// Finds the message on the path that a cursor names.
async fn find_target(
    read: &mut dyn Read,
    thread: &ThreadRow,
    end: &MessageNode,
    text: &Arc<str>,
) -> Result<CursorTarget> {
    if let Some(cursor) = Cursor::parse(text) {
        let made_for = if cursor.end == end.id {
            Some(end.clone())
        } else {
            read.node(thread.tree, cursor.end).await?
        };
        if let Some(made_for) = made_for.filter(|end| cursor.is_genuine(end)) {
            let at = if cursor.is_outside() {
                Some(made_for)
            } else {
                read.node(thread.tree, cursor.at).await?
            };
            let at = at.ok_or_else(off_path)?;
            if cursor.end != end.id && !is_before(read, thread, end, &at).await? {
                return Err(off_path());
            }
            return Ok(if cursor.is_outside() {
                CursorTarget::Outside(at)
            } else {
                CursorTarget::At(at)
            });
        }
    }
    for node in read.nodes_of(thread.tree, vec![text.clone()]).await? {
        if node.change == MessageChange::Add && is_before(read, thread, end, &node).await? {
            return Ok(CursorTarget::At(node));
        }
    }
    Err(off_path())
}

/// Whether a message is on the path that ends with `end`.
async fn is_before(
    read: &mut dyn Read,
    thread: &ThreadRow,
    end: &MessageNode,
    node: &MessageNode,
) -> Result<bool> {
    if end.ordinal.saturating_sub(node.ordinal) > WALK_MAX {
        return Err(too_deep());
    }
    resolve::is_before(read, thread.tree, end.id, node).await
}

async fn in_state(
    read: &mut dyn Read,
    thread: &ThreadRow,
    path: &MessagePath,
    state: &MessageList,
    request: &PageRequest,
) -> Result<Part> {
    let cut: HashSet<&str> = path.trimmed.iter().map(|id| &**id).collect();
    let messages: Vec<_> = state
        .all()
        .iter()
        .filter(|one| !cut.contains(super::content::id_of(one).unwrap_or_default()))
        .cloned()
        .collect();
    let count = messages.len();
    // The number of messages before the cursor, and the index of the first one behind it.
    let position = async |read: &mut dyn Read, text: &Arc<str>| {
        let index = |id: &str| {
            let mut all = messages.iter();
            all.position(|one| super::content::id_of(one) == Some(id))
        };
        let mut id = text.clone();
        if let Some(cursor) = Cursor::parse(text)
            && let Some(end) = read.node(thread.tree, cursor.end).await?
            && cursor.is_genuine(&end)
        {
            if cursor.is_outside() {
                let last = path.last.as_ref().ok_or_else(off_path)?;
                if last.id != end.id && !is_before(read, thread, last, &end).await? {
                    return Err(off_path());
                }
                let behind_end = index(&end.message_id).map_or(count, |at| at + 1);
                return Ok((behind_end, 0));
            }
            if let Some(at) = read.node(thread.tree, cursor.at).await? {
                id = at.message_id;
            }
        }
        let at = index(&id).ok_or_else(off_path)?;
        Ok((at, at + 1))
    };
    let (start, stop) = match &request.from {
        PagePosition::Oldest => (0, count.min(request.limit)),
        PagePosition::Newest => (count.saturating_sub(request.limit), count),
        PagePosition::After(text) => {
            let (_, start) = position(read, text).await?;
            (start, count.min(start.saturating_add(request.limit)))
        }
        PagePosition::Before(text) => {
            let (stop, _) = position(read, text).await?;
            (stop.saturating_sub(request.limit), stop)
        }
    };
    let part = messages.get(start..stop).unwrap_or_default();
    if part.is_empty() {
        let end = path.last.as_ref().filter(|_| count > 0);
        return Ok(end.map_or_else(Part::default, |end| empty_part(end, &request.from)));
    }
    let is_tool = |at: usize| {
        let message = messages.get(at).and_then(|one| one.get("type"));
        message.and_then(|kind| kind.as_str()) == Some("tool")
    };
    let splits = if request.from.is_forward() {
        stop < count && is_tool(stop)
    } else {
        start > 0 && is_tool(start)
    };
    let nodes = item::in_state(read, thread, path, part).await?;
    let cursor = |entry: Option<&item::PageEntry>| match (entry?, &path.last) {
        (item::PageEntry::InState(_, Some(node)), Some(end)) => {
            Some(Cursor::new(end, node.id).text())
        }
        (item::PageEntry::InState(message, _), _) => {
            super::content::id_of(message).map(str::to_owned)
        }
        _ => None,
    };
    Ok(Part {
        next: cursor(nodes.last().filter(|_| stop < count)),
        prev: cursor(nodes.first().filter(|_| start > 0)),
        nodes,
        splits,
    })
}

fn off_path() -> Error {
    Error::malformed(
        "invalid_cursor",
        "The cursor is not on the path that is read: begin again without one",
    )
}

fn too_deep() -> Error {
    Error::conflict(
        "path_too_deep",
        format!("The path is longer than {WALK_MAX} messages: read it from the end with `tail`"),
    )
}
