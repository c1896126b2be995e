//! Assistants.

use hyper::{Response, StatusCode};

use super::{
    api::{
        Xray,
        assistants::{Content, Create, Filter, Patch, Search, SortBy, Versions},
    },
    parse::fields::Fields,
    runs::{config, config_or_context},
    server::{
        body::{self, Body},
        call::Call,
        error::Error,
    },
    threads::{IF_EXISTS, LIST_DEFAULT, LIST_MAX, metadata, page},
};
use crate::value::{Map, Value};

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
        filter: filter(&fields)?,
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

/// `POST /assistants/count`
pub(super) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let filter = filter(&Fields::of(&body)?)?;
    let count = call.api().count_assistants(filter).await?;
    Ok(body::json(StatusCode::OK, &Value::from(count)))
}

/// `POST /assistants`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let id = fields.text("assistant_id")?.map(|text| text.parse());
    let id = id.transpose();
    let id = id.map_err(|_| Error::invalid("Invalid assistant ID: must be a UUID"))?;
    let graph = fields.text("graph_id")?;
    let graph = graph.ok_or_else(|| fields.required("graph_id"))?;
    let create = Create {
        id,
        if_exists: fields.word("if_exists", IF_EXISTS)?.unwrap_or_default(),
        graph_id: graph.to_string(),
        content: content(&fields)?,
    };
    let assistant = call.api().create_assistant(create).await?;
    Ok(body::json(StatusCode::OK, &assistant))
}

/// `PATCH /assistants/{assistant_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let patch = Patch {
        graph_id: fields.text("graph_id")?.map(|text| text.to_string()),
        content: content(&fields)?,
    };
    let assistant = call.api().patch_assistant(id, patch).await?;
    Ok(body::json(StatusCode::OK, &assistant))
}

/// `DELETE /assistants/{assistant_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let threads = call.query.flag("delete_threads")?;
    call.api().delete_assistant(id, threads).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /assistants/{assistant_id}/versions`
pub(super) async fn versions(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let limit = fields.integer("limit", 1, LIST_MAX)?;
    let page = Versions {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        limit: limit.unwrap_or(LIST_DEFAULT) as usize,
        offset: fields.integer("offset", 0, i64::MAX)?.unwrap_or(0) as usize,
    };
    let versions = call.api().assistant_versions(id, page).await?;
    Ok(body::json(StatusCode::OK, &Value::list(versions)))
}

/// `POST /assistants/{assistant_id}/latest`
pub(super) async fn latest(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let version = fields.integer("version", i64::MIN, i64::MAX)?;
    let version = version.ok_or_else(|| fields.required("version"))?;
    let assistant = call.api().pick_version(id, version).await?;
    Ok(body::json(StatusCode::OK, &assistant))
}

/// `GET /assistants/{assistant_id}/subgraphs` and `.../subgraphs/{namespace}`
pub(super) async fn subgraphs(call: Call) -> Result<Response<Body>, Error> {
    let assistant = call.path.assistant()?;
    let namespace = call.path.namespace()?;
    let recurse = call.query.flag("recurse")?;
    let schemas = call.api().subgraphs(assistant, namespace, recurse).await?;
    Ok(body::json(StatusCode::OK, &schemas))
}

fn filter(fields: &Fields<'_>) -> Result<Filter, Error> {
    Ok(Filter {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        graph_id: fields.text("graph_id")?.map(|text| text.to_string()),
        name: fields.text("name")?.map(|text| text.to_string()),
    })
}

fn content(fields: &Fields<'_>) -> Result<Content, Error> {
    let metadata = metadata(fields)?;
    let content = Content {
        name: fields.text("name")?.map(|text| text.to_string()),
        description: fields.text("description")?.map(|text| text.to_string()),
        config: fields.any("config").map(|_| config(fields)).transpose()?,
        context: fields.map("context")?.cloned(),
        metadata: fields.any("metadata").map(|_| metadata),
    };
    let empty = Map::default();
    config_or_context(
        content.config.as_ref().unwrap_or(&empty),
        content.context.as_ref().unwrap_or(&empty),
    )?;
    Ok(content)
}

/// How deep a drawing goes: not at all, `true` for every level, or this many.
fn xray(given: Option<&str>) -> Result<Xray, Error> {
    let given = given.unwrap_or_default().to_ascii_lowercase();
    match (&*given, given.parse()) {
        ("" | "false", _) => Ok(Xray::Levels(0)),
        ("true", _) => Ok(Xray::All),
        (_, Ok(levels @ 1..)) => Ok(Xray::Levels(levels)),
        _ => Err(Error::invalid("Invalid xray value")),
    }
}

/// `GET /assistants/{assistant_id}/graph`
pub(super) async fn graph(call: Call) -> Result<Response<Body>, Error> {
    let xray = xray(call.query.get("xray"))?;
    let graph = call
        .api()
        .graph(call.path.assistant_or_graph()?, xray)
        .await?;
    Ok(body::json(StatusCode::OK, &graph))
}

/// `GET /assistants/{assistant_id}/schemas`
pub(super) async fn schemas(call: Call) -> Result<Response<Body>, Error> {
    let schemas = call.api().schemas(call.path.assistant()?).await?;
    Ok(body::json(StatusCode::OK, &schemas))
}
