//! What the next steps of several threads need, read for all of them together: the number of round trips does not
//! depend on how many threads there are.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    id::{ThreadId, TreeId},
    threads::{
        Result, Service,
        messages::{
            lookup::{MessageLookup, PageMemory},
            sources::{Source, message_ids, sources},
        },
    },
    tree::{
        Read,
        load::AT_ONCE,
        messages::content::MessageList,
        projection::{
            ChannelKey, ChannelLimits, ChannelRows, Progress, Projection, ProjectionStep, project,
            since_newest_message,
        },
        store::rows::{MessageNode, ThreadEvent, ThreadRow},
    },
};

/// Events of a thread in one step.
const EVENTS: usize = 500;
/// Events of all threads that are read at once.
const EVENTS_AT_ONCE: usize = 2048;
/// What these weigh at most, but for the first one of each thread.
const EVENT_BYTES: u64 = 8 << 20;
/// States that are weighed at once.
const STATES_AT_ONCE: usize = 256;
/// States that are small are read at once as long as they weigh at most so much together.
const STATES: ChannelLimits = ChannelLimits {
    each: AT_ONCE,
    all: 4 << 20,
};

/// The next events of a thread, with what is read for them.
pub(super) struct ThreadLog<'a> {
    pub progress: &'a Progress,
    thread: ThreadRow,
    events: Vec<ThreadEvent>,
    /// Of the events since the newest message.
    sources: Vec<Option<Source>>,
    /// Their messages, as far as they were read.
    lookup: MessageLookup<'a>,
}

impl ThreadLog<'_> {
    fn newest(&self) -> &[ThreadEvent] {
        since_newest_message(&self.events)
    }
}

