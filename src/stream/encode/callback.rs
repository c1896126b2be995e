//! Encodes starts and ends of graphs, nodes, models and tools for the mode `events`, in the form of
//! LangChain's callback events.
//!
//! Ids of what runs follow from the run, the tasks and the namespaces, so that a reader who comes late,
//! and a later attempt of the run, find the same ones.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::Encoder;
use crate::{
    engine::event::{Callback, TaskInfo},
    extract::{ModelCall, Report, ToolRun},
    id::TaskId,
    stream::{
        buffer::Buffer,
        frame::{list, number, plain, text},
        mode::Mode,
        shape::{self, Channels},
    },
    value::Value,
};

/// Most starts without an end that are remembered.
const MOST: usize = 20_000;

/// The name of graphs inside tasks, and of a root graph that has none.
pub(super) const GRAPH: &str = "LangGraph";

/// What has started and not ended.
#[derive(Default)]
pub struct Open {
    /// Inputs of running nodes.
    inputs: HashMap<TaskId, Value>,
    /// Graphs inside tasks, by namespace: the ids from the root graph down to each, and its input.
    graphs: HashMap<Arc<str>, (Vec<Uuid>, Value)>,
}

/// What an event is about.
struct Subject<'a> {
    name: &'a str,
    run: Uuid,
    /// What it runs in, from the root graph on.
    parents: Vec<Uuid>,
    /// What the runner adds to the tags of the run.
    tag: Option<String>,
    /// The task it belongs to, and the namespace that it names besides the task's.
    task: Option<(&'a TaskInfo, Option<&'a str>)>,
    /// The model, for its own fields of metadata.
    model: Option<&'a ModelCall>,
}

impl Encoder {
    pub(super) fn callback(&mut self, frames: &mut Buffer, ns: &Arc<str>, callback: &Callback) {
        match callback {
            Callback::GraphStart(task, input) => {
                if let Some(task) = task {
                    let chain = self.open_graph(ns, task);
                    self.open.trim();
                    let graph = (chain, input.clone());
                    self.open.graphs.insert(ns.clone(), graph);
                }
                let subject = self.graph(ns, task.as_deref());
                self.event(frames, "on_chain_start", &subject, |out, channels| {
                    out.extend_from_slice(b"\"input\":");
                    if task.is_some() {
                        channels.write(out, input);
                    } else {
                        // As the client sent it.
                        input.write_json(out);
                    }
                });
            }
            Callback::GraphEnd(task, output) => {
                let subject = self.graph(ns, task.as_deref());
                let input = self.open.graphs.get(ns).map(|(_, input)| input);
                self.event(frames, "on_chain_end", &subject, |out, channels| {
                    ended(out, channels, output, input);
                });
                self.open.graphs.remove(ns);
            }
            Callback::NodeStart(task, input) => {
                self.open.trim();
                self.open.inputs.insert(task.id, input.clone());
                let subject = self.node(ns, task);
                self.event(frames, "on_chain_start", &subject, |out, channels| {
                    out.extend_from_slice(b"\"input\":");
                    channels.write(out, input);
                });
            }
            Callback::NodeEnd(task, output) => {
                let input = self.open.inputs.remove(&task.id);
                let subject = self.node(ns, task);
                self.event(frames, "on_chain_stream", &subject, |out, channels| {
                    out.extend_from_slice(b"\"chunk\":");
                    channels.write(out, output);
                });
                self.event(frames, "on_chain_end", &subject, |out, channels| {
                    ended(out, channels, output, input.as_ref());
                });
            }
            Callback::Report(task, report) => self.report(frames, ns, task, report),
        }
    }

