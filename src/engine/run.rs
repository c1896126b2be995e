//! A whole run: from a slot and a base checkpoint to the state it leaves.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU32},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    drive::{Stop, drive, shows},
    enter::{self, Command, Entry, Input},
    error::Error,
    event::{Body, Interrupt, Kind, Sink},
    index::Index,
    journal::{Durability, Journal},
    level::{Current, Level},
    live::Live,
    names::RESUME,
    reuse::Results,
    save,
    scope::{Items, Scope},
    takeover,
    wiring::Wiring,
};
use crate::{
    checkpoint::{NewBranch, Saver, Slot, frame},
    extract::RunConfig,
    graph::{Compiled, Names},
    id::{BranchId, CheckpointId, RunId, ThreadId},
    value::{Map, Value},
};

/// What to run.
pub struct Request {
    /// The graph.
    pub graph: Arc<Compiled>,
    /// Input, nothing, or a command.
    pub input: Input,
    /// Config nodes see.
    pub config: RunConfig,
    /// The run, noted in checkpoints.
    pub run: Option<RunId>,
    /// Breakpoints in place of the graph's.
    pub interrupt_before: Option<Names>,
    /// Breakpoints in place of the graph's.
    pub interrupt_after: Option<Names>,
    /// When supersteps have to be durable.
    pub durability: Durability,
    /// Long-term memory.
    pub items: Option<Arc<dyn Items>>,
    /// Results that nodes may use again.
    pub reuse: Option<Arc<Results>>,
    /// Mistakes of commands that are passed over.
    pub tolerance: Tolerance,
    /// Receives events.
    pub sink: Arc<dyn Sink>,
    /// Stops the run at the next await.
    pub cancel: CancellationToken,
}

/// Mistakes of commands that LangGraph passes over in silence: by default they are errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// An answer while nothing waits: nothing happens.
    pub idle_answers: bool,
    /// Nodes a command goes to, and ids of questions: those that do not exist are ignored.
    pub unknown_names: bool,
}

impl Tolerance {
    /// What LangGraph tolerates: all of it.
    pub const LANGGRAPH: Self = Self {
        idle_answers: true,
        unknown_names: true,
    };
}

/// Where a run starts and the right to write from there.
pub struct Start {
    /// The storage.
    pub saver: Arc<dyn Saver>,
    /// The branch written to; with `open` one that comes into being with the first write.
    pub slot: Slot,
    /// A branch to create with the first write.
    pub open: Option<NewBranch>,
    /// The checkpoint to start from, its writes those that count for the branch.
    pub base: Option<frame::Decoded>,
    /// Keeps the index of the conversation's messages.
    pub index: Option<Arc<dyn Index>>,
    /// The request names a checkpoint.
    pub addressed: bool,
    /// The thread has moved past that checkpoint.
    pub superseded: bool,
    /// Checkpoints of graphs inside that the request names, by namespace.
    pub inside: HashMap<Arc<str>, CheckpointId>,
    /// The base is this run's own: an earlier attempt, whose process is gone, came this many
    /// supersteps of nodes far. The run goes on from there and is given nothing.
    pub continues: Option<u32>,
    /// The run was begun before, by a process that is gone: graphs inside may stand further than
    /// the base.
    pub again: bool,
    /// New checkpoints have greater ids: the head of the active branch.
    pub floor: Option<CheckpointId>,
}

/// What a run leaves.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub result: Result<Ended, Error>,
    /// The slot as of the last write.
    pub slot: Option<Slot>,
    /// Nodes that would run next.
    pub next: Vec<Arc<str>>,
    /// The state it shows, as of the last superstep.
    pub values: Value,
    /// The last checkpoint, when nothing is pending at it: what the next run starts from.
    pub last: Option<frame::Decoded>,
}

/// How a run ended without failing.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Nothing is left to run.
    Done,
    /// Tasks wait for answers.
    Asked(Vec<Interrupt>),
    /// A static breakpoint.
    Breakpoint,
}

