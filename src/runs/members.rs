//! Who may do what with threads.

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
    /// What somebody may do with a thread; `None` too when there is none.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn level(
        &self,
        thread: ThreadId,
        principal: Arc<str>,
    ) -> Result<Option<Level>, Error> {
        Ok(self.inner.parts.tree.level(thread, principal).await?)
    }

    /// Whether an id is that of a thread, or of one that was deleted and is needed by others.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn is_taken(&self, thread: ThreadId) -> Result<bool, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        Ok(reader.thread_row(thread).await?.is_some())
    }

    /// Number of the newest event of a thread.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn last_event(&self, thread: ThreadId) -> Result<i64, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread).await?;
        Ok(row.last_event_number)
    }

    /// Everybody with a level on a thread.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn members(&self, thread: ThreadId) -> Result<Vec<Member>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread).await?;
        Ok(reader.members(row.tree).await?.all())
    }

    /// Gives somebody a level on the tree of a thread. `by` is the level of whoever asks; `None`
    /// may do everything. Answers the number of the thread's last event too.
    ///
    /// # Errors
    /// No such thread; 403 beyond the level of whoever asks; 409 `last_owner`; or the storage
    /// failed.
    pub async fn grant(
        &self,
        thread: ThreadId,
        principal: &Arc<str>,
        level: Level,
        by: Option<Level>,
    ) -> Result<(Granted, i64), Error> {
        let (mut tx, row) = self.change(thread).await?;
        let granted = members::grant(&mut *tx, row.tree, principal, level, by).await?;
        tx.commit().await?;
        Ok((granted, row.last_event_number))
    }

    /// Takes somebody's level away.
    ///
    /// # Errors
    /// As [`grant`](Self::grant); 404 `member_not_found` for somebody without a level.
    pub async fn revoke(
        &self,
        thread: ThreadId,
        principal: &Arc<str>,
        by: Option<Level>,
    ) -> Result<(), Error> {
        let (mut tx, row) = self.change(thread).await?;
        members::revoke(&mut *tx, row.tree, principal, by).await?;
        tx.commit().await?;
        Ok(())
    }
}
