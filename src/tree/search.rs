//! Filters and orders for lists of threads.

use std::sync::Arc;

use uuid::Uuid;

mod listed;

pub use listed::{Listed, ROOM, Room};

use super::{Outcome, Thread};
use crate::{
    checkpoint::labels::labels_of, id::ThreadId, time::Timestamp, value::Map, words::words,
};

words! {
    /// The status of a thread.
    pub enum ThreadStatus, "thread status" {
        /// No run is open, and no node waits to run.
        Idle = "idle",
        /// A run is pending or running.
        Busy = "busy",
        /// The head of the active branch has nodes that wait to run.
        Interrupted = "interrupted",
        /// The last run failed.
        Error = "error",
    }
}

impl ThreadStatus {
    /// The status of a branch, which is that of a thread if it is the active one. Statements that filter
    /// and sort by it decide alike.
    pub fn of(is_busy: bool, outcome: Outcome) -> Self {
        match outcome {
            _ if is_busy => Self::Busy,
            Outcome::Idle => Self::Idle,
            Outcome::Interrupted => Self::Interrupted,
            Outcome::Error => Self::Error,
        }
    }
}

words! {
    /// Which threads of a fork family are listed.
    #[derive(Default)]
    pub enum ForkMode, "mode of forks" {
        /// Every one.
        #[default]
        All = "all",
        /// Those that are not forks.
        Roots = "roots",
        /// The one that was updated last.
        LatestFork = "latest-fork",
    }
}

words! {
    /// Order of a list of threads.
    #[derive(Default)]
    pub enum SortBy, "order of threads" {
        /// By id.
        ThreadId = "thread_id",
        /// By status.
        Status = "status",
        /// By creation.
        CreatedAt = "created_at",
        /// By last change.
        #[default]
        UpdatedAt = "updated_at",
        /// By last change of the state.
        StateUpdatedAt = "state_updated_at",
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

/// What a page of threads reads of the JSON in their rows; all else of that is as if they had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// All of the metadata.
    pub metadata: bool,
    /// Of the metadata at least the name of the graph, which says how values are shown.
    pub graph: bool,
    /// The config.
    pub config: bool,
    /// The error of the last run.
    pub error: bool,
}

impl Columns {
    /// Nothing.
    pub const NONE: Self = Self {
        metadata: false,
        graph: false,
        config: false,
        error: false,
    };
}

impl Default for Columns {
    /// Everything.
    fn default() -> Self {
        Self {
            metadata: true,
            graph: true,
            config: true,
            error: true,
        }
    }
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
    /// Only those behind this one, in an order that [is one of an index](Self::is_in_order).
    pub after: Option<ThreadKey>,
    /// What is read of them.
    pub columns: Columns,
}

/// The key of a thread in an order by time or by id.
#[derive(Clone, Copy, Debug)]
pub struct ThreadKey {
    /// The time it is ordered by, if that is what it is ordered by.
    pub at: Timestamp,
    /// Its id.
    pub id: ThreadId,
}

/// Most rows by which threads of a status are looked up. Where there are more, threads are read in the order of
/// an index until the page is full.
pub const FEW: usize = 10_000;

/// The same by a field of metadata. Pages of threads that many have cost less in the order of an index.
pub const FEW_LABELLED: usize = 2_000;

/// Fields of metadata that the server writes into most threads.
const OF_SERVER: [&str; 2] = ["graph_id", "assistant_id"];

/// Most labels by which threads are looked up, one after the other.
const LABELS: usize = 4;

impl ThreadFilter {
    /// Labels that its threads have, by which they may be looked up.
    pub fn labels(&self) -> Vec<String> {
        if self.ids.is_some() {
            return Vec::new();
        }
        labels_of(&self.metadata, &OF_SERVER).take(LABELS).collect()
    }

    /// The status by which its threads may be looked up: one that most threads do not have.
    pub fn rare_status(&self) -> Option<ThreadStatus> {
        let status = self.status.filter(|status| *status != ThreadStatus::Idle);
        status.filter(|_| self.ids.is_none())
    }

    /// The same among these threads.
    pub fn among(&self, ids: Vec<ThreadId>) -> Self {
        Self {
            ids: Some(ids),
            ..self.clone()
        }
    }
}

impl ThreadPage {
    /// Whether an index has the threads in this order, so that a page costs what it returns.
    pub fn is_in_order(&self) -> bool {
        let of_time_or_id = match self.sort_by {
            SortBy::UpdatedAt | SortBy::CreatedAt | SortBy::ThreadId => true,
            SortBy::Status | SortBy::StateUpdatedAt => false,
        };
        self.filter.ids.is_none() && of_time_or_id
    }

    /// The id at which a page by id that follows another one begins; `None` behind the last id that there can be.
    pub fn first_id(&self) -> Option<Uuid> {
        let last = self.after?.id.0.as_u128();
        let first = if self.ascending {
            last.checked_add(1)
        } else {
            last.checked_sub(1)
        };
        first.map(Uuid::from_u128)
    }

    /// Turns to the page behind this one, whose last thread is given.
    pub fn advance(&mut self, last: &Thread) {
        if !self.is_in_order() {
            self.offset += self.limit;
            return;
        }
        let at = match self.sort_by {
            SortBy::CreatedAt => last.created_at,
            _ => last.updated_at,
        };
        self.offset = 0;
        self.after = Some(ThreadKey { at, id: last.id });
    }
}
