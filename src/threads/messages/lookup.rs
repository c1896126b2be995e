//! Messages that events and rows of the message index are about, read from states that have
//! them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::CheckpointId,
    runs::{
        listing::{BATCH_BYTES, IN_MEMORY},
        shared::memory::ReadMemory,
    },
    store::memory::ItemMemory,
    threads::{
        Result, Service,
        messages::sources::{Source, message_ids, run_of, sources},
    },
    tree::{
        self, Read,
        messages::content::MessageContents,
        store::rows::{ThreadEvent, ThreadRow},
    },
    value::Value,
};

/// The memory of what a page has, and of what is about to be read for it.
pub(crate) struct PageMemory {
    /// Without it none is counted.
    memory: Option<ReadMemory>,
    /// What the page has weighs so much.
    pub weight: u64,
}

impl PageMemory {
    /// That of a page which has nothing yet.
    pub fn new(memory: Option<ReadMemory>) -> Self {
        Self { memory, weight: 0 }
    }

    /// Takes memory for what is about to be read and weighs at most so much, beyond what every request may read.
    ///
    /// # Errors
    /// There is not enough.
    pub fn begin(&self, weight: u64) -> Result<()> {
        let memory = self.memory.as_ref();
        let weight = self
            .weight
            .saturating_add(weight.saturating_sub(BATCH_BYTES));
        if memory.is_none_or(|memory| memory.resize(weight)) {
            Ok(())
        } else {
            Err(tree::Error::no_memory().into())
        }
    }
}

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
        if !self.is_new(at) {
            return Ok(());
        }
        self.budget -= 1;
        let messages = self.values.messages_if_small(at).await?.unwrap_or_default();
        self.insert(at, messages.all());
        Ok(())
    }

    /// Adds the messages of a state, which is not loaded then.
    pub fn insert(&mut self, at: CheckpointId, messages: &[Value]) {
        let mut found = by_id(messages);
        found.retain(|id, _| self.wanted.contains(id));
        self.states.insert(at, found);
    }

    /// Whether a state is still to be loaded.
    fn is_new(&self, at: CheckpointId) -> bool {
        !self.states.contains_key(&at) && self.budget > 0
    }

    /// [`load`](Self::load) for a page, which has memory for it before.
    async fn load_for(&mut self, page: &mut PageMemory, at: CheckpointId) -> Result<()> {
        if !self.is_new(at) {
            return Ok(());
        }
        // A larger one takes memory by itself.
        page.begin(BATCH_BYTES)?;
        self.load(at).await?;
        let found = self.states.get(&at).into_iter().flatten();
        let found: usize = found.map(|(_, message)| message.memory()).sum();
        page.weight += found as u64 / IN_MEMORY;
        page.begin(0)
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
    /// number of the event, and how many of the events were looked at: those behind messages of more than `most`
    /// bytes are not. A message in the queue is read from its run's input.
    ///
    /// # Errors
    /// There is no memory for them, or the storage failed.
    pub(crate) async fn event_messages(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        events: &[ThreadEvent],
        (page, most): (&mut PageMemory, usize),
    ) -> Result<(HashMap<i64, Value>, usize)> {
        let ids = message_ids(events);
        if ids.is_empty() {
            return Ok((HashMap::new(), events.len()));
        }
        let nodes = read
            .nodes_of(thread.tree, ids.iter().cloned().collect())
            .await?;
        let sources = sources(&nodes, events);
        let lookup = &mut self.message_lookup(thread, ids);
        let found = self.sourced_messages(read, thread, (events, &sources), lookup, (page, most));
        found.await
    }

    /// [`event_messages`](Self::event_messages) out of the sources of the events.
    ///
    /// # Errors
    /// As [`event_messages`](Self::event_messages).
    pub(crate) async fn sourced_messages(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        (events, sources): (&[ThreadEvent], &[Option<Source>]),
        lookup: &mut MessageLookup<'_>,
        (page, most): (&mut PageMemory, usize),
    ) -> Result<(HashMap<i64, Value>, usize)> {
        let (mut found, mut bytes) = (HashMap::new(), 0);
        for (index, (event, source)) in events.iter().zip(sources).enumerate() {
            if bytes > most {
                return Ok((found, index));
            }
            let Some(Source { id, at, newest }) = source else {
                continue;
            };
            let Some(at) = *at else {
                if let Some(message) = self.queued(read, thread, event).await? {
                    page.weight += message.memory() as u64 / IN_MEMORY;
                    page.begin(0)?;
                    bytes += message.rough_size();
                    found.insert(event.number, message);
                }
                continue;
            };
            let mut message = None;
            if let Some(newest) = newest {
                lookup.load_for(page, *newest).await?;
                message = lookup.any(id);
            }
            if message.is_none() {
                lookup.load_for(page, at).await?;
                message = lookup.get(id, at).await?;
            }
            if let Some(message) = message {
                bytes += message.rough_size();
                found.insert(event.number, message);
            }
        }
        Ok((found, events.len()))
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
        let channel = self.shared.message_channel(&thread.metadata);
        let found = self.shared.of_request(event.thread, run, |_, kwargs| {
            let input = kwargs.input.as_ref();
            let list = match input.and_then(|input| input.get(&channel)) {
                Some(Value::List(items)) => items.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            by_id(list).remove(id)
        });
        Ok(found.await?.flatten())
    }
}
