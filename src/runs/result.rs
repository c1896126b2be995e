//! How a run ended, and the one rendering of it for everybody: those who wait, those who join it
//! while it runs or afterwards, streams of runs that another process executes, and repeated
//! requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

use super::{Error, Run, RunHandle, Service, Status, request::Target};
use crate::{
    engine::Interrupt,
    id::RunId,
    stream::{Mode, write_frame},
    tree::read::head::Head,
    value::{Map, Value},
};

/// How often the row of a run is read that another process executes.
const POLL: Duration = Duration::from_millis(500);
/// Pause after the storage failed.
const PAUSE: Duration = Duration::from_secs(1);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Final status.
    pub status: Status,
    /// The values of the state, in the form clients see.
    pub values: Value,
    /// Open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// `{"error", "message"}` of a failure.
    pub error: Option<Value>,
    /// The client joined after the end: it gets what the thread shows now.
    pub is_past: bool,
}

impl RunResult {
    /// The result of a run that left nothing.
    pub fn empty(status: Status) -> Self {
        Self {
            status,
            values: Value::map(Map::new()),
            interrupts: vec![],
            error: None,
            is_past: false,
        }
    }

    /// A failure.
    pub fn failed(error: &str, message: &str) -> Self {
        let mut map = Map::with_capacity(2);
        map.insert("error", error);
        map.insert("message", message);
        Self {
            error: Some(Value::map(map)),
            ..Self::empty(Status::Error)
        }
    }

    /// There is no such run.
    pub fn not_found() -> Self {
        Self::failed("HTTPException", "404: Run not found")
    }

    /// [`not_found`](Self::not_found) for those who wait for a result.
    pub fn ready_not_found() -> BoxFuture<'static, Self> {
        std::future::ready(Self::not_found()).boxed()
    }

    /// The result of a run that another process executed, by its final row and the head of its
    /// thread.
    pub fn of_row(row: &Run, head: Head) -> Self {
        let open = head.interrupts.values();
        Self {
            status: row.status,
            values: head.values,
            interrupts: open
                .flat_map(|list| list.as_list().unwrap_or_default())
                .filter_map(Interrupt::from_value)
                .collect(),
            // The row of a cancelled run says why it was cancelled, which is no failure.
            error: row
                .error
                .clone()
                .filter(|_| row.status != Status::Interrupted),
            is_past: false,
        }
    }

    /// The body of `/wait` and `/join`: the values with open interrupts, or the error. Several
    /// interrupts, and those that a late client finds, come without the values.
    pub fn to_value(&self) -> Value {
        if let Some(error) = &self.error {
            return Value::map(Map::from([("__error__", error.clone())]));
        }
        let mut map = match &self.values {
            Value::Map(map) if self.interrupts.is_empty() || self.shows_values() => (**map).clone(),
            Value::Map(_) | Value::Null => Map::new(),
            other if self.interrupts.is_empty() => return other.clone(),
            _ => Map::new(),
        };
        if !self.interrupts.is_empty() {
            let open = self.interrupts.iter();
            let open = open.map(|interrupt| self.interrupt(interrupt)).collect();
            map.insert("__interrupt__", Value::list(open));
        }
        Value::map(map)
    }

    fn shows_values(&self) -> bool {
        self.interrupts.len() == 1 && !self.is_past
    }

    fn interrupt(&self, interrupt: &Interrupt) -> Value {
        let mut value = interrupt.to_value();
        if let Some(map) = value.make_map_mut().filter(|_| !self.is_past) {
            map.insert("response_schema", Value::Null);
        }
        value
    }

    /// The end of a run as a stream of its own, for a client to whom no events are left: which run
    /// it was, and its error, or its values if `modes` have them.
    pub fn to_frames(&self, run: RunId, attempt: i32, modes: &[Mode]) -> Bytes {
        let mut out = vec![];
        let about = Map::from([
            ("run_id", run.to_string().into()),
            ("attempt", i64::from(attempt).into()),
        ]);
        push(&mut out, "metadata", &Value::map(about));
        if let Some(error) = &self.error {
            push(&mut out, "error", error);
        } else if modes.is_empty() || modes.contains(&Mode::Values) {
            for values in self.streamed_values() {
                push(&mut out, "values", &values);
            }
        }
        out.into()
    }

    /// The last `values` events of a stream: one for each interrupt, or one.
    fn streamed_values(&self) -> Vec<Value> {
        let one = |interrupts: &[Interrupt]| {
            Self {
                interrupts: interrupts.to_vec(),
                is_past: false,
                ..self.clone()
            }
            .to_value()
        };
        match &*self.interrupts {
            [] => vec![self.values.clone()],
            several => several.chunks(1).map(one).collect(),
        }
    }

    /// The failure alone as a stream.
    pub fn to_error_frame(&self) -> Bytes {
        let mut out = vec![];
        if let Some(error) = &self.error {
            push(&mut out, "error", error);
        }
        out.into()
    }
}

