//! Threads.

use hyper::{
    HeaderMap, Response, StatusCode,
    header::{HeaderName, HeaderValue},
};

use super::{
    assistants::ORDERS,
    parse::{
        address::coded,
        fields::{self, Fields},
    },
    render,
    server::{
        body::{self, Body},
        call::Call,
        error::Error,
        sse,
    },
};
use crate::{
    id::ThreadId,
    runs::request::{
        Prune, ThreadMode, Watch,
        threads::{Create, Filter, ForkMode, Search, SortBy, ThreadStatus},
    },
    tree::{IfExists, members::Level},
    value::{Map, Value},
};

mod parse;

use parse::{extract, supersteps, ttl};

/// Largest page of any list.
pub(super) const LIST_MAX: i64 = 1000;
/// Page of a list whose request does not say.
pub(super) const LIST_DEFAULT: i64 = 10;
/// Most keys of metadata.
const METADATA_KEYS: usize = 64;
/// Most bytes of metadata, as JSON.
const METADATA_BYTES: usize = 16_000;

/// What to do when an id is taken.
pub(super) const IF_EXISTS: &[(&str, IfExists)] = &[
    ("raise", IfExists::Raise),
    ("do_nothing", IfExists::DoNothing),
];

/// Whether relatives go too.
const SCOPES: &[(&str, bool)] = &[("thread", false), ("tree", true)];

const STATUSES: &[(&str, ThreadStatus)] = &[
    ("idle", ThreadStatus::Idle),
    ("busy", ThreadStatus::Busy),
    ("interrupted", ThreadStatus::Interrupted),
    ("error", ThreadStatus::Error),
];

const MODES: &[(&str, ForkMode)] = &[
    ("all", ForkMode::All),
    ("roots", ForkMode::Roots),
    ("latest-fork", ForkMode::LatestFork),
];

const SORTS: &[(&str, SortBy)] = &[
    ("thread_id", SortBy::ThreadId),
    ("status", SortBy::Status),
    ("created_at", SortBy::CreatedAt),
    ("updated_at", SortBy::UpdatedAt),
    ("state_updated_at", SortBy::StateUpdatedAt),
];

const COLUMNS: &[(&str, &str)] = &[
    ("thread_id", "thread_id"),
    ("created_at", "created_at"),
    ("updated_at", "updated_at"),
    ("state_updated_at", "state_updated_at"),
    ("metadata", "metadata"),
    ("config", "config"),
    ("context", "context"),
    ("status", "status"),
    ("values", "values"),
    ("interrupts", "interrupts"),
    ("error", "error"),
];

/// `POST /threads`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let create = creation(&mut call).await?;
    let view = call.api().create_thread(create).await?;
    let thread = Value::map(render::thread(&view));
    Ok(body::json(StatusCode::OK, &thread))
}

/// Reads what thread to create.
pub(super) async fn creation(call: &mut Call) -> Result<Create, Error> {
    let limit = call.shared.options.edit_limit;
    let body = call.json_upto(limit).await?;
    let fields = Fields::of(&body)?;
    ttl(&fields)?;
    let create = Create {
        id: fields
            .text("thread_id")?
            .filter(|text| !text.is_empty())
            .map(|text| thread_id(text))
            .transpose()?,
        metadata: metadata(&fields)?,
        if_exists: fields.word("if_exists", IF_EXISTS)?.unwrap_or_default(),
        supersteps: supersteps(&fields)?,
        principal: call.principal(),
    };
    if let (Some(id), IfExists::DoNothing) = (create.id, create.if_exists)
        && call.client.is_known
        && call.level(id).await?.is_none()
        && call.api().is_taken(id).await?
    {
        // Somebody else's is not answered.
        return Err(Error::thread_exists(id));
    }
    Ok(create)
}

/// `GET /threads/{thread_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let view = call.api().thread(call.path.thread()?).await?;
    let thread = Value::map(render::thread(&view));
    Ok(body::json(StatusCode::OK, &thread))
}

/// `PATCH /threads/{thread_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    ttl(&fields)?;
    let metadata = metadata(&fields)?;
    let patched = call.api().patch_thread(id, metadata).await;
    // The plain form of 404 is what LangGraph's server says here.
    let view = patched.map_err(Error::plain)?;
    if call
        .header("prefer")
        .is_some_and(|text| text.contains("return=minimal"))
    {
        return Ok(body::empty(StatusCode::NO_CONTENT));
    }
    let thread = Value::map(render::thread(&view));
    Ok(body::json(StatusCode::OK, &thread))
}

