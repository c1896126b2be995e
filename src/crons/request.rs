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

/// A page of crons.
pub type Search = Sorted<Filter, SortBy>;
