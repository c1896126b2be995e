//! What is shown of a task: how it stands, what it has made, and its history.

use std::{collections::HashSet, sync::Arc};

use uuid::Uuid;

use super::{
    super::{
        generation::{Artifact, Message, State, Status},
        part::{self, Part},
    },
    Key, Scope, Task, Tasks,
};
use crate::{
    engine::Interrupt,
    id::RunId,
    runs::{self, Run},
    value::{Map, Value},
};

impl Tasks {
    pub(super) fn status(&self, key: Key, last: &Run, open: &[Interrupt]) -> Status {
        use runs::Status as S;
        let state = match last.status {
            S::Pending => State::Submitted,
            S::Running => State::Working,
            S::Success if open.is_empty() => State::Completed,
            S::Success => State::InputRequired,
            S::Error | S::Timeout => State::Failed,
            S::Interrupted => State::Canceled,
        };
        let parts = match state {
            State::InputRequired => open.iter().map(shown).collect(),
            State::Failed => vec![Part::Text(failure(last).into())],
            _ => vec![],
        };
        let message = (!parts.is_empty()).then(|| Message {
            is_users: false,
            parts,
            id: derived(last.id, "status").into(),
            task: Some(key.to_string().into()),
        });
        Status {
            state,
            message,
            at: last.updated_at.max(last.created_at).to_string(),
        }
    }

    pub(super) fn artifacts(
        &self,
        last: &Run,
        open: &[Interrupt],
        values: &Value,
        history: &[Message],
    ) -> Vec<Artifact> {
        if last.status != runs::Status::Success {
            return vec![];
        }
        if !open.is_empty() {
            let shown = |interrupt: &Interrupt| Artifact {
                id: derived(last.id, &interrupt.id),
                name: "Interrupt",
                description: "Agent requires input to continue".to_owned(),
                parts: vec![Part::Data(Value::map(Map::from([
                    ("id", Value::Str(interrupt.id.clone())),
                    ("value", interrupt.value.clone()),
                ])))],
            };
            return open.iter().map(shown).collect();
        }
        let reply = history.last().filter(|message| !message.is_users);
        let parts = match reply {
            Some(reply) => reply.parts.clone(),
            None => vec![Part::Text(values.to_json().into())],
        };
        vec![Artifact {
            id: derived(last.id, "response"),
            name: "Assistant Response",
            description: format!("Response from assistant {}", self.agent.id),
            parts,
        }]
    }

    /// The messages of users and agents in some values. Those that were there `before` are none of the task's.
    pub(super) fn history(
        &self,
        key: Key,
        values: &Value,
        before: &HashSet<Arc<str>>,
    ) -> Vec<Message> {
        let task: Arc<str> = key.to_string().into();
        let messages = self.messages(values).iter().filter_map(|message| {
            let id = id_of(message)?;
            let is_users = match message.get("type").and_then(Value::as_str)? {
                "human" => true,
                "ai" => false,
                _ => return None,
            };
            let parts = part::parts(message.get("content")?);
            let is_new = !before.contains(&id);
            (!parts.is_empty() && (is_new || self.scope == Scope::Context)).then(|| Message {
                is_users,
                parts,
                id,
                task: is_new.then(|| task.clone()),
            })
        });
        messages.collect()
    }

    /// The task as clients see it, with the newest messages of its history.
    pub fn show(&self, task: &Task, history: Option<usize>) -> Value {
        let context = task.key.context();
        let generation = self.generation;
        let mut map = generation.task();
        map.insert("id", task.key.to_string());
        map.insert("contextId", context.clone());
        let skipped = history.map_or(0, |most| task.history.len().saturating_sub(most));
        if history != Some(0) {
            let shown = task.history.iter().skip(skipped);
            let shown = shown.map(|message| generation.message(message, &context));
            map.insert("history", Value::list(shown.collect()));
        }
        map.insert("status", generation.status(&task.status, &context));
        if !task.artifacts.is_empty() {
            let shown = task.artifacts.iter().map(|one| generation.artifact(one));
            map.insert("artifacts", Value::list(shown.collect()));
        }
        Value::map(map)
    }
}

/// The id of a message in stored form.
pub(super) fn id_of(message: &Value) -> Option<Arc<str>> {
    message.get("id").and_then(Value::as_str).map(Arc::from)
}

fn shown(interrupt: &Interrupt) -> Part {
    match &interrupt.value {
        Value::Str(text) => Part::Text(text.clone()),
        value => Part::Data(value.clone()),
    }
}

/// What a run failed of, for people.
fn failure(run: &Run) -> String {
    let text = |name: &str| run.failure()?.get(name)?.as_str();
    match (text("error"), text("message")) {
        (Some(class), Some(message)) if !message.is_empty() => format!("{class}: {message}"),
        (Some(class), _) => class.to_owned(),
        (None, _) => "The run failed".to_owned(),
    }
}

/// An id that is the same whenever the task is shown.
fn derived(run: RunId, name: &str) -> String {
    Uuid::new_v5(&run.0, name.as_bytes()).to_string()
}
