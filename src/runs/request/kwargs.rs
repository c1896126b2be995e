//! The part of a request that is stored with the run: the worker that claims it reads it, and
//! clients see it as `kwargs`.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Address, Durability, Mode, Nodes, Run, identity};
use crate::{
    id::{AssistantId, CheckpointId, RunId, ThreadId},
    value::{DecodeError, EncodeError, Map, Value, from_value, to_value},
};

/// The ids of a run to create, and whose user it is for.
#[derive(Clone, Debug)]
pub struct Ids {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its assistant.
    pub assistant: AssistantId,
    /// The graph of the assistant.
    pub graph: Arc<str>,
    /// The request itself says whom the run is for; else the user of the thread counts before those of the
    /// assistant and of who authenticated.
    pub names_user: bool,
}

/// `kwargs` of a run, in the form clients see.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kwargs {
    /// Input of the graph.
    pub input: Option<Value>,
    /// The command, see [`super::Command::parse`].
    pub command: Option<Value>,
    /// Config with everything nodes see in `configurable`, the address included.
    pub config: Map,
    /// Static context.
    pub context: Map,
    /// What the stream shows.
    pub stream_mode: Vec<Mode>,
    /// Stop before these nodes.
    pub interrupt_before: Option<Nodes>,
    /// Stop after these nodes.
    pub interrupt_after: Option<Nodes>,
    /// Where to report the end.
    pub webhook: Option<Arc<str>>,
    /// Accepted and ignored: always null.
    pub feedback_keys: Option<Value>,
    /// The thread goes with the run.
    pub temporary: bool,
    /// Show events of subgraphs too.
    pub subgraphs: bool,
    /// Retain the events.
    pub resumable: bool,
    /// The older word for a durability other than `exit`, as in the request.
    pub checkpoint_during: bool,
    /// When checkpoints are durable.
    pub durability: Durability,
    /// Set for requests that use fields of the conversation tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branching: Option<Branching>,
    /// It was started by a command of the event-streaming protocol.
    #[serde(default, skip_serializing_if = "is_false")]
    pub event_streaming: bool,
    /// Messages of the input whose event is written: id to its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<Map>,
    /// The span of the request that created the run, in whose trace every attempt is. Clients do not see
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Arc<str>>,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The stored part of a request's fields of the conversation tree: where it starts is in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branching {
    /// Whether a branch that the run makes becomes the active one.
    pub activate: bool,
}

impl Kwargs {
    /// The stored part of `request`. `metadata` is the run's metadata, already merged.
    ///
    /// `config.configurable` and `context` mirror each other when only one is present, and
    /// `configurable` gains the ids and the address, as LangGraph's nodes expect them.
    /// Of a context only what `known` has is configurable, where the graph says what it knows.
    pub fn of(
        request: &Run,
        ids: &Ids,
        metadata: &Map,
        known: Option<&serde_json::Map<String, serde_json::Value>>,
        temporary: bool,
    ) -> Self {
        let configurable_in = match request.config.get("configurable") {
            Some(Value::Map(map)) => identity::without_servers(map),
            _ => Map::default(),
        };
        let requested_context = identity::without_servers(&request.context);
        let context = if requested_context.is_empty() {
            configurable_in.clone()
        } else {
            requested_context.clone()
        };
        let mut configurable = if configurable_in.is_empty() {
            let mut context = requested_context;
            context.retain(|key, _| known.is_none_or(|known| known.contains_key(&**key)));
            context
        } else {
            configurable_in
        };
        let user = request.requester.user.as_ref();
        identity::put_account(&mut configurable, user);
        configurable.insert(
            "langgraph_request_id",
            Value::Str(request.requester.request_id.clone()),
        );
        configurable.insert("run_id", ids.run.to_string());
        configurable.insert("thread_id", ids.thread.to_string());
        configurable.insert("graph_id", Value::Str(ids.graph.clone()));
        configurable.insert("assistant_id", ids.assistant.to_string());
        if let Some(cron) = request.cron {
            configurable.insert("cron_id", cron.to_string());
        }
        identity::put_user(&mut configurable, &request.config, user);
        put_address(&mut configurable, &request.address);

        let mut config = identity::without_servers(&request.config);
        config.insert("configurable", Value::map(configurable));
        config.insert("metadata", Value::map(metadata.clone()));
        let durability = request.durability.unwrap_or(if temporary {
            Durability::Exit
        } else {
            Durability::Async
        });
        Self {
            input: request.input.clone(),
            command: request.command.clone(),
            config,
            context,
            stream_mode: request.stream_mode.clone(),
            interrupt_before: request.interrupt_before.clone(),
            interrupt_after: request.interrupt_after.clone(),
            webhook: request.webhook.clone(),
            feedback_keys: None,
            temporary,
            subgraphs: request.stream_subgraphs,
            resumable: request.stream_resumable,
            checkpoint_during: request.checkpoint_during.unwrap_or(true),
            durability,
            branching: request.branches().then(|| Branching {
                activate: request.activate.unwrap_or(true),
            }),
            event_streaming: request.event_streaming,
            announced: None,
            traceparent: request.traceparent.clone(),
        }
    }

    /// The form stored in `runs.kwargs` and shown to clients.
    ///
    /// # Errors
    /// Only when a value is nested too deeply.
    pub fn to_value(&self) -> Result<Value, EncodeError> {
        to_value(self)
    }

    /// Reads what [`Kwargs::to_value`] made.
    ///
    /// # Errors
    /// The row was written by something else.
    pub fn from_value(value: &Value) -> Result<Self, DecodeError> {
        from_value(value)
    }

