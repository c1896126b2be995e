//! The life of threads: created, patched, copied, pruned and deleted.

use super::{
    Error, Result, Service,
    request::{Create, Prune, View},
};
use crate::{
    fail_point,
    id::{AssistantId, EventId, ThreadId},
    runs,
    tree::{
        self, Copied, ErrorKind, IfExists, NewCopy, NewThread, event, fork,
        members::Level,
        search::{SortBy, ThreadFilter, ThreadPage},
        store::rows::{ForkCursor, NewEvent, ThreadEvent},
        ttl::{Expiry, Ttl},
    },
    value::{Map, Value},
};

/// Most root checkpoints of a thread that can be copied.
const COPY_MAX: usize = 5000;
/// Relatives read at once.
const RELATIVES_PAGE: usize = 1000;

/// A thread that was created by a command.
#[derive(Clone, Copy, Debug)]
pub struct CreatedThread {
    /// The thread.
    pub id: ThreadId,
    /// The newest event of its log.
    pub event: EventId,
    /// Its number.
    pub event_number: i64,
}

impl Service {
    /// Creates a thread, and applies supersteps of updates to it.
    ///
    /// # Errors
    /// The id is taken; an update makes no sense, and the thread exists without it; or the storage
    /// failed.
    pub async fn create(&self, create: Create) -> Result<View> {
        let id_of_key = create.id_of_key.filter(|_| create.id.is_none());
        let if_exists = match id_of_key {
            Some(_) => IfExists::DoNothing,
            None => create.if_exists,
        };
        let id = create.id.or(id_of_key);
        let may_exist = id.is_some() && if_exists == IfExists::DoNothing;
        let id = id.unwrap_or_else(ThreadId::mint);
        let new = NewThread {
            id,
            metadata: create.metadata,
            owner: create.principal.to_string(),
            if_exists,
            ttl: create.ttl.or(self.runs.thread_ttl()),
        };
        let Some(created) = self.shared.parts.tree.create_thread(new).await? else {
            return Err(self.taken(id).await);
        };
        self.access.at(Level::Reader).record_grant(id);
        if may_exist {
            let needed = if create.supersteps.is_empty() {
                Level::Reader
            } else {
                Level::Writer
            };
            let access = self.access.at(needed);
            self.runs
                .authorize(&access, id)
                .await
                .map_err(|error| match error {
                    // One of somebody else, who created it with this id.
                    runs::Error::NoThread(_) => Error::ThreadExists(id),
                    error => error.into(),
                })?;
        }
        if create.supersteps.is_empty() {
            // A new one has no head, and one that was there is what the client wants to go on with.
            let view = self.written_view(created).await?;
            self.access.record_shown(id);
            let confirmed = self.confirm().await;
            confirmed.map_err(|error| match error {
                Error::NoThread(_) => Error::ThreadExists(id),
                error => error,
            })?;
            return Ok(view);
        }
        if id_of_key.is_some()
            && let Some(first) = self.first_write(id).await?
        {
            // The updates are written all at once: an earlier attempt has applied them, unless a run came first, whose
            // creation is about no checkpoint.
            return if first.checkpoint.is_some() {
                self.get_patiently(id).await
            } else {
                Err(Error::CreatedWithoutUpdates(
                    id,
                    Box::new(overtaken().into()),
                ))
            };
        }
        fail_point!(async "threads.before_updates");
        match self
            .at(Level::Writer)
            .apply_supersteps(&created, create.supersteps)
            .await
        {
            Ok(()) => self.written_view(self.shared.thread(id).await?).await,
            // A failure of this server is none of the updates, and no thread was created for somebody who may not
            // write to the one that was there.
            Err(
                error @ (Error::Engine(_)
                | Error::Storage(_)
                | Error::Tree(
                    tree::Error::Storage(_)
                    | tree::Error::Engine(_)
                    | tree::Error::Refused {
                        kind: ErrorKind::Forbidden,
                        ..
                    },
                )),
            ) => Err(error),
            Err(Error::NoThread(_)) if may_exist => Err(Error::ThreadExists(id)),
            Err(error) => Err(Error::CreatedWithoutUpdates(id, Box::new(error))),
        }
    }

