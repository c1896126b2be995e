//! Forks of threads, and threads created by command.

use hyper::{Response, StatusCode};

use super::{
    page::LIST_MAX,
    parse::{
        address::{self},
        fields::Fields,
        ids,
        metadata::metadata,
    },
    server::{Body, Call, Error, body},
    threads,
};
use crate::{
    id::ThreadId,
    threads::forks::{
        Forked, NewFork,
        family::{Family, Part},
    },
    time::Timestamp,
    tree::{
        event,
        fork::points::{ForkOption, ForkPoint},
        store::rows::{ForkCursor, Position, Relative},
    },
    value::{Map, Value},
};

/// The year 9999, in microseconds.
const TIME_MAX: i64 = 253_402_300_799_999_999;

/// `POST /commands/create-thread`
pub(super) async fn create_thread(mut call: Call) -> Result<Response<Body>, Error> {
    let create = threads::creation(&mut call).await?;
    let created = call.threads().create_with_event(create).await;
    let created = created.map_err(|error| match Error::from(error) {
        // Errors of the tree's own commands have codes.
        error if error.status == StatusCode::CONFLICT && error.code.is_none() => {
            error.with_code("thread_exists")
        }
        error => error,
    })?;
    let response = Value::map(Map::from([
        ("thread_id", Value::from(created.id.to_string())),
        ("event_id", created.event.to_string().into()),
        ("event_number", created.event_number.into()),
    ]));
    Ok(body::json(StatusCode::OK, &response))
}

/// `POST /commands/fork-thread`
pub(super) async fn fork_thread(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let source = source(&fields)?.ok_or_else(|| fields.required("source_thread_id"))?;
    make(&call, source, &fields).await
}

/// `POST /threads/{thread_id}/fork`
pub(super) async fn fork(mut call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    if source(&fields)?.is_some_and(|named| named != thread) {
        let reason = "It must be the thread of the path, or be left out";
        return Err(fields.refuse("source_thread_id", reason));
    }
    make(&call, thread, &fields).await
}

fn source(fields: &Fields<'_>) -> Result<Option<ThreadId>, Error> {
    let text = fields.text("source_thread_id")?;
    text.map(|text| ids::thread(text)).transpose()
}

async fn make(call: &Call, source: ThreadId, fields: &Fields<'_>) -> Result<Response<Body>, Error> {
    let id = fields.text("thread_id")?;
    let new = NewFork {
        source,
        at: address::of_body(fields)?.address(false)?,
        id: id.map(|text| ids::thread(text)).transpose()?,
        id_of_key: call.id_of_key(),
        metadata: metadata(fields, call.shared.options.metadata)?,
        by: call.principal(),
    };
    let made = call.threads().fork(new).await?;
    Ok(body::json(StatusCode::CREATED, &forked(&made)))
}

fn forked(made: &Forked) -> Value {
    let row = &made.thread;
    let id = row.id.to_string();
    let event = event::id(row.id, made.event_number);
    let mut map = Map::from([
        ("new_thread_id", Value::from(id.clone())),
        ("thread_id", id.into()),
        ("tree_id", row.tree.to_string().into()),
        (
            "fork_checkpoint_id",
            row.fork_checkpoint.map(|id| id.to_string()).into(),
        ),
        ("fork_event_number", row.fork_event_number.into()),
        ("event_id", event.to_string().into()),
        ("event_number", made.event_number.into()),
    ]);
    if made.dangling {
        let warnings = vec![Value::str("dangling_tool_calls")];
        map.insert("warnings", Value::list(warnings));
    }
    Value::map(map)
}

/// `GET /threads/{thread_id}/forks`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let limit = call.query.limit(LIST_MAX, LIST_MAX)?;
    let after = call.query.get("after").map(parse_cursor).transpose()?;
    let part = Part {
        after,
        limit,
        bytes: call.shared.options.page_bytes,
    };
    let found = call.threads().family(thread, part).await?;
    Ok(body::json(StatusCode::OK, &family(&found)))
}

/// When a fork was created, and its id: what the next page of forks lies behind.
fn cursor_text(cursor: ForkCursor) -> String {
    format!("{}-{}", cursor.created_at.0, cursor.thread.0.simple())
}

fn parse_cursor(text: &str) -> Result<ForkCursor, Error> {
    let parsed = text.split_once('-').and_then(|(time, id)| {
        Some(ForkCursor {
            // Both databases have more years than a number of microseconds.
            created_at: Timestamp(
                time.parse()
                    .ok()
                    .filter(|time| (0..=TIME_MAX).contains(time))?,
            ),
            thread: ThreadId(id.parse().ok()?),
        })
    });
    parsed.ok_or_else(|| Error::invalid("Invalid after: it must be the `next` of a page of forks"))
}

fn family(found: &Family) -> Value {
    let tree = found.tree.to_string();
    let threads = found.threads.iter();
    let points = found.points.iter().zip(&found.previews);
    Value::map(Map::from([
        ("tree_id", Value::from(tree.clone())),
        // A tree has the id of its first thread.
        ("root_thread_id", tree.into()),
        ("threads", Value::list(threads.map(relative).collect())),
        (
            "fork_points",
            Value::list(points.map(|(point, texts)| shown(point, texts)).collect()),
        ),
        ("next", found.next.map(cursor_text).into()),
    ]))
}

fn relative(relative: &Relative) -> Value {
    let row = &relative.row;
    Value::map(Map::from([
        ("thread_id", Value::from(row.id.to_string())),
        (
            "parent_thread_id",
            row.parent.map(|id| id.to_string()).into(),
        ),
        ("parent_deleted", relative.parent_deleted.into()),
        (
            "forked_at_message_id",
            row.fork_anchor.clone().map(Value::Str).into(),
        ),
        ("position", row.fork_position.map(Position::as_str).into()),
        (
            "fork_checkpoint_id",
            row.fork_checkpoint.map(|id| id.to_string()).into(),
        ),
        ("fork_event_number", row.fork_event_number.into()),
        ("fork_level", i64::from(row.fork_level).into()),
        ("created_at", row.created_at.to_string().into()),
        ("updated_at", row.updated_at.to_string().into()),
        ("metadata", Value::map(row.metadata.clone())),
    ]))
}

fn shown(point: &ForkPoint, texts: &[Option<std::sync::Arc<str>>]) -> Value {
    let option = |(choice, text): (&ForkOption, &Option<std::sync::Arc<str>>)| {
        let message = choice.message.as_ref();
        Value::map(Map::from([
            ("thread_id", Value::from(choice.thread.to_string())),
            ("branch", Value::Str(choice.branch.clone())),
            (
                "message_id",
                message
                    .map(|node| Value::Str(node.message_id.clone()))
                    .into(),
            ),
            ("preview", text.clone().map(Value::Str).into()),
            ("created_at", choice.created_at.to_string().into()),
            ("active", choice.active.into()),
        ]))
    };
    let options = point.options.iter().zip(texts).map(option);
    Value::map(Map::from([
        ("message_id", point.message.clone().map(Value::Str).into()),
        ("options", Value::list(options.collect())),
    ]))
}
