//! What an attempt of a run knows of the attempts before it, and what it records for the next one.
//!
//! When the process of a run dies, another one makes a further attempt. It starts at the last
//! checkpoint that the run itself has stored, or else where the run began, with the results that
//! tasks have stored there. Where the run began a command must be applied once, and its resume value
//! must be used once: both are recorded there, under the run's own id.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    namespace,
    pending::PendingWrites,
    persist::queue::QueuedWrites,
    reserved::{COMMAND_RECORD, control_index},
};
use crate::{
    checkpoint::Pending,
    id::{CheckpointId, RunId, TaskId},
    value::Value,
};

/// Where an attempt of a run starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attempt {
    /// It is the first one.
    #[default]
    First,
    /// Earlier attempts stored no checkpoint of the root graph, so it starts where the run began.
    /// Results of tasks and checkpoints of graphs inside may be stored there.
    FromBase,
    /// It starts at the last checkpoint of an earlier attempt, which has the input in it.
    FromOwnCheckpoint,
}

/// What earlier attempts have done with the command of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRecord {
    /// It is among the pending writes.
    Applied,
    /// A task has used the resume value in it, too.
    ResumeUsed,
}

/// The client's resume value, for the first task that interrupts.
#[derive(Default)]
struct ResumeValue {
    /// The value, until a task uses it.
    value: Option<Value>,
    /// The checkpoint of the root graph where its use is to be recorded.
    record_at: Option<CheckpointId>,
    /// Namespace of the task that used it, until that is recorded.
    used_by: Option<Arc<str>>,
}

/// What all graphs of a run know of its earlier attempts.
pub struct Recovery {
    /// A run without an id has one attempt.
    run: Option<RunId>,
    attempt: Attempt,
    resume: Mutex<ResumeValue>,
    /// Tasks that run or are about to.
    unfinished: Mutex<HashSet<TaskId>>,
    /// One of them has finished.
    finished: Notify,
}

impl Recovery {
    /// Of an attempt of `run`.
    pub fn new(run: Option<RunId>, attempt: Attempt) -> Self {
        Self {
            run,
            attempt,
            resume: Mutex::default(),
            unfinished: Mutex::default(),
            finished: Notify::new(),
        }
    }

    /// The run, if it has an id.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Whether an earlier attempt may have stored more than the checkpoint of the root graph shows.
    pub fn is_retry(&self) -> bool {
        self.attempt != Attempt::First
    }

    /// Records the tasks of a superstep that are about to run. A further attempt runs first those that
    /// have begun a graph inside which others share: see [`finished`](Self::finished).
    pub fn plan(&self, tasks: impl Iterator<Item = TaskId>) {
        if self.is_retry() {
            self.unfinished.lock().extend(tasks);
        }
    }

    /// Records that a task has finished.
    pub fn finish(&self, task: TaskId) {
        if self.is_retry() && self.unfinished.lock().remove(&task) {
            self.finished.notify_waiters();
        }
    }

    /// Whether a task runs or is about to.
    pub fn is_unfinished(&self, task: TaskId) -> bool {
        self.unfinished.lock().contains(&task)
    }

    /// Waits until a task has finished.
    pub async fn finished(&self, task: TaskId) {
        loop {
            let mut finished = std::pin::pin!(self.finished.notified());
            finished.as_mut().enable();
            if !self.is_unfinished(task) {
                return;
            }
            finished.await;
        }
    }

    /// Whether the root graph starts at the last checkpoint of an earlier attempt.
    pub fn starts_at_own_checkpoint(&self) -> bool {
        self.attempt == Attempt::FromOwnCheckpoint
    }

    /// What earlier attempts have recorded of the command, among the writes where the run began.
    pub fn command_record(&self, pending: &PendingWrites) -> Option<CommandRecord> {
        let run = TaskId(self.run?.0);
        let mut own = pending.of(run).iter();
        let record = own.find(|write| &*write.channel == COMMAND_RECORD)?;
        Some(match record.value {
            Value::Bool(true) => CommandRecord::ResumeUsed,
            _ => CommandRecord::Applied,
        })
    }

    /// The record that a command was applied at a checkpoint of the root graph, to be stored with
    /// the writes of the command.
    pub fn record_command(&self, at: CheckpointId) -> Option<QueuedWrites> {
        self.record(at, false)
    }

    /// The record that a task of this namespace, or one of a graph inside it, has used the client's
    /// resume value: to be stored with what the task wrote.
    pub fn record_use(&self, task: &str) -> Option<QueuedWrites> {
        let mut resume = self.resume.lock();
        let used_by = resume.used_by.as_ref()?;
        if !namespace::contains(task, used_by) {
            return None;
        }
        resume.used_by = None;
        self.record(resume.record_at.take()?, true)
    }

    fn record(&self, at: CheckpointId, resume_used: bool) -> Option<QueuedWrites> {
        let record = Pending {
            task: TaskId(self.run?.0),
            path: "".into(),
            idx: control_index(COMMAND_RECORD)?,
            channel: COMMAND_RECORD.into(),
            value: Value::Bool(resume_used),
        };
        Some(QueuedWrites {
            ns: "".into(),
            checkpoint: at,
            writes: vec![record],
            barrier: None,
        })
    }

    /// Offers a resume value to the first task that interrupts; its use is recorded at `record_at`.
    pub fn offer_resume(&self, value: Value, record_at: Option<CheckpointId>) {
        *self.resume.lock() = ResumeValue {
            value: Some(value),
            record_at,
            used_by: None,
        };
    }

    /// The client's resume value, for a task of this namespace that interrupts; once.
    pub fn use_resume(&self, task: &Arc<str>) -> Option<Value> {
        let mut resume = self.resume.lock();
        let value = resume.value.take()?;
        if resume.record_at.is_some() {
            resume.used_by = Some(task.clone());
        }
        Some(value)
    }

    /// Lets no further task use the resume value.
    pub fn withdraw_resume(&self) {
        self.resume.lock().value = None;
    }

    /// Whether the resume value waits for a task that uses it.
    pub fn offers_resume(&self) -> bool {
        self.resume.lock().value.is_some()
    }
}
