//! What the graphs inside a task see of the graph around them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    error::Error,
    event::{Interrupt, TaskInfo},
    persist::{queue::QueuedWrites, writer::Durability},
    reserved::{STEP, control_index},
    run_context::RunContext,
};
use crate::{
    checkpoint::{Pending, earlier},
    id::CheckpointId,
    value::{Map, Value},
};

/// A replay of the root graph, as the graphs inside follow it.
#[derive(Clone, Default)]
pub struct Replay {
    /// When the root graph replays: what a graph inside has stored from this checkpoint on does not
    /// count when the run comes to it for the first time.
    pub bound: Option<CheckpointId>,
    /// Namespaces, without the id of their last task, that the run has come to.
    pub visited: Arc<Mutex<HashSet<String>>>,
}

impl Replay {
    /// Visits a namespace; there is a bound on the first visit of a replay.
    pub fn visit(&self, ns: &str) -> Option<CheckpointId> {
        let bound = self.bound?;
        let stable = ns.rsplit_once(':').map_or(ns, |(stable, _)| stable);
        self.visited
            .lock()
            .insert(stable.to_owned())
            .then_some(bound)
    }
}

/// An execution as the graphs inside its tasks see it.
#[derive(Clone)]
pub struct ParentExecution {
    /// Checkpoints of all graphs around a graph inside, by namespace.
    pub parents: Map,
    /// The checkpoint that the tasks run from.
    pub checkpoint: CheckpointId,
    /// Its namespace.
    pub ns: Arc<str>,
    /// Whether it resumes, as far as that is decided.
    pub resuming: Option<bool>,
    /// Its replay.
    pub replay: Replay,
    /// Whether it stores checkpoints.
    pub stores: bool,
    /// An earlier attempt of the task, in this process, has begun the graphs inside.
    pub task_retry: bool,
    /// Interrupts of a graph that a node's function called.
    pub interrupts: Arc<Mutex<Vec<Interrupt>>>,
}

impl ParentExecution {
    /// The view of one attempt of a task: a further attempt goes on with what graphs inside began.
    pub fn for_attempt(&self, attempt: usize) -> Self {
        Self {
            task_retry: attempt > 1,
            interrupts: Arc::default(),
            ..self.clone()
        }
    }

    /// Records the interrupts of a graph that a node's function called.
    pub fn set_interrupts(&self, interrupts: Vec<Interrupt>) {
        *self.interrupts.lock() = interrupts;
    }

    /// Takes those interrupts.
    pub fn take_interrupts(&self) -> Vec<Interrupt> {
        std::mem::take(&mut self.interrupts.lock())
    }

    /// Makes the results of a task's steps durable, with what was pending of it before this run. In `Exit` durability they wait for the end of the run, which stores
    /// them if the graph stops at this checkpoint: most others are never stored, and nobody would find them there.
    ///
    /// # Errors
    /// The storage failed, or another writer took over.
    pub async fn store_steps(
        &self,
        context: &RunContext,
        task: &TaskInfo,
        all: HashMap<String, Value>,
        earlier: Option<Value>,
    ) -> Result<(), Error> {
        let Some(writer) = context.writer.as_ref().filter(|_| self.stores) else {
            return Ok(());
        };
        let steps: Map = all
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect();
        let row = |channel: &str, value| Pending {
            task: task.id,
            path: "".into(),
            idx: control_index(channel).unwrap_or_default(),
            channel: channel.into(),
            value,
        };
        let earlier = earlier.map(|earlier| row(earlier::CHANNEL, earlier));
        let steps = row(STEP, Value::map(steps));
        let writes = QueuedWrites {
            ns: self.ns.clone(),
            checkpoint: self.checkpoint,
            writes: std::iter::once(steps).chain(earlier).collect(),
            barrier: None,
        };
        writer.enqueue([writes], false).await;
        if writer.durability() == Durability::Exit {
            return Ok(());
        }
        Ok(writer.flush().await?)
    }
}
