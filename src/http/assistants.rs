//! Assistants: created, changed in versions, deleted, read, searched and drawn.

use std::sync::Arc;

use hyper::{Response, StatusCode};

use super::{
    page::{self, LIST_DEFAULT, ORDERS},
    parse::{fields::Fields, ids, metadata::metadata},
    runs::{config, config_or_context},
    server::{Body, Call, Error, body, rows},
    wire::assistants::COLUMNS,
};
use crate::{
    assistants::{
        self, Change,
        request::{Columns, Filter, Search, SortBy},
        store::VersionQuery,
    },
    id::AssistantId,
    runs::{self, Listing, request::identity},
    tree::IfExists,
    value::{Map, Value},
};

/// `GET /assistants/{assistant_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let found = call.assistants().get(call.viewer(), call.path.assistant()?);
    let assistant = found.await.map_err(bare)?;
    call.reserve_values(std::iter::once(&assistant))?;
    Ok(body::json(StatusCode::OK, &assistant))
}

/// `POST /assistants/search`
pub(super) async fn search(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let (limit, offset) = page::range(&fields, LIST_DEFAULT)?;
    let select = page::columns(&fields, &COLUMNS)?;
    let search = Search {
        filter: filter(&call, &fields)?,
        limit: limit + 1,
        offset,
        sort_by: fields.word("sort_by", SortBy::ALL)?.unwrap_or_default(),
        ascending: fields.word("sort_order", ORDERS)?.unwrap_or(false),
    };
    let reads = |name| {
        select
            .as_ref()
            .is_none_or(|columns| columns.contains(&name))
    };
    let columns = Columns {
        metadata: reads("metadata"),
        config: reads("config"),
        context: reads("context"),
    };
    let mut found = call.assistants().search(search, columns).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let count = found.len();
    let rows = shown(call.assistants().clone(), call.viewer(), found, columns);
    let rows = rows.map(move |mut row| {
        page::retain(std::slice::from_mut(&mut row), select.as_deref());
        row
    });
    let mut response = rows::respond(&call, rows, Some("config, context and metadata")).await?;
    page::mark(&mut response, more, offset.saturating_add(count));
    Ok(response)
}

/// Assistants in the form clients see, with these columns, of which it is known how many bytes each has.
pub(super) fn shown(
    assistants: assistants::Service,
    viewer: Option<Arc<str>>,
    found: Vec<(AssistantId, u64)>,
    columns: Columns,
) -> Listing<Value, assistants::Error> {
    Listing::in_batches(found, move |ids| {
        let (assistants, viewer) = (assistants.clone(), viewer.clone());
        async move { assistants.shown(viewer, ids, columns).await }
    })
}

/// `POST /assistants/count`
pub(super) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let filter = filter(&call, &Fields::of(&body)?)?;
    let count = call.assistants().count(filter).await?;
    Ok(body::json(StatusCode::OK, &Value::from(count)))
}

/// `POST /assistants`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let id = fields.text("assistant_id")?.map(|text| {
        let parsed = ids::hyphenated(text);
        parsed.ok_or_else(|| Error::invalid("Invalid assistant ID: must be a UUID"))
    });
    let id: Option<AssistantId> = id.transpose()?;
    let mut change = change(&call, &fields)?;
    if change.graph.is_none() {
        return Err(fields.required("graph_id"));
    }
    // A name that says nothing is none.
    change.name = change.name.filter(|name| !name.is_empty());
    let if_exists = fields.word("if_exists", IfExists::ALL)?.unwrap_or_default();
    let do_nothing = if_exists == IfExists::DoNothing;
    let (owner, viewer) = (call.principal(), call.viewer());
    let assistants = call.assistants();
    let id_of_key = call.id_of_key();
    let created = assistants.create(owner, viewer, id, id_of_key, change, do_nothing);
    Ok(body::json(StatusCode::OK, &created.await?))
}

/// `PATCH /assistants/{assistant_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let change = change(&call, &Fields::of(&body)?)?;
    let changed = call.assistants().change(call.viewer(), id, change).await;
    let changed = changed.map_err(|error| named(error, id))?;
    Ok(body::json(StatusCode::OK, &changed))
}