    /// Whether the command resumes an interrupt.
    pub fn resumes(&self) -> bool {
        let command = self.command.as_ref();
        let value = command.and_then(|command| command.get("resume"));
        value.is_some_and(|value| !value.is_null())
    }

    /// Whether events of the run name the parent of the checkpoint at which it begins, which pruning may change: with
    /// a command, or without an input, they show that checkpoint, and with `exit` its own ones have the parent that it has.
    pub fn shows_parent(&self) -> bool {
        let shows = |mode| matches!(mode, Mode::Checkpoints | Mode::Debug);
        self.stream_mode.iter().copied().any(shows)
            && (self.command.is_some()
                || self.input.is_none()
                || self.durability == Durability::Exit)
    }

    /// A field of `config.configurable`.
    pub fn configurable(&self, key: &str) -> Option<&Value> {
        self.config.get("configurable")?.get(key)
    }

    /// Checkpoints of graphs inside that the request names, by namespace.
    pub fn inside(&self) -> HashMap<Arc<str>, CheckpointId> {
        let map = self.configurable("checkpoint_map").and_then(Value::as_map);
        let entries = map.into_iter().flat_map(Map::iter);
        let inside = entries.filter(|(ns, _)| !ns.is_empty());
        inside
            .filter_map(|(ns, id)| Some((ns.clone(), id.as_str()?.parse().ok()?)))
            .collect()
    }

    /// `config.recursion_limit`. Zero and less, which a run fails on, are zero.
    pub fn recursion_limit(&self) -> Option<usize> {
        let limit = self.config.get("recursion_limit")?.as_i64()?;
        usize::try_from(limit.max(0)).ok()
    }
}

fn put_address(configurable: &mut Map, address: &Address) {
    let Some(id) = address.checkpoint else {
        return;
    };
    configurable.insert("checkpoint_id", id.to_string());
    configurable.insert("checkpoint_ns", Value::Str(address.ns.clone()));
    if let Some(map) = &address.map {
        configurable.insert("checkpoint_map", Value::map(map.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        runs::request::{Assistant, Requester, Star},
        value,
    };

    fn ids() -> Ids {
        Ids {
            run: RunId::mint(),
            thread: ThreadId::mint(),
            assistant: AssistantId::of_graph("counter"),
            graph: "counter".into(),
            names_user: false,
        }
    }

    #[test]
    fn a_stored_request_reads_back_whole() {
        let mut request = Run::of(
            Assistant::Graph("counter".into()),
            Requester::unrestricted(),
        );
        request.input = Some(value!({"count": 1.0}));
        request.context = Map::from([("tone", value!("dry")), ("other", value!(1))]);
        request.config = Map::from([("recursion_limit", value!(7))]);
        request.interrupt_before = Some(Nodes::All(Star::Star));
        request.interrupt_after = Some(Nodes::Named(vec!["last".into()]));
        request.stream_mode = vec![Mode::MessagesTuple, Mode::Custom];
        request.address.checkpoint = Some("1f1e52d3-b51d-655d-8000-078d7d9aa83f".parse().unwrap());
        let ids = ids();
        let known = serde_json::json!({"tone": {}});
        let metadata = Map::from([("m", value!(1))]);
        let kwargs = Kwargs::of(&request, &ids, &metadata, known.as_object(), false);
        let stored = kwargs.to_value().unwrap();
        let back = Kwargs::from_value(&stored).unwrap();
        assert_eq!(back.to_value().unwrap(), stored);
        assert_eq!(stored["input"]["count"], value!(1.0));
        assert_eq!(stored["interrupt_before"], "*");
        assert_eq!(stored["stream_mode"][0], "messages-tuple");
        assert_eq!(stored["durability"], "async");
        assert_eq!(back.recursion_limit(), Some(7));
        assert_eq!(back.configurable("tone"), Some(&value!("dry")));
        assert_eq!(back.configurable("other"), None);
        assert_eq!(back.context, request.context);
        assert_eq!(back.configurable("graph_id"), Some(&value!("counter")));
        assert_eq!(back.config.get("metadata"), Some(&value!({"m": 1})));
    }

    #[test]
    fn the_parent_of_the_checkpoint_at_which_a_run_begins_shows_in_its_checkpoints_alone() {
        let ids = ids();
        let shown = |modes: &[Mode], durability, input: Option<Value>| {
            let mut request = Run::of(
                Assistant::Graph("counter".into()),
                Requester::unrestricted(),
            );
            request.stream_mode = modes.to_vec();
            request.durability = Some(durability);
            request.input = input;
            Kwargs::of(&request, &ids, &Map::default(), None, false).shows_parent()
        };
        let input = || Some(value!({"count": 1}));
        for mode in [Mode::Checkpoints, Mode::Debug] {
            let modes = [Mode::Values, mode];
            assert!(shown(&modes, Durability::Exit, input()));
            assert!(shown(&modes, Durability::Async, None));
            assert!(!shown(&modes, Durability::Async, input()));
        }
        let others = [Mode::Values, Mode::Tasks, Mode::Updates, Mode::Events];
        assert!(!shown(&others, Durability::Exit, None));
    }

    #[test]
    fn a_stateless_run_is_saved_at_its_end_unless_requested_otherwise() {
        let ids = ids();
        let mut request = Run::of(
            Assistant::Graph("counter".into()),
            Requester::unrestricted(),
        );
        let stored = Kwargs::of(&request, &ids, &Map::default(), None, true);
        assert_eq!(stored.durability, Durability::Exit);
        assert!(stored.checkpoint_during);
        request.durability = Some(Durability::Sync);
        let stored = Kwargs::of(&request, &ids, &Map::default(), None, true);
        assert_eq!(stored.durability, Durability::Sync);
    }
}