/// `DELETE /threads/{thread_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let scope = call.query.word("scope", SCOPES)?;
    let whole_tree = scope.unwrap_or(false);
    if call.query.flag("dry_run")? {
        let mut gone = match whole_tree {
            true => call.api().relatives(id).await?,
            false => vec![call.api().thread(id).await?.row.id],
        };
        let gone = gone.drain(..).map(|id| id.to_string().into()).collect();
        let answer = Value::map(Map::from([("threads", Value::list(gone))]));
        return Ok(body::json(StatusCode::OK, &answer));
    }
    match whole_tree {
        true => call.api().delete_tree(id).await.map(drop)?,
        false => call.api().delete_thread(id).await?,
    }
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /threads/search`
pub(super) async fn search(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let limit = fields
        .integer("limit", 1, LIST_MAX)?
        .unwrap_or(LIST_DEFAULT) as usize;
    let offset = fields.integer("offset", 0, i64::MAX)?.unwrap_or(0) as usize;
    let select = fields.words("select", COLUMNS)?;
    // An empty list leaves the choice to the server.
    let select = select.filter(|columns| !columns.is_empty());
    let extract = extract(&fields)?;
    let shows = |name| {
        select
            .as_ref()
            .is_none_or(|columns| columns.contains(&name))
    };
    let extracts = |name| extract.iter().any(|(_, path)| path.starts_with(name));
    let search = Search {
        filter: filter(&fields, &call)?,
        limit: limit + 1,
        offset,
        sort_by: fields.word("sort_by", SORTS)?.unwrap_or_default(),
        ascending: fields.word("sort_order", ORDERS)?.unwrap_or(false),
        with_values: ["values", "interrupts"]
            .iter()
            .any(|name| shows(name) || extracts(name)),
    };
    let found = call.api().search_threads(search).await?;
    let rendered = found.iter().map(|view| {
        let whole = render::thread(view);
        let extracted: Map = extract
            .iter()
            .map(|(alias, path)| (alias.as_str().into(), render::extract(&whole, path)))
            .collect();
        let mut map = render::select(whole, select.as_deref());
        if !extracted.is_empty() {
            map.insert("extracted", Value::map(extracted));
        }
        Value::map(map)
    });
    Ok(page(rendered.collect(), limit, offset))
}

/// `GET /threads`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    coded(listed(&call)).await
}

async fn listed(call: &Call) -> Result<Response<Body>, Error> {
    let query = &call.query;
    let limit = query.limit(LIST_DEFAULT, LIST_MAX)?;
    let offset = query.offset()?;
    let mut wanted = Vec::new();
    for text in query.all("min_event") {
        let pair = text
            .rsplit_once(':')
            .and_then(|(id, number)| Some((id.parse().ok()?, number.parse::<u32>().ok()?)));
        let (id, number) = pair.ok_or_else(|| {
            Error::invalid(format!(
                "Invalid min_event {text}: write <thread_id>:<event number>"
            ))
        })?;
        wanted.push((id, i64::from(number)));
    }
    let search = Search {
        filter: Filter {
            status: query.word("status", STATUSES)?,
            mode: query.word("mode", MODES)?.unwrap_or_default(),
            min_event: wanted,
            principal: call.viewer(),
            ..Filter::default()
        },
        limit: limit + 1,
        offset,
        sort_by: SortBy::default(),
        ascending: false,
        with_values: true,
    };
    let found = call.api().search_threads(search).await?;
    let shown = found.iter().map(|view| Value::map(render::thread(view)));
    Ok(page(shown.collect(), limit, offset))
}

/// `POST /threads/count`
pub(super) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let filter = filter(&Fields::of(&body)?, &call)?;
    let count = call.api().count_threads(filter).await?;
    Ok(body::json(StatusCode::OK, &Value::from(count)))
}

/// `POST /threads/{thread_id}/copy`
pub(super) async fn copy(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let view = call.api().copy_thread(id, call.principal()).await?;
    let thread = Value::map(render::thread(&view));
    Ok(body::json(StatusCode::OK, &thread))
}

/// `POST /threads/prune`
pub(super) async fn prune(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let ids = fields.texts("thread_ids")?;
    let ids = ids.ok_or_else(|| fields.required("thread_ids"))?;
    let ids = ids.iter().map(|id| thread_id(id));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let how = fields.word("strategy", Prune::ALL)?;
    let how = how.unwrap_or(Prune::Delete);
    let ids = allowed(&call, ids, how).await?;
    let count = call.api().prune_threads(ids, how).await?;
    let answer = Value::map(Map::from([("pruned_count", Value::from(count))]));
    Ok(body::json(StatusCode::OK, &answer))
}

/// Those of the threads that the client sees; refused when it may not do this with one of them.
async fn allowed(call: &Call, ids: Vec<ThreadId>, how: Prune) -> Result<Vec<ThreadId>, Error> {
    if !call.client.is_known {
        return Ok(ids);
    }
    let needed = match how {
        Prune::Delete => Level::Owner,
        Prune::KeepLatest => Level::Writer,
    };
    let mut own = Vec::with_capacity(ids.len());
    for id in ids {
        if call.level(id).await?.is_some() {
            call.authorize(id, needed).await?;
            own.push(id);
        }
    }
    Ok(own)
}

/// `GET /threads/{thread_id}/stream`
pub(super) async fn watch(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let mut modes = Vec::new();
    let asked = call
        .query
        .all("stream_modes")
        .chain(call.query.all("stream_mode"));
    for word in asked
        .flat_map(|text| text.split(','))
        .filter(|word| !word.is_empty())
    {
        let word = Value::str(word);
        let mode = fields::pick(&word, ThreadMode::ALL).ok_or_else(|| {
            let reason = fields::not_one_of(&word, ThreadMode::ALL);
            Error::invalid(format!("{reason}, in `stream_modes`"))
        })?;
        modes.push(mode);
    }
    if modes.is_empty() {
        modes.push(ThreadMode::RunModes);
    }
    let last_event_id = call.header("last-event-id").map(Into::into);
    if last_event_id.as_deref().is_some_and(|id| !is_event_id(id)) {
        let detail = "Invalid last-event-id: must be `-` or the id of an event of this stream";
        return Err(Error::invalid(detail));
    }
    let watch = Watch {
        modes,
        last_event_id,
    };
    let slot = call.stream_slot()?;
    let frames = call.api().watch_thread(id, watch).await?;
    let heartbeat = call.shared.options.heartbeat;
    let drain = call.shared.drain.clone();
    Ok(sse::respond(frames, None, heartbeat, drain, slot))
}

/// `-`, `-1`, a number, or two with a dash between.
fn is_event_id(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('-') {
        None => number(text),
        Some(("", rest)) => rest.is_empty() || rest == "1",
        Some((first, second)) => number(first) && number(second),
    }
}

/// A page of a list that was asked for one item more than `limit`, with the headers that say
/// whether there are more. The total is no count, but what LangGraph's server sends.
pub(super) fn page(mut items: Vec<Value>, limit: usize, offset: usize) -> Response<Body> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = offset.saturating_add(items.len());
    let total = if more { next.saturating_add(1) } else { next };
    let mut response = body::json(StatusCode::OK, &Value::list(items));
    let headers: &mut HeaderMap = response.headers_mut();
    let name = HeaderName::from_static("x-pagination-total");
    headers.insert(name, HeaderValue::from(total));
    if more {
        let name = HeaderName::from_static("x-pagination-next");
        headers.insert(name, HeaderValue::from(next));
    }
    response
}

/// Metadata within its limits.
pub(super) fn metadata(fields: &Fields<'_>) -> Result<Map, Error> {
    let map = fields.map("metadata")?.cloned().unwrap_or_default();
    if map.len() > METADATA_KEYS {
        let reason = format!(
            "Metadata has {} keys, at most {METADATA_KEYS} are allowed",
            map.len()
        );
        return Err(fields.refuse("metadata", reason));
    }
    let bytes = Value::map(map.clone()).to_json().len();
    if bytes > METADATA_BYTES {
        let reason = format!("Metadata has {bytes} bytes, at most {METADATA_BYTES} are allowed");
        return Err(fields.refuse("metadata", reason));
    }
    Ok(map)
}

pub(super) fn thread_id(text: &str) -> Result<ThreadId, Error> {
    text.parse()
        .map_err(|_| Error::invalid("Invalid thread ID: must be a UUID"))
}

fn filter(fields: &Fields<'_>, call: &Call) -> Result<Filter, Error> {
    let ids = fields.texts("ids")?.filter(|ids| !ids.is_empty());
    let ids = ids.map(|ids| {
        ids.iter()
            .map(|id| {
                id.parse()
                    .map_err(|_| Error::bad_request(format!("Invalid thread ID {id}")))
            })
            .collect::<Result<Vec<ThreadId>, _>>()
    });
    Ok(Filter {
        ids: ids.transpose()?,
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        values: fields.map("values")?.cloned().unwrap_or_default(),
        status: fields.word("status", STATUSES)?,
        // Fields that LangGraph does not have.
        mode: fields
            .word("mode", MODES)
            .map_err(Error::coded)?
            .unwrap_or_default(),
        min_event: min_event(fields).map_err(Error::coded)?,
        principal: call.viewer(),
    })
}

/// `{"<thread_id>": number}`.
fn min_event(fields: &Fields<'_>) -> Result<Vec<(ThreadId, i64)>, Error> {
    let map = fields.map("min_event")?;
    let mut wanted = Vec::new();
    for (id, number) in map.into_iter().flat_map(Map::iter) {
        match (id.parse(), number.as_i64()) {
            (Ok(id), Some(number)) if number >= 0 => wanted.push((id, number)),
            _ => {
                let reason = "Each key must be a thread ID, each value an event number";
                return Err(fields.refuse("min_event", reason));
            }
        }
    }
    Ok(wanted)
}