/// Runs a graph. Everything it wrote is durable when this returns, also when it failed.
///
/// Without `start` nothing is stored.
pub async fn run(request: Request, start: Option<Start>) -> Finished {
    let wiring = Arc::new(Wiring::new(request.graph.clone()));
    let (mut level, entry) = match open(&request, wiring, start) {
        Ok(opened) => opened,
        Err(error) => {
            return Finished {
                result: Err(error),
                slot: None,
                next: vec![],
                values: Value::Null,
                last: None,
            };
        }
    };
    let result = async {
        if level.scope.config.recursion_limit == 0 {
            return Err(Error::value("recursion_limit must be at least 1"));
        }
        enter::first(&mut level, entry).await?;
        if level.scope.continues
            && let Some(stop) = takeover::stopped(&mut level).await?
        {
            return Ok(stop);
        }
        drive(&mut level).await
    }
    .await;
    settle(level, result).await
}

/// Makes everything durable, tells the rest and sums up.
async fn settle(mut level: Level, result: Result<Stop, Error>) -> Finished {
    let mut slot = None;
    let mut stored = Ok(());
    if let Some(journal) = level.scope.journal.clone() {
        stored = save::at_exit(&mut level).await;
        slot = Some(journal);
    }
    let done = matches!(result, Ok(Stop::Done));
    let next = match done {
        true => vec![],
        false => level.plan().into_iter().map(|task| task.name).collect(),
    };
    let mut result = match result {
        Ok(Stop::Done) => Ok(Ended::Done),
        Ok(Stop::Asked(interrupts)) if !interrupts.is_empty() => {
            tell_finished_siblings(&mut level, true).map(|()| Ended::Asked(interrupts))
        }
        // A breakpoint of a graph inside asks nothing.
        Ok(Stop::Asked(_) | Stop::Breakpoint) => {
            tell_finished_siblings(&mut level, false).map(|()| {
                level
                    .scope
                    .emit(Kind::Updates, &level.ns, || Body::UpdateInterrupt(vec![]));
                Ended::Breakpoint
            })
        }
        Err(error) => Err(error),
    };
    let slot = match slot {
        Some(journal) => {
            if stored.is_ok() {
                stored = journal.finish().await.map(|_| ()).map_err(Error::from);
            }
            Some(journal.standing().await)
        }
        None => None,
    };
    // What was not stored did not happen, whatever the graph says.
    if let Err(error) = stored {
        result = Err(error);
    }
    // A command may have changed the state without a checkpoint: then there is nothing to keep.
    let done = level.saved
        && matches!(result, Ok(Ended::Done))
        && level.current.stored == Some(level.current.id);
    let last = done.then(|| frame::Decoded {
        checkpoint: level.checkpoint(level.current.parent),
        frame: level.frame.clone(),
        writes: vec![],
        references: vec![],
    });
    Finished {
        values: level.live.output(&level.wiring),
        result,
        slot,
        next,
        last,
    }
}

/// When tasks ask, the results of their finished siblings show in the state, though no
/// checkpoint has them.
fn tell_finished_siblings(level: &mut Level, ran: bool) -> Result<(), Error> {
    let tasks = &level.tasks;
    let writes: Vec<Vec<(Arc<str>, Value)>> =
        tasks.iter().map(|task| level.saved(task.id)).collect();
    // A task that got an answer and asks again has passed its triggers as well.
    let answered = ran
        && level.pending.iter().any(|write| {
            &*write.channel == RESUME && tasks.iter().any(|task| task.id == write.task)
        });
    if writes.iter().all(Vec::is_empty) && !answered {
        return Ok(());
    }
    super::drive::apply_step(level, &writes)?;
    if shows(level, writes.iter().flatten()) {
        level.tell_values();
    }
    Ok(())
}

