//! Crons: schedules by which runs are created.

use schemars::JsonSchema;

use super::{Id, Limit, Metadata, Offset, SortOrder, Timestamp, runs::RunOptions};
use crate::{
    crons::request::{OnRunCompleted, SortBy},
    runs::Strategy,
    value::{Map, Value},
};

/// A cron to create: when, and what each of its runs gets.
#[derive(JsonSchema)]
pub struct CreateCron {
    /// Five fields: minute, hour, day of the month, month, day of the week.
    schedule: String,
    /// The name of a time zone, such as `Europe/Berlin`; UTC without one.
    timezone: Option<String>,
    /// No run is created from then on.
    end_time: Option<Timestamp>,
    enabled: Option<bool>,
    /// What becomes of the thread that is made for a run of a cron without one.
    on_run_completed: Option<OnRunCompleted>,
    /// The id of an assistant, or the name of a graph.
    assistant_id: String,
    input: Option<Value>,
    metadata: Option<Metadata>,
    #[serde(flatten)]
    options: RunOptions,
    multitask_strategy: Option<Strategy>,
}

/// What of a cron changes; the rest stays.
#[derive(JsonSchema)]
pub struct PatchCron {
    schedule: Option<String>,
    timezone: Option<String>,
    /// Null takes the end away.
    end_time: Option<Timestamp>,
    enabled: Option<bool>,
    on_run_completed: Option<OnRunCompleted>,
    input: Option<Value>,
    /// Merged with what is there.
    metadata: Option<Metadata>,
    #[serde(flatten)]
    options: RunOptions,
}

/// Which crons to list.
#[derive(JsonSchema)]
pub struct SearchCrons {
    #[serde(flatten)]
    filter: CountCrons,
    limit: Option<Limit>,
    offset: Option<Offset>,
    sort_by: Option<SortBy>,
    sort_order: Option<SortOrder>,
    /// The fields to show; all, if none is named.
    select: Option<Vec<Column>>,
}

/// Which crons to count.
#[derive(JsonSchema)]
pub struct CountCrons {
    /// The id of an assistant, or the name of a graph.
    assistant_id: Option<String>,
    thread_id: Option<Id>,
    enabled: Option<bool>,
    /// Contained in the metadata of the cron.
    metadata: Option<Map>,
}

/// The fields that a client may select.
pub const COLUMNS: [&str; 14] = [
    "cron_id",
    "assistant_id",
    "thread_id",
    "user_id",
    "end_time",
    "schedule",
    "timezone",
    "payload",
    "next_run_date",
    "metadata",
    "on_run_completed",
    "enabled",
    "created_at",
    "updated_at",
];

super::schemas! {
    Column = { "type": "string", "enum": COLUMNS };
}

/// A cron.
#[derive(JsonSchema)]
pub struct Cron {
    cron_id: Id,
    assistant_id: Id,
    thread_id: Option<Id>,
    user_id: String,
    end_time: Option<String>,
    schedule: String,
    timezone: Option<String>,
    /// What the client wrote, of which the runs are made.
    payload: Map,
    /// When the next run is created.
    next_run_date: Option<Timestamp>,
    metadata: Map,
    on_run_completed: Option<OnRunCompleted>,
    enabled: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
}
