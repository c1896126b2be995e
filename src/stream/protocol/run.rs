//! The events of one run, made from its frames one after the other.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{
    checkpoints::{Checkpoint, Debug, Task},
    event::{Event, Method, Namespace},
    lifecycle::{self, Graphs, Status},
    messages::{MessageEvent, Messages},
    output::Output,
    state,
    tools::Tools,
};
use crate::{
    engine::Interrupt,
    id::RunId,
    stream::{log::ATTEMPT_FRAMES, thread::End},
    value::{Map, Value},
};

/// What the events of a run need besides its frames.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// The run.
    pub run: RunId,
    /// The name of its graph.
    pub graph: Arc<str>,
    /// It was started by a command of the protocol. Of other runs the pieces of messages are left
    /// out, and messages are shown in the classic form.
    pub is_protocol: bool,
}

/// A recorded frame of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// What it shows: a mode, or `metadata` and `error`.
    pub event: &'a str,
    /// The graph it comes from, outer graphs first, joined with `|`; empty for the root.
    pub ns: &'a str,
    /// Its data, a JSON text.
    pub data: &'a str,
    /// Its number in the stream of its run.
    pub number: u64,
}

/// The end of a run of which no frame is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub end: End,
    /// Nodes of the head have not run yet.
    pub waits: bool,
}

/// The events of one run.
pub struct RunEvents {
    facts: RunFacts,
    /// When the last frame was emitted that says so, in milliseconds.
    clock: i64,
    /// The frame that is converted, and how many events it has given so far.
    frame: (u64, usize),
    begun: bool,
    graphs: Graphs,
    messages: Messages,
    tools: Tools,
    /// Open interrupts, with the graph in which each was raised.
    interrupts: IndexMap<Arc<str>, (Namespace, Value)>,
    /// It stopped before or after a node.
    stopped: bool,
    /// The state of the root graph at its interrupt, and the frame that it came with.
    interrupted: Option<(u64, Vec<u8>)>,
    /// The message of its failure.
    failure: Option<Arc<str>>,
    /// The graphs of an attempt that died, as its reader was shown them.
    shown: Option<Graphs>,
}

impl RunEvents {
    /// The events of a run none of whose frames has been converted.
    pub fn new(facts: RunFacts) -> Self {
        let time = facts.run.0.get_timestamp();
        let (seconds, nanos) = time.map_or((0, 0), |time| time.to_unix());
        let clock = seconds.saturating_mul(1000) + u64::from(nanos) / 1_000_000;
        Self {
            clock: i64::try_from(clock).unwrap_or(0),
            frame: (0, 0),
            begun: false,
            graphs: Graphs::new(facts.graph.clone()),
            messages: Messages::default(),
            tools: Tools::default(),
            interrupts: IndexMap::new(),
            stopped: false,
            interrupted: None,
            failure: None,
            shown: None,
            facts,
        }
    }

    /// Whether the last frame was of an attempt before the one that a frame is of.
    pub fn is_before_attempt_of(&self, number: u64) -> bool {
        let attempt = |number: u64| number.saturating_sub(1) / ATTEMPT_FRAMES;
        self.frame.0 > 0 && attempt(self.frame.0) < attempt(number)
    }

    /// Goes on with what is left of an attempt that died, `left`. The reader was shown more of it, of
    /// which beginnings and ends of graphs have ids that the next attempt uses too: these are not
    /// shown twice.
    pub fn replace_by(&mut self, left: Self) {
        let shown = std::mem::replace(self, left);
        self.shown = shown.begun.then_some(shown.graphs);
    }

    /// The graphs of the run as a tree.
    pub fn tree(&self) -> Value {
        super::tree::tree(&self.graphs)
    }