    /// The event of the first change of a thread, once there is a state of it.
    async fn first_write(&self, id: ThreadId) -> Result<Option<ThreadEvent>> {
        let slot = self.shared.parts.tree.slot(id).await?;
        if slot.is_none_or(|slot| slot.head.is_none()) {
            return Ok(None);
        }
        let (mut reader, thread) = self.reader(id).await?;
        // The first event is that of its creation.
        let events = reader.events(thread.tree, id, 0, 2).await?;
        Ok(events.into_iter().nth(1))
    }

    /// Creates a thread, and returns its newest event.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_with_event(&self, create: Create) -> Result<CreatedThread> {
        let may_be_there = create.id.is_none() && create.id_of_key.is_some();
        let id = self.create(create).await?.row.id;
        let (mut reader, thread) = self.at(Level::Reader).reader(id).await?;
        let mut event_number = thread.last_event_number;
        if may_be_there {
            let first = reader.events(thread.tree, id, 0, 1).await?;
            event_number = first.first().map_or(event_number, |first| first.number);
        }
        Ok(CreatedThread {
            id,
            event: event::id(id, event_number),
            event_number,
        })
    }

    /// A thread as clients see it.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn get(&self, id: ThreadId) -> Result<View> {
        let row = self.row(id).await?;
        self.weighed_view(row).await
    }

    /// The same for a request that does more than to show the thread, and is not refused for the size of its state:
    /// that waits for memory.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn get_patiently(&self, id: ThreadId) -> Result<View> {
        let row = self.row(id).await?;
        let view = self.written_view(row).await?;
        self.access.record_shown(id);
        Ok(view)
    }

    /// Checks that there is a thread that the client may see.
    ///
    /// # Errors
    /// There is none, or the storage failed.
    pub async fn check(&self, id: ThreadId) -> Result<()> {
        self.row(id).await.map(drop)
    }

    /// When a thread expires; `None` for one that does not.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn expiry(&self, id: ThreadId) -> Result<Option<Expiry>> {
        self.row(id).await?;
        Ok(self.shared.parts.tree.expiry(id).await?)
    }

    /// Merges metadata into a thread's, and sets how long it lives if that is requested.
    ///
    /// # Errors
    /// 422: it would be too much. No such thread, or the storage failed.
    pub async fn patch(&self, id: ThreadId, metadata: Map, ttl: Option<Ttl>) -> Result<View> {
        let (mut tx, thread) = self.begin(id).await?;
        let limits = self.shared.parts.metadata;
        limits.merged(&thread.metadata, metadata.clone())?;
        tx.patch_thread(id, metadata).await?;
        if let Some(ttl) = ttl {
            tx.set_ttl(id, ttl).await?;
        }
        tx.commit().await?;
        let view = self.written_view(self.shared.thread(id).await?).await?;
        self.confirm().await?;
        Ok(view)
    }

    /// Deletes a thread. What runs on it is cancelled and writes nothing more.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn delete(&self, id: ThreadId) -> Result<()> {
        let (mut tx, thread) = self.begin(id).await?;
        tx.delete_thread(thread.tree, id).await?;
        tx.commit().await?;
        self.runs.cancel_thread(id);
        Ok(())
    }

    /// Deletes the threads that the client owns and on which this assistant ran last.
    ///
    /// # Errors
    /// The storage failed; those that were deleted stay so.
    pub async fn delete_of_assistant(&self, assistant: AssistantId) -> Result<()> {
        let owner = self.at(Level::Owner);
        let mut page = ThreadPage {
            filter: ThreadFilter {
                metadata: Map::from([("assistant_id", Value::str(assistant.to_string()))]),
                principal: self.access.principal().cloned(),
                ..ThreadFilter::default()
            },
            sort_by: SortBy::ThreadId,
            limit: 100,
            ..ThreadPage::default()
        };
        loop {
            let found = self.shared.parts.tree.search(page.clone()).await?;
            if found.is_empty() {
                return Ok(());
            }
            for listed in found {
                match owner.delete(listed.thread.id).await {
                    Ok(()) | Err(Error::NoThread(_)) => {}
                    // Somebody else's, shared with the client: it stays.
                    Err(Error::Tree(tree::Error::Refused {
                        kind: tree::ErrorKind::Forbidden,
                        ..
                    })) => {
                        page.offset += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Deletes threads, or all but their latest checkpoint; returns how many. Unknown ids are
    /// skipped.
    ///
    /// # Errors
    /// 403: the client's level on one of them is too low. Or the storage failed.
    pub async fn prune(&self, ids: Vec<ThreadId>, how: Prune) -> Result<u64> {
        let acting = self.at(match how {
            Prune::Delete => Level::Owner,
            Prune::KeepLatest => Level::Writer,
        });
        // Nothing is pruned when one of them may not be.
        for id in &ids {
            found(
                acting
                    .runs
                    .authorize(&acting.access, *id)
                    .await
                    .map_err(Error::from),
            )?;
        }
        let mut pruned = 0;
        for id in ids {
            pruned += u64::from(found(match how {
                Prune::KeepLatest => acting.keep_latest(id).await,
                Prune::Delete => acting.delete(id).await,
            })?);
        }
        Ok(pruned)
    }

    /// Deletes what is not in use of a thread's checkpoints.
    async fn keep_latest(&self, id: ThreadId) -> Result<()> {
        let (mut tx, thread) = self.begin(id).await?;
        tx.prune_thread(thread.tree, id).await?;
        Ok(tx.commit().await?)
    }

    /// Copies a thread with its history to one that `owner` owns, without lineage. What has the id `id_of_key` was
    /// copied by an earlier attempt of the request.
    ///
    /// # Errors
    /// No such thread; 413 for one with too long a history; or the storage failed.
    pub async fn copy(
        &self,
        id: ThreadId,
        owner: &str,
        id_of_key: Option<ThreadId>,
    ) -> Result<View> {
        let copy = NewCopy {
            id: id_of_key.unwrap_or_else(ThreadId::mint),
            owner: owner.to_owned(),
            reader: self.access.principal().cloned(),
            limit: COPY_MAX,
            events: vec![NewEvent {
                kind: event::THREAD_CREATED,
                ..NewEvent::default()
            }],
        };
        self.runs.authorize(&self.access, id).await?;
        match self.shared.parts.tree.copy_thread(id, copy).await? {
            Copied::Done(thread) => self.written_view(*thread).await,
            Copied::Missing => Err(Error::NoThread(id)),
            Copied::Taken => match id_of_key {
                Some(copied) => self.get_patiently(copied).await,
                None => Err(Error::ThreadExists(id)),
            },
            Copied::TooLarge => Err(tree::Error::refused(
                ErrorKind::TooLarge,
                "too_large",
                format!("The thread has more than {COPY_MAX} checkpoints: prune it first"),
            )
            .into()),
        }
    }

    /// Deletes a thread with all its relatives; returns those that were not deleted before. What runs
    /// on them is cancelled and writes nothing more.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn delete_family(&self, id: ThreadId) -> Result<Vec<ThreadId>> {
        let (mut tx, thread) = self.begin(id).await?;
        let gone = tx.delete_tree(thread.tree).await?;
        tx.commit().await?;
        for thread in &gone {
            self.runs.cancel_thread(*thread);
        }
        Ok(gone)
    }

    /// Threads of the same tree that are not deleted, itself too, oldest first.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn living_relatives(&self, id: ThreadId) -> Result<Vec<ThreadId>> {
        let (mut reader, thread) = self.reader(id).await?;
        let root = reader.thread_row(ThreadId(thread.tree.0)).await?;
        let root = root.filter(|root| root.deleted_at.is_none());
        let mut living: Vec<ThreadId> = root.iter().map(|root| root.id).collect();
        let mut after = ForkCursor::START;
        loop {
            let page = reader.relatives(thread.tree, after, RELATIVES_PAGE).await?;
            living.extend(page.iter().map(|relative| relative.row.id));
            match page.last() {
                Some(last) if page.len() == RELATIVES_PAGE => {
                    after = ForkCursor::of(last);
                }
                _ => return Ok(living),
            }
        }
    }

    /// Why a new thread cannot have an id.
    async fn taken(&self, id: ThreadId) -> Error {
        let mut reader = match self.shared.parts.tree.reader().await {
            Ok(reader) => reader,
            Err(error) => return error.into(),
        };
        match reader.thread_row(id).await {
            Ok(Some(row)) if row.deleted_at.is_some() && self.sees(&mut *reader, &row).await => {
                fork::deleted(id).into()
            }
            Ok(_) => Error::ThreadExists(id),
            Err(error) => error.into(),
        }
    }
}

/// Whether there is such a thread.
fn found(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Error::NoThread(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Why the updates that a thread is created with are not applied any more.
fn overtaken() -> tree::Error {
    tree::Error::conflict(
        "head_conflict",
        "A run wrote to the thread before its updates were applied: read its state and update that",
    )
}
