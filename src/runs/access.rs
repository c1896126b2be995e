//! Reading, patching, cancelling and deleting: what clients ask of threads and runs beyond
//! creating them.

use std::{sync::Arc, time::Duration};

use super::{
    Error, Live, Run, Service, Status, Undo,
    request::{CancelAction, CancelStatus},
};
use crate::{
    id::{RunId, ThreadId},
    stream::Publisher,
    tree::{NewThread, Thread},
    value::{Map, Value},
};

/// How long a run that is cancelled may store what it has done.
const PATIENCE: Duration = Duration::from_secs(2);

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
        match created {
            Some(created) => Ok(created),
            None => Err(self.taken(id).await),
        }
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
        self.stop_all(id);
        Ok(())
    }

    pub(super) fn of_thread(&self, id: ThreadId) -> Vec<Live> {
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

    /// Cancels a run: its row is final, or gone, when this returns. False when it was final
    /// before.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn cancel(
        &self,
        thread: ThreadId,
        run: RunId,
        action: CancelAction,
        why: &str,
    ) -> Result<bool, Error> {
        let runs = &self.inner.parts.runs;
        let row = runs.run(thread, run).await?;
        let ended = match action {
            CancelAction::Interrupt => {
                let error = Undo::reason("UserInterrupt", why);
                // What the run has streamed by now is stored first; a fence would cut it off.
                let running = self.inner.active.lock().running.get(&run).cloned();
                if let Some(live) = running
                    && live.publisher.thread() == thread
                    && live.stopped(error.clone(), PATIENCE).await
                {
                    return Ok(true);
                }
                let patient = row.as_ref().is_some_and(|row| !row.status.is_final());
                let ended = runs.cancel(thread, Some(run), Some(error)).await?;
                // It may have stopped by itself in this moment.
                !ended.is_empty()
                    || patient
                        && matches!(runs.run(thread, run).await?,
                            Some(row) if row.status == Status::Interrupted)
            }
            CancelAction::Rollback => {
                let what = Undo {
                    thread,
                    run,
                    ended: false,
                    error: Some(Undo::reason("UserRollback", why)),
                };
                runs.remove(what).await?
            }
        };
        if ended {
            self.stop(&[run]);
            if row.is_some_and(|row| row.temporary) {
                // Its end would have deleted the thread.
                self.inner.parts.tree.delete_thread(thread).await?;
            }
        }
        Ok(ended)
    }

    /// Deletes a run, ending it first, with the checkpoints nobody else needs.
    ///
    /// # Errors
    /// No such run, or the storage failed.
    pub async fn delete_run(&self, thread: ThreadId, run: RunId) -> Result<(), Error> {
        let what = Undo {
            thread,
            run,
            ended: true,
            error: None,
        };
        if !self.inner.parts.runs.remove(what).await? {
            return Err(Error::NoRun(run));
        }
        self.stop(&[run]);
        Ok(())
    }

    /// Open runs of every thread, oldest first.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn open_runs(&self, status: CancelStatus) -> Result<Vec<(ThreadId, RunId)>, Error> {
        let status = match status {
            CancelStatus::Pending => Some(Status::Pending),
            CancelStatus::Running => Some(Status::Running),
            CancelStatus::All => None,
        };
        Ok(self.inner.parts.runs.open(status).await?)
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
