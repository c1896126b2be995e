//! Cancelling several runs by one request.

use tokio::time::Instant;

use super::{Elsewhere, requested};
use crate::{
    abandon,
    runs::{
        Error, OpenPage, Service, Status,
        request::{Cancel, CancelAction, CancelStatus, Target},
    },
    tree::members::Access,
};

/// Most runs that one request cancels.
pub const RUNS: usize = 1000;
/// How many of the open runs are read at once.
const PAGE: usize = 100;

/// What became of the runs of a request.
#[derive(Default)]
struct Sum {
    /// One of them exists, or did a moment ago.
    known: bool,
    /// So many were ended.
    ended: usize,
    /// Runs that other processes were asked to end.
    requested: Vec<Target>,
    /// There are more than one request cancels.
    more: bool,
    /// What first went wrong with one of them.
    error: Option<Error>,
    /// The client waits no more, or the storage is not there: the rest stays as it is.
    stops: bool,
}

impl Sum {
    /// Notes what went wrong with a run, unless its thread was deleted or taken from the client meanwhile.
    fn failed(&mut self, error: Error) {
        if !matches!(error, Error::NoThread(_)) {
            self.stops = matches!(error, Error::Storage(_));
            self.error.get_or_insert(error);
        }
    }
}

impl Service {
    /// Cancels several runs by request. Of all threads only those count that the client may write
    /// to. Who leaves cancels no more of them.
    ///
    /// # Errors
    /// There was none to cancel, or the client may not write to the thread that is named; one of them
    /// could not be cancelled, though the others were; there were more than one request cancels; or
    /// the storage failed.
    pub async fn cancel_all_requested(
        &self,
        access: &Access,
        which: Cancel,
        action: CancelAction,
    ) -> Result<(), Error> {
        let mut sum = Sum::default();
        match which {
            Cancel::Status(status) => {
                let cancelled = self.cancel_open(access, status, action, &mut sum).await;
                // Those that other processes were asked to end are waited for all the same.
                if let Err(error) = cancelled {
                    sum.error.get_or_insert(error);
                }
            }
            Cancel::Runs(thread, runs) => {
                self.authorize(access, thread).await?;
                // What has ended takes no transaction.
                let mut found = self.shared.parts.runs.is_open(thread, runs).await?;
                sum.known = !found.is_empty();
                // The newest first: one that waits does not begin when the one before it ends.
                found.sort_unstable_by_key(|(run, _)| std::cmp::Reverse(run.0));
                for (run, is_open) in found {
                    if is_open && !sum.stops {
                        let target = Target { thread, run };
                        self.cancel_one(access, target, action, &mut sum).await;
                    }
                }
            }
        }
        self.end_all_requested(access, action, &mut sum).await;
        match sum {
            Sum {
                error: Some(error), ..
            } => Err(error),
            Sum {
                more: true, ended, ..
            } => Err(Error::MoreToCancel(ended)),
            Sum {
                ended: 0, known, ..
            } => Err(Error::NothingToCancel { known }),
            Sum { .. } => Ok(()),
        }
    }

    /// Cancels the open runs of every thread that the client may write to, oldest first. Those that
    /// wait go before those that are executed, at whose end they would begin.
    async fn cancel_open(
        &self,
        access: &Access,
        status: CancelStatus,
        action: CancelAction,
        sum: &mut Sum,
    ) -> Result<(), Error> {
        let statuses = match status {
            CancelStatus::Pending => &[Status::Pending][..],
            CancelStatus::Running => &[Status::Running],
            CancelStatus::All => &[Status::Pending, Status::Running],
        };
        let mut pages = RUNS / PAGE;
        for status in statuses {
            let mut page = OpenPage {
                status: Some(*status),
                writer: access.principal().cloned(),
                after: None,
                limit: PAGE,
            };
            loop {
                if pages == 0 {
                    page.limit = 1;
                    if !self.shared.parts.runs.open(page).await?.is_empty() {
                        sum.more = true;
                    }
                    break;
                }
                pages -= 1;
                let open = self.shared.parts.runs.open(page.clone()).await?;
                let is_last = open.len() < PAGE;
                for open in open {
                    if sum.stops {
                        return Ok(());
                    }
                    page.after = Some(open.seq);
                    sum.known = true;
                    let target = Target {
                        thread: open.thread,
                        run: open.run,
                    };
                    self.cancel_one(access, target, action, sum).await;
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn cancel_one(
        &self,
        access: &Access,
        target: Target,
        action: CancelAction,
        sum: &mut Sum,
    ) {
        if abandon::is_client_gone() {
            sum.stops = true;
            return;
        }
        let reason = requested(action);
        let ended = self.end_run(access, target, action, &reason, Elsewhere::Requested);
        match ended.await {
            Ok(Some(ended)) => sum.ended += usize::from(ended),
            Ok(None) => sum.requested.push(target),
            Err(error) => sum.failed(error),
        }
    }

    /// Waits for the runs that other processes were asked to end: for all of them as long as for one. Those that are
    /// not cancelled then are fenced off.
    async fn end_all_requested(&self, access: &Access, action: CancelAction, sum: &mut Sum) {
        let until = Instant::now() + self.patience();
        for target in std::mem::take(&mut sum.requested) {
            if sum.stops || abandon::is_client_gone() {
                // Their processes end them all the same.
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.end_requested(access, target, action, left).await {
                Ok(ended) => sum.ended += usize::from(ended),
                Err(error) => sum.failed(error),
            }
        }
    }
}
