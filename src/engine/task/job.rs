//! A task before it runs and after it ended.

use std::sync::Arc;

use crate::{
    engine::{
        apply::Writes,
        channels::Channels,
        error::Error,
        event::{Interrupt, TaskInfo},
        parent_execution::ParentExecution,
        pending::TaskMemory,
        plan::PlannedTask,
        topology::Topology,
    },
    graph::{Deps, Node, Output},
    value::Value,
};

/// Everything a task needs to run.
pub struct Job {
    /// The task.
    pub planned: PlannedTask,
    /// How events describe it.
    pub info: Arc<TaskInfo>,
    /// Its input.
    pub input: Value,
    /// Namespace of its graph.
    pub graph_ns: Arc<str>,
    /// Its node.
    pub node: Node,
    /// The graph and the state its routes read, when they are retried with the node.
    pub routes: Option<(Arc<Topology>, Arc<Channels>)>,
    /// The graph and its state, for a task whose input is an argument of its own.
    pub state: Option<(Arc<Topology>, Arc<Channels>)>,
    /// What it has from earlier runs.
    pub memory: TaskMemory,
    /// The execution it is part of.
    pub parent: ParentExecution,
    /// Shared dependencies of its graph.
    pub deps: Deps,
}

/// How a task ended.
#[derive(Debug)]
pub enum TaskEnd {
    /// Its node returned.
    Returned(Output),
    /// Its node returned and its routes chose: what it writes.
    Wrote(Writes),
    /// It waits at interrupts; at none for a static breakpoint of a graph inside.
    Interrupted(Vec<Interrupt>),
    /// It failed for good.
    Failed(Error),
}

/// How a task ended, with its control writes.
pub type TaskResult = (TaskEnd, Writes);
