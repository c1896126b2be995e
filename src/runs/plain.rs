//! What is known of threads on which nothing has run: their messages, by no graph of their own.

use std::sync::{Arc, LazyLock};

use super::{
    Error, Service,
    look::Look,
    request::{Address, threads::History},
    states::empty,
    view,
};
use crate::{
    channel::{Kind, Reducer},
    checkpoint::{At, frame::Decoded},
    engine::{
        view::{Snapshot, snapshot},
        wiring::Wiring,
    },
    graph::{Compiled, Graph, Output, START},
    tree::{Thread, load},
    value::{Map, Value},
};

static PLAIN: LazyLock<Option<Wiring>> = LazyLock::new(|| {
    let graph = Graph::untyped()
        .channel("messages", Kind::Aggregate(Reducer::messages()))
        .node("none", |_| async { Ok(Output::default()) })
        .edge(START, "none")
        .build();
    graph.ok().map(Wiring::new)
});

/// The graph that stands for one that is not known yet: it has messages.
pub(super) fn graph() -> Option<Arc<Compiled>> {
    PLAIN.as_ref().map(|wiring| wiring.graph.clone())
}

/// The channels of a state that people named.
pub(super) fn values(decoded: &Decoded) -> Map {
    let all = decoded.checkpoint.values.iter();
    let named = all.filter(|(name, _)| !name.starts_with("__") && !name.contains(':'));
    named
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A state without a graph: what is stored, and whether input waits for one.
fn shown(wiring: &Wiring, decoded: &Decoded, live: bool) -> Snapshot {
    let ns: Arc<str> = "".into();
    // What another graph left may not fit.
    let (next, tasks) = match snapshot(wiring, &ns, decoded, live) {
        Ok(waiting) => (waiting.next, waiting.tasks),
        Err(_) => (vec![], vec![]),
    };
    Snapshot {
        ns,
        checkpoint: decoded.checkpoint.clone(),
        values: Value::map(values(decoded)),
        next,
        tasks,
    }
}

impl Service {
    /// The state of a thread without a graph, as [`state`](Service::state).
    pub(super) async fn plain_state(
        &self,
        thread: &Thread,
        at: &Address,
        look: &Look,
    ) -> Result<Value, Error> {
        let found = match at.ns.is_empty() {
            true => self.seen(thread, &at.ns, look).await?,
            false => None,
        };
        let (Some(decoded), Some(wiring)) = (found, PLAIN.as_ref()) else {
            return Ok(empty(thread.id, at));
        };
        let snapshot = shown(wiring, &decoded, look.live);
        Ok(view::state(thread.id, &wiring.graph, &snapshot, &|_| None))
    }

    /// States of a thread without a graph, as [`history`](Service::history).
    pub(super) async fn plain_history(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Vec<Value>, Error> {
        let Some(wiring) = PLAIN.as_ref().filter(|_| page.at.ns.is_empty()) else {
            return Ok(vec![]);
        };
        let found = self.listed(thread, page).await?;
        let states = found.iter().map(|decoded| {
            let snapshot = shown(wiring, decoded, false);
            view::state(thread.id, &wiring.graph, &snapshot, &|_| None)
        });
        Ok(states.collect())
    }

    /// Values at the head of a thread without a graph.
    pub(super) async fn plain_values(&self, thread: &Thread) -> Result<Value, Error> {
        let saver = &self.inner.parts.saver;
        let head = At::ActiveHead;
        let found = load::checkpoint(saver, thread.tree, thread.id, &"".into(), head).await?;
        Ok(match (found, PLAIN.as_ref()) {
            (Some(decoded), Some(wiring)) => {
                view::shown_values(&wiring.graph, &Value::map(values(&decoded)))
            }
            _ => Value::Null,
        })
    }
}
