//! The event log of a thread: pages of it, and following it as it grows.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{Error, Service};
use crate::{
    id::{EventId, ThreadId},
    time::Timestamp,
    tree::{
        Read, event,
        event::{EventFacts, names::BranchNames},
        projection::is_text,
        resolve,
        store::rows::{ThreadEvent, ThreadRow},
    },
    value::{Map, Value},
};

/// How often somebody who follows a log looks for events that other processes wrote.
const LOOK: Duration = Duration::from_secs(1);
/// Events that wait for a slow client.
const BUFFER: usize = 64;
/// Events that are read at once for who follows.
const PAGE: usize = 100;

/// An event as clients see it.
#[derive(Clone, Debug)]
pub struct Told {
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
    /// The events that the thread inherits, too.
    pub inherited: bool,
}

/// A page of a log.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order.
    pub events: Vec<Told>,
    /// Number of the last one, when there are more.
    pub next: Option<i64>,
}

/// Whose events have which numbers: above the first, up to the second.
type Stretch = (ThreadRow, i64, i64);

impl Service {
    /// Events of a thread.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn events(&self, id: ThreadId, range: Range) -> Result<Page, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let read = &mut *reader;
        let thread = resolve::thread(read, id).await?;
        let mut told = Vec::new();
        let mut next = None;
        for (owner, low, high) in stretches(read, &thread, range).await? {
            let wanted = range.limit - told.len();
            let after = low.max(range.after);
            // One more tells whether there are more.
            let mut rows = read.events(owner.tree, owner.id, after, wanted + 1).await?;
            rows.retain(|event| event.number <= high);
            if rows.len() > wanted {
                rows.truncate(wanted);
                next = told.last().map(|told: &Told| told.number);
                next = rows.last().map(|event| event.number).or(next);
            }
            let owned = Owned {
                service: self,
                thread: &thread,
                owner: &owner,
            };
            told.extend(owned.tell(read, rows).await?);
            if next.is_some() {
                break;
            }
        }
        Ok(Page { events: told, next })
    }

    /// Events of a thread after a number, those to come too, until nobody listens any more or the
    /// thread is deleted.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn follow(
        &self,
        id: ThreadId,
        mut after: i64,
        inherited: bool,
    ) -> Result<mpsc::Receiver<Told>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        resolve::thread(&mut *reader, id).await?;
        drop(reader);
        let (sender, receiver) = mpsc::channel(BUFFER);
        let service = self.clone();
        let mut watch = self.inner.news.watch(id);
        tokio::spawn(async move {
            loop {
                let range = Range {
                    after,
                    limit: PAGE,
                    inherited,
                };
                let page = match service.events(id, range).await {
                    Ok(page) => page,
                    Err(Error::Storage(error)) => {
                        tracing::warn!(%error, thread = %id, "events could not be read");
                        Page {
                            events: vec![],
                            next: None,
                        }
                    }
                    // The thread is gone.
                    Err(_) => return,
                };
                let more = page.next.is_some();
                for told in page.events {
                    after = told.number;
                    if sender.send(told).await.is_err() {
                        return;
                    }
                }
                if more {
                    continue;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = watch.changed() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        });
        Ok(receiver)
    }

    /// Something may have happened in a thread: whoever waits for its events looks.
    pub fn told_of(&self, thread: ThreadId) {
        self.inner.news.tell(thread);
    }
}

/// Whose events a range takes, oldest first. Numbers up to a fork's are those of its parent, as
/// far as they are not those of the parent's parent.
async fn stretches(
    read: &mut dyn Read,
    thread: &ThreadRow,
    range: Range,
) -> Result<Vec<Stretch>, Error> {
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

/// Events of one thread on their way to a reader of another one.
struct Owned<'a> {
    service: &'a Service,
    thread: &'a ThreadRow,
    owner: &'a ThreadRow,
}

impl Owned<'_> {
    async fn tell(&self, read: &mut dyn Read, rows: Vec<ThreadEvent>) -> Result<Vec<Told>, Error> {
        let tree = self.owner.tree;
        let mut contents = self.service.told(read, self.thread, &rows).await?;
        let names = BranchNames::of(read, tree, &rows).await?;
        let mut told = Vec::with_capacity(rows.len());
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
            told.push(Told {
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
        Ok(told)
    }
}
