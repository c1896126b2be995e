//! An event of the protocol, and its form on the wire.

use std::sync::Arc;

use crate::stream::frame;

/// The graph that an event comes from, outer graphs first; empty for the root.
pub type Namespace = Arc<[Arc<str>]>;

/// What an event shows. Each has a channel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The state after a superstep.
    Values,
    /// What one task wrote.
    Updates,
    /// A message as it grows.
    Messages,
    /// Calls of tools and their results.
    Tools,
    /// A graph began or ended.
    Lifecycle,
    /// A node waits for an input.
    Input,
    /// A checkpoint was made.
    Checkpoints,
    /// A task began or ended.
    Tasks,
    /// What a node emitted.
    Custom,
}

impl Method {
    /// Every channel by its word.
    pub const CHANNELS: &[(&'static str, Self)] = &[
        ("values", Self::Values),
        ("updates", Self::Updates),
        ("messages", Self::Messages),
        ("tools", Self::Tools),
        ("lifecycle", Self::Lifecycle),
        ("input", Self::Input),
        ("checkpoints", Self::Checkpoints),
        ("tasks", Self::Tasks),
        ("custom", Self::Custom),
    ];

    /// The name of its events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Updates => "updates",
            Self::Messages => "messages",
            Self::Tools => "tools",
            Self::Lifecycle => "lifecycle",
            Self::Input => "input.requested",
            Self::Checkpoints => "checkpoints",
            Self::Tasks => "tasks",
            Self::Custom => "custom",
        }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The same at each replay.
    pub id: String,
    /// Its position among the events of the thread.
    pub seq: u64,
    /// Only those get it who watch at that moment: it is not replayed.
    pub is_passing: bool,
    /// What it shows.
    pub method: Method,
    /// The graph it comes from.
    pub ns: Namespace,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// The node it comes from, where that is known.
    pub node: Option<Arc<str>>,
    /// The name of a custom event.
    pub name: Option<Arc<str>>,
    /// Its data, a JSON text.
    pub data: Vec<u8>,
}

impl Event {
    /// Writes it as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"event\",\"event_id\":");
        frame::text(out, &self.id);
        out.extend_from_slice(b",\"seq\":");
        out.extend_from_slice(self.seq.to_string().as_bytes());
        out.extend_from_slice(b",\"method\":");
        frame::text(out, self.method.as_str());
        out.extend_from_slice(b",\"params\":{\"namespace\":");
        write_namespace(out, &self.ns);
        out.extend_from_slice(b",\"timestamp\":");
        frame::number(out, self.timestamp);
        if let Some(node) = &self.node {
            out.extend_from_slice(b",\"node\":");
            frame::text(out, node);
        }
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(&self.data);
        out.extend_from_slice(b"}}");
    }

    /// Writes it as a server-sent event.
    pub fn write_frame(&self, out: &mut Vec<u8>) {
        frame::open(out, self.method.as_str(), "");
        self.write_json(out);
        frame::close(out, Some(self.seq));
    }
}

/// Writes a namespace as a list of texts.
pub fn write_namespace(out: &mut Vec<u8>, ns: &[Arc<str>]) {
    frame::list(out, ns, |out, segment| frame::text(out, segment));
}
