//! Cancelling and deleting runs, and ending in this process what was ended in the storage.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Error, Run, RunHandle, RunResult, RunsOfPrincipal, Service, Status, Strategy, Tx, Undo,
    request::{self, CancelAction, Target},
};
use crate::{
    checkpoint, fail_point,
    id::{RunId, ThreadId, TreeId},
    tree::{members::Access, store::rows::ThreadRow},
};

pub mod many;

/// How long a run that is cancelled, or about to be interrupted by another one, may take to store its work.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long another process may take at most to learn that a run of its is to be cancelled.
const LEARNS: Duration = Duration::from_secs(5);
/// How often the row of a run is read that another process was to cancel.
const POLL: Duration = Duration::from_millis(100);

/// What is expected of another process that executes a run which is to end.
#[derive(Clone, Copy)]
enum Elsewhere {
    /// It has this long to store the run's work and to end it. Then the run is fenced off.
    Within(Duration),
    /// It is asked to do that, and whoever asks waits for it later.
    Requested,
    /// Nothing: the run is fenced off at once.
    Nothing,
}

/// Why a run was cancelled by request: LangGraph's server names the path without ids.
fn requested(action: CancelAction) -> String {
    let action = action.as_str();
    format!("{action} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel")
}

/// Why a run ends whose principal has not the level any more: the class and the sentence.
pub(super) const PERMISSION_DENIED: [&str; 2] = [
    "permission_denied",
    "the principal of this run may no longer write to its thread",
];

/// Ends the runs of a tree that are executed on behalf of a principal who may no longer write to it.
/// The transaction is that of the change of rights, before it: nothing that the runs commit after it
/// counts.
/// Those that wait are refused when they are claimed. Returns the ended ones, and where others wait.
///
/// # Errors
/// The storage failed.
pub async fn end_runs_of(
    tx: &mut dyn Tx,
    tree: TreeId,
    principal: &Arc<str>,
) -> Result<RunsOfPrincipal, checkpoint::Error> {
    let [class, message] = PERMISSION_DENIED;
    let found = tx.executed_for(tree, principal.clone()).await?;
    for (thread, run) in &found.executed {
        let reason = Undo::reason(class, message);
        tx.end_run(*thread, *run, reason).await?;
    }
    Ok(found)
}

/// Deletes the thread of an open run that goes with it, as the end of the run would have.
async fn delete_temporary(tx: &mut dyn Tx, run: Option<&Run>) -> Result<(), checkpoint::Error> {
    if let Some(run) = run.filter(|run| run.temporary)
        && let Some(row) = tx.thread_row(run.thread).await?
    {
        tx.delete_thread(row.tree, run.thread).await?;
    }
    Ok(())
}

impl Service {
    /// Cancels a run by request; its row is final, or gone, when this returns. With `wait` there is
    /// its result, whichever process executed it.
    ///
    /// # Errors
    /// There is no such run, or it had ended; the client may not; the storage failed.
    pub async fn cancel_requested(
        &self,
        access: &Access,
        run: Target,
        action: CancelAction,
        wait: bool,
    ) -> Result<Option<RunResult>, Error> {
        let handle = self.handle(run);
        let is_here = self.inner.active.lock().running().contains_key(&run.run);
        let reason = requested(action);
        let cancelled = self.cancel_run(access, run, action, &reason);
        if !cancelled.await? {
            let known = self.find_row(run.thread, run.run).await?.is_some();
            return Err(Error::NothingToCancel { known });
        }
        if !wait {
            return Ok(None);
        }
        let ended = match handle {
            Some(handle) => handle.ended().await,
            None => None,
        };
        let result = match action {
            // Nothing is left of a run that was rolled back.
            CancelAction::Rollback => None,
            CancelAction::Interrupt if is_here => ended.map(|result| (*result).clone()),
            // Of a run that another process executed its row and its thread tell. One that never began
            // has left nothing.
            CancelAction::Interrupt => match self.find_row(run.thread, run.run).await? {
                Some(row) if row.attempt > 0 => Some(self.result_of_row(&row).await),
                _ => None,
            },
        };
        Ok(Some(
            result.unwrap_or_else(|| RunResult::empty(Status::Interrupted)),
        ))
    }

    /// Cancels a run: its row is final, or gone, when this returns. False when it was final
    /// before.
    ///
    /// # Errors
    /// The client may not, or the storage failed.
    pub async fn cancel_run(
        &self,
        access: &Access,
        target: Target,
        action: CancelAction,
        reason: &str,
    ) -> Result<bool, Error> {
        let elsewhere = Elsewhere::Within(self.patience());
        let ended = self.end_run(access, target, action, reason, elsewhere);
        Ok(ended.await?.unwrap_or_default())
    }

    /// How long another process may take at most to end a run that is to be cancelled.
    fn patience(&self) -> Duration {
        self.inner.options.poll.min(LEARNS) + GRACE
    }

