//! From what a node returned to the writes of its task: updates, routing, edges, joins, routes.

use std::sync::Arc;

use super::{
    apply::Writes,
    channels::{Channels, ROOT},
    error::{Error, Mistake, ToParent},
    message_ids,
    plan::send_value,
    reserved::{NO_WRITES, START, TASKS},
    tolerance::Tolerance,
    topology::{START_NODE, Topology},
};
use crate::{
    extract::{RouteInput, RunConfig},
    graph::{END, Goto, Output, Route, UnlistedTarget, edge_channel},
    hint::did_you_mean,
    message,
    value::{Map, Value},
};

/// The writes of a task whose node returned `output`, in LangGraph's order: updates, explicit
/// routing, static edges, joins, conditional edges.
///
/// # Errors
/// A route fails or returns what it must not; a command goes nowhere; a message cannot be read; a
/// command is meant for the parent. Nothing of the task counts then.
pub fn writes(
    topology: &Topology,
    channels: &Channels,
    (tolerance, config): (Tolerance, &RunConfig),
    node: usize,
    output: Output,
) -> Result<Writes, Error> {
    for goto in output.goto.iter().filter(|_| !output.to_parent) {
        check_goto(topology, tolerance, goto)?;
    }
    // An input was checked where it came in, or is a node's for a graph inside.
    if node != START_NODE && !output.to_parent {
        for (channel, value) in &output.writes {
            message_ids::check(&topology.graph, |name| channels.get(name), channel, value)?;
        }
    }
    let mut writes = written(topology, channels, (tolerance, config), node, output)?;
    if writes.is_empty() {
        writes.push((NO_WRITES.into(), Value::Null));
    }
    Ok(writes)
}

/// The same without the mark of a task that wrote nothing.
///
/// # Errors
/// As [`writes`].
pub fn written(
    topology: &Topology,
    channels: &Channels,
    (tolerance, config): (Tolerance, &RunConfig),
    node: usize,
    output: Output,
) -> Result<Writes, Error> {
    if output.to_parent {
        return Err(Error::ParentCommand(Box::new(ToParent {
            writes: output.writes,
            goto: output.goto,
        })));
    }
    let graph = &topology.graph;
    let mut writes: Writes = Vec::with_capacity(output.writes.len() + 1);
    for (name, value) in output.writes {
        let exists = match node {
            START_NODE => graph.input.contains(&name) || graph.root_state,
            _ => graph.channel(&name).is_some() || (graph.root_state && &*name == ROOT),
        };
        if !exists {
            continue;
        }
        // Ids are made before anything is streamed or saved, so that a replay has the same.
        let value = if graph.messages.contains(&name) {
            message::mint_ids(&value).map_err(|error| Error::channel(&name, error.into()))?
        } else {
            value
        };
        writes.push((name, value));
    }
    let name = topology.name(node);
    for goto in &output.goto {
        writes.extend(target(goto, Value::Null, tolerance)?);
    }
    let after = topology.writers(node);
    for target in &after.edges {
        writes.push((edge_channel(target), Value::Null));
    }
    for join in &after.joins {
        writes.push((join.clone(), Value::Str(name.clone())));
    }
    if !after.routes.is_empty() {
        let state = own_view(topology, channels, &writes)?;
        let input = RouteInput {
            state: &state,
            config,
            deps: &graph.deps,
        };
        for route in &after.routes {
            for goto in chosen(route, &input)? {
                if goto.arg.is_none() && &*goto.node == START {
                    return Err(Error::failed(
                        "ValueError",
                        "Branch did not return a valid destination",
                    ));
                }
                writes.extend(target(&goto, Value::Null, Tolerance::default())?);
            }
        }
    }
    Ok(writes)
}

/// The write that schedules `goto`; none for END.
///
/// # Errors
/// END with an argument; where mistakes LangGraph passes over are tolerated, that is stored, and
/// skipped when tasks are planned.
pub fn target(
    goto: &Goto,
    value: Value,
    tolerance: Tolerance,
) -> Result<Option<(Arc<str>, Value)>, Error> {
    if &*goto.node == END {
        if goto.arg.is_none() {
            return Ok(None);
        }
        if !tolerance.unknown_names {
            return Err(Error::mistake(
                Mistake::EndArgument,
                "END takes no argument: a fan-out target must be a node",
            ));
        }
    }
    Ok(Some(match &goto.arg {
        Some(_) => (TASKS.into(), send_value(goto)),
        None => (edge_channel(&goto.node), value),
    }))
}

