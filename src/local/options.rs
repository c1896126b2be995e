//! Options of a run, and of a list of states.

use std::{collections::HashMap, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    engine::{self, Durability, Input, Items, Request, RunAhead, Tolerance, node_cache::Results},
    extract::RunConfig,
    graph::{Compiled, Names},
    id::{CheckpointId, RunId},
    value::Map,
};

/// Supersteps a run may take by default (LangGraph's default).
const RECURSION_LIMIT: u32 = 10_007;

/// How to run. The default runs from the head, emits no events and writes in the background.
#[derive(Clone)]
pub struct RunOptions {
    /// The config that nodes read; its scalars are stored in the metadata of checkpoints.
    pub config: RunConfig,
    /// Supersteps of nodes; by default the graph's own limit, or a large one.
    pub recursion_limit: Option<u32>,
    /// The checkpoint to run from, by default the head. A run from an older one opens a branch.
    pub at: Option<CheckpointId>,
    /// Checkpoints of graphs inside to run from, by namespace (LangGraph's `checkpoint_map`). Only
    /// namespaces that occur in the run count: those of graphs that store their state per thread,
    /// and those of tasks that are resumed.
    pub inside: HashMap<Arc<str>, CheckpointId>,
    /// Breakpoints that replace the graph's.
    pub interrupt_before: Option<Names>,
    /// Breakpoints that replace the graph's.
    pub interrupt_after: Option<Names>,
    /// When supersteps have to be durable.
    pub durability: Durability,
    /// How far the run may be ahead of what is durable, in [`Durability::Async`]: what a crash repeats.
    pub run_ahead: RunAhead,
    /// The id of the run, stored in its checkpoints.
    pub run: Option<RunId>,
    /// Receives the events.
    pub sink: Arc<dyn engine::Sink>,
    /// Mistakes of commands that are ignored, as LangGraph does; by default none.
    pub tolerance: Tolerance,
    /// Stops the run at the next await.
    pub cancel: CancellationToken,
}

/// Which states to list, newest first.
#[derive(Clone, Debug)]
pub struct History {
    /// Namespace; empty for the root graph, `None` for all of them.
    pub ns: Option<Arc<str>>,
    /// Strictly older than this one.
    pub before: Option<CheckpointId>,
    /// Just this one.
    pub at: Option<CheckpointId>,
    /// Metadata that the states contain.
    pub metadata: Option<Map>,
    /// The greatest number of states.
    pub limit: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            ns: Some("".into()),
            before: None,
            at: None,
            metadata: None,
            limit: usize::MAX,
        }
    }
}

impl RunOptions {
    pub(super) fn request(
        self,
        graph: Arc<Compiled>,
        input: Input,
        items: Option<Arc<dyn Items>>,
        reuse: Option<Arc<Results>>,
    ) -> Request {
        let mut config = self.config;
        config.recursion_limit = self
            .recursion_limit
            .or(graph.recursion_limit)
            .unwrap_or(RECURSION_LIMIT);
        Request {
            graph,
            input,
            config,
            run: self.run,
            interrupt_before: self.interrupt_before,
            interrupt_after: self.interrupt_after,
            durability: self.durability,
            items,
            reuse,
            tolerance: self.tolerance,
            leaves_rest: false,
            max_tasks: engine::MAX_TASKS,
            run_ahead: self.run_ahead,
            lead: engine::Lead::default(),
            sink: self.sink,
            cancel: self.cancel,
        }
    }
}