    fn report(&self, frames: &mut Buffer, ns: &str, task: &TaskInfo, report: &Report) {
        match report {
            Report::ModelStart(call) => {
                let subject = self.model(ns, task, call);
                self.event(frames, "on_chat_model_start", &subject, |out, _| {
                    conversation(out, call);
                });
            }
            Report::ModelPiece(call, piece) => {
                let subject = self.model(ns, task, call);
                self.event(frames, "on_chat_model_stream", &subject, |out, _| {
                    out.extend_from_slice(b"\"chunk\":");
                    shape::chunk(out, piece);
                });
            }
            Report::ModelEnd(call, message) => {
                let subject = self.model(ns, task, call);
                self.event(frames, "on_chat_model_end", &subject, |out, _| {
                    out.extend_from_slice(b"\"output\":");
                    shape::message(out, message);
                    if call.messages.is_some() {
                        out.push(b',');
                        conversation(out, call);
                    }
                });
            }
            Report::ToolStart(tool) => {
                let subject = self.tool(ns, task, tool);
                self.event(frames, "on_tool_start", &subject, |out, _| {
                    out.extend_from_slice(b"\"input\":");
                    tool.input.write_json(out);
                });
            }
            Report::ToolEnd(tool, output) => {
                let subject = self.tool(ns, task, tool);
                self.event(frames, "on_tool_end", &subject, |out, _| {
                    out.extend_from_slice(b"\"output\":");
                    // A call that a model requested ends with a message.
                    if tool.call.is_some() {
                        shape::message(out, output);
                    } else {
                        output.write_json(out);
                    }
                    out.extend_from_slice(b",\"input\":");
                    tool.input.write_json(out);
                });
            }
            Report::ToolError(tool, error) => {
                let subject = self.tool(ns, task, tool);
                self.event(frames, "on_tool_error", &subject, |out, _| {
                    out.extend_from_slice(b"\"error\":");
                    error.write_json(out);
                    out.extend_from_slice(b",\"input\":");
                    tool.input.write_json(out);
                    if let Some(call) = &tool.call {
                        out.extend_from_slice(b",\"tool_call_id\":");
                        text(out, call);
                    }
                });
            }
        }
    }

    /// The graph of a namespace; `task` runs it unless it is the root graph.
    fn graph<'a>(&'a self, ns: &str, task: Option<&'a TaskInfo>) -> Subject<'a> {
        let mut parents = self.chain(ns);
        let run = parents.pop().unwrap_or(self.origin.run.0);
        let around = task.map(|task| (task, Some(outermost(task))));
        Subject {
            name: if task.is_some() { GRAPH } else { &self.name },
            run,
            parents,
            tag: task.map(|_| "seq:step:1".to_owned()),
            task: around,
            model: None,
        }
    }

    fn node<'a>(&self, ns: &str, task: &'a TaskInfo) -> Subject<'a> {
        Subject {
            name: &task.name,
            run: self.run_of(task.id),
            parents: self.chain(ns),
            tag: Some(format!("graph:step:{}", task.step)),
            task: Some((task, (!ns.is_empty()).then(|| outermost(task)))),
            model: None,
        }
    }

    fn model<'a>(&self, ns: &str, task: &'a TaskInfo, call: &'a ModelCall) -> Subject<'a> {
        let called = self.called(ns, task, &call.name, call.id);
        Subject {
            model: Some(call),
            ..called
        }
    }

    fn tool<'a>(&self, ns: &str, task: &'a TaskInfo, tool: &'a ToolRun) -> Subject<'a> {
        self.called(ns, task, &tool.name, tool.id)
    }

    /// What a node calls.
    fn called<'a>(&self, ns: &str, task: &'a TaskInfo, name: &'a str, run: Uuid) -> Subject<'a> {
        let mut parents = self.chain(ns);
        parents.push(self.run_of(task.id));
        Subject {
            name,
            run,
            parents,
            tag: Some("seq:step:1".to_owned()),
            task: Some((task, Some(outermost(task)))),
            model: None,
        }
    }

    fn event(
        &self,
        frames: &mut Buffer,
        event: &str,
        subject: &Subject<'_>,
        data: impl FnOnce(&mut Vec<u8>, &Channels),
    ) {
        frames.push(Mode::Events.into(), "events", "", |out| {
            out.extend_from_slice(b"{\"event\":");
            text(out, event);
            out.extend_from_slice(b",\"data\":{");
            data(out, &self.channels);
            out.extend_from_slice(b"},\"name\":");
            text(out, subject.name);
            out.extend_from_slice(b",\"tags\":");
            let tags = subject.tag.as_deref().into_iter();
            let tags = tags.chain(self.tags.iter().map(|tag| &**tag));
            list(out, tags, text);
            out.extend_from_slice(b",\"run_id\":");
            plain(out, subject.run);
            out.extend_from_slice(b",\"metadata\":{");
            self.fields_of(out, subject);
            out.extend_from_slice(b"},\"parent_ids\":");
            list(out, &subject.parents, plain);
            out.push(b'}');
        });
    }

    /// Writes the fields of metadata, without braces.
    fn fields_of(&self, out: &mut Vec<u8>, subject: &Subject<'_>) {
        out.extend_from_slice(&self.shared);
        out.extend_from_slice(b",\"thread_id\":");
        plain(out, self.origin.thread);
        let Some((task, around)) = subject.task else {
            return;
        };
        task_fields(out, task);
        if let Some(around) = around {
            out.extend_from_slice(b",\"checkpoint_ns\":");
            text(out, around);
        }
        if let Some(model) = subject.model {
            if let Some(provider) = &model.provider {
                out.extend_from_slice(b",\"ls_provider\":");
                text(out, provider);
            }
            out.extend_from_slice(b",\"ls_model_type\":\"chat\"");
        }
    }

    /// The ids from the root graph to the graph of a namespace.
    fn chain(&self, ns: &str) -> Vec<Uuid> {
        if let Some((chain, _)) = self.open.graphs.get(ns) {
            return chain.clone();
        }
        // Its start was not encoded, because nobody read the stream then.
        let mut chain = vec![self.origin.run.0];
        let mut task = TaskId::NULL;
        let ends = ns.match_indices('|').map(|(end, _)| end).chain([ns.len()]);
        let mut begin = 0;
        for end in ends.filter(|end| *end > 0) {
            let segment = &ns[begin..end];
            begin = end + 1;
            if segment.parse::<usize>().is_ok() {
                // A further graph of the same task.
                chain.pop();
            } else {
                let id = segment.rsplit_once(':').map(|(_, id)| id.parse());
                task = id.and_then(Result::ok).unwrap_or(TaskId::NULL);
                chain.push(self.run_of(task));
            }
            chain.push(self.run_of_graph(&ns[..end], task));
        }
        chain
    }

    fn open_graph(&self, ns: &str, task: &TaskInfo) -> Vec<Uuid> {
        let mut chain = self.chain(graph_of(task));
        chain.extend([self.run_of(task.id), self.run_of_graph(ns, task.id)]);
        chain
    }

    fn run_of(&self, task: TaskId) -> Uuid {
        Uuid::new_v5(&self.origin.run.0, task.0.as_bytes())
    }

    fn run_of_graph(&self, ns: &str, task: TaskId) -> Uuid {
        Uuid::new_v5(&self.run_of(task), ns.as_bytes())
    }
}

