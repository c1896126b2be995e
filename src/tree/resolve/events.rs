//! Events as addresses: the state of a thread at the time of an event.

use std::sync::Arc;

use super::{
    base::{
        Base, PAGE, WALK_MAX, at_message, existing_checkpoint, follows_directly, pruned, too_deep,
    },
    find::checkpoint,
    nodes::sees,
};
use crate::{
    checkpoint::Source,
    id::{BranchId, CheckpointId},
    tree::{
        error::{Error, Result},
        event,
        store::{MessageChange, MessageNode, Point, Read, ThreadEvent, ThreadRow},
    },
};

/// Pages of events that are searched, in either direction, for checkpoints of a deleted branch.
const PAGES: usize = 10;

/// Finds the event with a number, and the thread that it belongs to: a fork inherits the events of
/// its parent up to the point of the fork.
pub(super) async fn event_row(
    read: &mut dyn Read,
    thread: &ThreadRow,
    number: i64,
) -> Result<(ThreadRow, ThreadEvent)> {
    let missing = || {
        Error::missing(
            "checkpoint_not_found",
            format!("The thread has no event {number}"),
        )
    };
    let mut owner = thread.clone();
    while number <= owner.fork_event_number {
        let parent = owner.parent.ok_or_else(missing)?;
        owner = read.thread_row(parent).await?.ok_or_else(missing)?;
    }
    let rows = read.events(owner.tree, owner.id, number - 1, 1).await?;
    let row = rows.into_iter().find(|row| row.number == number);
    Ok((owner, row.ok_or_else(missing)?))
}

/// The message that an event is about.
pub(super) async fn node_of(
    read: &mut dyn Read,
    thread: &ThreadRow,
    event: &ThreadEvent,
) -> Result<Option<MessageNode>> {
    let Some(id) = message_of(event) else {
        return Ok(None);
    };
    let nodes = read.nodes_of(thread.tree, vec![id]).await?;
    let exact = nodes
        .iter()
        .find(|node| node.thread == event.thread && node.event_number == Some(event.number));
    // A queued message may have been numbered before its checkpoint.
    let first = nodes
        .iter()
        .find(|node| node.thread == event.thread && node.change == MessageChange::Add);
    Ok(exact.or(first).cloned())
}

fn message_of(row: &ThreadEvent) -> Option<Arc<str>> {
    matches!(
        &*row.kind,
        event::USER_MESSAGE_ADDED
            | event::LLM_RESPONSE_GENERATED
            | event::MESSAGE_ADDED
            | event::MESSAGE_EDITED
            | event::MESSAGE_REMOVED
    )
    .then(|| row.message_id.clone())
    .flatten()
}

/// The checkpoint that an event means: the turn of its message, the checkpoint it names, or the
/// state at the time of the event.
pub(super) async fn base_at_event(
    read: &mut dyn Read,
    thread: &ThreadRow,
    number: i64,
) -> Result<(Base, Option<MessageNode>)> {
    let (owner, row) = event_row(read, thread, number).await?;
    if message_of(&row).is_some() {
        let Some(node) = node_of(read, thread, &row).await? else {
            return Err(Error::conflict(
                "not_checkpointed",
                format!("The message of event {number} waits for its run: it is in no state yet"),
            ));
        };
        if !sees(read, thread, &node).await? {
            return Err(Error::missing(
                "message_not_found",
                format!("The thread has no message `{}`", node.message_id),
            ));
        }
        let point = event_checkpoint(read, thread, node.checkpoint).await?;
        let base = match node.change {
            MessageChange::Add => at_message(read, thread, &node).await?,
            MessageChange::Edit | MessageChange::Remove => Base::At(point),
        };
        return Ok((base, Some(node)));
    }
    let created = (&*row.kind == event::CHECKPOINT_CREATED)
        .then_some(row.checkpoint)
        .flatten();
    if let Some(id) = created {
        return Ok((Base::At(event_checkpoint(read, thread, id).await?), None));
    }
    let point = newest_at(read, &owner, &row).await?;
    let base = match point {
        Some(point) => Base::At(checkpoint(read, thread, point.id).await?),
        None => Base::Empty,
    };
    Ok((base, None))
}

