//! Forks: threads that share the path of another thread up to a checkpoint and go on separately.

pub mod points;

use std::sync::Arc;

use super::{
    branch,
    error::{Error, Result},
    event,
    members::Access,
    resolve::{self, Base},
    store::{
        Branch, InsertBranch, InsertFork, MessageChange, NewEvent, Outcome, Position, Read,
        ThreadRow, Tx,
    },
};
use crate::{
    id::{BranchId, ThreadId, TreeId},
    value::{Map, Value},
};

/// Most forks above a thread.
pub const LEVELS: i32 = 1024;
/// Keys of the parent's metadata that a fork copies.
const INHERITED: [&str; 2] = ["graph_id", "assistant_id"];

/// A fork to create.
#[derive(Clone, Debug)]
pub struct CreateFork {
    /// Its id.
    pub id: ThreadId,
    /// The principal who requests it.
    pub by: Arc<str>,
    /// Metadata of the request.
    pub metadata: Map,
    /// The last checkpoint it shares; `Empty` for a fork that shares nothing.
    pub base: Base,
    /// The parent's branch that the address names, or the active one.
    pub from: Option<Branch>,
    /// Number of the event that the request names, 0 without one.
    pub event: i64,
    /// The message it was forked at, as submitted.
    pub anchor: Option<Arc<str>>,
    /// Whether that message is shared, as submitted.
    pub position: Option<Position>,
    /// Graph nodes wait to run at the base.
    pub waits: bool,
}

/// A fork that was created.
#[derive(Clone, Debug)]
pub struct CreatedFork {
    /// The thread.
    pub thread: ThreadRow,
    /// Its branch `main`. Its head is the base, even if that has yet to be trimmed.
    pub branch: Branch,
    /// Number of the last event written.
    pub event_number: i64,
}

/// Creates a fork of `parent`. The transaction must be one on its tree, and the id free.
///
/// Messages to cut off the base stay: the caller trims the new branch.
///
/// # Errors
/// 409 `lineage_too_deep`, or the storage failed.
pub async fn create(tx: &mut dyn Tx, parent: &ThreadRow, new: CreateFork) -> Result<CreatedFork> {
    let level = parent.fork_level + 1;
    if level > LEVELS {
        return Err(Error::conflict(
            "lineage_too_deep",
            format!("There are {LEVELS} forks above already: copy the thread to go on"),
        ));
    }
    let base = new.base.point().cloned();
    let whole = matches!(new.base, Base::At(_));
    let source = match (&base, &new.from) {
        (Some(base), Some(from)) if whole => branch::interrupted(tx, parent, from, base).await?,
        _ => None,
    };
    let inherited = base.as_ref().map_or(0, |base| base.event_number);
    let event_number = inherited.max(new.event);
    let id = BranchId::mint();
    tx.insert_fork(InsertFork {
        id: new.id,
        tree: parent.tree,
        parent: parent.id,
        checkpoint: base.as_ref().map(|base| base.id),
        depth: base.as_ref().map_or(-1, |base| base.depth),
        anchor: new.anchor.clone(),
        position: new.position,
        event_number,
        level,
        active_branch: id,
        metadata: metadata(parent, new.metadata, &new.by),
    })
    .await?;
    let outcome = if source.is_some() || (whole && new.waits) {
        Outcome::Interrupted
    } else {
        Outcome::Idle
    };
    tx.insert_branch(InsertBranch {
        id,
        tree: parent.tree,
        thread: new.id,
        name: "main".into(),
        head: base.as_ref().map(|base| base.id),
        head_depth: base.as_ref().map_or(-1, |base| base.depth),
        outcome,
        origin: "fork",
        source: source.as_ref().map(|source| source.id),
    })
    .await?;
    match (&base, &source, &new.from) {
        (Some(base), Some(source), _) => {
            tx.copy_writes(parent.tree, base.id, source.id, id).await?;
        }
        (Some(base), None, Some(from)) if whole => {
            branch::share_inside(tx, from, base, id).await?;
        }
        _ => {}
    }
    let events = vec![
        NewEvent {
            kind: event::THREAD_CREATED,
            branch: Some(id),
            ..NewEvent::default()
        },
        NewEvent {
            kind: event::THREAD_FORKED,
            payload: Map::from([
                ("parent_thread_id", Value::from(parent.id.to_string())),
                ("from_event_number", event_number.into()),
                (
                    "fork_checkpoint_id",
                    base.as_ref().map(|base| base.id.to_string()).into(),
                ),
                ("anchor", new.anchor.map(Value::Str).into()),
                ("position", new.position.map(Position::as_str).into()),
            ]),
            branch: Some(id),
            checkpoint: base.as_ref().map(|base| base.id),
            ..NewEvent::default()
        },
    ];
    let event_number = tx.append(parent.tree, new.id, events).await?;
    let thread = resolve::thread(tx, new.id).await?;
    let branch = resolve::active(tx, &thread).await?;
    Ok(CreatedFork {
        thread,
        branch,
        event_number,
    })
}

fn metadata(parent: &ThreadRow, own: Map, by: &Arc<str>) -> Map {
    let mut metadata = Map::new();
    for key in INHERITED {
        if let Some(value) = parent.metadata.get(key) {
            metadata.insert(key, value.clone());
        }
    }
    metadata.extend(own);
    metadata.insert("created_by", Value::Str(by.clone()));
    metadata
}