/// Whether a command may go there: to a node of the graph, or to the end. A fan-out to what is no
/// node is passed over when tasks are planned, as LangGraph does.
///
/// # Errors
/// There is no such node.
pub fn check_goto(topology: &Topology, tolerance: Tolerance, goto: &Goto) -> Result<(), Error> {
    let known =
        goto.arg.is_some() || &*goto.node == END || topology.graph.node(&goto.node).is_some();
    if known || tolerance.unknown_names {
        return Ok(());
    }
    let nodes = topology.graph.nodes.iter().map(|node| &*node.name);
    let hint = did_you_mean(&goto.node, nodes);
    let message = format!(
        "a command goes to `{}`, but there is no such node{hint}",
        goto.node
    );
    Err(Error::mistake(Mistake::Goto, message))
}

/// The state with the writes of one task applied and those of no other: what its routes read.
fn own_view(topology: &Topology, channels: &Channels, writes: &Writes) -> Result<Map, Error> {
    let mut map = Map::with_capacity(topology.graph.channels.len());
    for spec in &topology.graph.channels {
        let own: Vec<Value> = writes
            .iter()
            .filter(|(name, _)| *name == spec.name)
            .map(|(_, value)| value.clone())
            .collect();
        let Some(channel) = channels.by_name.get(&spec.name) else {
            continue;
        };
        // Without writes too: what lives for one superstep is gone where the task wrote none.
        let mut channel = channel.clone();
        channel
            .update(&own)
            .map_err(|error| Error::channel(&spec.name, error))?;
        if let Some(value) = channel.get() {
            map.insert(spec.name.clone(), value.clone());
        }
    }
    Ok(map)
}

fn chosen(route: &Route, input: &RouteInput<'_>) -> Result<Vec<Goto>, Error> {
    let choice = (route.choose)(input).map_err(Error::of_node)?;
    let Some(targets) = &route.targets else {
        return Ok(choice);
    };
    choice
        .into_iter()
        .map(|goto| {
            if goto.arg.is_some() {
                return Ok(goto);
            }
            let found = targets.iter().find(|(key, _)| *key == goto.node);
            found
                .map(|(_, node)| Goto {
                    node: node.clone(),
                    arg: None,
                })
                .ok_or_else(|| {
                    let keys = targets.iter().map(|(key, _)| key);
                    UnlistedTarget::new(&route.name, &goto.node, keys).into()
                })
        })
        .collect()
}

/// What the hidden start node makes of a run's input.
///
/// # Errors
/// The state is a map of channels and the input is not a map.
pub fn of_input(topology: &Topology, input: &Value) -> Result<Output, Error> {
    let writes = if topology.graph.root_state {
        vec![(ROOT.into(), input.clone())]
    } else {
        let map = input.as_map().ok_or_else(|| {
            Error::invalid_update(format!("Expected dict, got {}", input.to_python()))
        })?;
        warn_of_unknown(topology, map);
        map.iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    Ok(Output {
        writes,
        ..Output::default()
    })
}

/// Most characters of a key of an input that are logged.
const SHOWN: usize = 64;

/// Logs the first key of an input that no channel has: it is ignored, which surprises whoever has
/// misspelt it.
fn warn_of_unknown(topology: &Topology, input: &Map) {
    if let Some(key) = unknown_key(topology, input) {
        tracing::warn!("an input was ignored: {key}");
    }
}

/// What is logged of an input with keys that no channel has.
fn unknown_key(topology: &Topology, input: &Map) -> Option<String> {
    let graph = &topology.graph;
    let mut unknown = input.keys().filter(|key| graph.channel(key).is_none());
    let first = unknown.next()?;
    let more = match unknown.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let hint = did_you_mean(first, graph.channels.iter().map(|spec| &*spec.name));
    let first: String = first.chars().take(SHOWN).collect();
    Some(format!("the graph has no channel {first:?}{hint}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{channel::Kind, graph::Graph, value};

    #[test]
    fn a_key_of_an_input_that_no_channel_has_is_told_with_the_one_that_was_meant() {
        let graph = Graph::untyped()
            .channel("messages", Kind::Last)
            .node("idle", |_| async { Ok(Output::default()) })
            .edge(crate::graph::START, "idle")
            .build()
            .expect("a sound graph");
        let topology = Topology::new(graph);
        let told = |input: Value| unknown_key(&topology, input.as_map().expect("a map"));
        assert_eq!(told(value!({"messages": "hi"})), None);
        assert_eq!(
            told(value!({"mesages": "hi", "x": 1, "y": 2})).as_deref(),
            Some("the graph has no channel \"mesages\" (did you mean `messages`?), and 2 more")
        );
        let key = "x\n".repeat(10_000);
        let long = Map::from([(&*key, Value::Null)]);
        let long = told(Value::map(long)).expect("a line");
        assert!(long.len() < 200 && !long.contains('\n'), "{long}");
    }
}
