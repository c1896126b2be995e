//! The first phase of a run: input, commands, resuming, forking (LangGraph's `_first`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    apply::{TaskWrites, apply},
    error::{Error, Mistake, Place},
    event::Interrupt,
    level::Level,
    names::{INPUT, INTERRUPT, RESUME, START, control_index},
    output, save,
    takeover::{self, Given, Noted},
};
use crate::{
    checkpoint::{Pending, Source},
    graph::{END, Goto, edge_channel},
    id::{CheckpointId, TaskId},
    value::{Map, Value},
};

/// What a run is given.
#[derive(Clone, Debug)]
pub enum Input {
    /// New input.
    Value(Value),
    /// Nothing: continue.
    Null,
    /// Answers, updates and routing.
    Command(Command),
}

/// A command of the client.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The answer to the open question, or a map of answers by interrupt id.
    pub resume: Option<Value>,
    /// Updates of channels.
    pub update: Vec<(Arc<str>, Value)>,
    /// Nodes to run next.
    pub goto: Vec<Goto>,
    /// Meant for a parent graph: an error, the root has none.
    pub to_parent: bool,
}

/// The update of a command that does nothing else. Where nothing is yet it is the input: the graph
/// begins with it, as in LangGraph (which applies it a second time there).
fn as_input(command: &Command) -> Option<Value> {
    let more = command.resume.is_some() || !command.goto.is_empty() || command.to_parent;
    let map: Map = command.update.iter().cloned().collect();
    (!more && !map.is_empty() && map.len() == command.update.len()).then(|| Value::map(map))
}

/// How a level is entered.
pub struct Entry {
    /// What it is given.
    pub input: Input,
    /// It is a graph inside another one.
    pub nested: bool,
    /// For graphs inside: whether the parent resumes; it says so in its first superstep only.
    pub parent_resuming: Option<bool>,
    /// The request names a checkpoint.
    pub addressed: bool,
    /// The thread has moved past that checkpoint.
    pub superseded: bool,
    /// An earlier attempt of the run got here: there is nothing to bring in.
    pub continues: bool,
}

