//! Rows of assistants and of their versions, and what is bound to write them.

use std::sync::Arc;

use rusqlite::Row;

use super::super::columns::{id, json_map, unreadable};
use crate::{
    assistants::{
        Content,
        store::{AssistantRow, VersionRow},
    },
    checkpoint::codec::{self, Format},
    time::Timestamp,
    value::{Map, Value},
};

/// The stored form of config and context, with its codec.
pub(super) fn encoded(content: &Content, format: Format) -> (Arc<str>, Vec<u8>, Vec<u8>) {
    let value = |map: &Map| Value::map(map.clone());
    codec::encode_pair(&value(&content.config), &value(&content.context), format)
}

pub(super) fn assistant_of(row: &Row<'_>) -> rusqlite::Result<AssistantRow> {
    let version = version_of(row)?;
    Ok(AssistantRow {
        id: id(row, 10)?,
        owner: row.get_ref(11)?.as_str()?.into(),
        version: version.version,
        content: version.content,
        created_at: version.created_at,
        updated_at: Timestamp(row.get(9)?),
    })
}

pub(super) fn version_of(row: &Row<'_>) -> rusqlite::Result<VersionRow> {
    let tag = row.get_ref(5)?.as_str()?;
    let map = |column: usize| {
        // What was not requested.
        let Some(bytes) = row.get_ref(column)?.as_blob_or_null()? else {
            return Ok(Map::new());
        };
        match codec::decode(tag, bytes).map_err(|error| unreadable(column, error))? {
            Value::Map(map) => Ok(Arc::unwrap_or_clone(map)),
            _ => Err(unreadable(column, "not a map")),
        }
    };
    Ok(VersionRow {
        version: row.get(0)?,
        content: Content {
            graph: row.get_ref(1)?.as_str()?.into(),
            name: row.get(2)?,
            description: row.get(3)?,
            metadata: json_map(row, 4)?,
            config: map(6)?,
            context: map(7)?,
        },
        created_at: Timestamp(row.get(8)?),
    })
}