/// Finds a checkpoint that an event names. If it is not found, it was pruned.
async fn event_checkpoint(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: CheckpointId,
) -> Result<Point> {
    existing_checkpoint(read, thread, id).await?;
    checkpoint(read, thread, id).await
}

/// A checkpoint on the path of a deleted branch: the first one that events of the branch name, from
/// one of them on, or else before it. `Some(None)` when all of those are deleted, `None` when the
/// events name none.
async fn named_by_events(
    read: &mut dyn Read,
    owner: &ThreadRow,
    number: i64,
    branch: BranchId,
) -> Result<Option<Option<CheckpointId>>> {
    let mut found = None;
    let mut from = number - 1;
    for _ in 0..PAGES {
        let rows = read.events(owner.tree, owner.id, from, PAGE).await?;
        let Some(last) = rows.last() else { break };
        from = last.number;
        found = first_existing(read, owner, rows.iter(), branch)
            .await?
            .or(found);
        if let Some(Some(_)) = found {
            return Ok(found);
        }
    }
    let mut until = number - 1;
    for _ in 0..PAGES {
        let limit = PAGE.min(usize::try_from(until).unwrap_or(0));
        if limit == 0 {
            break;
        }
        until -= i64::try_from(limit).unwrap_or(until);
        let rows = read.events(owner.tree, owner.id, until, limit).await?;
        found = first_existing(read, owner, rows.iter().rev(), branch)
            .await?
            .or(found);
        if let Some(Some(_)) = found {
            return Ok(found);
        }
    }
    Ok(found)
}

/// The first existing checkpoint of those that events of a branch name.
async fn first_existing(
    read: &mut dyn Read,
    owner: &ThreadRow,
    events: impl Iterator<Item = &ThreadEvent>,
    branch: BranchId,
) -> Result<Option<Option<CheckpointId>>> {
    let mut found = None;
    for event in events.filter(|event| event.branch == Some(branch)) {
        let Some(id) = event.checkpoint else { continue };
        if read.point(owner.tree, id).await?.is_some() {
            return Ok(Some(Some(id)));
        }
        found = Some(None);
    }
    Ok(found)
}

/// The newest checkpoint on the path of an event's branch that is not younger than the event.
async fn newest_at(
    read: &mut dyn Read,
    owner: &ThreadRow,
    event: &ThreadEvent,
) -> Result<Option<Point>> {
    let gone = || pruned(format!("What there was at event {} is gone", event.number));
    let branch = match event.branch.or(owner.active_branch) {
        Some(id) => read.branch(owner.tree, id).await?,
        None => None,
    };
    let mut next = match (branch, event.branch) {
        (Some(branch), _) => branch.head,
        (None, Some(branch)) => match named_by_events(read, owner, event.number, branch).await? {
            Some(Some(point)) => Some(point),
            Some(None) => return Err(gone()),
            // The branch had no checkpoint.
            None => None,
        },
        // A deleted thread has no branches any more.
        (None, None) => event.checkpoint,
    };
    let mut bare_input = None;
    let mut after: Option<Point> = None;
    for _ in 0..WALK_MAX / PAGE {
        let Some(start) = next.take() else {
            return match after {
                Some(first) if !follows_directly(&first, None) => Err(gone()),
                _ => Ok(bare_input),
            };
        };
        for point in read.path(owner.tree, start, PAGE).await? {
            next = point.parent;
            let after = after.replace(point.clone());
            if point.event_number > event.number {
                continue;
            }
            // A checkpoint pruned between the two may be the one, unless the event names this one.
            let gap = after.is_some_and(|after| !follows_directly(&after, Some(&point)));
            if gap && event.checkpoint != Some(point.id) {
                return Err(gone());
            }
            // A bare input is no state that the thread had at that time.
            if point.source != Source::Input {
                return Ok(Some(point));
            }
            bare_input.get_or_insert(point);
        }
    }
    Err(too_deep())
}