/// Answers by interrupt id, if `resume` is a map of those; an empty map answers nothing.
pub fn answers(resume: &Value) -> Option<HashMap<String, Value>> {
    let map = resume.as_map()?;
    let is_id = |key: &str| {
        key.len() == 32
            && key
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    map.keys().all(|key| is_id(key)).then(|| {
        map.iter()
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect()
    })
}

/// Brings input, command or resume into the state, and saves the checkpoint that belongs to it.
///
/// # Errors
/// Nothing to do, an ambiguous answer, a channel that refuses the input, a storage failure.
pub async fn first(level: &mut Level, mut entry: Entry) -> Result<(), Error> {
    if let Input::Command(command) = &entry.input
        && level.live.versions.is_empty()
        && let Some(input) = as_input(command)
    {
        entry.input = Input::Value(input);
    }
    let nested = entry.nested;
    let started = !level.live.versions.is_empty();
    if entry.continues && started {
        level.resuming = Some(true);
        level.tell_values();
        return Ok(());
    }
    let noted = match nested {
        true => None,
        false => takeover::noted(level),
    };
    if noted.is_some() {
        // An earlier attempt has brought the command to this checkpoint.
        (entry.addressed, entry.superseded) = (false, false);
    }
    let given = match &entry.input {
        Input::Value(input) => !(nested && input.is_null()),
        Input::Null | Input::Command(_) => false,
    };
    let resuming = started && entry.parent_resuming.unwrap_or(!given);
    let answers_question =
        matches!(&entry.input, Input::Command(command) if command.resume.is_some());
    let travelling = entry.addressed && !answers_question;
    level.replaying = travelling || entry.superseded;
    if level.replaying {
        // Old answers do not count again: questions are asked anew, or the new answer is used.
        level.pending.retain(|write| &*write.channel != RESUME);
    }
    let forks = resuming
        && travelling
        && (!matches!(level.current.source, Source::Update | Source::Fork) || entry.superseded);

    let old = (level.current.source, level.current.parent, level.current.id);

    let mut from_command = false;
    let mut given_rows = vec![];
    if let Input::Command(command) = &entry.input {
        from_command = true;
        if noted.is_none() {
            given_rows = give(level, command)?;
        }
    }
    apply_null_writes(level)?;
    // Only what the channels have accepted: a stored write that they refuse would fail every run
    // from here on.
    let from_here = from_command && !forks && level.current.exists;
    if from_here && noted.is_none() {
        if !given_rows.is_empty() {
            save::keep(level, given_rows, false).await;
        }
        if let Some(note) = takeover::note(level, false) {
            save::keep(level, vec![note], false).await;
        }
    }

    if resuming {
        pass_breakpoints(level);
        if forks {
            level.pending.retain(|write| &*write.channel != INTERRUPT);
            // The row has none; the superstep that follows starts from those of the original.
            let updated = level.updated.take();
            save::checkpoint(level, Source::Fork).await?;
            level.updated = updated;
        }
        level.tell_values();
    } else if let Input::Value(input) = entry.input
        && given
    {
        take_input(level, input).await?;
    } else if from_command && started_by_command(level) {
        // A command on an empty thread may update and route without any input.
    } else if entry.parent_resuming.is_none() {
        return Err(Error::failed(
            "EmptyInputError",
            "Received no input for __start__",
        ));
    }
    level.resuming = match nested {
        true => entry.parent_resuming,
        false => Some(resuming),
    };
    if !nested && travelling {
        level.replay.bound = Some(match resuming {
            true => replay_bound(level, old, forks),
            false => level.current.id,
        });
    }
    if !nested
        && noted != Some(Noted::Taken)
        && let Some(null) = null_answer(level)
    {
        *level.scope.answer.lock() = Some(null);
        *level.scope.given.lock() = from_here.then_some(Given {
            at: level.current.id,
            taker: None,
        });
    }
    Ok(())
}

/// What graphs inside stored from this checkpoint on does not count in a replay. A fork or edit
/// was made after the checkpoints of graphs inside, so the one before it bounds.
fn replay_bound(
    level: &Level,
    (source, parent, id): (Source, Option<CheckpointId>, CheckpointId),
    forks: bool,
) -> CheckpointId {
    match parent {
        Some(parent) if matches!(source, Source::Update | Source::Fork) => parent,
        Some(parent) if forks && level.exits_late() => parent,
        None if forks && level.exits_late() => level.current.id,
        _ => id,
    }
}

fn started_by_command(level: &Level) -> bool {
    !level.live.versions.is_empty()
}

/// The stored or given answer for whichever task asks first.
fn null_answer(level: &Level) -> Option<Value> {
    level
        .pending
        .iter()
        .find(|write| write.task == TaskId::NULL && &*write.channel == RESUME)
        // One that was refused is taken back.
        .filter(|write| !write.value.is_null())
        .map(|write| write.value.clone())
}

/// Turns a command into writes of the null task; answers the rows to keep.
fn give(level: &mut Level, command: &Command) -> Result<Vec<Pending>, Error> {
    if command.to_parent {
        return Err(Error::invalid_update(
            "There is no parent graph a command could be sent to",
        ));
    }
    let mut writes: Vec<(Arc<str>, Value)> = vec![];
    let here = || Place {
        tasks: vec![],
        checkpoint: level.current.exists.then_some(level.current.id),
    };
    for goto in &command.goto {
        output::check_goto(&level.wiring, level.scope.tolerance, goto)
            .map_err(|error| error.at(here))?;
        let target = output::target(goto, START.into(), level.scope.tolerance)
            .map_err(|error| error.at(here))?;
        // Routing to the end is a command too, though nothing follows from it.
        writes.push(target.unwrap_or_else(|| (edge_channel(END), START.into())));
    }
    let mut mapped = false;
    if let Some(resume) = &command.resume {
        if level.scope.journal.is_none() {
            return Err(Error::failed(
                "RuntimeError",
                "Cannot resume without a checkpointer",
            ));
        }
        let given = answers(resume);
        mapped = given.is_some();
        check_answers(level, command, given.as_ref()).map_err(|error| error.at(here))?;
        if !mapped {
            if open_questions(&level.pending) > 1 {
                // Clients compare the text, so it names no place.
                return Err(Error::mistake(
                    Mistake::SeveralQuestions,
                    "When there are multiple pending interrupts, you must specify the interrupt \
                     id when resuming.",
                ));
            }
            writes.push((RESUME.into(), resume.clone()));
        }
    }
    for (name, value) in &command.update {
        let value = match level.graph().messages.contains(name) {
            true => {
                let minted = crate::message::mint_ids(value);
                minted.map_err(|error| Error::channel(name, error.into()).at(here))?
            }
            false => value.clone(),
        };
        writes.push((name.clone(), value));
    }
    if writes.is_empty() && !mapped {
        return Err(Error::failed(
            "EmptyInputError",
            "The command is empty: give resume, update or goto",
        ));
    }
    match writes.is_empty() {
        true => Ok(vec![]),
        false => Ok(level.put_writes(TaskId::NULL, &"".into(), writes)),
    }
}

/// Answers must meet questions: by ids those of the checkpoint, else a node that waits.
fn check_answers(
    level: &Level,
    command: &Command,
    given: Option<&HashMap<String, Value>>,
) -> Result<(), Error> {
    let tolerated = level.scope.tolerance;
    if !tolerated.idle_answers
        && level.current.exists
        && command.goto.is_empty()
        && level.plan().is_empty()
    {
        return Err(Error::mistake(
            Mistake::NothingAsks,
            "there is nothing to resume: no node waits for an answer",
        ));
    }
    let Some(given) = given.filter(|_| !tolerated.unknown_names) else {
        return Ok(());
    };
    let asked: HashSet<Arc<str>> = level
        .pending
        .iter()
        .filter(|write| &*write.channel == INTERRUPT)
        .flat_map(|write| write.value.as_list().unwrap_or_default())
        .filter_map(|value| Some(Interrupt::from_value(value)?.id))
        .collect();
    let mut unknown: Vec<&str> = given
        .keys()
        .map(String::as_str)
        .filter(|id| !asked.contains(*id))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    if asked.is_empty() && tolerated.idle_answers {
        // Sent twice: the first one was the answer.
        return Ok(());
    }
    unknown.sort_unstable();
    Err(Error::mistake(
        Mistake::UnknownQuestion,
        format!("no question has the id {}", unknown.join(", ")),
    ))
}

/// Questions of tasks that have not finished.
pub fn open_questions(pending: &[Pending]) -> usize {
    pending
        .iter()
        .filter(|write| &*write.channel == INTERRUPT)
        .filter(|write| !has_output(pending, write.task))
        .map(|write| write.value.as_list().map_or(1, <[Value]>::len))
        .sum()
}

/// Whether a task has finished.
pub fn has_output(pending: &[Pending], task: TaskId) -> bool {
    pending
        .iter()
        .any(|write| write.task == task && control_index(&write.channel).is_none())
}

/// Applies the client's own writes to the state; all of them or, when one is refused, none.
fn apply_null_writes(level: &mut Level) -> Result<(), Error> {
    let own = level.pending.iter();
    let own = own.filter(|write| write.task == TaskId::NULL);
    let writes: Vec<(Arc<str>, Value)> = own
        .map(|write| (write.channel.clone(), write.value.clone()))
        .collect();
    if writes.is_empty() {
        return Ok(());
    }
    let node: Arc<str> = INPUT.into();
    let task = TaskWrites {
        path: "~",
        node: &node,
        writes: &writes,
        triggers: &[],
    };
    let mut live = level.live.clone();
    let applied = apply(&level.wiring, &mut live, vec![task]).map_err(|error| {
        error.at(|| Place {
            tasks: vec![],
            checkpoint: level.current.exists.then_some(level.current.id),
        })
    })?;
    level.live = live;
    if let Some(updated) = &mut level.updated {
        updated.extend(applied);
    }
    Ok(())
}

/// Marks everything as seen, so that breakpoints of the present state do not stop again.
fn pass_breakpoints(level: &mut Level) {
    let seen = level.live.seen.entry(INTERRUPT.into()).or_default();
    for name in level.live.channels.keys() {
        if let Some(version) = level.live.versions.get(name) {
            seen.insert(name.clone(), *version);
        }
    }
}

/// New input: tasks that were waiting are discarded, then the input is applied.
async fn take_input(level: &mut Level, input: Value) -> Result<(), Error> {
    let discarded = level.plan();
    let node: Arc<str> = INPUT.into();
    let writes = [(START.into(), input)];
    let mut tasks: Vec<TaskWrites<'_>> = discarded
        .iter()
        .map(|task| TaskWrites {
            path: &task.path,
            node: &task.name,
            writes: &[],
            triggers: &task.triggers,
        })
        .collect();
    tasks.push(TaskWrites {
        path: "~",
        node: &node,
        writes: &writes,
        triggers: &[],
    });
    level.updated = Some(apply(&level.wiring, &mut level.live, tasks)?);
    // Answers and results of the discarded tasks belong to the checkpoint before.
    level.pending.clear();
    save::checkpoint(level, Source::Input).await
}
