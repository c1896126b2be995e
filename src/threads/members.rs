//! Members of threads: the level that each principal has.

use std::sync::Arc;

use super::{Error, Service};
use crate::{
    id::ThreadId,
    tree::members::{self, Granted, Level, Member},
};

impl Service {
    /// All members of a thread.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn members(&self, thread: ThreadId) -> Result<Vec<Member>, Error> {
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
    ) -> Result<(Granted, i64), Error> {
        let (mut tx, row) = self.begin(thread).await?;
        let by = self.access.check_in(&mut *tx, &row).await?;
        let granted = members::grant(&mut *tx, row.tree, principal, level, by).await?;
        tx.commit().await?;
        self.changed(thread, principal, Some(level));
        Ok((granted, row.last_event_number))
    }

    /// Revokes the level of a principal.
    ///
    /// # Errors
    /// As [`grant`](Self::grant); 404 `member_not_found` for a principal without a level.
    pub async fn revoke(&self, thread: ThreadId, principal: &Arc<str>) -> Result<(), Error> {
        let (mut tx, row) = self.begin(thread).await?;
        let by = self.access.check_in(&mut *tx, &row).await?;
        members::revoke(&mut *tx, row.tree, principal, by).await?;
        tx.commit().await?;
        self.changed(thread, principal, None);
        Ok(())
    }

    fn changed(&self, thread: ThreadId, member: &Arc<str>, level: Option<Level>) {
        let by = self
            .access
            .principal()
            .map_or("local", |principal| &**principal);
        tracing::info!(
            principal = by,
            request_id = self.access.request(),
            %thread,
            member = %member,
            level = level.map_or("none", Level::as_str),
            "access was changed"
        );
        self.shared.withdrawals.notify();
    }
}
