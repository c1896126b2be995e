//! Rows of crons, and the stored form of what their runs request.

use std::sync::Arc;

use rusqlite::Row;

use super::super::columns::{id, id_if, json_map, parsed_if, unreadable};
use crate::{
    checkpoint::codec::{self, Format},
    crons::CronRow,
    time::Timestamp,
    value::{Map, Value},
};

/// The stored form of a payload, with its codec.
pub(super) fn encoded(payload: &Map, format: Format) -> (Arc<str>, Vec<u8>) {
    codec::encode_weighed(&Value::map(payload.clone()), format)
}

pub(super) fn cron_of(row: &Row<'_>) -> rusqlite::Result<CronRow> {
    let payload = match row.get_ref(11)?.as_str_or_null()? {
        Some(tag) => codec::decode(tag, row.get_ref(12)?.as_blob()?),
        // It was not read.
        None => Ok(Value::map(Map::new())),
    };
    let Value::Map(payload) = payload.map_err(|error| unreadable(12, error))? else {
        return Err(unreadable(12, "not a map"));
    };
    let time = |column: usize| {
        let time: Option<i64> = row.get(column)?;
        Ok::<_, rusqlite::Error>(time.map(Timestamp))
    };
    Ok(CronRow {
        id: id(row, 0)?,
        owner: row.get(1)?,
        principal: row.get(2)?,
        assistant: id(row, 3)?,
        thread: id_if(row, 4)?,
        schedule: row.get(5)?,
        timezone: row.get(6)?,
        end_time: time(7)?,
        enabled: row.get(8)?,
        on_run_completed: parsed_if(row, 9)?,
        metadata: json_map(row, 10)?,
        payload: Arc::unwrap_or_clone(payload),
        next_run: time(13)?,
        last_run: time(14)?,
        created_at: Timestamp(row.get(15)?),
        updated_at: Timestamp(row.get(16)?),
    })
}
