//! Crons: schedules by which runs are created.

use schemars::JsonSchema;

use super::{
    Id, Limit, Metadata, Offset, OneOrMany, SortOrder, Timestamp,
    assistants::Config,
    runs::{Nodes, StreamMode},
};
use crate::{
    crons::request::{OnRunCompleted, SortBy},
    runs::{Strategy, request::Durability},
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
    config: Option<Config>,
    /// Static context of the graph; not together with `config.configurable`.
    context: Option<Map>,
    metadata: Option<Metadata>,
    /// An `http` or `https` URL to which each run is posted when it has ended.
    webhook: Option<super::Webhook>,
    interrupt_before: Option<Nodes>,
    interrupt_after: Option<Nodes>,
    stream_mode: Option<OneOrMany<StreamMode>>,
    stream_subgraphs: Option<bool>,
    stream_resumable: Option<bool>,
    durability: Option<Durability>,
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
    config: Option<Config>,
    context: Option<Map>,
    /// Merged with what is there.
    metadata: Option<Metadata>,
    webhook: Option<super::Webhook>,
    interrupt_before: Option<Nodes>,
    interrupt_after: Option<Nodes>,
    stream_mode: Option<OneOrMany<StreamMode>>,
    stream_subgraphs: Option<bool>,
    stream_resumable: Option<bool>,
    durability: Option<Durability>,
}

/// Which crons to list.
#[derive(JsonSchema)]
pub struct SearchCrons {
    /// The id of an assistant, or the name of a graph.
    assistant_id: Option<String>,
    thread_id: Option<Id>,
    enabled: Option<bool>,
    /// Contained in the metadata of the cron.
    metadata: Option<Map>,
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
    assistant_id: Option<String>,
    thread_id: Option<Id>,
    enabled: Option<bool>,
    metadata: Option<Map>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Column {
    CronId,
    AssistantId,
    ThreadId,
    UserId,
    EndTime,
    Schedule,
    Timezone,
    Payload,
    NextRunDate,
    Metadata,
    OnRunCompleted,
    Enabled,
    CreatedAt,
    UpdatedAt,
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

/// The selected fields of a cron.
#[derive(JsonSchema)]
pub struct SelectedCron {
    #[schemars(skip_serializing_if = "Option::is_none")]
    cron_id: Option<Id>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    assistant_id: Option<Id>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    thread_id: Option<Id>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    end_time: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    payload: Option<Map>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    next_run_date: Option<Timestamp>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    metadata: Option<Map>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    on_run_completed: Option<OnRunCompleted>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}
