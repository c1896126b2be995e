//! Why an operation on crons failed.

use crate::{
    checkpoint,
    id::{AssistantId, CronId, ThreadId},
    tree::members::Denied,
};

/// Why an operation on crons failed. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no schedule of five fields.
    #[error(
        "Invalid cron schedule: '{0}'. Reason: Invalid cron schedule. Ensure the schedule uses the \
         standard cron format (minute hour day_of_month month day_of_week). Example: '*/5 * * * *' \
         for every 5 minutes."
    )]
    Schedule(String),
    /// No time fits it.
    #[error(
        "Invalid cron schedule: '{0}'. Reason: no date fits it. Choose days that their months have."
    )]
    Never(String),
    /// There is no such time zone.
    #[error("Invalid timezone: '{0}'. Use IANA timezone format (e.g. 'America/New_York').")]
    Zone(String),
    /// The end is not in the future.
    #[error("end_time must be in the future")]
    Ended,
    /// No cron has this id, or none that its client sees.
    #[error("Cron '{0}' not found")]
    NoCron(CronId),
    /// There is no such thread, or none that its client sees.
    #[error(
        "Thread with ID '{0}' not found. Please verify the ID is correct and the thread hasn't been \
         deleted or expired."
    )]
    NoThread(ThreadId),
    /// The client may not create runs on the thread.
    #[error("the level on the thread is too low")]
    Denied(Denied),
    /// The assistant was deleted meanwhile.
    #[error("Assistant '{0}' not found")]
    NoAssistant(AssistantId),
    /// It is too large.
    #[error(
        "A cron has at most {limit} bytes, not {bytes}: let it have less input and metadata, or let the operator raise \
         BACKSTITCH_CRON_BYTES"
    )]
    TooLarge {
        /// How many it would have.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Its principal has as many as it may.
    #[error(
        "A principal has at most {0} crons: delete some, or let the operator raise BACKSTITCH_MAX_CRONS"
    )]
    Full(usize),
    /// Its metadata would be too large.
    #[error("{0}")]
    Metadata(String),
    /// Others change it at the same time.
    #[error("Cron '{0}' is being changed by others: try again")]
    Conflict(CronId),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
}
