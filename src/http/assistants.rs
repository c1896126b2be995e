//! Assistants.

use hyper::{Response, StatusCode};

use super::{
    Error,
    api::{
        Xray,
        assistants::{Search, SortBy},
    },
    body::{self, Body},
    fields::Fields,
    service::Call,
    threads::{LIST_DEFAULT, LIST_MAX, page},
};
use crate::value::Value;

const SORTS: &[(&str, SortBy)] = &[
    ("assistant_id", SortBy::AssistantId),
    ("created_at", SortBy::CreatedAt),
    ("updated_at", SortBy::UpdatedAt),
    ("name", SortBy::Name),
    ("graph_id", SortBy::GraphId),
];

const COLUMNS: &[(&str, &str)] = &[
    ("assistant_id", "assistant_id"),
    ("graph_id", "graph_id"),
    ("name", "name"),
    ("description", "description"),
    ("config", "config"),
    ("context", "context"),
    ("created_at", "created_at"),
    ("updated_at", "updated_at"),
    ("metadata", "metadata"),
    ("version", "version"),
];

/// Words for the direction of a list; true is ascending.
pub(super) const ORDERS: &[(&str, bool)] = &[("asc", true), ("desc", false)];

/// `GET /assistants/{assistant_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let assistant = call.api().assistant(call.path.assistant()?).await?;
    Ok(body::json(StatusCode::OK, &assistant))
}

/// `POST /assistants/search`
pub(super) async fn search(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let limit = fields
        .integer("limit", 1, LIST_MAX)?
        .unwrap_or(LIST_DEFAULT) as usize;
    let offset = fields.integer("offset", 0, i64::MAX)?.unwrap_or(0) as usize;
    let select = fields.words("select", COLUMNS)?;
    let search = Search {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        graph_id: fields.text("graph_id")?.map(|text| text.to_string()),
        name: fields.text("name")?.map(|text| text.to_string()),
        limit: limit + 1,
        offset,
        sort_by: fields.word("sort_by", SORTS)?.unwrap_or_default(),
        ascending: fields.word("sort_order", ORDERS)?.unwrap_or(false),
    };
    let mut found = call.api().search_assistants(search).await?;
    if let Some(columns) = select {
        for map in found.iter_mut().filter_map(Value::make_map_mut) {
            map.retain(|key, _| columns.contains(&&**key));
        }
    }
    Ok(page(found, limit, offset))
}

/// `GET /assistants/{assistant_id}/graph`
pub(super) async fn graph(call: Call) -> Result<Response<Body>, Error> {
    let xray = match call.query.get("xray") {
        Some(text) if text.parse::<usize>().is_ok() => {
            Xray::Levels(call.query.integer("xray")?.unwrap_or(0) as usize)
        }
        _ if call.query.flag("xray")? => Xray::All,
        _ => Xray::Levels(0),
    };
    let graph = call
        .api()
        .graph(call.path.assistant_or_graph()?, xray)
        .await?;
    Ok(body::json(StatusCode::OK, &graph))
}

/// `GET /assistants/{assistant_id}/schemas`
pub(super) async fn schemas(call: Call) -> Result<Response<Body>, Error> {
    let schemas = call.api().schemas(call.path.assistant_or_graph()?).await?;
    Ok(body::json(StatusCode::OK, &schemas))
}
