//! The event log of a thread: pages of it, and following it as it grows.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{Error, Result, Service, messages::lookup::PageMemory};
use crate::{
    contention::shares::in_this_name,
    id::{EventId, ThreadId},
    runs::{
        listing::{BATCH_BYTES, IN_MEMORY},
        shared::memory::ResponseMemory,
    },
    time::Timestamp,
    tree::{
        self, Read, event,
        event::{EventFacts, names::BranchNames},
        projection::is_text,
        store::rows::{ThreadEvent, ThreadRow},
    },
    value::{Map, Value},
};

/// How often a reader that follows a log polls for events that other processes wrote.
const POLL: Duration = Duration::from_secs(1);
/// Events that wait for a slow client.
const BUFFER: usize = 64;
/// Events that are read at once for a reader that follows.
const PAGE: usize = 100;

/// An event as clients see it.
#[derive(Clone, Debug)]
pub struct ShownEvent {
    /// Its number.
    pub number: i64,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: Arc<str>,
    /// The thread whose event it is.
    pub thread: ThreadId,
    /// Name of its branch when it came, if it is about one.
    pub branch: Option<Arc<str>>,
    /// Its checkpoint.
    pub checkpoint: Option<crate::id::CheckpointId>,
    /// Its message.
    pub message_id: Option<Arc<str>>,
    /// All of its payload, with content.
    pub payload: Map,
    /// When it was written.
    pub created_at: Timestamp,
}

/// Which part of a log.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Only events with greater numbers.
    pub after: i64,
    /// At most so many.
    pub limit: usize,
    /// At most so many bytes, unless one alone has more.
    pub bytes: usize,
    /// The events that the thread inherits, too.
    pub inherited: bool,
}

/// A page of a log.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order.
    pub events: Vec<ShownEvent>,
    /// Number of the last one, when there are more.
    pub next: Option<i64>,
}

/// Events that are read at once, at the most: their content is read with them.
const BATCH: usize = 100;

/// Bytes of events that are read at once for a stream.
const FOLLOWED: usize = 1 << 20;

/// A thread and the numbers of its events in a range: above the first, up to the second.
type Stretch = (ThreadRow, i64, i64);

impl Service {
    /// Events of a thread.
    ///
    /// # Errors
    /// 404: no such thread; there is no memory for them; or the storage failed.
    pub async fn events(&self, id: ThreadId, range: Range) -> Result<Page> {
        let (mut reader, thread) = self.reader(id).await?;
        let read = &mut *reader;
        let mut shown = Vec::new();
        let mut next = None;
        let mut left = range.bytes;
        let mut memory = PageMemory::new(self.memory.clone());
        'stretches: for (owner, low, high) in stretches(read, &thread, range).await? {
            let owned = Owned {
                service: self,
                thread: &thread,
                owner: &owner,
            };
            let mut after = low.max(range.after);
            loop {
                let batch = (range.limit - shown.len()).min(BATCH);
                // One more shows whether there are more.
                let weights = read
                    .event_weights(owner.tree, owner.id, after, batch + 1)
                    .await?;
                let (count, weight) = first(&weights, batch.max(1));
                memory.begin(weight)?;
                let mut rows = read.events(owner.tree, owner.id, after, count).await?;
                rows.retain(|event| event.number <= high);
                if rows.is_empty() {
                    break;
                }
                if batch == 0 {
                    next = shown.last().map(|shown: &ShownEvent| shown.number);
                    break 'stretches;
                }
                let shown_weight = memory.weight;
                memory.weight += weight;
                let events = owned.show(read, rows, (&mut memory, left)).await?;
                memory.weight = shown_weight;
                for event in events {
                    let bytes = event.payload.values().map(Value::rough_size).sum();
                    if left < bytes && !shown.is_empty() {
                        next = shown.last().map(|shown: &ShownEvent| shown.number);
                        break 'stretches;
                    }
                    left = left.saturating_sub(bytes);
                    let taken: usize = event.payload.values().map(Value::memory).sum();
                    memory.weight += taken as u64 / IN_MEMORY;
                    after = event.number;
                    shown.push(event);
                }
                memory.begin(0)?;
                let known = weights.last().map_or(0, |(number, _)| *number);
                if known <= after {
                    break;
                }
                if shown.len() == range.limit && known <= high {
                    next = Some(after);
                    break 'stretches;
                }
            }
        }
        // What the last batch would have had is free.
        memory.begin(0)?;
        Ok(Page {
            events: shown,
            next,
        })
    }

    /// Events of a thread after a number, those to come too, until the reader is dropped or the
    /// thread is deleted.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn follow(
        &self,
        id: ThreadId,
        mut after: i64,
        inherited: bool,
    ) -> Result<mpsc::Receiver<ShownEvent>> {
        self.reader(id).await?;
        let (sender, receiver) = mpsc::channel(BUFFER);
        let reserved = Arc::<ResponseMemory>::default();
        let memory = self.memory.as_ref().map(|memory| memory.of_part(&reserved));
        let service = Self {
            memory,
            ..self.clone()
        };
        let mut watch = self.shared.notifier.watch(id);
        // It polls for as long as its reader likes, on behalf of whoever asked for it.
        tokio::spawn(in_this_name(async move {
            loop {
                let range = Range {
                    after,
                    limit: PAGE,
                    bytes: FOLLOWED,
                    inherited,
                };
                let page = match service.events(id, range).await {
                    Ok(page) => page,
                    Err(Error::Tree(error)) if error.is_for_memory() => {
                        // Later there is more.
                        tokio::select! {
                            () = sender.closed() => return,
                            () = tokio::time::sleep(POLL) => continue,
                        }
                    }
                    Err(Error::Storage(error) | Error::Tree(tree::Error::Storage(error))) => {
                        tracing::warn!(%error, thread = %id, "events could not be read");
                        Page {
                            events: vec![],
                            next: None,
                        }
                    }
                    Err(_) => {
                        // The thread is gone; or the client's access to it, and then the stream is
                        // about to be cut and shows nothing until then.
                        if service.shared.thread(id).await.is_ok() {
                            sender.closed().await;
                        }
                        return;
                    }
                };
                let more = page.next.is_some();
                for event in page.events {
                    after = event.number;
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
                if reserved.lock().is_some() {
                    // Large ones count until their reader has them.
                    if sender.reserve_many(BUFFER).await.is_err() {
                        return;
                    }
                    *reserved.lock() = None;
                }
                if more {
                    continue;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = watch.changed() => {}
                    () = tokio::time::sleep(POLL) => {}
                }
            }
        }));
        Ok(receiver)
    }

    /// Notifies those who wait for events of a thread: it may have new ones.
    pub fn notify(&self, thread: ThreadId) {
        self.shared.notifier.notify(thread);
    }
}

