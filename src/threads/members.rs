//! Members of threads: the level that each principal has.

use std::sync::Arc;

use super::{Error, Service};
use crate::{
    id::ThreadId,
    tree::{
        members::{self, Granted, Level, Member},
        resolve,
    },
};

impl Service {
    /// The level of a principal on a thread; `None` also without such a thread.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn level(
        &self,
        thread: ThreadId,
        principal: Arc<str>,
    ) -> Result<Option<Level>, Error> {
        Ok(self.shared.parts.tree.level(thread, principal).await?)
    }

    /// Whether an id is that of a thread, or of one that was deleted and is needed by others.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn is_taken(&self, thread: ThreadId) -> Result<bool, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        Ok(reader.thread_row(thread).await?.is_some())
    }

    /// All members of a thread.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn members(&self, thread: ThreadId) -> Result<Vec<Member>, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread).await?;
        Ok(reader.members(row.tree).await?.all())
    }

    /// Grants a principal a level on the tree of a thread. `by` is the level of the caller; `None`
    /// may do everything. Returns the number of the thread's last event too.
    ///
    /// # Errors
    /// No such thread; 403 beyond the level of the caller; 409 `last_owner`; or the storage
    /// failed.
    pub async fn grant(
        &self,
        thread: ThreadId,
        principal: &Arc<str>,
        level: Level,
        by: Option<Level>,
    ) -> Result<(Granted, i64), Error> {
        let (mut tx, row) = self.begin(thread).await?;
        let granted = members::grant(&mut *tx, row.tree, principal, level, by).await?;
        tx.commit().await?;
        Ok((granted, row.last_event_number))
    }

    /// Revokes the level of a principal.
    ///
    /// # Errors
    /// As [`grant`](Self::grant); 404 `member_not_found` for a principal without a level.
    pub async fn revoke(
        &self,
        thread: ThreadId,
        principal: &Arc<str>,
        by: Option<Level>,
    ) -> Result<(), Error> {
        let (mut tx, row) = self.begin(thread).await?;
        members::revoke(&mut *tx, row.tree, principal, by).await?;
        tx.commit().await?;
        Ok(())
    }
}
