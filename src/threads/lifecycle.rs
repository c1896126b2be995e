//! The life of threads: created, patched, copied, pruned and deleted.

use super::{
    Error, Service,
    request::{Create, Prune, View},
};
use crate::{
    id::{EventId, ThreadId},
    tree::{
        self, Copied, ErrorKind, NewCopy, NewThread, event, fork, resolve,
        store::rows::{NewEvent, ThreadRow},
    },
    value::Map,
};

/// Most root checkpoints of a thread that can be copied.
const COPY_MAX: usize = 5000;

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
    pub async fn create(&self, create: Create) -> Result<View, Error> {
        let id = create.id.unwrap_or_else(ThreadId::mint);
        let new = NewThread {
            id,
            metadata: create.metadata,
            owner: create.principal.to_string(),
            if_exists: create.if_exists,
        };
        let Some(created) = self.shared.parts.tree.create_thread(new).await? else {
            return Err(self.taken(id).await);
        };
        if create.supersteps.is_empty() {
            return self.view(created).await;
        }
        match self.apply_supersteps(&created, create.supersteps).await {
            Ok(()) => self.get(id).await,
            Err(Error::Engine(error)) => Err(Error::Engine(error)),
            Err(error) => Err(Error::CreatedWithoutUpdates(id, Box::new(error))),
        }
    }

    /// Creates a thread, and returns its newest event.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_with_event(&self, create: Create) -> Result<CreatedThread, Error> {
        let id = self.create(create).await?.row.id;
        let mut reader = self.shared.parts.tree.reader().await?;
        let event_number = resolve::thread(&mut *reader, id).await?.last_event_number;
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
    pub async fn get(&self, id: ThreadId) -> Result<View, Error> {
        let row = self.row(id).await?;
        self.view(row).await
    }

    /// Merges metadata into a thread's.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn patch(&self, id: ThreadId, metadata: Map) -> Result<View, Error> {
        let patched = self.shared.parts.tree.patch_thread(id, metadata).await?;
        self.view(patched.ok_or(Error::NoThread(id))?).await
    }

    /// Deletes a thread. What runs on it is cancelled and writes nothing more.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn delete(&self, id: ThreadId) -> Result<(), Error> {
        if !self.shared.parts.tree.delete_thread(id).await? {
            return Err(Error::NoThread(id));
        }
        self.runs.cancel_thread(id);
        Ok(())
    }

    /// Deletes threads, or all but their latest checkpoint; returns how many. Unknown ids are
    /// skipped.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn prune(&self, ids: Vec<ThreadId>, how: Prune) -> Result<u64, Error> {
        let mut pruned = 0;
        for id in ids {
            let found = match how {
                Prune::KeepLatest => self.shared.parts.tree.prune_thread(id).await?.is_some(),
                Prune::Delete => match self.delete(id).await {
                    Err(Error::NoThread(_)) => false,
                    deleted => deleted.map(|()| true)?,
                },
            };
            pruned += u64::from(found);
        }
        Ok(pruned)
    }

    /// Copies a thread with its history to one that `owner` owns, without lineage.
    ///
    /// # Errors
    /// No such thread; 413 for one with too long a history; or the storage failed.
    pub async fn copy(&self, id: ThreadId, owner: &str) -> Result<View, Error> {
        let copy = NewCopy {
            id: ThreadId::mint(),
            owner: owner.to_owned(),
            limit: COPY_MAX,
            events: vec![NewEvent {
                kind: event::THREAD_CREATED,
                ..NewEvent::default()
            }],
        };
        match self.shared.parts.tree.copy_thread(id, copy).await? {
            Copied::Done(thread) => self.view(*thread).await,
            Copied::Missing => Err(Error::NoThread(id)),
            Copied::Taken => Err(Error::ThreadExists(id)),
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
    pub async fn delete_family(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        let gone = self.shared.parts.tree.delete_tree(id).await?;
        if gone.is_empty() {
            return Err(Error::NoThread(id));
        }
        for thread in &gone {
            self.runs.cancel_thread(*thread);
        }
        Ok(gone)
    }

    /// Threads of the same tree that are not deleted, itself too, oldest first.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn living_relatives(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let thread = resolve::thread(&mut *reader, id).await?;
        let all = reader.relatives(thread.tree).await?;
        let lives = |row: &&ThreadRow| row.deleted_at.is_none();
        Ok(all.iter().filter(lives).map(|row| row.id).collect())
    }

    /// Why a new thread cannot have an id.
    async fn taken(&self, id: ThreadId) -> Error {
        let mut reader = match self.shared.parts.tree.reader().await {
            Ok(reader) => reader,
            Err(error) => return error.into(),
        };
        match reader.thread_row(id).await {
            Ok(Some(row)) if row.deleted_at.is_some() => fork::deleted(id).into(),
            Ok(_) => Error::ThreadExists(id),
            Err(error) => error.into(),
        }
    }
}
