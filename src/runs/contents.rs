//! Messages that events and rows of the message index are about, read from the states that hold
//! them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{Error, Service, request::Kwargs};
use crate::{
    id::CheckpointId,
    tree::{
        Read,
        messages::content::MessageContents,
        projection::is_text,
        store::rows::{MessageChange, MessageNode, ThreadEvent, ThreadRow},
    },
    value::{Map, Value},
};

/// States that one request may load for messages that no newer state holds.
const LOADS: usize = 200;

/// The channel of messages of a graph that does not say, or is not known yet.
const CHANNEL: &str = "messages";

/// Messages of one tree by id, from the states that were loaded for them.
pub(super) struct Shelf<'a> {
    values: MessageContents<'a>,
    states: HashMap<CheckpointId, HashMap<Arc<str>, Value>>,
    left: usize,
}

impl Shelf<'_> {
    /// The message as a state holds it. After many loads, and from pruned states, nothing.
    pub async fn get(&mut self, id: &Arc<str>, at: CheckpointId) -> Result<Option<Value>, Error> {
        self.load(at).await?;
        let state = self.states.get(&at);
        Ok(state.and_then(|state| state.get(id)).cloned())
    }

    /// The message as any state holds it that was loaded already.
    pub fn any(&self, id: &Arc<str>) -> Option<Value> {
        let mut states = self.states.values();
        states.find_map(|state| state.get(id)).cloned()
    }

    /// Loads a state.
    pub async fn load(&mut self, at: CheckpointId) -> Result<(), Error> {
        if self.states.contains_key(&at) || self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let messages = self.values.messages(at).await?.unwrap_or_default();
        self.states.insert(at, by_id(messages.all()));
        Ok(())
    }
}

fn by_id(list: &[Value]) -> HashMap<Arc<str>, Value> {
    let named = list.iter().filter_map(|message| match message.get("id")? {
        Value::Str(id) => Some((id.clone(), message.clone())),
        _ => None,
    });
    named.collect()
}

impl Service {
    /// The channel that holds a thread's messages: what its graph says.
    pub(super) fn message_channel(&self, metadata: &Map) -> Arc<str> {
        let graph = self.graph_in(metadata);
        let channel = graph
            .as_ref()
            .and_then(|known| known.graph.message_channel());
        channel.cloned().unwrap_or_else(|| CHANNEL.into())
    }

    /// The messages channel of a thread's checkpoints.
    pub(super) fn conversation(&self, thread: &ThreadRow) -> MessageContents<'_> {
        MessageContents {
            saver: &self.inner.parts.saver,
            cache: &self.inner.cache,
            tree: thread.tree,
            thread: thread.id,
            channel: self.message_channel(&thread.metadata),
        }
    }

    pub(super) fn shelf(&self, thread: &ThreadRow) -> Shelf<'_> {
        Shelf {
            values: self.conversation(thread),
            states: HashMap::new(),
            left: LOADS,
        }
    }

    /// The messages that events of a thread are about, as stored at the events' checkpoints, by
    /// number of the event. A message that waits in the queue is read from its run's input.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn told(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        events: &[ThreadEvent],
    ) -> Result<HashMap<i64, Value>, Error> {
        let ids: HashSet<Arc<str>> = events
            .iter()
            .filter(|event| is_text(event))
            .filter_map(|event| event.message_id.clone())
            .collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let nodes = read
            .nodes_of(thread.tree, ids.into_iter().collect())
            .await?;
        let fixed = unchanging(&nodes);
        let mut shelf = self.shelf(thread);
        // The newest state of each branch has most of what never changed.
        let mut newest: HashMap<_, CheckpointId> = HashMap::new();
        for event in events {
            if let Some(checkpoint) = event.checkpoint {
                let known = newest.entry(event.branch).or_insert(checkpoint);
                *known = (*known).max(checkpoint);
            }
        }
        let mut found = HashMap::new();
        for event in events.iter().filter(|event| is_text(event)) {
            let Some(id) = &event.message_id else {
                continue;
            };
            let at = event.checkpoint.or_else(|| first(&nodes, event));
            let Some(at) = at else {
                if let Some(message) = self.queued(read, thread, event).await? {
                    found.insert(event.number, message);
                }
                continue;
            };
            let mut message = None;
            if fixed.contains(id) {
                if let Some(newest) = newest.get(&event.branch) {
                    shelf.load(*newest).await?;
                }
                message = shelf.any(id);
            }
            if message.is_none() {
                message = shelf.get(id, at).await?;
            }
            if let Some(message) = message {
                found.insert(event.number, message);
            }
        }
        Ok(found)
    }

    /// A message that no state holds yet: it is in the input of the run that waits with it, which
    /// the next event tells of.
    async fn queued(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        event: &ThreadEvent,
    ) -> Result<Option<Value>, Error> {
        let Some(id) = &event.message_id else {
            return Ok(None);
        };
        let next = read
            .events(thread.tree, event.thread, event.number, 1)
            .await?;
        let Some(run) = run_of(event).or_else(|| run_of(next.first()?)) else {
            return Ok(None);
        };
        let row = self.inner.parts.runs.run(event.thread, run).await?;
        let kwargs = row.and_then(|row| Kwargs::from_value(&row.kwargs).ok());
        let channel = self.message_channel(&thread.metadata);
        let input = kwargs.and_then(|kwargs| kwargs.input);
        let list = input.as_ref().and_then(|input| input.get(&channel));
        let list = match list {
            Some(Value::List(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        Ok(by_id(list).remove(id))
    }
}

/// Messages that have one content on every path.
pub(super) fn unchanging(nodes: &[MessageNode]) -> HashSet<Arc<str>> {
    let (mut once, mut more) = (HashSet::new(), HashSet::new());
    for node in nodes {
        let again = match node.change {
            MessageChange::Add => !once.insert(node.message_id.clone()),
            MessageChange::Edit => true,
            MessageChange::Remove => false,
        };
        if again {
            more.insert(node.message_id.clone());
        }
    }
    once.retain(|id| !more.contains(id));
    once
}

/// The first checkpoint with the message of an event that was written before it.
fn first(nodes: &[MessageNode], event: &ThreadEvent) -> Option<CheckpointId> {
    let of = |node: &&MessageNode| Some(&node.message_id) == event.message_id.as_ref();
    let told = nodes
        .iter()
        .filter(of)
        .find(|node| node.thread == event.thread && node.event_number == Some(event.number));
    let added = || {
        let added = nodes.iter().filter(of);
        let mut added =
            added.filter(|node| node.thread == event.thread && node.change == MessageChange::Add);
        added.next_back()
    };
    told.or_else(added).map(|node| node.checkpoint)
}

fn run_of(event: &ThreadEvent) -> Option<crate::id::RunId> {
    event.payload.get("run_id")?.as_str()?.parse().ok()
}
