//! The run of a cron that is due.

use super::Registration;
use crate::{
    crons::{CronRow, request::OnRunCompleted},
    id::{RunId, ThreadId},
    runs::{
        Created, Error, Fired, Firing, Service, refusal,
        request::{self, OnCompletion},
    },
    time::Timestamp,
};

/// Microseconds after the end of a cron in which the run of a time up to its end is still created:
/// those of its last minute.
const LATE: i64 = 60_000_000;

impl Service {
    /// Creates the run of a cron that is due, on behalf of its principal, and moves the cron on. A time
    /// whose run cannot be created is skipped. False when another process was first.
    ///
    /// # Errors
    /// The server drains or the storage failed: the cron is still due.
    pub(crate) async fn fire(
        &self,
        cron: &CronRow,
        now: Timestamp,
        request: Result<request::Run, String>,
    ) -> Result<bool, Error> {
        // Another process may have served it, or a client may have changed it, after it was found due and
        // before it was read: what is due next is not due yet.
        let Some(due) = cron.next_run.filter(|due| *due <= now) else {
            return Ok(false);
        };
        let mut firing = Firing {
            cron: cron.id,
            due,
            updated_at: cron.updated_at,
            now,
            next: cron.due_after(now.max(due)),
            run: None,
        };
        let run = RunId::of_cron(cron.id, due.0);
        let is_over = |end: Timestamp| now.0.saturating_sub(end.0) > LATE;
        let mut leads = vec![];
        let request = match request {
            // Nobody served its last times before its end.
            Ok(_) if cron.end_time.is_some_and(is_over) => Ok(None),
            Ok(_) if self.shared.parts.crons.is_orphan(cron) => Ok(None),
            Ok(request) => {
                let on = cron.thread.unwrap_or_else(|| ThreadId::of_run(run));
                let (access, strategy) = (&request.requester.access, request.multitask_strategy);
                leads = self.close_leads(access, on, strategy).await;
                let prepared = self.prepare_of_cron(cron, run, request, &mut firing);
                prepared.await.map(Some)
            }
            Err(reason) => Err(Error::Invalid(reason)),
        };
        let (request, registration) = match request {
            Ok(prepared) => prepared.unzip(),
            // It was created before its cron moved on.
            Err(Error::RunExists(_)) => (None, None),
            Err(error @ (Error::Draining | Error::Storage(_))) => return Err(error),
            Err(error) => {
                tracing::error!(cron = %cron.id, %due, %error, "a cron cannot create its run");
                (None, None)
            }
        };
        let fired = self.shared.parts.runs.fire(firing).await;
        drop(leads);
        match (fired, request, registration) {
            (
                Ok(Fired::Past(created @ (Created::Started(..) | Created::Queued(_)))),
                Some(request),
                Some(registration),
            ) => {
                self.inner.metrics.count_firing("created");
                self.launch(&request, registration, created).await?;
                Ok(true)
            }
            (fired, ..) => {
                let fired = fired?;
                log(cron, due, run, &fired);
                if let Some(result) = result_of(&fired) {
                    self.inner.metrics.count_firing(result);
                }
                Ok(!matches!(fired, Fired::Lost))
            }
        }
    }

    /// Prepares the run, and returns its request and what is here of it.
    async fn prepare_of_cron(
        &self,
        cron: &CronRow,
        run: RunId,
        mut request: request::Run,
        firing: &mut Firing,
    ) -> Result<(request::Run, Registration), Error> {
        request.cron = Some(cron.id);
        request.on_completion = match cron.on_run_completed {
            Some(OnRunCompleted::Keep) => OnCompletion::Keep,
            Some(OnRunCompleted::Delete) | None => OnCompletion::Delete,
        };
        let temporary = cron.thread.is_none() && request.on_completion == OnCompletion::Delete;
        let thread = cron.thread.unwrap_or_else(|| ThreadId::of_run(run));
        let (ids, resolved) = self.ids(run, thread, &mut request).await?;
        self.check_contents(&ids, &resolved, &request).await?;
        let mut prepared = self.build(&ids, &resolved, &request, temporary)?;
        prepared.new.create_thread = self.new_thread(&request, &ids, cron.thread, temporary);
        firing.run = Some(prepared.new);
        Ok((request, prepared.registration))
    }
}

/// Under which name a due time is counted that is past without a run of ours.
fn result_of(fired: &Fired) -> Option<&'static str> {
    match fired {
        // The process that was first counts it.
        Fired::Lost => None,
        Fired::Past(Created::Denied(_)) => Some("disabled"),
        Fired::Past(Created::NoThread) => Some("deleted"),
        Fired::Past(Created::Exists) => Some("created"),
        Fired::Past(_) | Fired::Skipped => Some("skipped"),
    }
}

/// Records why a due time is past without a run of ours.
fn log(cron: &CronRow, due: Timestamp, run: RunId, fired: &Fired) {
    let id = cron.id;
    match fired {
        Fired::Past(Created::Denied(_)) => {
            let principal = cron.principal.as_deref().unwrap_or_default();
            tracing::warn!(
                cron = %id, %due, principal,
                "a cron was disabled: its principal may not create runs on its thread any more"
            );
        }
        Fired::Past(Created::NoThread) => {
            tracing::warn!(cron = %id, %due, "a cron was deleted: its thread is gone");
        }
        Fired::Past(Created::Exists) => {
            tracing::info!(cron = %id, %due, %run, "the run of a cron was there already");
        }
        Fired::Past(created) => {
            let reason = refusal(run, created).map(|error| error.to_string());
            tracing::warn!(cron = %id, %due, reason, "a due time of a cron was skipped");
        }
        Fired::Skipped | Fired::Lost => {}
    }
}
