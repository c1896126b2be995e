//! What a publisher is told of its run: whose it is, what its stream sends, and how much memory it may take.

use std::sync::Arc;

use super::mode::Mode;
use crate::{
    graph::Compiled,
    id::{RunId, ThreadId},
};

/// Memory one stream may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How far a reader of a stream that cannot be resumed may fall behind, in bytes.
    pub lag: usize,
    /// Bytes that a stream that can be resumed retains; the oldest frames are dropped first.
    pub retained: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lag: 16 << 20,
            retained: 64 << 20,
        }
    }
}

/// The run of a publisher, and what its stream sends.
pub struct Options {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its attempt, from 1.
    pub attempt: i32,
    /// The modes that the request subscribes to.
    pub modes: Vec<Mode>,
    /// The run's thread is deleted with it, so that its checkpoints are not announced.
    pub temporary: bool,
    /// On whose behalf it executes; `None` for the server itself, and while nobody authenticates.
    pub principal: Option<Arc<str>>,
    /// Events of graphs inside the graph are sent too.
    pub subgraphs: bool,
    /// Frames carry ids and are retained for readers who come back.
    pub resumable: bool,
    /// The name of the graph.
    pub graph_name: Arc<str>,
    /// The graph, whose message channels are written with LangChain's fields.
    pub graph: Arc<Compiled>,
    /// Named in the `metadata` event; only for requests that used a branch.
    pub branch_in_metadata: Option<Arc<str>>,
    /// Number of the last frame of earlier attempts: numbers go on after it.
    pub after: u64,
    /// Memory the stream may take.
    pub limits: Limits,
}

impl Options {
    /// The options of the first attempt of a run, without any mode.
    pub fn new(run: RunId, thread: ThreadId, graph: Arc<Compiled>) -> Self {
        Self {
            run,
            thread,
            attempt: 1,
            modes: vec![],
            temporary: false,
            principal: None,
            subgraphs: false,
            resumable: false,
            graph_name: "".into(),
            graph,
            branch_in_metadata: None,
            after: 0,
            limits: Limits::default(),
        }
    }
}
