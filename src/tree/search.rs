//! Filters and orders for lists of threads.

use std::sync::Arc;

use crate::{id::ThreadId, value::Map};

/// The status of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStatus {
    /// No run is open, and no node waits to run.
    Idle,
    /// A run is pending or running.
    Busy,
    /// The head of the active branch has nodes that wait to run.
    Interrupted,
    /// The last run failed.
    Error,
}

impl ThreadStatus {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
        }
    }
}

/// Which threads of a fork family are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForkMode {
    /// Every one.
    #[default]
    All,
    /// Those that are not forks.
    Roots,
    /// The one that was updated last.
    LatestFork,
}

impl ForkMode {
    /// The word clients send.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Roots => "roots",
            Self::LatestFork => "latest-fork",
        }
    }
}

/// Order of a list of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortBy {
    /// By id.
    ThreadId,
    /// By status.
    Status,
    /// By creation.
    CreatedAt,
    /// By last change.
    #[default]
    UpdatedAt,
    /// By last change of the state.
    StateUpdatedAt,
}

impl SortBy {
    /// The word clients send.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ThreadId => "thread_id",
            Self::Status => "status",
            Self::CreatedAt => "created_at",
            Self::UpdatedAt => "updated_at",
            Self::StateUpdatedAt => "state_updated_at",
        }
    }
}

/// Selects threads.
#[derive(Clone, Debug, Default)]
pub struct ThreadFilter {
    /// Only these; `None` for all.
    pub ids: Option<Vec<ThreadId>>,
    /// Containment on metadata; empty for all.
    pub metadata: Map,
    /// Only this status.
    pub status: Option<ThreadStatus>,
    /// Which threads of a fork family.
    pub mode: ForkMode,
    /// Only those this principal may see; `None` for all.
    pub principal: Option<Arc<str>>,
}

/// A page of threads.
#[derive(Clone, Debug, Default)]
pub struct ThreadPage {
    /// Which threads.
    pub filter: ThreadFilter,
    /// Order; threads that are equal in it are ordered by id.
    pub sort_by: SortBy,
    /// Smallest first.
    pub ascending: bool,
    /// Most threads of the page.
    pub limit: usize,
    /// How many threads to skip.
    pub offset: usize,
}