    /// [`cancel_run`](Self::cancel_run), by what is expected of another process if that executes the run. `None` when it
    /// was only asked.
    async fn end_run(
        &self,
        access: &Access,
        target: Target,
        action: CancelAction,
        reason: &str,
        elsewhere: Elsewhere,
    ) -> Result<Option<bool>, Error> {
        let Target { thread, run } = target;
        let Some(mut tx) = self.begin_as(access, thread).await? else {
            return Ok(Some(false));
        };
        let runs = &self.shared.parts.runs;
        let row = runs.run_without_request(thread, run).await?;
        let handle = self.inner.active.lock().running().get(&run).cloned();
        let handle = handle.filter(|handle| handle.publisher.thread() == thread);
        let executed = handle.clone();
        let has_written;
        let ended = match action {
            CancelAction::Interrupt => {
                let error = Undo::reason("UserInterrupt", reason);
                // What the run has streamed by now is stored first; a fence would cut it off.
                let is_executed = row
                    .as_ref()
                    .is_some_and(|row| row.status == Status::Running);
                let expects = !matches!(elsewhere, Elsewhere::Nothing);
                if handle.is_some() || is_executed && expects {
                    // It is asked to stop while the client has the level. The end of the run may take the
                    // lock that the transaction has, so it is waited for without that.
                    fail_point!(async "runs.cancel");
                    let has_ended = if let Some(handle) = handle {
                        handle.request_cancel(error.clone());
                        drop(tx);
                        handle.wait_cancelled(GRACE).await
                    } else {
                        let is_requested = tx.request_cancel(run, error.clone()).await?;
                        tx.commit().await?;
                        if is_requested {
                            self.shared.hints.publish(thread);
                        }
                        match elsewhere {
                            Elsewhere::Requested if is_requested => return Ok(None),
                            Elsewhere::Within(limit) if is_requested => {
                                self.wait_cancelled(target, limit).await?
                            }
                            _ => false,
                        }
                    };
                    if has_ended {
                        self.cancel(thread, &[run]);
                        return Ok(Some(true));
                    }
                    let Some(second) = self.begin_as(access, thread).await? else {
                        return Ok(Some(false));
                    };
                    tx = second;
                }
                let was_open = row.as_ref().is_some_and(|row| !row.status.is_final());
                let ended = tx.end_run(thread, run, error).await?;
                delete_temporary(&mut *tx, row.as_ref().filter(|_| ended)).await?;
                tx.commit().await?;
                has_written = ended;
                // It may have stopped by itself in this moment.
                ended
                    || was_open
                        && matches!(runs.run_without_request(thread, run).await?,
                            Some(row) if row.status == Status::Interrupted)
            }
            CancelAction::Rollback => {
                let undo = Undo {
                    thread,
                    run,
                    ended: false,
                    error: Some(Undo::reason("UserRollback", reason)),
                };
                let ended = tx.remove_run(undo).await?.is_some();
                delete_temporary(&mut *tx, row.as_ref().filter(|_| ended)).await?;
                tx.commit().await?;
                has_written = ended;
                ended
            }
        };
        if has_written && executed.is_none_or(|handle| handle.mark_counted()) {
            self.inner.metrics.count_end(Status::Interrupted.as_str());
        }
        if ended {
            self.cancel(thread, &[run]);
            self.shared.hints.publish(thread);
        }
        Ok(Some(ended))
    }

    /// Ends a run that another process was asked to end: that has so long to do it, and then it is fenced off.
    async fn end_requested(
        &self,
        access: &Access,
        target: Target,
        action: CancelAction,
        limit: Duration,
    ) -> Result<bool, Error> {
        let mut ended = self.wait_cancelled(target, limit).await?;
        if !ended {
            let reason = requested(action);
            let fenced = self.end_run(access, target, action, &reason, Elsewhere::Nothing);
            // It may have ended in this moment.
            ended = fenced.await?.unwrap_or_default()
                || self.wait_cancelled(target, Duration::ZERO).await?;
        }
        if ended {
            self.cancel(target.thread, &[target.run]);
        }
        Ok(ended)
    }

