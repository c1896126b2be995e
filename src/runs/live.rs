//! Runs this process knows of: who executes them, how they end.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::Status;
use crate::{
    engine::Interrupt,
    id::{RunId, ThreadId},
    stream::Publisher,
    value::{Map, Value},
};

/// How a run ended, as those who wait for it are told.
#[derive(Clone, Debug)]
pub struct End {
    /// Final status.
    pub status: Status,
    /// The state it shows, in the form clients see.
    pub values: Value,
    /// Questions that wait.
    pub interrupts: Vec<Interrupt>,
    /// `{"error", "message"}` of a failure.
    pub error: Option<Value>,
}

impl End {
    /// The body of `/wait` and `/join`: values, questions or the error.
    pub fn body(&self) -> Value {
        if let Some(error) = &self.error {
            let mut map = Map::new();
            map.insert("__error__", error.clone());
            return Value::map(map);
        }
        let asked = || {
            let shown = |interrupt: &Interrupt| {
                let mut value = interrupt.to_value();
                if let Some(map) = value.make_map_mut() {
                    map.insert("response_schema", Value::Null);
                }
                value
            };
            Value::list(self.interrupts.iter().map(shown).collect())
        };
        let mut map = match (&self.values, self.interrupts.len()) {
            // Several questions at once: only they are shown.
            (Value::Map(map), 0 | 1) => (**map).clone(),
            (Value::Map(_) | Value::Null, _) => Map::new(),
            (other, 0) => return other.clone(),
            _ => Map::new(),
        };
        if !self.interrupts.is_empty() {
            map.insert("__interrupt__", asked());
        }
        Value::map(map)
    }
}

/// A run that is pending or running here.
#[derive(Clone)]
pub struct Live {
    /// Its stream.
    pub publisher: Arc<Publisher>,
    /// Its end, once there.
    pub end: watch::Receiver<Option<Arc<End>>>,
    /// Stops it at the next await.
    pub cancel: CancellationToken,
    /// Why it was stopped, `{"error", "message"}`: its row keeps that.
    pub why: Arc<Mutex<Option<Value>>>,
}

impl Live {
    /// Stops it and waits until what it has done is stored and its row is final; false when that
    /// takes longer than `limit`, or it ended in another way meanwhile.
    pub(super) async fn stopped(self, why: Value, limit: Duration) -> bool {
        *self.why.lock() = Some(why);
        self.cancel.cancel();
        let ended = tokio::time::timeout(limit, self.ended()).await;
        ended.is_ok_and(|end| end.is_some_and(|end| end.status == Status::Interrupted))
    }

    /// Waits for the end; `None` when the process lost it.
    pub async fn ended(mut self) -> Option<Arc<End>> {
        let found = self.end.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }
}

/// The sending half, held by whoever executes the run.
pub(super) struct Held {
    pub live: Live,
    pub end: watch::Sender<Option<Arc<End>>>,
    /// When it began to wait for a process; not before its row is written.
    pub since: Option<Instant>,
}

impl Held {
    pub fn new(publisher: Arc<Publisher>) -> Self {
        let (end, receiver) = watch::channel(None);
        Self {
            live: Live {
                publisher,
                end: receiver,
                cancel: CancellationToken::new(),
                why: Arc::default(),
            },
            end,
            since: None,
        }
    }
}

/// Runs by id: those that wait here, and those that are executed.
#[derive(Default)]
pub(super) struct Active {
    /// Created or begun here, and not executed by this process: they wait, or another one has them.
    pub waiting: HashMap<RunId, Held>,
    /// Executed by this process.
    pub running: HashMap<RunId, Live>,
}

impl Active {
    pub fn get(&self, run: RunId) -> Option<Live> {
        self.running
            .get(&run)
            .cloned()
            .or_else(|| self.waiting.get(&run).map(|held| held.live.clone()))
    }

    /// Whether a run that was created here waits for a slot of the thread.
    pub fn waits_on(&self, thread: ThreadId) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|held| held.live.publisher.thread() == thread)
    }
}