impl Open {
    /// Forgets what is open when that is too much: then ends tell no inputs.
    fn trim(&mut self) {
        if self.inputs.len() + self.graphs.len() >= MOST {
            self.inputs.clear();
            self.graphs.clear();
        }
    }
}

/// The namespace of the graph that a task belongs to.
fn graph_of(task: &TaskInfo) -> &str {
    task.ns.rsplit_once('|').map_or("", |(graph, _)| graph)
}

/// The namespace that what runs in a task names besides the task's own: the outermost one.
fn outermost(task: &TaskInfo) -> &str {
    task.ns.split('|').next().unwrap_or_default()
}

/// Writes the fields that all events of a task share, each after a comma.
pub(super) fn task_fields(out: &mut Vec<u8>, task: &TaskInfo) {
    out.extend_from_slice(b",\"langgraph_step\":");
    number(out, task.step);
    out.extend_from_slice(b",\"langgraph_node\":");
    text(out, &task.name);
    out.extend_from_slice(b",\"langgraph_triggers\":");
    list(out, task.triggers.iter(), |out, name| text(out, name));
    out.extend_from_slice(b",\"langgraph_path\":");
    task.path.write_json(out);
    out.extend_from_slice(b",\"langgraph_checkpoint_ns\":");
    text(out, &task.ns);
}

/// Writes the data of an end.
fn ended(out: &mut Vec<u8>, channels: &Channels, output: &Value, input: Option<&Value>) {
    out.extend_from_slice(b"\"output\":");
    channels.write(out, output);
    if let Some(input) = input {
        out.extend_from_slice(b",\"input\":");
        channels.write(out, input);
    }
}

/// Writes the conversation that a model was called with, if it is known.
fn conversation(out: &mut Vec<u8>, call: &ModelCall) {
    let Some(messages) = &call.messages else {
        return;
    };
    out.extend_from_slice(b"\"input\":{\"messages\":[");
    let messages = messages.as_list().unwrap_or_default();
    list(out, messages, shape::message);
    out.extend_from_slice(b"]}");
}
