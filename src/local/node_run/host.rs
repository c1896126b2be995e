//! What a node that runs by itself gets in place of the engine.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    engine::{self, Ended, Input},
    extract::{FoundItem, Host, Task},
    graph::Compiled,
    local::options::RunOptions,
    message::Message,
    value::{Map, Value},
};

/// What the node did.
#[derive(Clone, Default)]
pub struct Record {
    pub emitted: Vec<Value>,
    pub text: String,
    pub messages: Vec<Message>,
    pub interrupts: Vec<Value>,
}

/// The host of one run of a node.
pub struct NodeHost {
    state: Map,
    resume: Mutex<VecDeque<Value>>,
    record: Mutex<Record>,
    steps: Mutex<HashMap<String, Value>>,
    remembered: Mutex<HashMap<(Vec<String>, String), Value>>,
    /// A resume value that the node could not use.
    refused: Mutex<Option<anyhow::Error>>,
    stopped: Notify,
}

impl NodeHost {
    pub fn new(resume: Vec<Value>, state: Map) -> Self {
        Self {
            state,
            resume: Mutex::new(resume.into()),
            record: Mutex::default(),
            steps: Mutex::default(),
            remembered: Mutex::default(),
            refused: Mutex::default(),
            stopped: Notify::new(),
        }
    }

    pub fn record(&self) -> Record {
        self.record.lock().clone()
    }

    /// Waits until the node can go no further; returns why, unless it is for a resume value.
    pub async fn stopped(&self) -> Option<anyhow::Error> {
        self.stopped.notified().await;
        self.refused.lock().take()
    }
}

impl Host for NodeHost {
    fn emit(&self, _: &Task, value: Value) {
        self.record.lock().emitted.push(value);
    }

    fn message(&self, _: &Task, message: Value, whole: bool) {
        let mut record = self.record.lock();
        if !whole {
            record.text.push_str(&Message::text_of(&message));
        } else if let Ok(message) = Message::try_from(message) {
            record.messages.push(message);
        }
    }

    fn state(&self, _: &Task) -> Option<Map> {
        Some(self.state.clone())
    }

    fn interrupt(&self, _: &Task, value: Value) -> BoxFuture<'static, Value> {
        self.record.lock().interrupts.push(value);
        match self.resume.lock().pop_front() {
            Some(value) => futures::future::ready(value).boxed(),
            None => {
                self.stopped.notify_one();
                futures::future::pending().boxed()
            }
        }
    }

    fn refuse(&self, _: &Task, error: anyhow::Error) -> BoxFuture<'static, ()> {
        *self.refused.lock() = Some(error);
        self.stopped.notify_one();
        futures::future::pending().boxed()
    }

    fn step(&self, _: &Task, key: &str) -> Option<Value> {
        self.steps.lock().get(key).cloned()
    }

    fn save_step(
        &self,
        _: &Task,
        key: String,
        value: Value,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        self.steps.lock().insert(key, value);
        futures::future::ready(Ok(())).boxed()
    }

    fn call(
        &self,
        _: &Task,
        graph: Arc<Compiled>,
        input: Value,
    ) -> BoxFuture<'static, anyhow::Result<Value>> {
        async move {
            let options = RunOptions::default();
            let request = options.request(graph, Input::Value(input), None, None);
            let finished = Box::pin(engine::run(request, None)).await;
            match finished.result? {
                Ended::Done => Ok(finished.values),
                Ended::Interrupted(_) | Ended::Breakpoint => anyhow::bail!(
                    "the graph that the node calls waits at an interrupt: run the whole graph on a \
                     `Local` instead"
                ),
            }
        }
        .boxed()
    }

    fn remember(
        &self,
        namespace: Vec<String>,
        key: String,
        value: Option<Value>,
        _: Option<Duration>,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        let mut remembered = self.remembered.lock();
        match value {
            Some(value) => drop(remembered.insert((namespace, key), value)),
            None => drop(remembered.remove(&(namespace, key))),
        }
        futures::future::ready(Ok(())).boxed()
    }

    fn recall(
        &self,
        namespace: Vec<String>,
        key: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>> {
        let found = self.remembered.lock().get(&(namespace, key)).cloned();
        futures::future::ready(Ok(found)).boxed()
    }

    /// No model compares meanings here, so a query changes nothing.
    fn search(
        &self,
        namespace: Vec<String>,
        _: Option<String>,
        limit: usize,
    ) -> BoxFuture<'static, anyhow::Result<Vec<FoundItem<Value>>>> {
        let remembered = self.remembered.lock();
        let mut found: Vec<_> = remembered
            .iter()
            .filter(|((labels, _), _)| labels.starts_with(&namespace))
            .map(|((labels, key), value)| FoundItem {
                namespace: labels.clone(),
                key: key.clone(),
                value: value.clone(),
                score: None,
            })
            .collect();
        found.sort_by(|a, b| (&a.namespace, &a.key).cmp(&(&b.namespace, &b.key)));
        found.truncate(limit);
        futures::future::ready(Ok(found)).boxed()
    }

    fn remaining_steps(&self) -> u32 {
        0
    }
}
