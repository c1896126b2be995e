//! Storing messages without running anything: one checkpoint at the end of a branch, or on a new
//! one.

use std::sync::Arc;

pub use super::destination::{TargetGraph, branch_off, id_exists};
use super::{
    Incoming, OnExisting, Post,
    content::MessageContents,
    destination::{branch_end, load_state, other_branch_ends},
    existing::ExistingMessages,
    id_rule,
    placement::{MessagePlacement, PlacementRequest, Predecessor, choose_placement},
    trim::pruned,
    write::{assign_ids, role_of, stored_nodes, write},
};
use crate::{
    checkpoint::{self, frame::Decoded},
    id::CheckpointId,
    message,
    tree::{
        branch::{self, SwitchPolicy},
        dangling::has_open_calls,
        error::{Error, Result},
        resolve,
        store::{Branch, MessageNode, Position, Read, ThreadRow, Tx},
    },
};

/// How often a post begins anew because runs moved the branch meanwhile.
const TRIES: usize = 5;

/// Messages that are stored.
#[derive(Debug)]
pub struct Posted {
    /// The branch that has them at its end, as it is afterwards.
    pub branch: Branch,
    /// The branch was created for them.
    pub created: bool,
    /// They were written now, not by an earlier attempt.
    pub fresh: bool,
    /// The checkpoint that ends with them.
    pub checkpoint: Option<CheckpointId>,
    /// Their nodes in the order of the request.
    pub nodes: Vec<MessageNode>,
    /// Their state.
    pub state: Option<Decoded>,
    /// The conversation before them ended in tool calls without results.
    pub dangling: bool,
}

/// Stores messages as the request describes, or finds them stored already.
///
/// # Errors
/// 400 `invalid_id`, 404, 409 `head_conflict`, `branch_busy` or `message_exists`; the graph
/// refuses them, or the storage failed.
pub async fn post(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    post: &Post,
) -> Result<Posted> {
    for _ in 0..TRIES {
        if let Some(posted) = attempt(tx, values, target, thread, post).await? {
            return Ok(posted);
        }
    }
    Err(Error::conflict(
        "head_conflict",
        "Runs moved the branch again and again while the messages were stored: try again",
    ))
}

/// What a request means by its parent.
struct ParentPosition {
    /// The message that the new ones follow.
    after: Predecessor,
    /// The message that the request names.
    node: MessageNode,
    position: Position,
}

/// Tries once to post. Returns `None` when a run moved the branch before it was locked.
async fn attempt(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    post: &Post,
) -> Result<Option<Posted>> {
    let named = match &post.branch {
        Some(name) => resolve::branch(tx, thread, name).await?,
        None => resolve::active(tx, thread).await?,
    };
    let Some(main) = tx.lock_branch(thread.tree, named.id).await? else {
        return Ok(None);
    };
    let parent = resolve_parent(tx, thread, post, &main).await?;
    let after = parent.as_ref().map(|parent| parent.after);
    let mut ids = ExistingMessages::find(tx, thread, &post.messages).await?;
    check_ids(&post.messages, &ids)?;
    let (stored, existing) = ids
        .stored_prefix(tx, thread, values, &post.messages, after, main.head)
        .await?;
    if stored.len() == post.messages.len() {
        return already_stored(tx, thread, main, stored).await.map(Some);
    }
    // With `replace` all of them go through the reducer, which changes nothing about equal ones.
    let (stored, existing) = match post.on_existing {
        OnExisting::Replace => {
            let first = post.messages.first();
            let existing = match first {
                Some(first) => ids.candidates(tx, values, first, main.head).await?,
                None => vec![],
            };
            (vec![], existing)
        }
        _ => (stored, existing),
    };
    let rest = post.messages.get(stored.len()..).unwrap_or_default();
    let taken = |one: &Incoming| one.id.as_deref().is_some_and(|id| ids.is_taken(id));
    if post.on_existing == OnExisting::Reject
        && let Some(one) = rest.iter().find(|one| taken(one))
    {
        return Err(id_exists(one.id.as_deref().unwrap_or_default()));
    }
    let after = stored.last().map(|node| Some(node.id)).or(after);
    let request = PlacementRequest {
        after,
        on_existing: post.on_existing,
    };
    let line = branch_end(tx, &main).await?;
    let others = match after {
        Some(predecessor) if predecessor != line.last => {
            other_branch_ends(tx, thread, &main).await?
        }
        _ => vec![],
    };
    let choice = choose_placement(request, &existing, line, &others);
    let (branch, created, slot, base) = match choice {
        MessagePlacement::IdTaken => {
            let first = rest.first().and_then(|first| first.id.as_deref());
            return Err(id_exists(first.unwrap_or_default()));
        }
        MessagePlacement::Append(id) | MessagePlacement::Replace(id) => {
            let mut to = main;
            if id != to.id {
                match tx.lock_branch(thread.tree, id).await? {
                    Some(other) if Some(branch_end(tx, &other).await?.last) == after => {
                        to = other;
                    }
                    _ => return Ok(None),
                }
            }
            check_expected_head(post, &to)?;
            let open = tx.open_runs(thread.tree, thread.id).await?;
            if branch::is_running(&open, to.id) {
                return Err(branch_busy(&to));
            }
            if post.activate {
                branch::activate(tx, thread, &to, SwitchPolicy::FLOAT).await?;
            }
            let base = match to.head {
                Some(head) => {
                    // A cached state may have been pruned from the storage.
                    if tx.point(thread.tree, head).await?.is_none() {
                        return Err(pruned(head));
                    }
                    Some(load_state(values, head).await?)
                }
                None => None,
            };
            let slot = to.slot();
            (to, false, slot, base)
        }
        MessagePlacement::Branch(_) | MessagePlacement::Edit(_) => {
            check_expected_head(post, &main)?;
            let base = match choice {
                MessagePlacement::Edit(node) => match ids.node(node) {
                    Some(node) => resolve::before_message(tx, thread, node).await?,
                    None => return Ok(None),
                },
                _ => match (stored.last(), &parent) {
                    (Some(node), _) => resolve::at_message(tx, thread, node).await?,
                    (None, Some(parent)) => match parent.position {
                        Position::At => resolve::at_message(tx, thread, &parent.node).await?,
                        Position::Before => {
                            resolve::before_message(tx, thread, &parent.node).await?
                        }
                    },
                    (None, None) => return Ok(None),
                },
            };
            let origin = match choice {
                MessagePlacement::Edit(_) => "edit",
                _ => "message",
            };
            let (branch, slot, state) = branch_off(
                tx,
                values,
                target,
                thread,
                &main,
                base,
                (origin, post.activate),
            )
            .await?;
            (branch, true, slot, state)
        }
    };
    let before = base.as_ref().map(|base| values.of_state(base));
    let dangling = before.is_some_and(|before| {
        let mut all = before.all().to_vec();
        let incoming = rest.iter().map(|one| one.message.clone());
        all.extend(incoming.take_while(|one| role_of(one) == "tool"));
        has_open_calls(&all)
    });
    let messages = assign_ids(rest, &ids, post.on_existing);
    let state = write(tx, values, target, thread, post, &messages, slot, base).await?;
    let head = state.checkpoint.id;
    let mut nodes = stored;
    nodes.extend(stored_nodes(tx, thread, &state, &messages).await?);
    let branch = tx.branch(thread.tree, branch.id).await?;
    Ok(Some(Posted {
        branch: branch.ok_or(checkpoint::Error::Fenced)?,
        created,
        fresh: true,
        checkpoint: Some(head),
        nodes,
        state: Some(state),
        dangling,
    }))
}

