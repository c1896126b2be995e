//! In which states the messages are that events are about.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{CheckpointId, RunId},
    tree::{
        projection::is_text,
        store::rows::{MessageChange, MessageNode, ThreadEvent},
    },
};

/// Where the message of an event is found.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its id.
    pub id: Arc<str>,
    /// The state that has it as the event left it; `None` while it waits in the request of a run.
    pub at: Option<CheckpointId>,
    /// The newest state of the branch, which is loaded first for a message that never changed: it has most of those.
    pub newest: Option<CheckpointId>,
}

impl Source {
    /// The state that is loaded first.
    pub fn first_state(&self) -> Option<CheckpointId> {
        self.at.map(|at| self.newest.unwrap_or(at))
    }
}

/// The messages that events add or change.
pub(crate) fn message_ids(events: &[ThreadEvent]) -> HashSet<Arc<str>> {
    let texts = events.iter().filter(|event| is_text(event));
    texts.filter_map(|event| event.message_id.clone()).collect()
}

/// The source of each event that adds or changes a message. `nodes` are those of these messages.
pub(crate) fn sources(nodes: &[MessageNode], events: &[ThreadEvent]) -> Vec<Option<Source>> {
    let fixed = unchanging(nodes);
    let mut newest: HashMap<_, CheckpointId> = HashMap::new();
    for event in events {
        if let Some(checkpoint) = event.checkpoint {
            let known = newest.entry(event.branch).or_insert(checkpoint);
            *known = (*known).max(checkpoint);
        }
    }
    let source = |event: &ThreadEvent| {
        let id = event.message_id.clone().filter(|_| is_text(event))?;
        let newest = newest.get(&event.branch).filter(|_| fixed.contains(&id));
        Some(Source {
            at: event.checkpoint.or_else(|| first(nodes, event)),
            newest: newest.copied(),
            id,
        })
    };
    events.iter().map(source).collect()
}

/// Messages that have one content on every path.
pub(crate) fn unchanging(nodes: &[MessageNode]) -> HashSet<Arc<str>> {
    let (mut once, mut more) = (HashSet::new(), HashSet::new());
    for node in nodes {
        let repeated = match node.change {
            MessageChange::Add => !once.insert(node.message_id.clone()),
            MessageChange::Edit => true,
            MessageChange::Remove => false,
        };
        if repeated {
            more.insert(node.message_id.clone());
        }
    }
    once.retain(|id| !more.contains(id));
    once
}

/// The first checkpoint with the message of an event that was written before it.
fn first(nodes: &[MessageNode], event: &ThreadEvent) -> Option<CheckpointId> {
    let of = |node: &&MessageNode| Some(&node.message_id) == event.message_id.as_ref();
    let own = nodes
        .iter()
        .filter(of)
        .find(|node| node.thread == event.thread && node.event_number == Some(event.number));
    let added = || {
        let added = nodes.iter().filter(of);
        let mut added =
            added.filter(|node| node.thread == event.thread && node.change == MessageChange::Add);
        added.next_back()
    };
    own.or_else(added).map(|node| node.checkpoint)
}

/// The run that an event is about.
pub(crate) fn run_of(event: &ThreadEvent) -> Option<RunId> {
    event.payload.get("run_id")?.as_str()?.parse().ok()
}