/// `DELETE /assistants/{assistant_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let with_threads = call.query.flag("delete_threads")?;
    let missing = |error| match error {
        assistants::Error::NoAssistant => {
            Error::missing(format!("Assistant with ID {id} not found"))
        }
        other => other.into(),
    };
    let assistants = call.assistants();
    let may = assistants.check_deletion(call.viewer(), id).await;
    may.map_err(missing)?;
    if with_threads {
        // Before the assistant, so that a request that broke off can be repeated.
        call.threads().delete_of_assistant(id).await?;
    }
    let deleted = assistants.delete(call.viewer(), id).await;
    deleted.map_err(missing)?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /assistants/{assistant_id}/versions`
pub(super) async fn versions(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let (limit, offset) = page::range(&fields, LIST_DEFAULT)?;
    let query = VersionQuery {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        limit,
        offset,
    };
    let (assistants, viewer) = (call.assistants().clone(), call.viewer());
    let found = assistants.versions(viewer.clone(), id, query).await;
    let found = found.map_err(|error| named(error, id))?;
    let rows = Listing::in_batches(found, move |versions| {
        let (assistants, viewer) = (assistants.clone(), viewer.clone());
        async move { assistants.shown_versions(viewer, id, versions).await }
    });
    rows::respond(&call, rows, None).await
}

/// `POST /assistants/{assistant_id}/latest`
pub(super) async fn latest(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let version = fields.integer("version", i64::MIN, i64::MAX)?;
    let version = version.ok_or_else(|| fields.required("version"))?;
    let latest = call.assistants().activate(call.viewer(), id, version).await;
    let latest = latest.map_err(|error| named(error, id))?;
    Ok(body::json(StatusCode::OK, &latest))
}

/// `GET /assistants/{assistant_id}/subgraphs` and `.../subgraphs/{namespace}`
pub(super) async fn subgraphs(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.assistant()?;
    let namespace = call.path.namespace()?;
    let recurse = call.query.flag("recurse")?;
    let (viewer, namespace) = (call.viewer(), namespace.as_deref());
    let found = call.assistants().subgraphs(viewer, id, namespace, recurse);
    let schemas = found.await.map_err(bare)?;
    Ok(body::json(StatusCode::OK, &schemas))
}

fn filter(call: &Call, fields: &Fields<'_>) -> Result<Filter, Error> {
    let graph = fields.text("graph_id")?.cloned();
    Ok(Filter {
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        graphs: graph.into_iter().collect(),
        name: fields.text("name")?.map(|text| text.to_string()),
        viewer: call.viewer(),
    })
}

/// What a version of an assistant is to consist of.
fn change(call: &Call, fields: &Fields<'_>) -> Result<Change, Error> {
    let limits = call.shared.options.metadata;
    let text = |name| Ok::<_, Error>(fields.text(name)?.map(|text| text.to_string()));
    let mut config = config(fields, limits)?;
    identity::remove_servers(&mut config);
    let context = fields.map("context")?.map(identity::without_servers);
    config_or_context(&config, context.as_ref().unwrap_or(&Map::new()))?;
    Ok(Change {
        graph: fields.text("graph_id")?.cloned(),
        name: text("name")?,
        description: text("description")?,
        metadata: metadata(fields, limits)?,
        config,
        context,
    })
}

/// Without the name of what is missing.
fn bare(error: assistants::Error) -> Error {
    match error {
        assistants::Error::NoAssistant => Error::not_found(),
        other => other.into(),
    }
}

fn named(error: assistants::Error, id: AssistantId) -> Error {
    match error {
        assistants::Error::NoAssistant => Error::missing(format!("Assistant {id} not found")),
        other => other.into(),
    }
}

impl From<assistants::Error> for Error {
    fn from(error: assistants::Error) -> Self {
        use assistants::Error as E;
        match error {
            E::Storage(error) => error.into(),
            E::NoAssistant => Self::not_found(),
            E::UnknownGraph { name, known } => {
                let known: Vec<_> = known.iter().map(|name| format!("'{name}'")).collect();
                let known = known.join(", ");
                Self::missing(format!(
                    "Graph '{name}' not found. Expected one of: [{known}]"
                ))
            }
            E::Exists(_) | E::TooManyVersions(..) | E::Full(_) => Self::conflict(error.to_string()),
            E::NoVersion(..) => Self::missing(error.to_string()),
            E::System(_) => Self::new(StatusCode::FORBIDDEN, error.to_string()),
            E::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            E::NotMade { .. } => Self::bad_request(error.to_string()),
            E::Metadata(reason) => Self::invalid(reason),
        }
    }
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
    let drawing = call.assistants();
    let drawing = drawing.drawing(call.viewer(), &assistant, depth).await;
    Ok(body::json(StatusCode::OK, &drawing.map_err(as_of_run)?))
}

/// `GET /assistants/{assistant_id}/schemas`
pub(super) async fn schemas(call: Call) -> Result<Response<Body>, Error> {
    let assistant = call.path.assistant_or_graph()?;
    let schemas = call.assistants().schemas(call.viewer(), &assistant).await;
    Ok(body::json(StatusCode::OK, &schemas.map_err(as_of_run)?))
}

/// The error of a request that names an assistant or a graph, as at the creation of a run.
fn as_of_run(error: assistants::Error) -> Error {
    match error {
        assistants::Error::NoAssistant => Error::not_found(),
        other => runs::Error::from(other).into(),
    }
}