    /// Converts a frame.
    pub fn push(&mut self, frame: &Recorded<'_>, out: &mut Output) {
        self.frame = (frame.number, 0);
        self.begin(out);
        let segments = frame.ns.split('|').filter(|segment| !segment.is_empty());
        let ns: Namespace = segments.map(Arc::from).collect();
        let blocks = self.facts.is_protocol;
        match frame.event {
            "error" => self.failed(frame.data),
            "values" => {
                if out.wanted.want(Method::Values) || frame.data.contains("__interrupt__") {
                    self.values(&ns, state::values(frame.data, blocks), out);
                } else {
                    out.count();
                    self.frame.1 += 1;
                }
                self.announce(&ns, out);
                if self.interrupts.is_empty() {
                    // A state follows a superstep, so that what ran in it has ended.
                    let ended = self.graphs.end_inside(&ns, Status::Completed);
                    self.ended(ended, Status::Completed, None, out);
                }
            }
            "updates" => self.updates(&ns, frame.data, out),
            "custom" => {
                self.announce(&ns, out);
                self.custom(&ns, frame.data, out);
            }
            "messages" if self.facts.is_protocol => self.message(&ns, frame.data, out),
            "debug" => {
                if let Ok(debug) = serde_json::from_str::<Debug<'_>>(frame.data) {
                    self.clock = debug.timestamp.0 / 1000;
                    let payload = debug.payload.get();
                    if debug.kind == "checkpoint" {
                        self.checkpoint(&ns, payload, out);
                    } else {
                        self.task(&ns, payload, out);
                    }
                }
            }
            "tasks" => self.task(&ns, frame.data, out),
            "checkpoints" => self.checkpoint(&ns, frame.data, out),
            _ => {}
        }
    }

    /// The run has ended, and its final row is stored.
    pub fn end(&mut self, end: &End, out: &mut Output) {
        self.begin(out);
        let failure = match end {
            End::Failed(own) => {
                let own = self.failure.take().or_else(|| own.clone());
                Some(own.unwrap_or_else(|| "the run failed".into()))
            }
            _ => None,
        };
        let unfinished = failure.as_deref();
        let unfinished = unfinished.unwrap_or("the run ended before the message was complete");
        let rest = self.messages.end_all(unfinished);
        self.emit_messages(rest, out);
        let waits = !self.interrupts.is_empty() || self.stopped;
        let status = match end {
            End::Failed(_) => Status::Failed,
            End::Cancelled => Status::Interrupted,
            End::Success if waits => Status::Interrupted,
            End::Success => Status::Completed,
        };
        if *end == End::Success {
            for (id, (ns, payload)) in std::mem::take(&mut self.interrupts) {
                self.input_requested(&ns, &id, &payload, out);
            }
        }
        let ended = self.graphs.end(&[], status);
        self.ended(ended, status, failure.as_deref(), out);
        self.graphs.status = status;
        self.lifecycle(&[].into(), status, failure.as_deref(), out);
        if let (End::Success, Some((number, data))) = (end, self.interrupted.take()) {
            self.frame = (number, 0);
            self.emit(Method::Values, &[].into(), out, |into| {
                into.extend_from_slice(&data);
            });
        }
    }

    /// Emits the state that a run has left, a JSON text, and its end.
    pub fn show_end(&mut self, ended: &Ended, values: &str, out: &mut Output) {
        self.begun = true;
        self.stopped = ended.waits;
        let shown = state::values(values, self.facts.is_protocol);
        self.emit(Method::Values, &[].into(), out, |into| {
            into.extend_from_slice(&shown.data);
        });
        self.end(&ended.end, out);
    }

    /// Emits that the run works, also if that was emitted.
    pub fn show_beginning(&mut self, out: &mut Output) {
        self.begun = false;
        self.begin(out);
    }

    fn begin(&mut self, out: &mut Output) {
        if !std::mem::replace(&mut self.begun, true) {
            self.lifecycle(&[].into(), Status::Running, None, out);
        }
    }

    fn failed(&mut self, data: &str) {
        let error = Value::from_json_slice(data.as_bytes()).unwrap_or_default();
        if let Some(Value::Str(message)) = error.get("message") {
            self.failure = Some(message.clone());
        }
    }

    fn values(&mut self, ns: &Namespace, shown: state::Shown, out: &mut Output) {
        let waits = shown.interrupts.is_some();
        self.open(ns, shown.interrupts);
        if waits && ns.is_empty() {
            // The client reads the state and resumes it when it gets this, so that it comes once
            // the end of the run is stored.
            self.interrupted = Some((self.frame.0, shown.data));
            return;
        }
        self.emit(Method::Values, ns, out, |into| {
            into.extend_from_slice(&shown.data);
        });
    }

    fn updates(&mut self, ns: &Namespace, data: &str, out: &mut Output) {
        let (nodes, interrupts) = state::updates(data, self.facts.is_protocol);
        if interrupts.as_ref().is_some_and(Vec::is_empty) && ns.is_empty() {
            self.stopped = true;
        }
        self.open(ns, interrupts);
        if nodes.is_empty() {
            return;
        }
        self.announce(ns, out);
        for (node, update) in nodes {
            let event = self.emit(Method::Updates, ns, out, |into| update.write_json(into));
            if let Some(event) = event {
                event.node = Some(node);
            }
        }
    }

    /// An object of a text `name` and a `payload` is an event of that name.
    fn custom(&mut self, ns: &Namespace, data: &str, out: &mut Output) {
        let value = data
            .starts_with("{\"")
            .then(|| Value::from_json_slice(data.as_bytes()));
        let map = value
            .as_ref()
            .and_then(|value| value.as_ref().ok()?.as_map());
        let named = map.filter(|map| map.len() == 2).and_then(|map| {
            let Value::Str(name) = map.get("name")? else {
                return None;
            };
            Some((name.clone(), map.get("payload")?))
        });
        let event = self.emit(Method::Custom, ns, out, |into| match &named {
            Some((name, payload)) => {
                into.extend_from_slice(b"{\"payload\":");
                payload.write_json(into);
                into.extend_from_slice(b",\"name\":");
                crate::stream::frame::text(into, name);
                into.push(b'}');
            }
            None => {
                into.extend_from_slice(b"{\"payload\":");
                into.extend_from_slice(data.as_bytes());
                into.push(b'}');
            }
        });
        if let (Some(event), Some((name, _))) = (event, named) {
            event.name = Some(name);
        }
    }

    fn message(&mut self, ns: &Namespace, data: &str, out: &mut Output) {
        let Ok(Value::List(pair)) = Value::from_json_slice(data.as_bytes()) else {
            return;
        };
        let [Value::Map(message), metadata] = &**pair else {
            return;
        };
        self.announce(ns, out);
        let found = self.messages.push(ns, message, metadata);
        self.emit_messages(found, out);
        let node = match metadata.get("langgraph_node") {
            Some(Value::Str(node)) => Some(node.clone()),
            _ => None,
        };
        for data in self.tools.result(message) {
            let event = self.emit(Method::Tools, ns, out, |into| data.write_json(into));
            if let Some(event) = event {
                event.node.clone_from(&node);
            }
        }
    }

    fn emit_messages(&mut self, found: Vec<MessageEvent>, out: &mut Output) {
        for message in found {
            let data = message.data;
            let event = self.emit(Method::Messages, &message.ns, out, |into| {
                data.write_json(into);
            });
            if let Some(event) = event {
                event.node = message.node;
            }
        }
        self.tools.request(self.messages.take_calls());
    }

    fn task(&mut self, ns: &Namespace, data: &str, out: &mut Output) {
        let Ok(task) = serde_json::from_str::<Task>(data) else {
            return;
        };
        self.announce(ns, out);
        let has_ended = task.result.is_some();
        if has_ended {
            let error = task.error.map(|_| "the task failed");
            let rest = self.messages.end_task(&task.id, error);
            self.emit_messages(rest, out);
        }
        self.emit(Method::Tasks, ns, out, |into| {
            into.extend_from_slice(data.as_bytes());
        });
        if has_ended && task.interrupts.is_empty() {
            let status = if task.error.is_some() {
                Status::Failed
            } else {
                Status::Completed
            };
            let mut inside = ns.to_vec();
            inside.push(format!("{}:{}", task.name, task.id).into());
            let ended = self.graphs.end(&inside, status);
            self.ended(ended, status, None, out);
        }
    }

    fn checkpoint(&mut self, ns: &Namespace, data: &str, out: &mut Output) {
        if let Ok(checkpoint) = serde_json::from_str::<Checkpoint>(data) {
            self.emit(Method::Checkpoints, ns, out, |into| checkpoint.write(into));
        }
    }

    /// Takes up interrupts. Each is repeated by the graphs around it, after its own.
    fn open(&mut self, ns: &Namespace, interrupts: Option<Vec<Interrupt>>) {
        for interrupt in interrupts.unwrap_or_default() {
            let known = self.interrupts.entry(interrupt.id);
            known.or_insert((ns.clone(), interrupt.value));
        }
    }

    fn announce(&mut self, ns: &Namespace, out: &mut Output) {
        for new in self.graphs.announce(ns) {
            self.lifecycle(&new, Status::Started, None, out);
        }
    }

    fn ended(
        &mut self,
        graphs: Vec<Namespace>,
        status: Status,
        error: Option<&str>,
        out: &mut Output,
    ) {
        for ended in graphs {
            self.lifecycle(&ended, status, error, out);
        }
    }

    fn lifecycle(&mut self, ns: &Namespace, status: Status, error: Option<&str>, out: &mut Output) {
        let shown = self.shown.as_ref();
        if shown.is_some_and(|shown| shown.has_come_to(ns, status)) {
            out.count();
            self.frame.1 += 1;
            return;
        }
        let graph = self.graphs.name.clone();
        let name = if ns.is_empty() {
            &*graph
        } else {
            lifecycle::graph_name(ns)
        };
        let id = lifecycle::event_id(self.facts.run, ns, status);
        let event = self.emit(Method::Lifecycle, ns, out, |into| {
            lifecycle::write(into, ns, name, status, error);
        });
        if let Some(event) = event {
            event.id = id;
        }
    }

    fn input_requested(&mut self, ns: &Namespace, id: &str, payload: &Value, out: &mut Output) {
        let run = self.facts.run;
        let event = self.emit(Method::Input, ns, out, |into| {
            // Clients read either of the two.
            let data = Map::from([
                ("interrupt_id", id.into()),
                ("payload", payload.clone()),
                ("value", payload.clone()),
            ]);
            Value::map(data).write_json(into);
        });
        if let Some(event) = event {
            event.id = format!("synth:{run}:input|{}|{id}", ns.join("\0"));
        }
    }

    /// Counts an event, and makes it if its channel is wanted.
    fn emit<'a>(
        &mut self,
        method: Method,
        ns: &Namespace,
        out: &'a mut Output,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&'a mut Event> {
        let (number, nth) = self.frame;
        self.frame.1 += 1;
        out.count();
        if !out.wanted.want(method) {
            return None;
        }
        let run = self.facts.run;
        let id = match nth {
            0 => format!("{run}:{number}"),
            nth => format!("{run}:{number}.{nth}"),
        };
        let mut bytes = vec![];
        data(&mut bytes);
        out.events.push_back(Event {
            id,
            seq: out.seq,
            is_passing: out.passing.is_some(),
            method,
            ns: ns.clone(),
            timestamp: self.clock,
            node: None,
            name: None,
            data: bytes,
        });
        out.events.back_mut()
    }
}