impl Service {
    /// Reads the next events of threads and the states that have their messages. Deleted threads and those without
    /// further events are left out.
    pub(super) async fn logs<'a>(&'a self, threads: &[&'a Progress]) -> Result<Vec<ThreadLog<'a>>> {
        if threads.is_empty() {
            return Ok(vec![]);
        }
        let mut read = self.shared.parts.tree.reader().await?;
        let ids = threads.iter().map(|progress| progress.thread).collect();
        let rows = read.thread_rows(ids).await?;
        let mut rows: HashMap<ThreadId, ThreadRow> =
            rows.into_iter().map(|row| (row.id, row)).collect();
        let mut events = events_of(read.as_mut(), threads).await?;
        let mut logs = Vec::with_capacity(threads.len());
        for progress in threads {
            let thread = rows.remove(&progress.thread);
            let events = events.remove(&progress.thread);
            if let (Some(thread), Some(events)) = (thread, events) {
                let ids = message_ids(since_newest_message(&events));
                logs.push(ThreadLog {
                    progress,
                    lookup: self.message_lookup(&thread, ids),
                    thread,
                    events,
                    sources: vec![],
                });
            }
        }
        find_sources(read.as_mut(), &mut logs).await?;
        self.read_states(&mut logs).await?;
        Ok(logs)
    }

    /// Reads the states that are small and not in memory.
    async fn read_states(&self, logs: &mut [ThreadLog<'_>]) -> Result<()> {
        let mut keys = Vec::new();
        for (index, log) in logs.iter_mut().enumerate() {
            let tree = log.thread.tree;
            let channel = self.shared.message_channel(&log.thread.metadata);
            let states = log.sources.iter().flatten();
            let states: HashSet<_> = states.filter_map(Source::first_state).collect();
            for checkpoint in states {
                if let Some(decoded) = self.shared.cache.get(tree, checkpoint) {
                    let value = decoded.checkpoint.values.get(&channel);
                    let messages = MessageList::from(value.cloned());
                    log.lookup.insert(checkpoint, messages.all());
                    continue;
                }
                let key = ChannelKey {
                    tree,
                    checkpoint,
                    channel: channel.clone(),
                };
                keys.push((index, key));
            }
        }
        while !keys.is_empty() {
            let mut left = keys.split_off(keys.len().min(STATES_AT_ONCE));
            let count = keys.len() + left.len();
            let wanted: Vec<_> = keys.iter().map(|(_, key)| key.clone()).collect();
            let found = self.shared.parts.projections.channels(wanted, STATES);
            for ((index, key), rows) in keys.into_iter().zip(found.await?) {
                let value = match rows {
                    ChannelRows::Missing => None,
                    ChannelRows::Read(channel) => match channel.value(&key) {
                        Ok(value) => value,
                        // The thread fails with that alone, when its step reads the state.
                        Err(_) => continue,
                    },
                    ChannelRows::Weight(weight) => {
                        // A large one is read alone, with memory for it, when a step needs it.
                        if weight <= STATES.each {
                            left.push((index, key));
                        }
                        continue;
                    }
                };
                let messages = MessageList::from(value);
                logs[index].lookup.insert(key.checkpoint, messages.all());
            }
            if left.len() == count {
                break;
            }
            keys = left;
        }
        Ok(())
    }

    /// The next step of a thread.
    pub(super) async fn step(&self, mut log: ThreadLog<'_>) -> Result<ProjectionStep> {
        let mut read = self.shared.parts.tree.reader().await?;
        let newest = since_newest_message(&log.events);
        let mut page = PageMemory::new(None);
        let sourced = (newest, &*log.sources);
        let all = (&mut page, usize::MAX);
        let messages =
            self.sourced_messages(read.as_mut(), &log.thread, sourced, &mut log.lookup, all);
        let (messages, _) = messages.await?;
        let progress = log.progress;
        let from = progress.offsets[Projection::Heads.index()];
        let head = progress.head.as_ref();
        Ok(ProjectionStep {
            tree: progress.tree,
            thread: progress.thread,
            from,
            to: log.events.last().map_or(from, |event| event.number),
            head: project(head, &log.events, |event| messages.get(&event.number)),
        })
    }
}

/// The next events of each thread that has some.
async fn events_of(
    read: &mut dyn Read,
    threads: &[&Progress],
) -> Result<BTreeMap<ThreadId, Vec<ThreadEvent>>> {
    let after = threads.iter().map(|progress| {
        let offset = progress.offsets[Projection::Heads.index()];
        (progress.tree, progress.thread, offset)
    });
    let limit = (EVENTS_AT_ONCE / threads.len()).clamp(1, EVENTS);
    let most = EVENT_BYTES / threads.len() as u64;
    let events = read.events_of_threads(after.collect(), limit, most).await?;
    let mut found: BTreeMap<ThreadId, Vec<ThreadEvent>> = BTreeMap::new();
    for event in events {
        found.entry(event.thread).or_default().push(event);
    }
    Ok(found)
}

/// Finds out which states have the messages of the newest events.
async fn find_sources(read: &mut dyn Read, logs: &mut [ThreadLog<'_>]) -> Result<()> {
    let mut wanted = HashSet::new();
    for log in logs.iter() {
        let ids = message_ids(log.newest()).into_iter();
        wanted.extend(ids.map(|id| (log.thread.tree, id)));
    }
    let mut by_message: HashMap<(TreeId, Arc<str>), Vec<MessageNode>> = HashMap::new();
    if !wanted.is_empty() {
        for (tree, node) in read.nodes_of_trees(wanted.into_iter().collect()).await? {
            let of_message = by_message.entry((tree, node.message_id.clone()));
            of_message.or_default().push(node);
        }
    }
    for log in logs {
        let tree = log.thread.tree;
        let ids = message_ids(log.newest()).into_iter();
        let nodes = ids.filter_map(|id| by_message.get(&(tree, id)));
        let nodes: Vec<MessageNode> = nodes.flatten().cloned().collect();
        log.sources = sources(&nodes, log.newest());
    }
    Ok(())
}
