//! How a run ended, and the one rendering of it for everybody: those who wait, those who join it
//! while it runs or afterwards, streams of runs that another process executes, and repeated
//! requests.

mod logged;
mod values;
mod wait;

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

pub use values::Values;

use super::{Run, Status, shared::memory::ReadingMemory};
use crate::{
    engine::Interrupt,
    id::RunId,
    stream::{End, Mode, write_frame},
    tree::read::head::Head,
    value::{Map, Value},
};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Final status.
    pub status: Status,
    /// The values of the state.
    pub values: Values,
    /// Open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// `{"error", "message"}` of a failure.
    pub error: Option<Value>,
    /// The client joined after the end: it gets what the thread shows now.
    pub is_past: bool,
    /// It is not the end: this process has stopped, and another one goes on with the run.
    pub goes_on: bool,
    /// What was reserved for its values before they were read, if they are large.
    pub memory: Option<ReadingMemory>,
}

/// Class and message of the error of a run that is not there.
pub(super) const NOT_FOUND: (&str, &str) = ("HTTPException", "404: Run not found");

impl RunResult {
    /// The result of a run that left nothing.
    pub fn empty(status: Status) -> Self {
        Self {
            status,
            values: Value::map(Map::new()).into(),
            interrupts: vec![],
            error: None,
            is_past: false,
            goes_on: false,
            memory: None,
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

    /// Class and message of the failure.
    pub fn failure(&self) -> Option<(&str, &str)> {
        let failure = self.error.as_ref()?;
        let text = |key| failure.get(key).and_then(Value::as_str).unwrap_or_default();
        Some((text("error"), text("message")))
    }

    /// What this process can say of a run that another one goes on with.
    pub(super) fn handed_over() -> Self {
        let message = "this server has stopped; the run goes on, join it again";
        Self {
            goes_on: true,
            ..Self::failed("ServerShutdown", message)
        }
    }

    /// There is no such run.
    pub fn not_found() -> Self {
        Self::failed(NOT_FOUND.0, NOT_FOUND.1)
    }

    /// How those who watch the thread see the end.
    pub(super) fn shown_end(&self) -> End {
        match (self.status, self.failure()) {
            (_, Some(NOT_FOUND)) | (Status::Interrupted, _) => End::Cancelled,
            (Status::Error | Status::Timeout, failure) => {
                End::Failed(failure.map(|(_, message)| message.into()))
            }
            (Status::Success | Status::Pending | Status::Running, _) => End::Success,
        }
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
            values: head.values.into(),
            interrupts: open
                .flat_map(|list| list.as_list().unwrap_or_default())
                .filter_map(Interrupt::from_value)
                .collect(),
            error: row.failure().cloned(),
            is_past: false,
            goes_on: false,
            memory: None,
        }
    }

    /// The body of `/wait` and `/join`: the values with open interrupts, or the error. Several
    /// interrupts, and those that a late client finds, come without the values.
    pub fn to_value(&self) -> Value {
        if let Some(error) = &self.error {
            return Value::map(Map::from([("__error__", error.clone())]));
        }
        let mut map = Map::new();
        if self.interrupts.is_empty() || self.shows_values() {
            match self.values.shown() {
                Value::Map(values) => map = Arc::unwrap_or_clone(values),
                Value::Null => {}
                other if self.interrupts.is_empty() => return other,
                _ => {}
            }
        }
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
    pub fn streamed_values(&self) -> Vec<Value> {
        let one = |interrupts: &[Interrupt]| {
            Self {
                interrupts: interrupts.to_vec(),
                is_past: false,
                goes_on: false,
                ..self.clone()
            }
            .to_value()
        };
        match &*self.interrupts {
            // Nothing was stored, or it cannot be read: no state is better than a wrong one.
            [] if self.values.is_null() => vec![],
            [] => vec![self.values.shown()],
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
