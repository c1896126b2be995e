//! Crons as a storage has them, and the storage trait.

use std::sync::Arc;

use async_trait::async_trait;

use super::request::{Columns, Filter, OnRunCompleted, Search};
use crate::{
    checkpoint,
    id::{AssistantId, CronId, ThreadId},
    time::Timestamp,
    tree::members::{Access, Denied},
    value::Map,
};

/// A row of `crons`.
#[derive(Clone, Debug, PartialEq)]
pub struct CronRow {
    /// Key.
    pub id: CronId,
    /// The principal whom it belongs to, and with it the threads that it makes.
    pub owner: Arc<str>,
    /// On whose behalf its runs are; `None` when nobody authenticated at its creation.
    pub principal: Option<Arc<str>>,
    /// The assistant of its runs.
    pub assistant: AssistantId,
    /// The thread of its runs; without one each has a new thread.
    pub thread: Option<ThreadId>,
    /// When it is due, see `crons::Schedule`.
    pub schedule: String,
    /// The zone of the schedule, UTC without one.
    pub timezone: Option<String>,
    /// After this time it is not due any more.
    pub end_time: Option<Timestamp>,
    /// Whether it creates runs.
    pub enabled: bool,
    /// What becomes of a new thread; `None` when it has a thread.
    pub on_run_completed: Option<OnRunCompleted>,
    /// What clients note about it.
    pub metadata: Map,
    /// The body of its creation with its changes: what its runs request.
    pub payload: Map,
    /// When it is due next; `None` when it never is any more.
    pub next_run: Option<Timestamp>,
    /// When it last created a run.
    pub last_run: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a client last changed it.
    pub updated_at: Timestamp,
}

#[cfg(feature = "server")]
impl CronRow {
    /// When it is due next after `time`.
    pub fn due_after(&self, time: Timestamp) -> Option<Timestamp> {
        let schedule = super::Schedule::parse(&self.schedule, self.timezone.as_deref()).ok()?;
        let next = schedule.after(time)?;
        self.end_time.is_none_or(|end| next <= end).then_some(next)
    }
}

/// A cron that is due, without what its runs request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCron {
    /// Key.
    pub id: CronId,
    /// Whom it belongs to.
    pub owner: Arc<str>,
    /// The thread of its runs.
    pub thread: Option<ThreadId>,
    /// When it was due.
    pub due: Timestamp,
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum CreatedCron {
    /// It was created.
    Done(Box<CronRow>),
    /// There is no such thread.
    NoThread,
    /// The client has no level on the thread, or too low a one.
    Denied(Denied),
    /// There is no such assistant.
    NoAssistant,
    /// Its owner has as many as it may.
    Full,
}

/// A storage of crons. Their runs are created by that of runs, in the transaction that moves the
/// due time on.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The clock of the database.
    async fn clock(&self) -> Result<Timestamp, checkpoint::Error>;

    /// Creates a cron; the times of its creation and change are the database's. Whoever creates
    /// it for a thread must have the level on the thread in the transaction. Its owner has at most so
    /// many.
    async fn create_cron(
        &self,
        row: CronRow,
        access: Access,
        most: usize,
    ) -> Result<CreatedCron, checkpoint::Error>;

    /// A cron of the viewer, of anybody without one.
    async fn cron(
        &self,
        id: CronId,
        viewer: Option<Arc<str>>,
    ) -> Result<Option<CronRow>, checkpoint::Error>;

    /// Writes a changed cron, unless it has changed or was due since `old` was read: then `None`.
    async fn replace_cron(
        &self,
        old: CronRow,
        new: CronRow,
    ) -> Result<Option<CronRow>, checkpoint::Error>;

    /// Deletes a cron of the viewer. False when there is none.
    async fn delete_cron(
        &self,
        id: CronId,
        viewer: Option<Arc<str>>,
    ) -> Result<bool, checkpoint::Error>;

    /// A page of crons: which ones, and how many bytes each has in these columns.
    async fn search_crons(
        &self,
        search: Search,
        columns: Columns,
    ) -> Result<Vec<(CronId, u64)>, checkpoint::Error>;

    /// Crons of the viewer, of anybody without one, with these columns, in any order. One that is not there is
    /// left out.
    async fn crons(
        &self,
        ids: Vec<CronId>,
        viewer: Option<Arc<str>>,
        columns: Columns,
    ) -> Result<Vec<CronRow>, checkpoint::Error>;

    /// How many crons there are.
    async fn count_crons(&self, filter: Filter) -> Result<u64, checkpoint::Error>;

    /// Crons that are due at `now`, those that are due longest first, behind the one that was due then
    /// and has this id.
    async fn due_crons(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, CronId)>,
        limit: usize,
    ) -> Result<Vec<DueCron>, checkpoint::Error>;
}
