//! Requests about crons, already validated.

use std::sync::Arc;

use crate::{
    id::{AssistantId, ThreadId},
    sorted::Sorted,
    value::Map,
    words::words,
};

words! {
    /// Order of a list of crons.
    #[derive(Default)]
    pub enum SortBy, "order of crons" {
        /// By id.
        CronId = "cron_id",
        /// By assistant.
        AssistantId = "assistant_id",
        /// By thread; those without one come last.
        ThreadId = "thread_id",
        /// By creation.
        #[default]
        CreatedAt = "created_at",
        /// By last change.
        UpdatedAt = "updated_at",
        /// By the next time; those that have none come last.
        NextRunDate = "next_run_date",
        /// By end; those without one come last.
        EndTime = "end_time",
    }
    /// What becomes of the thread that a cron without one made for a run.
    #[derive(Default)]
    pub enum OnRunCompleted, "word for completion" {
        /// It is deleted with the run.
        #[default]
        Delete = "delete",
        /// It stays.
        Keep = "keep",
    }
}

/// Which crons to count or list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only of this assistant.
    pub assistant: Option<AssistantId>,
    /// Only of this thread.
    pub thread: Option<ThreadId>,
    /// Only those that are enabled, or that are not.
    pub enabled: Option<bool>,
    /// Containment on metadata.
    pub metadata: Map,
    /// Only those of this principal; all without one.
    pub viewer: Option<Arc<str>>,
}

/// What is read of what clients put into crons; all else of that is as if they had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The metadata.
    pub metadata: bool,
    /// The payload.
    pub payload: bool,
    /// The end as the client wrote it: the payload has it, which is read of those crons that have an end.
    pub end_time: bool,
}

impl Columns {
    /// Nothing.
    pub const NONE: Self = Self {
        metadata: false,
        payload: false,
        end_time: false,
    };
}

impl Default for Columns {
    /// Everything.
    fn default() -> Self {
        Self {
            metadata: true,
            payload: true,
            end_time: true,
        }
    }
}

/// A page of crons.
pub type Search = Sorted<Filter, SortBy>;
