//! Lists of threads: search, count and the plain list.

use hyper::{Response, StatusCode};

use super::parse::extract;
use crate::{
    http::{
        page::{self, LIST_DEFAULT, LIST_MAX, ORDERS},
        parse::fields::{Fields, whole},
        render,
        server::{Body, Call, Error, body, rows},
        wire::threads::COLUMNS,
    },
    id::ThreadId,
    threads::{
        request::{Columns, Filter, ForkMode, Search, SortBy, ThreadStatus, View},
        search::FoundThreads,
    },
    value::{Map, Value},
};

/// `POST /threads/search`
pub(in crate::http) async fn search(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let (limit, offset) = page::range(&fields, LIST_DEFAULT)?;
    let select = page::columns(&fields, &COLUMNS)?;
    let extract = extract(&fields)?;
    let shows = |name| {
        select
            .as_ref()
            .is_none_or(|columns| columns.contains(&name))
    };
    let extracts = |name| extract.iter().any(|(_, path)| path.starts_with(name));
    let reads = |name| shows(name) || extracts(name);
    let (with_values, with_interrupts) = (reads("values"), reads("interrupts"));
    let search = Search {
        filter: filter(&fields, &call)?,
        limit: limit + 1,
        offset,
        sort_by: fields.word("sort_by", SortBy::ALL)?.unwrap_or_default(),
        ascending: fields.word("sort_order", ORDERS)?.unwrap_or(false),
        with_values,
        with_interrupts,
        columns: Columns {
            metadata: reads("metadata"),
            graph: with_values || with_interrupts,
            config: reads("config"),
            // Of a thread without a state it decides whether there are interrupts.
            error: reads("error") || with_interrupts,
        },
    };
    let found = call.threads().search(&search).await?;
    let paths = extract.len() as u64;
    let render = move |view: View| {
        let whole = render::thread(&view);
        let extracted: Map = extract
            .iter()
            .map(|(alias, path)| (alias.as_str().into(), render::extract(&whole, path)))
            .collect();
        let mut map = render::select(whole, select.as_deref());
        if !extracted.is_empty() {
            map.insert("extracted", Value::map(extracted));
        }
        Value::map(map)
    };
    respond(
        &call,
        found,
        (limit, offset),
        (Some("values and interrupts"), paths),
        render,
    )
    .await
}

/// `GET /threads`
pub(in crate::http) async fn list(call: Call) -> Result<Response<Body>, Error> {
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
            status: query.word("status", ThreadStatus::ALL)?,
            mode: query.word("mode", ForkMode::ALL)?.unwrap_or_default(),
            min_event: wanted,
            principal: call.viewer(),
            ..Filter::default()
        },
        limit: limit + 1,
        offset,
        sort_by: SortBy::default(),
        ascending: false,
        with_values: true,
        with_interrupts: true,
        columns: Columns::default(),
    };
    let found = call.threads().search(&search).await?;
    let render = |view: View| Value::map(render::thread(&view));
    respond(&call, found, (limit, offset), (None, 0), render).await
}

/// The response with a page of threads, of each of which so many paths are extracted. `found` has one more than the
/// limit when more follow.
async fn respond(
    call: &Call,
    mut found: FoundThreads,
    (limit, offset): (usize, usize),
    (large, paths): (Option<&str>, u64),
    render: impl FnMut(View) -> Value + Send + 'static,
) -> Result<Response<Body>, Error> {
    let more = found.count() > limit;
    found.truncate(limit);
    let count = found.count();
    let mut threads = found.listing(call.threads()).map(render);
    // What is extracted is there once, and written once more for each path.
    threads.largest += threads.largest / 3 * paths;
    let mut response = rows::respond(call, threads, large).await?;
    page::mark(&mut response, more, offset.saturating_add(count));
    Ok(response)
}

/// `POST /threads/count`
pub(in crate::http) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let filter = filter(&Fields::of(&body)?, &call)?;
    let count = call.threads().count(&filter).await?;
    Ok(body::json(StatusCode::OK, &Value::from(count)))
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
        status: fields.word("status", ThreadStatus::ALL)?,
        // Fields that LangGraph does not have.
        mode: fields
            .word("mode", ForkMode::ALL)
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
        match (id.parse(), whole(number)) {
            (Ok(id), Some(number)) if number >= 0 => wanted.push((id, number)),
            _ => {
                let reason = "Each key must be a thread ID, each value an event number";
                return Err(fields.refuse("min_event", reason));
            }
        }
    }
    Ok(wanted)
}
