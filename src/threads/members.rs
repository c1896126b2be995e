//! Members of threads: the level that each principal has.

use std::sync::Arc;

use super::{Result, Service};
use crate::{
    id::ThreadId,
    runs::{RunsOfPrincipal, Tx, cancel::end_runs_of},
    tree::{
        self, ErrorKind,
        members::{self, Granted, Level, Member},
        store::rows::ThreadRow,
    },
};

impl Service {
    /// All members of a thread.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn members(&self, thread: ThreadId) -> Result<Vec<Member>> {
        let (mut reader, row) = self.reader(thread).await?;
        Ok(reader.members(row.tree).await?.all())
    }

    /// Grants a principal a level on the tree of a thread, up to that of the client. Returns the number
    /// of the thread's last event too.
    ///
    /// # Errors
    /// No such thread; 403 beyond the level of the caller; 409 `last_owner`; or the storage
    /// failed.
    pub async fn grant(
        &self,
        thread: ThreadId,
        principal: &Arc<str>,
        level: Level,
    ) -> Result<(Granted, i64)> {
        let (mut tx, row) = self.begin_change(thread).await?;
        let by = self.access.check_in(&mut *tx, &row).await?;
        let refused = end_refused(&mut *tx, &row, principal, Some(level)).await?;
        let granted = members::grant(&mut *tx, row.tree, principal, level, by).await;
        let granted = self.log_refusal(thread, granted)?;
        let change = (principal, Some(level));
        self.end_change(tx, &row, change, &refused).await?;
        Ok((granted, row.last_event_number))
    }

    /// Revokes the level of a principal.
    ///
    /// # Errors
    /// As [`grant`](Self::grant); 404 `member_not_found` for a principal without a level.
    pub async fn revoke(&self, thread: ThreadId, principal: &Arc<str>) -> Result<()> {
        let (mut tx, row) = self.begin_change(thread).await?;
        let by = self.access.check_in(&mut *tx, &row).await?;
        let refused = end_refused(&mut *tx, &row, principal, None).await?;
        let revoked = members::revoke(&mut *tx, row.tree, principal, by).await;
        self.log_refusal(thread, revoked)?;
        self.end_change(tx, &row, (principal, None), &refused).await
    }

    /// The same result; that a level is above the client's own is logged like other refusals.
    fn log_refusal<T>(
        &self,
        thread: ThreadId,
        result: std::result::Result<T, tree::Error>,
    ) -> std::result::Result<T, tree::Error> {
        if let Err(tree::Error::Refused {
            kind: ErrorKind::Forbidden,
            ..
        }) = &result
        {
            tracing::info!(
                principal = self.access.principal().map(|name| &**name),
                request_id = self.access.request(),
                %thread,
                "access was refused: the level is above the principal's own"
            );
        }
        result
    }

    /// [`begin`](Self::begin) with runs: those of a principal who loses the right to write end with it.
    async fn begin_change(&self, id: ThreadId) -> Result<(Box<dyn Tx>, ThreadRow)> {
        let tree = self.tree_of(id).await?;
        let mut tx = self.shared.parts.runs.begin(tree).await?;
        let thread = self.checked(&mut *tx, tree, id).await?;
        Ok((tx, thread))
    }

    async fn end_change(
        &self,
        tx: Box<dyn Tx>,
        row: &ThreadRow,
        (member, level): (&Arc<str>, Option<Level>),
        refused: &RunsOfPrincipal,
    ) -> Result<()> {
        tx.commit().await?;
        let thread = row.id;
        let by = self
            .access
            .principal()
            .map_or("local", |principal| &**principal);
        for (thread, run) in &refused.executed {
            self.shared.notifier.notify(*thread);
            self.runs.cancel(*thread, &[*run]);
            tracing::info!(%run, %thread, principal = %member, "access was withdrawn from a run");
        }
        tracing::info!(
            principal = by,
            request_id = self.access.request(),
            %thread,
            member = %member,
            level = level.map_or("none", Level::as_str),
            "access was changed"
        );
        self.shared.withdrawals.notify();
        if level < Some(Level::Writer) {
            // Runs that wait are refused at once.
            for thread in refused.waiting.iter().chain([&thread]) {
                self.runs.wake_thread(*thread);
            }
        }
        Ok(())
    }
}

/// Ends the runs of a member whose level is about to be one that does not write.
async fn end_refused(
    tx: &mut dyn Tx,
    row: &ThreadRow,
    member: &Arc<str>,
    level: Option<Level>,
) -> Result<RunsOfPrincipal> {
    if level < Some(Level::Writer) {
        return Ok(end_runs_of(tx, row.tree, member).await?);
    }
    Ok(RunsOfPrincipal::default())
}