/// The thread and message that the first post to a new thread forks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The thread it forks.
    pub parent: ThreadId,
    /// The message it forks at. Nothing is shared without one.
    pub anchor: Option<Arc<str>>,
    /// Whether that message is shared with what comes before it, or replaced by the post.
    pub position: Position,
}

impl Lineage {
    /// Whether a thread was forked like this.
    fn matches(&self, thread: &ThreadRow) -> bool {
        thread.parent == Some(self.parent)
            && thread.fork_anchor == self.anchor
            && thread.fork_position == self.stored_position()
    }

    /// The position that the fork is stored with.
    fn stored_position(&self) -> Option<Position> {
        self.anchor.as_ref().map(|_| self.position)
    }
}

/// The tree that a post to thread `id` changes: that of the thread, or of the one it forks.
///
/// # Errors
/// 404 `thread_not_found`; 409 `thread_deleted`, `lineage_conflict`; or the storage failed.
pub async fn tree_of(
    read: &mut dyn Read,
    id: ThreadId,
    lineage: Option<&Lineage>,
    access: &Access,
) -> Result<TreeId> {
    match (existing(read, id, lineage, access).await?, lineage) {
        (Some(thread), _) => Ok(thread.tree),
        (None, Some(lineage)) => {
            let parent = resolve::thread(read, lineage.parent).await?;
            access.check_in(read, &parent).await?;
            Ok(parent.tree)
        }
        (None, None) => Err(resolve::thread_not_found(id)),
    }
}

/// Finds the thread that a post goes to, or creates it when the post names what it forks. The
/// transaction must be one on [`tree_of`] the post.
///
/// With a new fork whose base must be trimmed, its branch and that base are returned too.
///
/// # Errors
/// 404 `thread_not_found` (the thread, or the parent); 404 `message_not_found` when the tree has
/// no such anchor; 400 `anchor_off_path` when the parent does not see it; 409 `lineage_conflict`,
/// `lineage_too_deep`, `thread_deleted`; or the storage failed.
pub async fn find_or_create(
    tx: &mut dyn Tx,
    id: ThreadId,
    lineage: Option<&Lineage>,
    access: &Access,
    by: &Arc<str>,
) -> Result<(ThreadRow, Option<(Branch, Base)>)> {
    if let Some(thread) = existing(tx, id, lineage, access).await? {
        return Ok((thread, None));
    }
    let lineage = lineage.ok_or_else(|| resolve::thread_not_found(id))?;
    let parent = resolve::thread(tx, lineage.parent).await?;
    access.check_in(tx, &parent).await?;
    let active = resolve::active(tx, &parent).await?;
    let base = match &lineage.anchor {
        Some(anchor) => base_at_anchor(tx, &parent, anchor, lineage.position, &active).await?,
        None => Base::Empty,
    };
    let new = CreateFork {
        id,
        by: by.clone(),
        metadata: Map::new(),
        base: base.clone(),
        // The post continues there at once, so no interrupt stays open.
        from: None,
        event: 0,
        anchor: lineage.anchor.clone(),
        position: lineage.stored_position(),
        waits: false,
    };
    let made = create(tx, &parent, new).await?;
    let trim = matches!(base, Base::Trim { .. }).then_some((made.branch, base));
    Ok((made.thread, trim))
}

async fn existing(
    read: &mut dyn Read,
    id: ThreadId,
    lineage: Option<&Lineage>,
    access: &Access,
) -> Result<Option<ThreadRow>> {
    let Some(thread) = read.thread_row(id).await? else {
        return Ok(None);
    };
    // Also of a tombstone: whoever could not see the thread is not told that there was one.
    access.check_in(read, &thread).await?;
    match lineage {
        None if thread.deleted_at.is_some() => Err(resolve::thread_not_found(id)),
        Some(_) if thread.deleted_at.is_some() => Err(deleted(id)),
        Some(lineage) if !lineage.matches(&thread) => Err(Error::conflict(
            "lineage_conflict",
            format!("Thread {id} exists and was not forked like this: leave out forkedAt…"),
        )),
        _ => Ok(Some(thread)),
    }
}

/// The checkpoint to build on at an anchor, or before it.
async fn base_at_anchor(
    tx: &mut dyn Tx,
    parent: &ThreadRow,
    anchor: &Arc<str>,
    position: Position,
    active: &Branch,
) -> Result<Base> {
    match resolve::message(tx, parent, anchor, active.head).await {
        Ok(node) => match position {
            Position::At => resolve::at_message(tx, parent, &node).await,
            Position::Before => resolve::before_message(tx, parent, &node).await,
        },
        Err(error) => {
            let nodes = tx.nodes_of(parent.tree, vec![anchor.clone()]).await?;
            if !nodes.iter().any(|node| node.change == MessageChange::Add) {
                return Err(error);
            }
            Err(Error::malformed(
                "anchor_off_path",
                format!(
                    "Message `{anchor}` is not one that thread {} sees",
                    parent.id
                ),
            ))
        }
    }
}

/// 409: the id belongs to a deleted thread whose rows other threads still need.
pub fn deleted(id: ThreadId) -> Error {
    Error::conflict(
        "thread_deleted",
        format!("Thread {id} was deleted and others still share its states: take a new id"),
    )
}

/// 409: there is a thread with this id.
pub fn already_exists(id: ThreadId) -> Error {
    Error::conflict(
        "thread_exists",
        format!("Thread with ID {id} already exists"),
    )
}
