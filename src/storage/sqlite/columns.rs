//! Columns to values: ids are 16 bytes, JSON is text, words are parsed.

use std::{error::Error as StdError, fmt::Display, str::FromStr};

use rusqlite::{
    Connection, Error, OptionalExtension, Params, Result, Row, ToSql,
    types::{ToSqlOutput, Type},
};
use uuid::Uuid;

use crate::{
    checkpoint,
    id::{
        AssistantId, BranchId, CheckpointId, CronId, EventId, NodeId, RunId, TaskId, ThreadId,
        TreeId, WorkerId,
    },
    value::{Map, Value},
};

macro_rules! bound_as_bytes {
    ($($id:ident),*) => {$(
        impl ToSql for $id {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
                self.0.as_bytes().to_sql()
            }
        }
    )*};
}

bound_as_bytes!(
    AssistantId,
    BranchId,
    CheckpointId,
    CronId,
    EventId,
    NodeId,
    RunId,
    TaskId,
    ThreadId,
    TreeId,
    WorkerId
);

/// A column that this program cannot read.
pub(super) fn unreadable(column: usize, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, why.into())
}

/// An id that is always there.
pub(super) fn id<T: From<Uuid>>(row: &Row<'_>, column: usize) -> Result<T> {
    let bytes: [u8; 16] = row.get(column)?;
    Ok(T::from(Uuid::from_bytes(bytes)))
}

/// An id that may be NULL.
pub(super) fn id_if<T: From<Uuid>>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(|bytes| T::from(Uuid::from_bytes(bytes))))
}

/// A text with a form of its own.
pub(super) fn parsed<T>(row: &Row<'_>, column: usize) -> Result<T>
where
    T: FromStr,
    T::Err: Display,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse()
        .map_err(|why: T::Err| unreadable(column, why.to_string()))
}

/// A text with a form of its own, or NULL.
pub(super) fn parsed_if<T>(row: &Row<'_>, column: usize) -> Result<Option<T>>
where
    T: FromStr,
    T::Err: Display,
{
    match row.get_ref(column)?.as_str_or_null()? {
        Some(_) => parsed(row, column).map(Some),
        None => Ok(None),
    }
}

/// Any JSON, or NULL.
pub(super) fn json_if(row: &Row<'_>, column: usize) -> Result<Option<Value>> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else {
        return Ok(None);
    };
    Value::from_json_slice(text.as_bytes())
        .map(Some)
        .map_err(|why| unreadable(column, why))
}

/// The JSON object that a text is, which is that of a column.
pub(super) fn map_of(text: &str, column: usize) -> Result<Map> {
    match Value::from_json_slice(text.as_bytes()) {
        Ok(Value::Map(map)) => Ok(std::sync::Arc::unwrap_or_clone(map)),
        Ok(_) => Err(unreadable(column, "not a JSON object")),
        Err(why) => Err(unreadable(column, why)),
    }
}

/// A JSON object.
pub(super) fn json_map(row: &Row<'_>, column: usize) -> Result<Map> {
    match json_if(row, column)? {
        Some(Value::Map(map)) => Ok(std::sync::Arc::unwrap_or_clone(map)),
        _ => Err(unreadable(column, "not a JSON object")),
    }
}

/// The text of a JSON object.
pub(super) fn map_text(map: &Map) -> String {
    Value::map(map.clone()).to_json()
}

/// All rows of a statement that stays prepared.
pub(crate) fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> std::result::Result<Vec<T>, checkpoint::Error> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params, read)?;
    Ok(rows.collect::<Result<_>>()?)
}

/// The row of a statement that stays prepared, if there is one.
pub(crate) fn one<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T>,
) -> std::result::Result<Option<T>, checkpoint::Error> {
    Ok(db.prepare_cached(sql)?.query_row(params, read).optional()?)
}
