//! Rows of assistants and of their versions, and what is bound to write them.

use std::{borrow::Cow, sync::Arc};

use tokio_postgres::Row;

use super::super::columns::{Json, JsonText, Time, column, name, text_if, unname};
use crate::{
    assistants::{
        Content,
        store::{AssistantRow, VersionRow},
    },
    checkpoint::{
        Error,
        codec::{self, Format},
    },
    id::AssistantId,
    value::{Map, Value},
};

/// What clients put into an assistant weighs, as far as it is requested.
pub(super) const WEIGHT_SHOWN: &str = concat!(
    "(CASE WHEN $8::boolean THEN ",
    weight!("type", "config"),
    " ELSE 0 END + CASE WHEN $9::boolean THEN ",
    weight!("type", "context"),
    " ELSE 0 END + CASE WHEN $7::boolean THEN ",
    json_weight!("metadata::text"),
    " ELSE 0 END + octet_length(name) + COALESCE(octet_length(description), 0))::bigint AS weight"
);

/// A content as it is bound.
pub(super) struct Bound<'a> {
    pub(super) graph: &'a str,
    pub(super) name: Cow<'a, str>,
    pub(super) description: Option<Cow<'a, str>>,
    pub(super) metadata: Json<'static>,
    pub(super) tag: Arc<str>,
    pub(super) config: Vec<u8>,
    pub(super) context: Vec<u8>,
}

impl<'a> Bound<'a> {
    pub(super) fn of(content: &'a Content, format: Format) -> Self {
        let value = |map: &Map| Value::map(map.clone());
        let (config, context) = (value(&content.config), value(&content.context));
        let (tag, config, context) = codec::encode_pair(&config, &context, format);
        Self {
            graph: &content.graph,
            name: name(&content.name),
            description: content.description.as_deref().map(name),
            metadata: Json::of_map(&content.metadata),
            tag,
            config,
            context,
        }
    }
}

pub(super) fn content_of(row: &Row) -> Result<Content, Error> {
    let tag: &str = column(row, "type")?;
    let map = |name: &str| {
        // What was not requested.
        let Some(bytes) = column::<Option<&[u8]>>(row, name)? else {
            return Ok(Map::new());
        };
        let decoded = codec::decode(tag, bytes);
        match decoded.map_err(|error| Error::Corrupt(error.to_string()))? {
            Value::Map(map) => Ok(Arc::unwrap_or_clone(map)),
            _ => Err(Error::Corrupt(format!("column {name}: not a map"))),
        }
    };
    Ok(Content {
        graph: column::<&str>(row, "graph_id")?.into(),
        name: unname(column(row, "name")?).to_string(),
        description: text_if(row, "description")?.map(|text| text.to_string()),
        metadata: column::<JsonText>(row, "metadata")?.map()?,
        config: map("config")?,
        context: map("context")?,
    })
}

pub(super) fn assistant_of(row: &Row) -> Result<AssistantRow, Error> {
    Ok(AssistantRow {
        id: AssistantId(column(row, "assistant_id")?),
        owner: unname(column(row, "owner")?),
        version: column(row, "version")?,
        content: content_of(row)?,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}

pub(super) fn version_of(row: &Row) -> Result<VersionRow, Error> {
    Ok(VersionRow {
        version: column(row, "version")?,
        content: content_of(row)?,
        created_at: column::<Time>(row, "created_at")?.0,
    })
}
