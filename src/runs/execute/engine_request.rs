//! The stored request of a run in the form that the engine takes.

use serde_json::Value as Json;

use crate::{
    engine::{ClientCommand, Input},
    extract::RunConfig,
    graph::{Compiled, Goto, Names},
    runs::{
        Error, Run,
        request::{self, Kwargs, Nodes, identity},
    },
    value::{Map, Value},
};

/// Fields of a config that LangGraph defines. Nodes see others in `configurable`.
const FIELDS: [&str; 8] = [
    "tags",
    "metadata",
    "callbacks",
    "run_name",
    "run_id",
    "max_concurrency",
    "recursion_limit",
    "configurable",
];

/// The config that nodes see. Without a limit of its own and of its graph a run has `limit`
/// supersteps.
pub fn config_of(run: &Run, kwargs: &Kwargs, graph: &Compiled, limit: u32) -> RunConfig {
    let map = |key: &str| {
        kwargs
            .config
            .get(key)
            .and_then(Value::as_map)
            .cloned()
            .unwrap_or_default()
    };
    let mut configurable = map("configurable");
    for (key, value) in &kwargs.config {
        if !FIELDS.contains(&&**key) && !configurable.contains_key(key) {
            configurable.insert(key.clone(), value.clone());
        }
    }
    configurable.insert("checkpoint_ns", "");
    let addressed = configurable.remove("checkpoint_id");
    configurable.remove("checkpoint_map");
    // That of the thread is among it.
    let mut metadata = identity::without_servers(&map("metadata"));
    // The row of a run that is not kept is shown without it, and nodes see it all the same.
    if let Some(graph) = configurable.get("graph_id")
        && !metadata.contains_key("graph_id")
    {
        metadata.insert("graph_id", graph.clone());
    }
    metadata.insert("run_attempt", i64::from(run.attempt));
    metadata.insert("run_id", run.id.to_string());
    if let Some(checkpoint) = addressed {
        metadata.insert("checkpoint_id", checkpoint);
    }
    let tags = kwargs
        .config
        .get("tags")
        .and_then(Value::as_list)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect();
    let limit = kwargs
        .recursion_limit()
        .and_then(|limit| u32::try_from(limit).ok())
        .or(graph.recursion_limit)
        .unwrap_or(limit);
    RunConfig {
        configurable,
        metadata,
        tags,
        recursion_limit: limit,
        context: context_of(graph, &kwargs.context),
    }
}

/// Breakpoints as the engine takes them.
pub fn names(nodes: &Nodes) -> Names {
    match nodes {
        Nodes::All(_) => Names::All,
        Nodes::Named(names) => Names::Some(names.clone()),
    }
}

/// The input of a run as the engine takes it.
pub fn input_of(kwargs: &Kwargs) -> Result<Input, Error> {
    if let Some(command) = &kwargs.command {
        return Ok(Input::Command(command_of(command)?));
    }
    Ok(match &kwargs.input {
        Some(input) => Input::Value(input.clone()),
        None => Input::Null,
    })
}

/// A command as the engine takes it.
pub fn command_of(command: &Value) -> Result<ClientCommand, Error> {
    let command = request::Command::parse(command).map_err(Error::Invalid)?;
    let goto = command.goto.into_iter().map(|goto| match goto {
        request::Goto::Node(node) => Goto { node, arg: None },
        request::Goto::Send { node, input } => Goto {
            node,
            arg: Some(input),
        },
    });
    Ok(ClientCommand {
        resume: command.resume,
        update: command.update.unwrap_or_default(),
        goto: goto.collect(),
        to_parent: false,
    })
}

/// Properties of the graph's schema of its context; `None` without a schema.
pub fn context_properties(graph: &Compiled) -> Option<&serde_json::Map<String, Json>> {
    let schema = graph.schemas.context.as_ref()?;
    schema.get("properties")?.as_object()
}

/// The properties of the context that the graph has in its schema.
fn context_of(graph: &Compiled, context: &Map) -> Value {
    let map = match context_properties(graph) {
        Some(known) => context
            .iter()
            .filter(|(key, _)| known.contains_key(&***key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        None => context.clone(),
    };
    Value::map(map)
}
