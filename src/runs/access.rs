//! Reading, patching, cancelling and deleting: what clients ask of threads and runs beyond
//! creating them.

use std::sync::Arc;

use super::{Error, Live, Run, Service, Status};
use crate::{
    id::{RunId, ThreadId},
    stream::Publisher,
    tree::{NewThread, Thread},
    value::{Map, Value},
};

impl Service {
    /// Whether the storage answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), Error> {
        let nobody = ThreadId(uuid::Uuid::nil());
        self.inner.parts.tree.thread(nobody).await?;
        Ok(())
    }

    /// Creates a thread.
    ///
    /// # Errors
    /// The id is taken, or the storage failed.
    pub async fn new_thread(&self, new: NewThread) -> Result<Thread, Error> {
        let id = new.id;
        let created = self.inner.parts.tree.create_thread(new).await?;
        created.ok_or(Error::ThreadExists(id))
    }

    /// Merges metadata into a thread's.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn patch(&self, id: ThreadId, metadata: Map) -> Result<Thread, Error> {
        let patched = self.inner.parts.tree.patch_thread(id, metadata).await?;
        patched.ok_or(Error::NoThread(id))
    }

    /// Deletes a thread. What runs on it is stopped and writes nothing more.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn delete(&self, id: ThreadId) -> Result<(), Error> {
        if !self.inner.parts.tree.delete_thread(id).await? {
            return Err(Error::NoThread(id));
        }
        for live in self.of_thread(id) {
            live.cancel.cancel();
            self.forget_waiting(live.publisher.run());
        }
        Ok(())
    }

    fn of_thread(&self, id: ThreadId) -> Vec<Live> {
        let active = self.inner.active.lock();
        let waiting = active.waiting.values().map(|held| &held.live);
        active
            .running
            .values()
            .chain(waiting)
            .filter(|live| live.publisher.thread() == id)
            .cloned()
            .collect()
    }

    /// One run.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn find_run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        Ok(self.inner.parts.runs.run(thread, run).await?)
    }

    /// Runs of a thread, newest first.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn list_runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error> {
        self.thread(thread).await?;
        let runs = &self.inner.parts.runs;
        Ok(runs.runs(thread, status, limit, offset).await?)
    }

    /// Cancels a run: its row is final when this returns. False when it was final before.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn cancel(&self, thread: ThreadId, run: RunId) -> Result<bool, Error> {
        let ended = self.inner.parts.runs.cancel(thread, Some(run)).await?;
        if ended.is_empty() {
            return Ok(false);
        }
        if let Some(live) = self.live(run) {
            live.cancel.cancel();
        }
        self.forget_waiting(run);
        self.inner.wake.notify_one();
        Ok(true)
    }

    /// A run that waits or runs in this process.
    pub fn live(&self, run: RunId) -> Option<Live> {
        self.inner.active.lock().get(run)
    }

    /// The stream of a run of this process, also for a while after its end.
    pub fn stream(&self, run: RunId) -> Option<Arc<Publisher>> {
        self.inner.hub.get(run)
    }

    /// Values and open questions of a thread, see [`shown`](Self::shown).
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn shown_of(&self, thread: ThreadId) -> Result<(Value, Map), Error> {
        let row = self.thread(thread).await?;
        self.shown(&row).await
    }
}