    /// Waits until the row of a run says that it was cancelled, or a temporary one is gone; false when
    /// that takes longer than `limit`, or it ended in another way.
    async fn wait_cancelled(&self, run: Target, limit: Duration) -> Result<bool, Error> {
        let end = Instant::now() + limit;
        loop {
            match self.find_row(run.thread, run.run).await? {
                Some(row) if row.status.is_final() => {
                    return Ok(row.status == Status::Interrupted);
                }
                Some(_) if Instant::now() < end => tokio::time::sleep(POLL).await,
                Some(_) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// Deletes a run, ending it first, with the checkpoints nobody else needs.
    ///
    /// # Errors
    /// No such run, or the client may not; or the storage failed.
    pub async fn delete(
        &self,
        access: &Access,
        Target { thread, run }: Target,
    ) -> Result<(), Error> {
        let undo = Undo {
            thread,
            run,
            ended: true,
            error: None,
        };
        let Some(mut tx) = self.begin_as(access, thread).await? else {
            return Err(Error::NoRun(run));
        };
        let row = self.shared.parts.runs.run_without_request(thread, run);
        let row = row.await?;
        let Some(status) = tx.remove_run(undo).await? else {
            return Err(Error::NoRun(run));
        };
        // Where another run took its place the thread has outlived it.
        delete_temporary(&mut *tx, row.as_ref().filter(|_| !status.is_final())).await?;
        tx.commit().await?;
        self.abandon(thread, run);
        Ok(())
    }

    /// A transaction on the tree of a thread, in which the client has the level; `None` without
    /// such a thread.
    ///
    /// # Errors
    /// The thread is none of the client's, or 403 below the level; or the storage failed.
    async fn begin_as(
        &self,
        access: &Access,
        thread: ThreadId,
    ) -> Result<Option<Box<dyn Tx>>, Error> {
        self.authorize(access, thread).await?;
        let lives = |row: &ThreadRow| row.deleted_at.is_none();
        let mut reader = self.shared.parts.tree.reader().await?;
        let Some(row) = reader.thread_row(thread).await?.filter(lives) else {
            return Ok(None);
        };
        drop(reader);
        let mut tx = self.shared.parts.runs.begin(row.tree).await?;
        let now = tx.thread_row(thread).await?.filter(lives);
        let Some(now) = now.filter(|now| now.tree == row.tree) else {
            return Ok(None);
        };
        if let Some(principal) = access.principal() {
            let level = tx.level(now.tree, principal.clone()).await?;
            access.check(thread, level)?;
        }
        Ok(Some(tx))
    }

    /// Cancels in this process runs of a thread that were ended in the storage.
    pub fn cancel(&self, thread: ThreadId, runs: &[RunId]) {
        for run in runs {
            let handle = self.inner.active.lock().get(*run);
            if let Some(handle) = handle {
                handle.cancel.cancel();
            }
            self.end_pending(*run);
        }
        if !runs.is_empty() {
            self.wake_thread(thread);
        }
    }

    /// Cancels in this process what runs on a thread that is gone.
    pub fn cancel_thread(&self, thread: ThreadId) {
        let handles = self.inner.active.lock().of_thread(thread);
        for handle in handles {
            handle.abandon();
            self.end_as(handle.publisher.run(), RunResult::not_found());
        }
    }

    /// Cancels in this process a run that is gone.
    fn abandon(&self, thread: ThreadId, run: RunId) {
        let handle = self.inner.active.lock().get(run);
        if let Some(handle) = handle {
            handle.abandon();
        }
        self.end_as(run, RunResult::not_found());
        self.wake_thread(thread);
    }

    /// Cancels in this process the runs that a new one has superseded in the storage, by its
    /// strategy `interrupt` or `rollback`.
    pub(super) async fn cancel_superseded(&self, request: &request::Run, run: &Run) {
        if !matches!(
            request.multitask_strategy,
            Strategy::Interrupt | Strategy::Rollback
        ) {
            return;
        }
        let mut others: Vec<RunHandle> = self.inner.active.lock().of_thread(run.thread);
        others.retain(|handle| handle.publisher.run() != run.id);
        for other in others {
            // Runs of other branches continue.
            let id = other.publisher.run();
            // Who stops by itself or is cancelled has a reason in its row, or another status.
            let (ended, by_the_new_run) = match self.find_row(run.thread, id).await {
                Ok(Some(row)) => {
                    let is_superseded = row.status == Status::Interrupted && row.error.is_none();
                    (row.status.is_final(), is_superseded)
                }
                Ok(None) => {
                    let is_gone = !self.inner.active.lock().is_being_created(id);
                    let rolls_back = request.multitask_strategy == Strategy::Rollback;
                    (is_gone, is_gone && rolls_back)
                }
                Err(_) => (false, false),
            };
            if by_the_new_run && other.mark_counted() {
                self.inner.metrics.count_end(Status::Interrupted.as_str());
            }
            if ended {
                other.cancel.cancel();
                self.end_pending(id);
            }
        }
    }

    /// Waits until the ends of runs that were cancelled are shown, so that who watches the thread sees them before what
    /// comes then; at the most as long as what a run has done is waited for.
    pub(super) async fn show_ends_of(&self, cancelled: Vec<RunHandle>) {
        let ends = cancelled.into_iter().map(|handle| async move {
            let publisher = handle.publisher.clone();
            handle.ended().await;
            self.flush_log(&publisher).await;
        });
        let _ = tokio::time::timeout(GRACE, futures::future::join_all(ends)).await;
    }

    /// Ends the stream of a run that was cancelled before it started.
    pub(super) fn end_pending(&self, run: RunId) {
        self.end_as(run, RunResult::empty(Status::Interrupted));
    }

    /// Ends the stream of a run that waits here, with this result.
    pub(super) fn end_as(&self, run: RunId, result: RunResult) {
        let pending = self.inner.active.lock().pending.remove(&run);
        let Some(pending) = pending else {
            return;
        };
        if pending.handle.publisher.is_logged() {
            // Its readers read the log.
            self.publish_result(pending, result);
        } else {
            self.publish_left(pending, result);
        }
    }
}
