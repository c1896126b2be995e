//! Assistants: read, searched and drawn; what would change them is checked and refused.

use hyper::{Response, StatusCode};

use super::{
    page::{self, LIST_DEFAULT, LIST_MAX, ORDERS},
    parse::{fields::Fields, metadata::metadata},
    runs::{config, config_or_context},
    server::{
        body::{self, Body},
        call::Call,
        error::Error,
    },
    threads::IF_EXISTS,
};
use crate::{
    assistants::request::{Filter, Search, SortBy},
    id::AssistantId,
    value::Value,
};

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

/// `GET /assistants/{assistant_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let assistant = call.assistants().get(call.path.assistant()?);
    let assistant = assistant.map_err(|_| Error::not_found())?;
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
        filter: filter(&fields)?,
        limit: limit + 1,
        offset,
        sort_by: fields.word("sort_by", SORTS)?.unwrap_or_default(),
        ascending: fields.word("sort_order", ORDERS)?.unwrap_or(false),
    };
    let mut found = call.assistants().search(&search);
    if let Some(columns) = select {
        for map in found.iter_mut().filter_map(Value::make_map_mut) {
            map.retain(|key, _| columns.contains(&&**key));
        }
    }
    Ok(page::respond(found, limit, offset))
}

/// `POST /assistants/count`
pub(super) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    filter(&Fields::of(&body)?)?;
    Err(Error::unsupported())
}

/// `POST /assistants`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let id = fields.text("assistant_id")?;
    if id.is_some_and(|text| text.parse::<AssistantId>().is_err()) {
        return Err(Error::invalid("Invalid assistant ID: must be a UUID"));
    }
    if fields.text("graph_id")?.is_none() {
        return Err(fields.required("graph_id"));
    }
    fields.word("if_exists", IF_EXISTS)?;
    check_content(&fields)?;
    Err(Error::unsupported())
}

/// `PATCH /assistants/{assistant_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    fields.text("graph_id")?;
    check_content(&fields)?;
    Err(Error::unsupported())
}

/// `DELETE /assistants/{assistant_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    call.path.assistant()?;
    call.query.flag("delete_threads")?;
    Err(Error::unsupported())
}

/// `POST /assistants/{assistant_id}/versions`
pub(super) async fn versions(mut call: Call) -> Result<Response<Body>, Error> {
    call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    fields.integer("limit", 1, LIST_MAX)?;
    fields.map("metadata")?;
    fields.integer("offset", 0, i64::MAX)?;
    Err(Error::unsupported())
}

/// `POST /assistants/{assistant_id}/latest`
pub(super) async fn latest(mut call: Call) -> Result<Response<Body>, Error> {
    call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    if fields.integer("version", i64::MIN, i64::MAX)?.is_none() {
        return Err(fields.required("version"));
    }
    Err(Error::unsupported())
}

/// `GET /assistants/{assistant_id}/subgraphs` and `.../subgraphs/{namespace}`
pub(super) async fn subgraphs(call: Call) -> Result<Response<Body>, Error> {
    let assistant = call.path.assistant()?;
    let namespace = call.path.namespace()?;
    let recurse = call.query.flag("recurse")?;
    let namespace = namespace.as_deref();
    let schemas = call.assistants().subgraphs(assistant, namespace, recurse);
    let schemas = schemas.map_err(|_| Error::not_found())?;
    Ok(body::json(StatusCode::OK, &schemas))
}

fn filter(fields: &Fields<'_>) -> Result<Filter, Error> {
    Ok(Filter {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        graph_id: fields.text("graph_id")?.map(|text| text.to_string()),
        name: fields.text("name")?.map(|text| text.to_string()),
    })
}

/// Checks what a version of an assistant consists of.
fn check_content(fields: &Fields<'_>) -> Result<(), Error> {
    metadata(fields)?;
    fields.text("name")?;
    fields.text("description")?;
    let config = config(fields)?;
    let context = fields.map("context")?.cloned().unwrap_or_default();
    config_or_context(&config, &context)
}

/// How many levels of subgraphs a drawing has: none, with `true` all of them, or this many.
fn xray(text: Option<&str>) -> Result<usize, Error> {
    let text = text.unwrap_or_default().to_ascii_lowercase();
    match (&*text, text.parse()) {
        ("" | "false", _) => Ok(0),
        ("true", _) => Ok(usize::MAX),
        (_, Ok(levels @ 1..)) => Ok(levels),
        _ => Err(Error::invalid("Invalid xray value")),
    }
}

/// `GET /assistants/{assistant_id}/graph`
pub(super) async fn graph(call: Call) -> Result<Response<Body>, Error> {
    let depth = xray(call.query.get("xray"))?;
    let assistant = call.path.assistant_or_graph()?;
    let drawing = call.assistants().drawing(&assistant, depth)?;
    Ok(body::json(StatusCode::OK, &drawing))
}

/// `GET /assistants/{assistant_id}/schemas`
pub(super) async fn schemas(call: Call) -> Result<Response<Body>, Error> {
    let schemas = call.assistants().schemas(call.path.assistant()?);
    let schemas = schemas.map_err(|_| Error::not_found())?;
    Ok(body::json(StatusCode::OK, &schemas))
}
