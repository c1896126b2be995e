//! Encodes the engine's events as frames, mode by mode, in the form LangGraph's server sends.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    buffer::Buffer,
    frame::{number, plain, text},
    mode::{Mode, Modes},
    shape::{Channels, write_interrupts},
};
use crate::{
    engine::{Body, Event, event::TaskInfo},
    extract::RunConfig,
    graph::Compiled,
    id::{RunId, TaskId, ThreadId},
    time::Timestamp,
    value::{Map, Value},
};

mod callback;
mod checkpoint;
mod messages;

/// The run whose events are encoded, and the modes in which.
pub struct Origin {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its attempt, from 1.
    pub attempt: i32,
    /// The branch that the first frame names.
    pub branch: Option<Arc<str>>,
    /// The modes that the request subscribes to.
    pub modes: Modes,
    /// Events of graphs inside the graph are encoded too.
    pub subgraphs: bool,
}

/// Encodes the events of one run.
pub struct Encoder {
    origin: Origin,
    channels: Channels,
    /// Fields of `metadata` that all tasks share, without braces.
    shared: Vec<u8>,
    /// Fields of `configurable` that all checkpoints share, each followed by a comma.
    configurable: Vec<u8>,
    tags: Vec<Arc<str>>,
    /// `metadata` of message events, per task.
    tasks: HashMap<TaskId, messages::Metadata>,
    /// Messages as far as they have grown, by id.
    growing: HashMap<Arc<str>, crate::message::Sum>,
    /// Messages whose metadata was sent.
    announced: HashSet<Arc<str>>,
    /// The name of the graph.
    name: Arc<str>,
    /// What has started and not ended, for `events`.
    open: callback::Open,
}

impl Encoder {
    /// An encoder for the events of one run of `graph`.
    pub fn new(origin: Origin, graph: &Arc<Compiled>) -> Self {
        let mut encoder = Self {
            origin,
            channels: Channels::of(graph),
            shared: vec![],
            configurable: vec![],
            tags: vec![],
            tasks: HashMap::new(),
            growing: HashMap::new(),
            announced: HashSet::new(),
            name: callback::GRAPH.into(),
            open: callback::Open::default(),
        };
        encoder.config(&RunConfig::default());
        encoder
    }

    /// Takes metadata, tags and configurable from the run's config.
    pub fn config(&mut self, config: &RunConfig) {
        let ids = [
            ("run_id", Value::from(self.origin.run.to_string())),
            ("thread_id", Value::from(self.origin.thread.to_string())),
        ];
        let mut metadata = config.metadata.clone();
        for key in ["graph_id", "assistant_id"] {
            if let (false, Some(id)) = (metadata.contains_key(key), config.configurable.get(key)) {
                metadata.insert(key, id.clone());
            }
        }
        if let Some(Value::Str(graph)) = metadata.get("graph_id") {
            self.name = graph.clone();
        }
        metadata.insert("run_attempt", i64::from(self.origin.attempt));
        metadata.insert("run_id", ids[0].1.clone());
        self.shared.clear();
        fields(&mut self.shared, &metadata);

        let mut configurable = config.configurable.clone();
        configurable.retain(|key, _| {
            !key.starts_with("__")
                && !matches!(&**key, "checkpoint_id" | "checkpoint_ns" | "checkpoint_map")
        });
        for (key, id) in ids {
            configurable.insert(key, id);
        }
        self.configurable.clear();
        fields(&mut self.configurable, &configurable);
        self.configurable.push(b',');
        self.tags.clone_from(&config.tags);
        self.tasks.clear();
    }

    /// Sets the branch that the first frame names.
    pub fn name_branch(&mut self, name: Arc<str>) {
        self.origin.branch = Some(name);
    }

    /// The attempt of the run.
    pub fn attempt(&self) -> i32 {
        self.origin.attempt
    }

    /// Sets the attempt that later frames name.
    pub fn set_attempt(&mut self, attempt: i32) {
        self.origin.attempt = attempt;
    }

    /// Writes the first frame: the run has started.
    pub fn start(&self, frames: &mut Buffer) {
        frames.push(Modes::METADATA, "metadata", "", |out| {
            out.extend_from_slice(b"{\"run_id\":");
            plain(out, self.origin.run);
            out.extend_from_slice(b",\"attempt\":");
            number(out, i64::from(self.origin.attempt));
            if let Some(branch) = &self.origin.branch {
                out.extend_from_slice(b",\"branch\":");
                text(out, branch);
            }
            out.push(b'}');
        });
    }

    /// Whether messages are sent as far as they have grown, which takes every piece of them.
    pub fn grows(&self) -> bool {
        let modes = self.origin.modes;
        modes.has(Mode::Messages) && !modes.has(Mode::MessagesTuple)
    }

    /// Adds up the pieces of messages while the stream has no reader.
    pub fn miss(&mut self, event: &Event) {
        if let Body::Message {
            message,
            whole: false,
            ..
        } = &event.body
            && self.grows()
        {
            self.add(message);
        }
    }

