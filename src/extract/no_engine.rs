//! For tests of what needs a task and no engine: a host that does nothing but take note of reports, and
//! tasks on it.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;

use super::{Ctx, FoundItem, Host, Report, RunConfig, Task};
use crate::{
    graph::{Compiled, Deps},
    id::TaskId,
    value::Value,
};

/// The reports that it got.
#[derive(Default)]
pub(crate) struct NoEngine(pub Mutex<Vec<Report>>);

fn refused<T: Send + 'static>() -> BoxFuture<'static, anyhow::Result<T>> {
    futures::future::ready(Err(anyhow::anyhow!("no engine"))).boxed()
}

impl Host for NoEngine {
    fn reports(&self) -> bool {
        true
    }
    fn report(&self, _: &Task, report: Report) {
        self.0.lock().push(report);
    }
    fn emit(&self, _: &Task, _: Value) {}
    fn message(&self, _: &Task, _: Value, _: bool) {}
    fn interrupt(&self, _: &Task, _: Value) -> BoxFuture<'static, Value> {
        futures::future::pending().boxed()
    }
    fn refuse(&self, _: &Task, _: anyhow::Error) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }
    fn step(&self, _: &Task, _: &str) -> Option<Value> {
        None
    }
    fn save_step(&self, _: &Task, _: String, _: Value) -> BoxFuture<'static, anyhow::Result<()>> {
        refused()
    }
    fn call(
        &self,
        _: &Task,
        _: Arc<Compiled>,
        _: Value,
    ) -> BoxFuture<'static, anyhow::Result<Value>> {
        refused()
    }
    fn remember(
        &self,
        _: Vec<String>,
        _: String,
        _: Option<Value>,
        _: Option<Duration>,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        refused()
    }
    fn recall(
        &self,
        _: Vec<String>,
        _: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>> {
        refused()
    }
    fn search(
        &self,
        _: Vec<String>,
        _: Option<String>,
        _: usize,
    ) -> BoxFuture<'static, anyhow::Result<Vec<FoundItem<Value>>>> {
        refused()
    }
    fn remaining_steps(&self) -> u32 {
        0
    }
}

impl Ctx {
    /// A task of `node` on `host`.
    pub(crate) fn without_engine(
        node: &str,
        (input, has_arg): (Value, bool),
        config: RunConfig,
        deps: Deps,
        host: Arc<NoEngine>,
    ) -> Self {
        Self::new(Arc::new(Task {
            id: TaskId::NULL,
            node: node.into(),
            ns: format!("{node}:1").into(),
            step: 1,
            triggers: Arc::new([]),
            shown_path: Value::Null,
            own_config: Default::default(),
            input,
            has_arg,
            config: Arc::new(config),
            deps,
            host,
            calls: Arc::new([]),
            steps: Mutex::new(HashMap::new()),
            attempt: AtomicUsize::new(1),
            failure: None,
        }))
    }
}
