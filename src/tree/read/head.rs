//! What a thread shows of its head: the values of its last superstep, and its open interrupts.

use std::sync::Arc;

use super::graphless;
use crate::{
    checkpoint::{At, Query, Saver, frame::Decoded},
    engine::{
        self, Interrupt,
        snapshot::{Snapshot, snapshot},
        topology::Topology,
    },
    graph::Compiled,
    id::{BranchId, CheckpointId, TaskId, ThreadId, TreeId},
    message,
    tree::{
        error::Result,
        load::{self, Weighed},
        store::Thread,
    },
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

/// The head of a thread that was weighed, read with the topology of its graph if it has one; for a large one
/// the caller has the memory. Where it has gone meanwhile, that of its branch counts. A thread whose values no longer
/// fit its graph shows nothing: lists include it all the same.
///
/// # Errors
/// The storage failed.
pub async fn head(
    saver: &Arc<dyn Saver>,
    thread: &Thread,
    topology: Option<&Topology>,
    weighed: &Weighed,
) -> Result<Head> {
    let Some(id) = thread.head else {
        return Ok(Head::default());
    };
    for at in [At::Id(id), At::Head(thread.active_branch), At::ActiveHead] {
        let query = root_state(thread.tree, thread.id, at);
        if let Some(decoded) = load::of_weighed(saver, query, weighed).await? {
            return head_of(saver, thread, topology, decoded).await;
        }
    }
    Ok(Head::default())
}

/// The root state of a thread.
fn root_state(tree: TreeId, thread: ThreadId, at: At) -> Query {
    Query {
        tree,
        thread,
        ns: "".into(),
        at,
        values: true,
    }
}

/// The values that a run left at its last checkpoint, which was weighed, in the form clients see; null if it is
/// gone, or if they no longer fit the graph. For a large one the caller has the memory. What
/// other branches and clients wrote there since is no part of them.
///
/// # Errors
/// The storage failed.
pub async fn values_at(
    saver: &Arc<dyn Saver>,
    slot: (TreeId, ThreadId, BranchId),
    topology: Option<&Topology>,
    at: CheckpointId,
    weighed: &Weighed,
) -> Result<Value> {
    let (tree, thread, branch) = slot;
    let query = root_state(tree, thread, At::Id(at));
    let ns = query.ns.clone();
    let found = load::of_weighed(saver, query, weighed).await?;
    let Some(mut decoded) = found else {
        return Ok(Value::Null);
    };
    let Some(topology) = topology else {
        return Ok(graphless_values(&decoded).unwrap_or_default());
    };
    decoded.retain_writes(|owner, write| owner == branch && write.task == TaskId::NULL);
    let decoded = load::resolve_references(saver, tree, &ns, decoded).await?;
    match snapshot(topology, &"".into(), &decoded, false) {
        Ok(snapshot) => Ok(displayed_values(&topology.graph, &snapshot.values)),
        Err(engine::Error::Storage(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(%thread, %error, "the values of a run cannot be shown");
            Ok(Value::Null)
        }
    }
}

fn graphless_values(decoded: &Decoded) -> Option<Value> {
    let graph = graphless::graph()?;
    let values = Value::map(graphless::values(decoded));
    Some(displayed_values(&graph, &values))
}

/// [`head`] out of the checkpoint. What other branches wrote there is not read.
async fn head_of(
    saver: &Arc<dyn Saver>,
    thread: &Thread,
    topology: Option<&Topology>,
    mut decoded: Decoded,
) -> Result<Head> {
    decoded.retain_writes(|branch, _| branch == thread.active_branch);
    let decoded = load::resolve_references(saver, thread.tree, &"".into(), decoded).await?;
    Ok(shown(thread, topology, decoded))
}

fn shown(thread: &Thread, topology: Option<&Topology>, decoded: Decoded) -> Head {
    let Some(topology) = topology else {
        return Head {
            values: graphless_values(&decoded).unwrap_or_default(),
            interrupts: Map::new(),
        };
    };
    let (live, values) = match live_and_finished(topology, decoded) {
        Ok(states) => states,
        Err(error) => {
            tracing::warn!(thread = %thread.id, %error, "a thread's values cannot be shown");
            return Head::default();
        }
    };
    let mut interrupts = Map::new();
    for task in live.tasks.iter().filter(|task| !task.interrupts.is_empty()) {
        let open = task.interrupts.iter().map(Interrupt::to_value).collect();
        interrupts.insert(task.id.to_string(), Value::list(open));
    }
    Head {
        values: displayed_values(&topology.graph, &values),
        interrupts,
    }
}

/// The live state of a checkpoint, which has its open interrupts, and the values of the last
/// superstep with what clients wrote since, without results that wait for siblings.
fn live_and_finished(
    topology: &Topology,
    mut decoded: Decoded,
) -> Result<(Snapshot, Value), engine::Error> {
    let ns = "".into();
    let live = snapshot(topology, &ns, &decoded, true)?;
    decoded
        .writes
        .retain(|(_, write)| write.task == TaskId::NULL);
    Ok((live, snapshot(topology, &ns, &decoded, false)?.values))
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
