//! What a thread shows of its head: the values of its last superstep, and its open interrupts.

use std::sync::Arc;

use super::graphless;
use crate::{
    checkpoint::{At, Saver, frame::Decoded},
    engine::{
        self, Interrupt,
        snapshot::{Snapshot, snapshot},
        topology::Topology,
    },
    graph::Compiled,
    id::TaskId,
    message,
    tree::{error::Error, load, store::Thread},
    value::{Map, Value},
};

/// The head of a thread in the form clients see.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The values; null without a checkpoint.
    pub values: Value,
    /// Open interrupts by task id.
    pub interrupts: Map,
}

/// The head of a thread, read with the wiring of its graph if it has one. A thread whose values no
/// longer fit its graph shows nothing: lists include it all the same.
///
/// # Errors
/// The storage failed.
pub async fn head(
    saver: &Arc<dyn Saver>,
    thread: &Thread,
    wiring: Option<&Topology>,
) -> Result<Head, Error> {
    if thread.head.is_none() {
        return Ok(Head::default());
    }
    let found = load::checkpoint(saver, thread.tree, thread.id, &"".into(), At::ActiveHead).await?;
    let Some(mut decoded) = found else {
        return Ok(Head::default());
    };
    let Some(wiring) = wiring else {
        let values = graphless::graph()
            .map(|graph| displayed_values(&graph, &Value::map(graphless::values(&decoded))));
        return Ok(Head {
            values: values.unwrap_or_default(),
            interrupts: Map::new(),
        });
    };
    let active = thread.active_branch;
    decoded.writes.retain(|(branch, _)| *branch == active);
    let (live, values) = match live_and_finished(wiring, decoded) {
        Ok(states) => states,
        Err(error) => {
            tracing::warn!(thread = %thread.id, %error, "a thread's values cannot be shown");
            return Ok(Head::default());
        }
    };
    let mut interrupts = Map::new();
    for task in live.tasks.iter().filter(|task| !task.interrupts.is_empty()) {
        let open = task.interrupts.iter().map(Interrupt::to_value).collect();
        interrupts.insert(task.id.to_string(), Value::list(open));
    }
    Ok(Head {
        values: displayed_values(&wiring.graph, &values),
        interrupts,
    })
}

/// The live state of a checkpoint, which has its open interrupts, and the values of the last
/// superstep with what clients wrote since, without results that wait for siblings.
fn live_and_finished(
    wiring: &Topology,
    mut decoded: Decoded,
) -> Result<(Snapshot, Value), engine::Error> {
    let ns = "".into();
    let live = snapshot(wiring, &ns, &decoded, true)?;
    decoded
        .writes
        .retain(|(_, write)| write.task == TaskId::NULL);
    Ok((live, snapshot(wiring, &ns, &decoded, false)?.values))
}

/// Values of a state with LangChain's defaults filled in for the messages of message channels.
pub fn displayed_values(graph: &Compiled, values: &Value) -> Value {
    let Some(map) = values.as_map() else {
        return values.clone();
    };
    if graph.messages.is_empty() {
        return values.clone();
    }
    let mut displayed = map.clone();
    for name in &graph.messages {
        if let Some(value) = displayed.get_mut(name) {
            *value = message::with_defaults(value);
        }
    }
    Value::map(displayed)
}
