//! Rows of crons, and what is bound to write them.

use std::{borrow::Cow, sync::Arc};

use tokio_postgres::Row;
use uuid::Uuid;

use super::super::columns::{Json, JsonText, Time, column, id_if, name, text_if, unname, word};
use crate::{
    checkpoint::{
        Error,
        codec::{self, Format},
    },
    crons::{CronRow, request::OnRunCompleted},
    id::{AssistantId, CronId},
    value::{Map, Value},
};

/// What of a cron is bound in another form.
pub(super) struct Bound<'a> {
    pub(super) owner: Cow<'a, str>,
    pub(super) principal: Option<Cow<'a, str>>,
    pub(super) thread: Option<Uuid>,
    pub(super) end_time: Option<Time>,
    pub(super) on_run_completed: Option<&'static str>,
    pub(super) metadata: Json<'static>,
    pub(super) tag: Arc<str>,
    pub(super) payload: Vec<u8>,
    pub(super) next_run: Option<Time>,
}

impl<'a> Bound<'a> {
    pub(super) fn of(row: &'a CronRow, format: Format) -> Self {
        let payload = Value::map(row.payload.clone());
        let (tag, payload) = codec::encode_weighed(&payload, format);
        Self {
            owner: name(&row.owner),
            principal: row.principal.as_deref().map(name),
            thread: row.thread.map(|thread| thread.0),
            end_time: row.end_time.map(Time),
            on_run_completed: row.on_run_completed.map(OnRunCompleted::as_str),
            metadata: Json::of_map(&row.metadata),
            tag,
            payload,
            next_run: row.next_run.map(Time),
        }
    }
}

pub(super) fn cron_of(row: &Row) -> Result<CronRow, Error> {
    let payload = match column::<Option<&str>>(row, "type")? {
        Some(tag) => codec::decode(tag, column(row, "payload")?),
        // It was not read.
        None => Ok(Value::map(Map::new())),
    };
    let Value::Map(payload) = payload.map_err(|error| Error::Corrupt(error.to_string()))? else {
        return Err(Error::Corrupt("column payload: not a map".to_owned()));
    };
    let time = |name: &str| Ok::<_, Error>(column::<Option<Time>>(row, name)?.map(|time| time.0));
    let completed: Option<&str> = column(row, "on_run_completed")?;
    Ok(CronRow {
        id: CronId(column(row, "cron_id")?),
        owner: unname(column(row, "owner")?),
        principal: text_if(row, "principal")?,
        assistant: AssistantId(column(row, "assistant_id")?),
        thread: id_if(row, "thread_id")?,
        schedule: column(row, "schedule")?,
        timezone: column(row, "timezone")?,
        end_time: time("end_time")?,
        enabled: column(row, "enabled")?,
        on_run_completed: completed.map(word).transpose()?,
        metadata: column::<JsonText>(row, "metadata")?.map()?,
        payload: Arc::unwrap_or_clone(payload),
        next_run: time("next_run_at")?,
        last_run: time("last_run_at")?,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}
