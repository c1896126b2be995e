//! Crons: created, changed, deleted, read, searched and counted.

use hyper::{Response, StatusCode};

mod parse;

pub(super) use parse::request_of;

use super::{
    page::{self, LIST_DEFAULT, ORDERS},
    parse::{fields::Fields, ids},
    server::{Body, Call, Error, body, rows},
    wire::crons::COLUMNS,
};
use crate::{
    assistants,
    crons::{
        self, CronRow,
        request::{Columns, Filter, Search, SortBy},
        service::NewCron,
    },
    id::{AssistantId, ThreadId},
    runs::{Listing, request::Assistant},
    tree::{self, members::Level},
    value::Value,
};

/// `POST /runs/crons`
pub(super) async fn create(call: Call) -> Result<Response<Body>, Error> {
    create_on(call, None).await
}

/// `POST /threads/{thread_id}/runs/crons`
pub(super) async fn create_on_thread(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    create_on(call, Some(thread)).await
}

async fn create_on(mut call: Call, thread: Option<ThreadId>) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let options = &call.shared.options;
    let content = parse::content(&fields, options.metadata)?;
    if content.schedule.is_none() {
        return Err(fields.required("schedule"));
    }
    let request = parse::request(fields.map_of(), options, call.requester())?;
    let new = NewCron {
        id_of_key: call.id_of_key(),
        owner: call.principal(),
        access: call.access.at(Level::Writer),
        assistant: assistant(&call, &request.assistant).await?,
        thread,
        content,
    };
    call.runs().check_cron(thread, &request).await?;
    let created = call.crons().create(new).await?;
    Ok(body::json(StatusCode::OK, &created))
}

/// The id of an assistant that the client sees.
async fn assistant(call: &Call, assistant: &Assistant) -> Result<AssistantId, Error> {
    let viewer = call.viewer();
    let found = call.assistants().resolve(viewer.as_ref(), assistant).await;
    found.map(|found| found.id).map_err(|error| match error {
        assistants::Error::UnknownGraph { .. } | assistants::Error::NoAssistant => {
            let name = match assistant {
                Assistant::Id(id) => id.to_string(),
                Assistant::Graph(name) => name.chars().take(80).collect(),
            };
            Error::missing(format!("Assistant '{name}' not found"))
        }
        other => other.into(),
    })
}

/// `GET /runs/crons/{cron_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let found = call.crons().get(call.viewer_of_crons(), call.path.cron()?);
    let found = found.await.map_err(bare)?;
    call.reserve_values(std::iter::once(&found))?;
    Ok(body::json(StatusCode::OK, &found))
}

/// `PATCH /runs/crons/{cron_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.cron()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    if fields.map_of().is_empty() {
        return Err(Error::bad_request("Request body cannot be empty"));
    }
    let options = &call.shared.options;
    let change = parse::content(&fields, options.metadata)?;
    parse::check(&change.payload, options, call.requester())?;
    let (runs, requester) = (call.runs(), call.requester());
    let check = |cron: CronRow, has_new_input| {
        let requester = requester.clone();
        async move {
            let request = parse::request(&cron.payload, options, requester)?;
            if has_new_input {
                runs.check_cron(cron.thread, &request).await?;
            }
            Ok::<_, Error>(())
        }
    };
    let changed = call.crons().change(call.viewer(), id, &change, check);
    Ok(body::json(StatusCode::OK, &changed.await?))
}

/// `DELETE /runs/crons/{cron_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.cron()?;
    let deleted = call.crons().delete(call.viewer_of_crons(), id).await;
    deleted.map_err(bare)?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /runs/crons/search`
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
    let is_shown = |name| {
        select
            .as_ref()
            .is_none_or(|columns| columns.contains(&name))
    };
    let columns = Columns {
        metadata: is_shown("metadata"),
        payload: is_shown("payload"),
        end_time: is_shown("end_time"),
    };
    let mut found = call.crons().search(search, columns).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let count = found.len();
    let (crons, viewer) = (call.crons().clone(), call.viewer_of_crons());
    let rows = Listing::in_batches(found, move |ids| {
        let (crons, viewer) = (crons.clone(), viewer.clone());
        async move { crons.shown(viewer, ids, columns).await }
    });
    let rows = rows.map(move |mut row| {
        page::retain(std::slice::from_mut(&mut row), select.as_deref());
        row
    });
    let mut response = rows::respond(&call, rows, Some("payload, metadata and end_time")).await?;
    page::mark(&mut response, more, offset.saturating_add(count));
    Ok(response)
}

/// `POST /runs/crons/count`
pub(super) async fn count(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let filter = filter(&call, &Fields::of(&body)?)?;
    let count = call.crons().count(filter).await?;
    Ok(body::json(StatusCode::OK, &Value::from(count)))
}

fn filter(call: &Call, fields: &Fields<'_>) -> Result<Filter, Error> {
    let assistant = fields.text("assistant_id")?.map(|text| {
        let found = match ids::assistant(text) {
            Assistant::Id(id) => Some(id),
            Assistant::Graph(name) => {
                let named = call.assistants().named(&name);
                named.map(|_| AssistantId::of_graph(&name))
            }
        };
        found.ok_or_else(|| Error::invalid("Invalid assistant ID: must be a UUID"))
    });
    let thread = fields.text("thread_id")?.map(|text| ids::thread(text));
    Ok(Filter {
        assistant: assistant.transpose()?,
        thread: thread.transpose()?,
        enabled: fields.flag("enabled")?,
        metadata: fields.map("metadata")?.cloned().unwrap_or_default(),
        viewer: call.viewer_of_crons(),
    })
}

/// Without the id of what is missing.
fn bare(error: crons::Error) -> Error {
    match error {
        crons::Error::NoCron(_) => Error::not_found(),
        other => other.into(),
    }
}

impl From<crons::Error> for Error {
    fn from(error: crons::Error) -> Self {
        use crons::Error as E;
        let text = error.to_string();
        match error {
            E::Storage(error) => error.into(),
            E::Denied(denied) => tree::Error::from(denied).into(),
            E::NoCron(_) | E::NoThread(_) | E::NoAssistant(_) => Self::missing(text),
            E::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, text),
            E::Conflict(_) | E::Full(_) => Self::conflict(text),
            E::Schedule(_) | E::Never(_) | E::Zone(_) | E::Ended | E::Metadata(_) => {
                Self::invalid(text)
            }
        }
    }
}