fn push(out: &mut Vec<u8>, event: &str, data: &Value) {
    write_frame(out, event, data.to_json().as_bytes(), None);
}

impl Service {
    /// The result of a run of this process. A run that was deleted or rolled back meanwhile is not
    /// found; `temporary` ones are always deleted by then.
    pub async fn result(&self, run: Target, temporary: bool, handle: RunHandle) -> RunResult {
        let result = handle.ended().await;
        if let Some(result) = &result
            && result.status != Status::Interrupted
        {
            return (**result).clone();
        }
        let row = self.find_run(run.thread, run.run).await;
        match (row, result) {
            (Ok(None), _) if !temporary => RunResult::not_found(),
            (Ok(Some(row)), None) if !row.status.is_final() => RunResult::failed(
                "ServerShutdown",
                "this server has stopped; the run goes on, join it again",
            ),
            (_, Some(result)) => (*result).clone(),
            (_, None) => RunResult::empty(Status::Interrupted),
        }
    }

    /// The result of a run, whichever process executes it, once it has ended.
    ///
    /// # Errors
    /// The storage failed before the wait began.
    pub async fn join(&self, run: Target) -> Result<Option<BoxFuture<'static, RunResult>>, Error> {
        let service = self.clone();
        if let Some(handle) = self.handle(run.run) {
            let result = async move { service.result(run, false, handle).await };
            return Ok(Some(result.boxed()));
        }
        let Some(row) = self.find_run(run.thread, run.run).await? else {
            return Ok(None);
        };
        let is_past = row.status.is_final();
        Ok(Some(
            async move { service.remote_result(run, is_past).await }.boxed(),
        ))
    }

    /// The result of a run that this process does not execute: its row is read until it is final.
    async fn remote_result(&self, run: Target, is_past: bool) -> RunResult {
        loop {
            match self.find_run(run.thread, run.run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    let result = self.result_of_row(&row).await;
                    return RunResult {
                        // What the thread shows: also why its last run was cancelled.
                        error: if is_past { row.error } else { result.error },
                        is_past,
                        ..result
                    };
                }
                Ok(Some(row)) => {
                    // Taken over by this process, which knows the end before a row is deleted.
                    if let Some(handle) = self.handle(run.run) {
                        return self.result(run, row.temporary, handle).await;
                    }
                    tokio::time::sleep(POLL).await;
                }
                Ok(None) => return RunResult::not_found(),
                Err(error) => {
                    tracing::warn!(%error, "a run could not be read");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The result of a run by its final row.
    pub(super) async fn result_of_row(&self, row: &Run) -> RunResult {
        let head = async {
            let thread = self.shared.thread(row.thread).await?;
            self.shared.head_of(&thread).await
        };
        let head = head.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the values of a run could not be read");
            Head {
                values: Value::map(Map::new()),
                interrupts: Map::new(),
            }
        });
        RunResult::of_row(row, head)
    }

    /// Publishes the result of a run that waits here to everybody who waits for it, and closes its
    /// stream.
    pub(super) fn publish_result(&self, pending: super::active::PendingRun, result: RunResult) {
        let publisher = &pending.handle.publisher;
        publisher.close();
        self.inner.hub.finish(publisher);
        pending.result.send_replace(Some(Arc::new(result)));
    }
}
