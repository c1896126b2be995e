//! Tables derived from a thread's events: their rows, computed from events alone, and the
//! operations on them that a storage offers.
//!
//! A table has an offset per thread: the number of the last event it has read. It is behind when
//! the thread has more events, so that writers of events need not mark anything. A step reads the
//! events above the offset and writes their rows and the new offset together, if the offset has not
//! changed meanwhile: any number of processes may work at once, and the step of the slower one is
//! dropped.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
};

mod channels;
mod rows;
#[cfg(test)]
mod tests;

pub use channels::{ChannelKey, ChannelLimits, ChannelRows, OneChannel};
pub use rows::{is_text, preview, project, since_newest_message};

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Projection {
    /// `thread_heads`: newest message and counts.
    Heads,
}

impl Projection {
    /// All of them, in the order of their names.
    pub const ALL: [Self; 1] = [Self::Heads];

    /// The table's name, also of its offsets.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heads => "thread_heads",
        }
    }

    /// Its index in [`Projection::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The table with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

/// A row of `thread_heads`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadRow {
    /// The newest event it has read.
    pub number: i64,
    /// Messages added, on any branch.
    pub messages: i64,
    /// Branches created and not deleted; the first one is not counted.
    pub branches: i64,
    /// Runs ended.
    pub runs: i64,
    /// The newest message.
    pub last_message_id: Option<Arc<str>>,
    /// Its role in the message API.
    pub last_role: Option<Arc<str>>,
    /// The beginning of its text.
    pub last_preview: Option<Arc<str>>,
    /// Time of the newest event, in microseconds.
    pub updated_at: i64,
}

/// The new row of a thread in `thread_heads`, which is written together with its offset.
#[derive(Clone, Debug)]
pub struct ProjectionStep {
    /// Tree of the thread.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// The offset it starts from; the step is dropped when the table has another one by then.
    pub from: i64,
    /// The offset after it.
    pub to: i64,
    /// The row, in place of the old one.
    pub head: HeadRow,
}

/// How far the tables have read a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Tree of the thread.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// Number of its newest event.
    pub last: i64,
    /// Offsets in the order of [`Projection::ALL`]; 0 where a table has read nothing.
    pub offsets: [i64; Projection::ALL.len()],
    /// Its row of `thread_heads`.
    pub head: Option<HeadRow>,
}

impl Progress {
    /// Whether every table has read the events up to `number`, or all events without one.
    pub fn reached(&self, number: Option<i64>) -> bool {
        let target = number.unwrap_or(self.last);
        self.offsets.iter().all(|offset| *offset >= target)
    }
}

/// Stores derived tables. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Up to `limit` threads after one (by id) for which a table is behind, and the last thread
    /// that was checked, unless no thread follows it.
    async fn behind(
        &self,
        after: Option<ThreadId>,
        limit: usize,
    ) -> Result<(Vec<ThreadId>, Option<ThreadId>), Error>;

    /// How far the tables have read these threads. Deleted threads are left out.
    async fn progress(&self, threads: Vec<ThreadId>) -> Result<Vec<Progress>, Error>;

    /// What is stored of channels of states, in the order of the keys.
    async fn channels(
        &self,
        keys: Vec<ChannelKey>,
        most: ChannelLimits,
    ) -> Result<Vec<ChannelRows>, Error>;

    /// Writes steps, each one completely or, when its offset has changed, not at all.
    async fn apply(&self, steps: Vec<ProjectionStep>) -> Result<(), Error>;

    /// Deletes the rows and offsets of one table or all tables, for one thread or all.
    async fn reset(
        &self,
        projection: Option<Projection>,
        thread: Option<ThreadId>,
    ) -> Result<(), Error>;
}
