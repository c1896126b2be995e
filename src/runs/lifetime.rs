//! The life of threads beyond their runs: copied, pruned, deleted with their relatives.

use std::sync::Arc;

use super::{Error, Service};
use crate::{
    id::ThreadId,
    tree::{
        self, Copied, ErrorKind, NewCopy, Thread, event, fork, resolve,
        store::rows::{NewEvent, ThreadRow},
    },
};

/// Most root checkpoints of a thread that can be copied.
const COPY_MAX: usize = 5000;

impl Service {
    /// Copies a thread with its history to one that `owner` owns, without lineage.
    ///
    /// # Errors
    /// No such thread; 413 for one with too long a history; or the storage failed.
    pub async fn copy_thread(&self, id: ThreadId, owner: &str) -> Result<Thread, Error> {
        let copy = NewCopy {
            id: ThreadId::mint(),
            owner: owner.to_owned(),
            limit: COPY_MAX,
            events: vec![NewEvent {
                kind: event::THREAD_CREATED,
                ..NewEvent::default()
            }],
        };
        match self.inner.parts.tree.copy_thread(id, copy).await? {
            Copied::Done(thread) => Ok(*thread),
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

    /// Removes the checkpoints of a thread that nobody stands on; false when there is none.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn prune_thread(&self, id: ThreadId) -> Result<bool, Error> {
        Ok(self.inner.parts.tree.prune_thread(id).await?.is_some())
    }

    /// Deletes a thread with all its relatives; answers those that lived. What runs on them is
    /// stopped and writes nothing more.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn delete_family(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        let gone = self.inner.parts.tree.delete_tree(id).await?;
        if gone.is_empty() {
            return Err(Error::NoThread(id));
        }
        for thread in &gone {
            self.stop_all(*thread);
        }
        Ok(gone)
    }

    /// Threads of the same tree that are not deleted, itself too, oldest first.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn living_relatives(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let thread = resolve::thread(&mut *reader, id).await?;
        let all = reader.relatives(thread.tree).await?;
        let lives = |row: &&ThreadRow| row.deleted_at.is_none();
        Ok(all.iter().filter(lives).map(|row| row.id).collect())
    }

    /// Why an id cannot be given to a new thread.
    pub(super) async fn taken(&self, id: ThreadId) -> Error {
        let mut reader = match self.inner.parts.tree.reader().await {
            Ok(reader) => reader,
            Err(error) => return error.into(),
        };
        match reader.thread_row(id).await {
            Ok(Some(row)) if row.deleted_at.is_some() => fork::deleted(id).into(),
            Ok(_) => Error::ThreadExists(id),
            Err(error) => error.into(),
        }
    }

    /// Stops what this process does for a thread that is gone.
    pub(super) fn stop_all(&self, thread: ThreadId) {
        for live in self.of_thread(thread) {
            live.cancel.cancel();
            self.forget_waiting(live.publisher.run());
        }
    }

    /// Open runs of every thread that somebody may cancel, oldest first; all without `principal`.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn cancellable(
        &self,
        status: super::request::CancelStatus,
        principal: Option<Arc<str>>,
    ) -> Result<Vec<(ThreadId, crate::id::RunId)>, Error> {
        let open = self.open_runs(status).await?;
        let Some(principal) = principal else {
            return Ok(open);
        };
        let mut own = vec![];
        for (thread, run) in open {
            let level = self.level(thread, principal.clone()).await?;
            if level >= Some(tree::members::Level::Writer) {
                own.push((thread, run));
            }
        }
        Ok(own)
    }
}
