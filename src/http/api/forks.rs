//! What the handlers ask: forks, members, and the life of threads beyond one run.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    http::Error,
    id::{EventId, ThreadId},
    runs::{
        forks::{Family, Forked, NewFork},
        request::threads::Create,
    },
    tree::members::{Granted, Level, Member},
};

/// A thread that was created by a command.
#[derive(Clone, Copy, Debug)]
pub struct CreatedThread {
    /// The thread.
    pub id: ThreadId,
    /// The newest event of its log.
    pub event: EventId,
    /// Its number.
    pub event_number: i64,
}

/// Forks, members, and the life of threads beyond one run.
#[async_trait]
pub trait Forks: Send + Sync + 'static {
    /// Creates a thread and says which event tells of it.
    async fn command_thread(&self, _create: Create) -> Result<CreatedThread, Error> {
        Err(Error::unsupported())
    }
    /// Makes a fork.
    async fn fork(&self, _new: NewFork) -> Result<Forked, Error> {
        Err(Error::unsupported())
    }
    /// The fork family of a thread.
    async fn family(&self, _thread: ThreadId) -> Result<Family, Error> {
        Err(Error::unsupported())
    }
    /// Deletes a thread with all its relatives; answers those that lived.
    async fn delete_tree(&self, _thread: ThreadId) -> Result<Vec<ThreadId>, Error> {
        Err(Error::unsupported())
    }
    /// Threads of the tree that are not deleted, oldest first.
    async fn relatives(&self, _thread: ThreadId) -> Result<Vec<ThreadId>, Error> {
        Err(Error::unsupported())
    }

    /// What somebody may do with a thread; `None` too when there is none.
    async fn level(&self, _thread: ThreadId, _principal: Arc<str>) -> Result<Option<Level>, Error> {
        Err(Error::unsupported())
    }
    /// Whether an id is that of a thread.
    async fn is_taken(&self, _thread: ThreadId) -> Result<bool, Error> {
        Err(Error::unsupported())
    }
    /// Everybody with a level on a thread.
    async fn members(&self, _thread: ThreadId) -> Result<Vec<Member>, Error> {
        Err(Error::unsupported())
    }
    /// Gives somebody a level, on behalf of one who has the level `by`; `None` may do everything.
    /// Answers the number of the thread's last event too.
    async fn grant(
        &self,
        _thread: ThreadId,
        _principal: Arc<str>,
        _level: Level,
        _by: Option<Level>,
    ) -> Result<(Granted, i64), Error> {
        Err(Error::unsupported())
    }
    /// Takes somebody's level away, as [`grant`](Self::grant) gives it.
    async fn revoke(
        &self,
        _thread: ThreadId,
        _principal: Arc<str>,
        _by: Option<Level>,
    ) -> Result<(), Error> {
        Err(Error::unsupported())
    }
}