/// The threads whose events are in a range, oldest first. Numbers up to a fork's own are those of
/// its parent, as far as they are not those of the parent's parent.
async fn stretches(read: &mut dyn Read, thread: &ThreadRow, range: Range) -> Result<Vec<Stretch>> {
    let mut found = vec![(thread.clone(), thread.fork_event_number, i64::MAX)];
    let mut high = thread.fork_event_number;
    let mut parent = thread.parent.filter(|_| range.inherited);
    while let Some(id) = parent
        && high > range.after
    {
        let Some(row) = read.thread_row(id).await? else {
            break;
        };
        let low = row.fork_event_number;
        parent = row.parent;
        found.push((row, low, high));
        high = high.min(low);
    }
    found.reverse();
    Ok(found)
}

/// How many of the first rows are read together, at most so many, and what they weigh: one alone may weigh anything.
fn first(weights: &[(i64, u64)], most: usize) -> (usize, u64) {
    let (mut count, mut sum) = (0, 0_u64);
    for (_, weight) in weights.iter().take(most) {
        let with = sum.saturating_add(*weight);
        if count > 0 && with > BATCH_BYTES {
            break;
        }
        (count, sum) = (count + 1, with);
    }
    (count, sum)
}

/// Events of one thread on their way to a reader of another one, which may be a fork of it.
struct Owned<'a> {
    service: &'a Service,
    thread: &'a ThreadRow,
    owner: &'a ThreadRow,
}

impl Owned<'_> {
    /// The events as clients see them; those behind content of more than `most` bytes are left out.
    async fn show(
        &self,
        read: &mut dyn Read,
        mut rows: Vec<ThreadEvent>,
        (memory, most): (&mut PageMemory, usize),
    ) -> Result<Vec<ShownEvent>> {
        let tree = self.owner.tree;
        let (mut contents, count) = self
            .service
            .event_messages(read, self.thread, &rows, (memory, most))
            .await?;
        rows.truncate(count);
        let names = BranchNames::of(read, tree, &rows).await?;
        let mut shown = Vec::with_capacity(rows.len());
        for row in rows {
            let branch = row.branch.and_then(|id| names.at(id, row.number));
            let facts = EventFacts {
                branch: branch.clone(),
                ..event::load_facts(read, tree, &row).await?
            };
            let mut payload = event::payload(&row, &facts);
            if is_text(&row) || &*row.kind == event::MESSAGE_REMOVED {
                let message = contents.remove(&row.number);
                let content = message.and_then(|message| message.get("content").cloned());
                payload.insert("content", content.unwrap_or(Value::Null));
            }
            shown.push(ShownEvent {
                number: row.number,
                id: row.id,
                kind: row.kind,
                thread: row.thread,
                branch,
                checkpoint: row.checkpoint,
                message_id: row.message_id,
                payload,
                created_at: row.created_at,
            });
        }
        Ok(shown)
    }
}
