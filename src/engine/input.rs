//! What a client starts or resumes a run with: input, nothing, or a command.

use std::{collections::HashMap, sync::Arc};

use crate::{
    graph::Goto,
    value::{Map, Value},
};

/// What a run starts with.
#[derive(Clone, Debug)]
pub enum Input {
    /// New input.
    Value(Value),
    /// Nothing: the run goes on where the thread stopped.
    Null,
    /// Resume values, updates and routing.
    Command(ClientCommand),
}

/// A command of the client.
#[derive(Clone, Debug, Default)]
pub struct ClientCommand {
    /// The value for the open interrupt, or a map of values by interrupt id.
    pub resume: Option<Value>,
    /// Updates of channels.
    pub update: Vec<(Arc<str>, Value)>,
    /// Nodes to run next.
    pub goto: Vec<Goto>,
    /// Meant for a parent graph: an error, the root has none.
    pub to_parent: bool,
}

impl ClientCommand {
    /// The update of a command that does nothing else. On a thread without a checkpoint it is the
    /// input: the graph begins with it, as in LangGraph (which applies it a second time there).
    pub(super) fn as_input(&self) -> Option<Value> {
        let more = self.resume.is_some() || !self.goto.is_empty() || self.to_parent;
        let map: Map = self.update.iter().cloned().collect();
        (!more && !map.is_empty() && map.len() == self.update.len()).then(|| Value::map(map))
    }

    /// The resume values by interrupt id, if the command has a map of those.
    pub(super) fn resume_by_id(&self) -> Option<HashMap<String, Value>> {
        resume_by_id(self.resume.as_ref()?)
    }
}

/// Resume values by interrupt id, if `resume` is a map of those; an empty map has none.
fn resume_by_id(resume: &Value) -> Option<HashMap<String, Value>> {
    let map = resume.as_map()?;
    let is_id = |key: &str| {
        key.len() == 32
            && key
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    map.keys().all(|key| is_id(key)).then(|| {
        map.iter()
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect()
    })
}
