//! Joining runs that exist: their end, their frames, and what happens when the client leaves.

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

use super::elsewhere::Elsewhere;
use crate::{
    http::server::{call::Call, sse},
    id::{RunId, ThreadId},
    runs::{
        Error, Live, Service, Status,
        request::{CancelAction, Join, Target},
    },
    stream::{FrameSource, Since, write_frame},
    value::{Map, Value},
};

fn no_such_run() -> Value {
    let mut map = Map::new();
    map.insert("error", "HTTPException");
    map.insert("message", "404: Run not found");
    Value::map(map)
}

/// For clients that wait here for a run that another process will end.
fn handed_over() -> Value {
    let mut map = Map::new();
    map.insert("error", "ServerShutdown");
    map.insert(
        "message",
        "this server has stopped; the run goes on, join it again",
    );
    Value::map(map)
}

/// Cancels the run when its client leaves, if `cancels`.
pub fn on_disconnect(call: &Call, run: Target, cancels: bool) -> Option<sse::OnDisconnect> {
    cancels.then(|| {
        let service = call.runs().clone();
        let leave: sse::OnDisconnect = Box::new(move || {
            tokio::spawn(async move {
                let why = "client disconnected from the run stream (on_disconnect=cancel)";
                let cancelled = service.cancel(run.thread, run.run, CancelAction::Interrupt, why);
                if let Err(error) = cancelled.await {
                    tracing::warn!(%error, "a run whose client left could not be cancelled");
                }
            });
        });
        leave
    })
}

/// The end of a run once it is there; `None` if there is no such run.
pub async fn result(
    service: &Service,
    run: Target,
) -> Result<Option<BoxFuture<'static, Value>>, Error> {
    let service = service.clone();
    if let Some(live) = service.live(run.run) {
        return Ok(Some(body_of(service, run, false, live).boxed()));
    }
    let found = service.find_run(run.thread, run.run).await?;
    Ok(found.map(|row| async move { service.end_of(row.thread, run.run).await }.boxed()))
}

/// The result of a run that does not exist.
pub fn not_found() -> BoxFuture<'static, Value> {
    futures::future::ready(failed(no_such_run())).boxed()
}

/// The frames of a run, and whether it has ended.
pub async fn frames(
    service: &Service,
    run: Target,
    join: Join,
) -> Result<(Box<dyn FrameSource>, bool), Error> {
    let since = Since::last_event_id(join.last_event_id.as_deref());
    if let Some(publisher) = service.stream(run.run) {
        // What was never kept cannot be replayed.
        let since = if publisher.resumable() {
            since
        } else {
            Since::Live
        };
        return Ok((Box::new(publisher.subscribe(since, &join.modes)), false));
    }
    let row = service.find_run(run.thread, run.run).await?;
    if row.as_ref().is_some_and(|row| !row.status.is_final()) {
        let frames = Elsewhere::new(service.clone(), run, join.modes);
        return Ok((Box::new(frames), false));
    }
    let bytes = row.is_none().then(|| {
        let mut bytes = vec![];
        let error = no_such_run().to_json();
        write_frame(&mut bytes, "error", error.as_bytes(), None);
        Bytes::from(bytes)
    });
    Ok((Box::new(bytes), true))
}

/// What a run of this process leaves; that there is none if it was deleted or undone meanwhile.
pub async fn body_of(service: Service, run: Target, temporary: bool, live: Live) -> Value {
    let end = live.ended().await;
    let lost = end
        .as_ref()
        .is_none_or(|end| end.status == Status::Interrupted);
    let row = match lost {
        true => service.find_run(run.thread, run.run).await,
        false => return end.map_or_else(Value::default, |end| end.body()),
    };
    match (row, end) {
        // A temporary one is always gone by now.
        (Ok(None), _) if !temporary => failed(no_such_run()),
        (Ok(Some(row)), None) if !row.status.is_final() => failed(handed_over()),
        (_, Some(end)) => end.body(),
        (_, None) => Value::map(Map::new()),
    }
}

fn failed(error: Value) -> Value {
    Value::map(Map::from([("__error__", error)]))
}

impl Service {
    /// How a run ended that this process does not execute: asked of the storage until it is
    /// final.
    async fn end_of(&self, thread: ThreadId, run: RunId) -> Value {
        loop {
            match self.find_run(thread, run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    if let Some(error) = row.error {
                        return failed(error);
                    }
                    return match self.shown_of(thread).await {
                        Ok((values, interrupts)) => ended_body(values, &interrupts),
                        Err(error) => {
                            tracing::warn!(%error, "the values of a run could not be read");
                            Value::map(Map::new())
                        }
                    };
                }
                Ok(Some(row)) => {
                    // Taken over by this process: it knows the end before the row goes.
                    if let Some(live) = self.live(run) {
                        let target = Target { thread, run };
                        return body_of(self.clone(), target, row.temporary, live).await;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                }
                Ok(None) => return failed(no_such_run()),
                Err(error) => {
                    tracing::warn!(%error, "a run could not be read");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// What a thread stands at as `/join` answers it: its open questions, else its values.
fn ended_body(values: Value, interrupts: &Map) -> Value {
    let open: Vec<Value> = interrupts
        .values()
        .flat_map(|list| list.as_list().unwrap_or_default())
        .cloned()
        .collect();
    match (open.is_empty(), values) {
        (false, _) => Value::map(Map::from([("__interrupt__", Value::list(open))])),
        (true, Value::Null) => Value::map(Map::new()),
        (true, values) => values,
    }
}
