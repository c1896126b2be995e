//! Runs, on threads and stateless: create, list, read, cancel and delete.

use hyper::{Response, StatusCode};

use self::location::{put_join, put_run, target};
use super::{
    page::{LIST_DEFAULT, LIST_MAX},
    render,
    server::{Body, Call, Error, body, rows},
    wire::runs::COLUMNS,
};
use crate::{
    id::ThreadId,
    runs::{
        Run, Status,
        request::{CancelAction, Run as Request, Target},
        service::RequestPart,
    },
    value::Value,
};

pub(super) mod by_id;
pub(super) mod join;
pub(super) mod location;
mod parse;

pub(super) use parse::{
    config, config_or_context, of_call, parse as parse_run, put_address, put_config,
};

/// `POST /threads/{thread_id}/runs`
pub(super) async fn create(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin(call, Some(thread)).await
}

/// `POST /runs`
pub(super) async fn create_stateless(call: Call) -> Result<Response<Body>, Error> {
    begin(call, None).await
}

async fn begin(mut call: Call, thread: Option<ThreadId>) -> Result<Response<Body>, Error> {
    let request = parse::run(&mut call, thread.is_none()).await?;
    let run = create_run(&call, thread, request).await?;
    let mut response = body::json(StatusCode::OK, &Value::map(render::run(&run)));
    let target = Target {
        thread: run.thread,
        run: run.id,
    };
    put_run(response.headers_mut(), thread, target);
    Ok(response)
}

async fn create_run(call: &Call, thread: Option<ThreadId>, request: Request) -> Result<Run, Error> {
    let new = call.runs().create(thread, request, false).await?;
    Ok(Run {
        // The response shows the moment of creation, even when the run has begun meanwhile.
        status: Status::Pending,
        ..new.row
    })
}

/// `GET /threads/{thread_id}/runs`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let query = &call.query;
    let limit = query.limit(LIST_DEFAULT, LIST_MAX)?;
    let offset = query.offset()?;
    let columns = columns(&query.list("select")?)?;
    let status = query.get("status").filter(|text| !text.is_empty());
    let (status, limit) = match status.map(str::parse::<Status>) {
        None => (None, limit),
        Some(Ok(status)) => (Some(status), limit),
        // No run has a status of this name, but the thread must exist.
        Some(Err(_)) => (None, 0),
    };
    let is_shown = |name| {
        columns
            .as_ref()
            .is_none_or(|columns| columns.contains(&name))
    };
    let part = match (is_shown("kwargs"), is_shown("metadata")) {
        (true, _) => RequestPart::Whole,
        (false, true) => RequestPart::Metadata,
        (false, false) => RequestPart::Nothing,
    };
    let page = (limit, offset);
    let runs = call.runs();
    let runs = runs.list(&call.access, thread, status, page, part);
    let runs = runs.await?.map(move |run| {
        let map = render::select(render::run(&run), columns.as_deref());
        Value::map(map)
    });
    rows::respond(&call, runs, Some("kwargs and metadata")).await
}

fn columns(names: &[Value]) -> Result<Option<Vec<&'static str>>, Error> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        let column = COLUMNS.iter().find(|column| name.as_str() == Some(column));
        match column {
            Some(column) => known.push(*column),
            None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let detail = format!("Invalid select columns: {unknown:?}. Expected: {COLUMNS:?}");
        return Err(Error::invalid(detail));
    }
    Ok((!known.is_empty()).then_some(known))
}

/// `GET /threads/{thread_id}/runs/{run_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let target = target(&call)?;
    let memory = call.read_memory();
    let found = call.runs().visible_run(&call.access, target, &memory);
    let Some(run) = found.await? else {
        // A thread that is missing is named; a run has the plain form here, unlike at deletion.
        call.threads().check(target.thread).await?;
        return Err(Error::not_found());
    };
    Ok(body::json(StatusCode::OK, &Value::map(render::run(&run))))
}

/// `DELETE /threads/{thread_id}/runs/{run_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    call.runs().delete(&call.access, run).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /threads/{thread_id}/runs/{run_id}/cancel`
pub(super) async fn cancel(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let wait = call.query.flag("wait")?;
    let action = call.query.word("action", CancelAction::ALL)?;
    let action = action.unwrap_or(CancelAction::Interrupt);
    let cancelled = call
        .runs()
        .cancel_requested(&call.access, run, action, wait);
    let Some(result) = cancelled.await? else {
        return Ok(body::empty(StatusCode::ACCEPTED));
    };
    let mut response = body::json(StatusCode::OK, &result.to_value());
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// `POST /runs/cancel`
pub(super) async fn cancel_many(mut call: Call) -> Result<Response<Body>, Error> {
    let action = call.query.word("action", CancelAction::ALL)?;
    let action = action.unwrap_or(CancelAction::Interrupt);
    let body = call.json().await?;
    let which = parse::cancel(&body)?;
    let cancelled = call
        .runs()
        .cancel_all_requested(&call.access, which, action);
    cancelled.await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /runs/batch`
pub(super) async fn create_batch(mut call: Call) -> Result<Response<Body>, Error> {
    let requests = parse::batch(&mut call).await?;
    let memory = call.read_memory();
    let runs = call.runs().create_batch(requests, &memory).await?;
    let shown = |run| {
        // As at the creation of one.
        let status = Status::Pending;
        Value::map(render::run(&Run { status, ..run }))
    };
    let runs = runs.into_iter().map(shown).collect();
    Ok(body::json(StatusCode::OK, &Value::list(runs)))
}
