//! Messages that events and rows of the message index are about, read from states that have
//! them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::CheckpointId,
    runs::request::Kwargs,
    threads::{Result, Service},
    tree::{
        Read,
        messages::content::MessageContents,
        projection::is_text,
        store::rows::{MessageChange, MessageNode, ThreadEvent, ThreadRow},
    },
    value::Value,
};

/// States that one request may load for messages that are in no newer state.
const LOADS: usize = 200;

/// Messages of one tree by id, from the states that were loaded for them.
pub(crate) struct MessageLookup<'a> {
    values: MessageContents<'a>,
    /// The messages that are looked for: nothing else of a state stays in memory.
    wanted: HashSet<Arc<str>>,
    states: HashMap<CheckpointId, HashMap<Arc<str>, Value>>,
    /// States that may still be loaded.
    budget: usize,
}

impl MessageLookup<'_> {
    /// The message as it is in a state. After many loads, and from pruned states, nothing.
    pub async fn get(&mut self, id: &Arc<str>, at: CheckpointId) -> Result<Option<Value>> {
        self.load(at).await?;
        let state = self.states.get(&at);
        Ok(state.and_then(|state| state.get(id)).cloned())
    }

    /// The message as it is in any state that was loaded already.
    pub fn any(&self, id: &Arc<str>) -> Option<Value> {
        let mut states = self.states.values();
        states.find_map(|state| state.get(id)).cloned()
    }

    /// Loads a state; of one that is too large for that nothing is known.
    pub async fn load(&mut self, at: CheckpointId) -> Result<()> {
        if self.states.contains_key(&at) || self.budget == 0 {
            return Ok(());
        }
        self.budget -= 1;
        let messages = self.values.messages_if_small(at).await?.unwrap_or_default();
        let mut found = by_id(messages.all());
        found.retain(|id, _| self.wanted.contains(id));
        self.states.insert(at, found);
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
    /// An empty lookup of these messages of a thread.
    pub(crate) fn message_lookup(
        &self,
        thread: &ThreadRow,
        wanted: HashSet<Arc<str>>,
    ) -> MessageLookup<'_> {
        MessageLookup {
            values: self.conversation(thread),
            wanted,
            states: HashMap::new(),
            budget: LOADS,
        }
    }

    /// The messages that events of a thread are about, as stored at the events' checkpoints, by
    /// number of the event. A message in the queue is read from its run's input.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) async fn event_messages(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        events: &[ThreadEvent],
    ) -> Result<HashMap<i64, Value>> {
        let ids: HashSet<Arc<str>> = events
            .iter()
            .filter(|event| is_text(event))
            .filter_map(|event| event.message_id.clone())
            .collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let nodes = read
            .nodes_of(thread.tree, ids.iter().cloned().collect())
            .await?;
        let fixed = unchanging(&nodes);
        let mut lookup = self.message_lookup(thread, ids);
        // The newest state of each branch has most of the messages that never changed.
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
                    lookup.load(*newest).await?;
                }
                message = lookup.any(id);
            }
            if message.is_none() {
                message = lookup.get(id, at).await?;
            }
            if let Some(message) = message {
                found.insert(event.number, message);
            }
        }
        Ok(found)
    }

    /// A message that is in no state yet: it is in the input of its pending run, whose event is the
    /// next one.
    async fn queued(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        event: &ThreadEvent,
    ) -> Result<Option<Value>> {
        let Some(id) = &event.message_id else {
            return Ok(None);
        };
        let next = read
            .events(thread.tree, event.thread, event.number, 1)
            .await?;
        let Some(run) = run_of(event).or_else(|| run_of(next.first()?)) else {
            return Ok(None);
        };
        let row = self.shared.parts.runs.run(event.thread, run).await?;
        let kwargs = row.and_then(|row| Kwargs::from_value(&row.kwargs).ok());
        let channel = self.shared.message_channel(&thread.metadata);
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

fn run_of(event: &ThreadEvent) -> Option<crate::id::RunId> {
    event.payload.get("run_id")?.as_str()?.parse().ok()
}