/// Refuses messages whose ids are longer than new messages may have, unless the thread has messages with these ids.
fn check_ids(messages: &[Incoming], existing: &ExistingMessages) -> Result<()> {
    let mut ids = messages.iter().filter_map(|one| one.id.as_deref());
    if ids.any(|id| message::is_too_long(id) && !existing.is_taken(id)) {
        return Err(Error::invalid(id_rule()));
    }
    Ok(())
}

async fn resolve_parent(
    read: &mut dyn Read,
    thread: &ThreadRow,
    post: &Post,
    main: &Branch,
) -> Result<Option<ParentPosition>> {
    let Some((id, position)) = &post.parent else {
        return Ok(None);
    };
    let node = super::message(read, thread, id, main.head).await?;
    Ok(Some(ParentPosition {
        after: match position {
            Position::At => Some(node.id),
            Position::Before => node.parent,
        },
        node,
        position: *position,
    }))
}

/// The result of a request whose messages an earlier attempt stored.
async fn already_stored(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    main: Branch,
    nodes: Vec<MessageNode>,
) -> Result<Posted> {
    let last = nodes.last();
    let branch = match last {
        Some(node) => tx.branch(thread.tree, node.branch).await?,
        None => None,
    };
    Ok(Posted {
        branch: branch
            .filter(|branch| branch.thread == thread.id)
            .unwrap_or(main),
        created: false,
        fresh: false,
        checkpoint: last.map(|node| node.checkpoint),
        nodes,
        state: None,
        dangling: false,
    })
}

/// Refuses the request when the branch does not have the head that it expects.
fn check_expected_head(post: &Post, branch: &Branch) -> Result<()> {
    let is_head = |expected: &Option<Arc<str>>| match expected {
        Some(text) => branch.head.is_some() && text.parse().ok() == branch.head,
        None => branch.head.is_none(),
    };
    match &post.expected_head {
        Some(expected) if !is_head(expected) => Err(Error::conflict(
            "head_conflict",
            match branch.head {
                Some(head) => format!(
                    "The head of branch `{}` is {head}: read what is new there and try again",
                    branch.name
                ),
                None => format!("Branch `{}` is empty", branch.name),
            },
        )),
        _ => Ok(()),
    }
}

fn branch_busy(branch: &Branch) -> Error {
    Error::conflict(
        "branch_busy",
        format!(
            "A run is writing to branch `{}`: wait for it to end, cancel it, or post to another \
             branch",
            branch.name
        ),
    )
}