    /// Writes the frames of one event.
    pub fn encode(&mut self, frames: &mut Buffer, event: &Event) {
        let (ns, modes) = (&*event.ns, self.origin.modes);
        let shown = ns.is_empty() || self.origin.subgraphs;
        match &event.body {
            Body::Custom { value, .. } if shown && modes.has(Mode::Custom) => {
                frames.push(Mode::Custom.into(), "custom", ns, |out| {
                    value.write_json(out)
                });
            }
            Body::Values(state) if shown && modes.has(Mode::Values) => {
                frames.push(Mode::Values.into(), "values", ns, |out| {
                    self.channels.write(out, state);
                });
            }
            Body::ValuesInterrupt(state, interrupts) if shown && modes.has(Mode::Values) => {
                frames.push(Mode::Values.into(), "values", ns, |out| {
                    self.channels.write_interrupted(out, state, interrupts);
                });
            }
            Body::Update {
                node,
                update,
                cached,
            } if shown && modes.has(Mode::Updates) => {
                frames.push(Mode::Updates.into(), "updates", ns, |out| {
                    out.push(b'{');
                    text(out, node);
                    out.push(b':');
                    self.channels.write_update(out, update);
                    if *cached {
                        out.extend_from_slice(b",\"__metadata__\":{\"cached\":true}");
                    }
                    out.push(b'}');
                });
            }
            Body::UpdateInterrupt(interrupts) if shown && modes.has(Mode::Updates) => {
                frames.push(Mode::Updates.into(), "updates", ns, |out| {
                    self.channels
                        .write_interrupted(out, &Value::Null, interrupts);
                });
            }
            Body::Message {
                message,
                whole,
                task,
            } if shown => self.message(frames, ns, message, *whole, task),
            Body::TaskStart { task, input } => self.task_start(frames, ns, shown, task, input),
            Body::TaskEnd {
                task,
                error,
                result,
                interrupts: open,
            } => {
                let end = |out: &mut Vec<u8>| {
                    self.task_head(out, task);
                    out.extend_from_slice(b",\"error\":");
                    error.as_ref().unwrap_or(&Value::Null).write_json(out);
                    out.extend_from_slice(b",\"result\":");
                    self.channels.write(out, result);
                    out.extend_from_slice(b",\"interrupts\":");
                    write_interrupts(out, open);
                    out.push(b'}');
                };
                if shown && modes.has(Mode::Tasks) {
                    frames.push(Mode::Tasks.into(), "tasks", ns, end);
                }
                if shown && modes.has(Mode::Debug) {
                    debug(frames, ns, task.step, "task_result", end);
                }
            }
            Body::Checkpoint(info) if shown => {
                if modes.has(Mode::Checkpoints) {
                    frames.push(Mode::Checkpoints.into(), "checkpoints", ns, |out| {
                        self.checkpoint(out, ns, info, false);
                    });
                }
                if modes.has(Mode::Debug) {
                    debug(frames, ns, info.step, "checkpoint", |out| {
                        self.checkpoint(out, ns, info, true);
                    });
                }
            }
            Body::Callback(callback) if modes.has(Mode::Events) => {
                self.callback(frames, &event.ns, callback);
            }
            _ => {}
        }
    }

    fn task_start(
        &mut self,
        frames: &mut Buffer,
        ns: &str,
        shown: bool,
        task: &TaskInfo,
        input: &Value,
    ) {
        let modes = self.origin.modes;
        let start = |out: &mut Vec<u8>| {
            self.task_head(out, task);
            out.extend_from_slice(b",\"input\":");
            self.channels.write(out, input);
            out.extend_from_slice(b",\"triggers\":");
            super::frame::list(out, task.triggers.iter(), |out, name| text(out, name));
            out.extend_from_slice(b",\"metadata\":{");
            out.extend_from_slice(&self.shared);
            out.extend_from_slice(b"}}");
        };
        if shown && modes.has(Mode::Tasks) {
            frames.push(Mode::Tasks.into(), "tasks", ns, start);
        }
        if shown && modes.has(Mode::Debug) {
            debug(frames, ns, task.step, "task", start);
        }
    }

    fn task_head(&self, out: &mut Vec<u8>, task: &TaskInfo) {
        out.extend_from_slice(b"{\"id\":");
        plain(out, task.id);
        out.extend_from_slice(b",\"name\":");
        text(out, &task.name);
    }
}

/// Writes the fields of a map, without braces.
fn fields(out: &mut Vec<u8>, map: &Map) {
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, key);
        out.push(b':');
        value.write_json(out);
    }
}

/// Writes a `debug` frame: a payload with its step and the time.
fn debug(frames: &mut Buffer, ns: &str, step: i64, kind: &str, payload: impl FnOnce(&mut Vec<u8>)) {
    frames.push(Mode::Debug.into(), "debug", ns, |out| {
        out.extend_from_slice(b"{\"step\":");
        number(out, step);
        out.extend_from_slice(b",\"timestamp\":");
        plain(out, Timestamp::now());
        out.extend_from_slice(b",\"type\":");
        text(out, kind);
        out.extend_from_slice(b",\"payload\":");
        payload(out);
        out.push(b'}');
    });
}