fn open(
    request: &Request,
    wiring: Arc<Wiring>,
    start: Option<Start>,
) -> Result<(Level, Entry), Error> {
    let nil = uuid::Uuid::nil();
    let answers = match &request.input {
        Input::Command(Command {
            resume: Some(resume),
            ..
        }) => enter::answers(resume).unwrap_or_default(),
        _ => Default::default(),
    };
    let mut entry = Entry {
        input: request.input.clone(),
        ..Entry::nothing()
    };
    let mut scope = Scope {
        journal: None,
        index: None,
        sink: request.sink.clone(),
        config: Arc::new(request.config.clone()),
        metadata: checkpoint_metadata(&request.config),
        interrupt_before: request.interrupt_before.clone(),
        interrupt_after: request.interrupt_after.clone(),
        answers,
        answer: Mutex::new(None),
        given: Mutex::new(None),
        again: false,
        continues: false,
        said: Mutex::default(),
        doors: Mutex::default(),
        root: Mutex::new(None),
        floor: None,
        inside: HashMap::new(),
        items: request.items.clone(),
        reuse: request.reuse.clone(),
        tolerance: request.tolerance,
        cancel: request.cancel.clone(),
        remaining: AtomicU32::new(request.config.recursion_limit),
        thread: ThreadId(nil),
        branch: BranchId(nil),
        run: request.run,
    };
    let (mut live, mut current) = (Live::empty(&wiring), Current::none());
    let (mut stored, mut pending, mut updated) = (frame::Frame::default(), vec![], None);
    let stores = start.is_some();
    let mut ran = 0;
    if let Some(start) = start {
        entry.addressed = start.addressed;
        entry.superseded = start.superseded;
        entry.continues = start.continues.is_some();
        scope.continues = entry.continues;
        scope.again = start.again;
        ran = start.continues.unwrap_or(0);
        scope.floor = start.floor;
        scope.inside = start.inside;
        scope.index = start.index;
        scope.thread = start.slot.thread;
        scope.branch = start.slot.branch;
        scope.journal = Some(Arc::new(Journal::new(
            start.saver,
            start.slot,
            start.open,
            request.durability,
            request.cancel.clone(),
        )));
        if let Some(base) = start.base {
            live = Live::restore(&wiring, &base.checkpoint)?;
            current = Current::of(&base.checkpoint);
            *scope.root.get_mut() = Some(current.id);
            updated = base
                .checkpoint
                .updated
                .filter(|names| !names.is_empty())
                .map(|names| names.into_iter().collect());
            stored = base.frame;
            pending = base.writes.into_iter().map(|(_, write)| write).collect();
        }
    }
    scope.sink.started(&scope.config);
    let level = Level {
        scope: Arc::new(scope),
        wiring,
        ns: "".into(),
        stores,
        parents: Map::new(),
        live,
        current,
        frame: stored,
        pending,
        updated,
        tasks: vec![],
        saved: false,
        ran,
        replaying: false,
        resuming: None,
        told: None,
        replay: super::subgraph::Replay::default(),
    };
    Ok((level, entry))
}

impl Entry {
    fn nothing() -> Self {
        Self {
            input: Input::Null,
            nested: false,
            parent_resuming: None,
            addressed: false,
            superseded: false,
            continues: false,
        }
    }
}

/// What checkpoints note of the run: its metadata and what is configurable (the rule of LangGraph's
/// server). What is told of every run is left out: it is not worth a copy per superstep.
fn checkpoint_metadata(config: &RunConfig) -> Map {
    const OTHERWISE: [&str; 8] = [
        "thread_id",
        "run_id",
        "checkpoint_id",
        "checkpoint_ns",
        "checkpoint_map",
        "source",
        "step",
        "parents",
    ];
    let metadata = config.metadata.iter().filter(|(key, value)| {
        let usual = match &***key {
            "created_by" => **value == *CREATED_BY,
            "run_attempt" => value.as_i64() == Some(FIRST_ATTEMPT),
            _ => false,
        };
        !usual
    });
    let configurable = config.configurable.iter().filter(|(key, value)| {
        let own = !key.starts_with("__") && !key.starts_with("langgraph_") && !value.is_null();
        own && (&***key != "user_id" || **value != *"") && !config.metadata.contains_key(key)
    });
    let noted = metadata.chain(configurable);
    let noted = noted.filter(|(key, _)| !OTHERWISE.contains(&&***key));
    noted
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// `created_by` of a run's checkpoints that do not note another.
pub const CREATED_BY: &str = "system";
/// `run_attempt` of a run's checkpoints that do not note another.
pub const FIRST_ATTEMPT: i64 = 1;
