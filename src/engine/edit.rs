//! Editing the state of a thread without running nodes (LangGraph's `update_state`,
//! `bulk_update_state` and `__copy__`).

pub mod messages;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    apply::{TaskWrites, apply},
    enter::Command,
    error::{Error, Mistake, Place},
    index::{By, Index},
    live::Live,
    names::{INPUT, INTERRUPT, START},
    output,
    plan::{Planned, plan},
    rescue,
    run::Tolerance,
    view,
    wiring::Wiring,
};
use crate::{
    checkpoint::{Checkpoint, Pending, Saver, Slot, Source, frame::Decoded},
    graph::{Compiled, END, Output},
    id::{CheckpointId, RunId, TaskId},
    value::{Map, Value},
};

mod store;

/// As whom an update clones a checkpoint instead of changing it.
pub const COPY: &str = "__copy__";

/// One update of a superstep of edits.
#[derive(Clone, Debug, Default)]
pub struct StateUpdate {
    /// Channel to value; nothing leaves only the routing of the node. For [`COPY`] a list of
    /// `[values, as_node]` to apply to the copy.
    pub values: Option<Value>,
    /// What the node is taken to have returned instead, when that was a command: its update and
    /// where it goes. An answer in it counts for nothing.
    pub command: Option<Command>,
    /// The node that is taken to have written it; the one that ran last without a name. END
    /// without values clears what waits, `__input__` acts as input, [`COPY`] clones.
    pub as_node: Option<Arc<str>>,
    /// The task the results are filed under.
    pub task: Option<TaskId>,
}

/// What to edit, and the right to.
pub struct Edit {
    /// The storage.
    pub saver: Arc<dyn Saver>,
    /// The right to write.
    pub slot: Slot,
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// The graph of that namespace.
    pub graph: Arc<Compiled>,
    /// The checkpoint to start from, its writes those that count for the branch.
    pub base: Option<Decoded>,
    /// The thread has moved past it.
    pub superseded: bool,
    /// Keeps the index of the conversation's messages.
    pub index: Option<Arc<dyn Index>>,
    /// Noted in the new checkpoints.
    pub metadata: Map,
    /// Noted in the new checkpoints.
    pub run: Option<RunId>,
}

/// What an edit leaves.
#[derive(Clone, Debug)]
pub struct Edited {
    /// The last checkpoint made.
    pub checkpoint: CheckpointId,
    /// The slot as of the last write.
    pub slot: Slot,
    /// Nodes that would run next.
    pub next: Vec<Arc<str>>,
}

impl Edit {
    /// Applies supersteps of updates, one checkpoint each.
    ///
    /// # Errors
    /// An update that makes no sense, a channel that refuses it, or the storage.
    pub async fn apply(mut self, supersteps: Vec<Vec<StateUpdate>>) -> Result<Edited, Error> {
        if supersteps.is_empty() {
            return Err(Error::value("No supersteps provided"));
        }
        if supersteps.iter().any(Vec::is_empty) {
            return Err(Error::value("No updates provided"));
        }
        let wiring = Wiring::new(self.graph.clone());
        let count = supersteps.len();
        for (index, updates) in supersteps.into_iter().enumerate() {
            let moved_past = self.superseded && index == 0;
            let by = By::Edit {
                last: index + 1 == count,
            };
            let left = self.superstep(&wiring, updates, moved_past, by).await?;
            if let Some(updates) = left {
                self.ordinary(&wiring, updates, false, by).await?;
            }
        }
        let Some(base) = &self.base else {
            return Err(Error::value("No updates provided"));
        };
        let live = Live::restore(&wiring, &base.checkpoint)?;
        let next = self.planned(&wiring, &live, 1);
        Ok(Edited {
            checkpoint: base.checkpoint.id,
            slot: self.slot,
            next: next.into_iter().map(|task| task.name).collect(),
        })
    }

    /// One superstep; answers the updates to apply to a copy it made.
    async fn superstep(
        &mut self,
        wiring: &Wiring,
        updates: Vec<StateUpdate>,
        moved_past: bool,
        by: By,
    ) -> Result<Option<Vec<StateUpdate>>, Error> {
        let several = updates.len() > 1;
        let refuse = |what: &str| match several {
            true => Err(Error::invalid_update(what)),
            false => Ok(()),
        };
        let first = updates.first().cloned().unwrap_or_default();
        match first.as_node.as_deref() {
            Some(END) if first.values.is_none() && first.command.is_none() => {
                refuse("Cannot apply multiple updates when clearing state")?;
                self.clear(wiring, by).await?;
            }
            Some(INPUT) => {
                refuse("Cannot apply multiple updates when updating as input")?;
                let updated = |command: Command| Value::map(command.update.into_iter().collect());
                let values = first.command.map(updated).or(first.values);
                self.input(wiring, values, moved_past, by).await?;
            }
            Some(COPY) => {
                refuse("Cannot copy checkpoint with multiple updates")?;
                return self.copy(wiring, first.values.as_ref(), by).await;
            }
            _ => self.ordinary(wiring, updates, moved_past, by).await?,
        }
        Ok(None)
    }

    fn live(&self, wiring: &Wiring) -> Result<Live, Error> {
        match &self.base {
            Some(base) => Live::restore(wiring, &base.checkpoint),
            None => Ok(Live::empty(wiring)),
        }
    }

    /// A mistake at the checkpoint that was to be edited.
    fn mistake(&self, kind: Mistake, message: impl Into<String>) -> Error {
        let checkpoint = self.base.as_ref().map(|base| base.checkpoint.id);
        Error::mistake(kind, message).at(|| Place {
            tasks: vec![],
            checkpoint,
        })
    }

    fn step(&self) -> i64 {
        self.base.as_ref().map_or(-1, |base| base.checkpoint.step)
    }

    /// Tasks that wait at the base, `ahead` supersteps after it.
    fn planned(&self, wiring: &Wiring, live: &Live, ahead: i64) -> Vec<Planned> {
        let Some(base) = &self.base else {
            return vec![];
        };
        let step = base.checkpoint.step + ahead;
        plan(wiring, live, base.checkpoint.id, &self.ns, step, None)
    }

    /// Lets nothing wait any more; what finished tasks wrote is kept.
    async fn clear(&mut self, wiring: &Wiring, by: By) -> Result<(), Error> {
        let mut live = self.live(wiring)?;
        if let Some(base) = &self.base {
            let mut tasks = self.planned(wiring, &live, 1);
            let pending: Vec<&Pending> = base.writes.iter().map(|(_, write)| write).collect();
            let place = (base.checkpoint.id, base.checkpoint.step + 1);
            let handlers = rescue::standing_in(wiring, place, &tasks, &pending);
            tasks.extend(handlers.into_iter().map(|(_, handler)| handler));
            view::apply_null(wiring, &mut live, &pending)?;
            let writes: Vec<Vec<(Arc<str>, Value)>> = tasks
                .iter()
                .map(|task| view::output_of(&pending, task.id))
                .collect();
            let applied = tasks
                .iter()
                .zip(&writes)
                .map(|(task, writes)| TaskWrites {
                    path: &task.path,
                    node: &task.name,
                    writes,
                    triggers: &task.triggers,
                })
                .collect();
            apply(wiring, &mut live, applied)?;
        }
        let step = self.step() + 1;
        self.store(wiring, live, Source::Update, step, vec![], by)
            .await
    }

    async fn input(
        &mut self,
        wiring: &Wiring,
        values: Option<Value>,
        moved_past: bool,
        by: By,
    ) -> Result<(), Error> {
        let Some(values) = values else {
            return Err(Error::invalid_update(
                "Received no input writes for __start__",
            ));
        };
        let mut live = self.live(wiring)?;
        let writes = [(START.into(), values)];
        let node: Arc<str> = INPUT.into();
        apply(
            wiring,
            &mut live,
            vec![TaskWrites {
                path: "~",
                node: &node,
                writes: &writes,
                triggers: &[],
            }],
        )?;
        let mut rows = vec![];
        if let Some(base) = self.base.as_ref().filter(|_| !moved_past) {
            let task = TaskId::of_input(base.checkpoint.id);
            rows.push(pending(task, "", &writes));
        }
        let step = self
            .base
            .as_ref()
            .map_or(-1, |base| base.checkpoint.step + 1);
        self.store(wiring, live, Source::Input, step, rows, by)
            .await
    }

    /// Clones the base beside itself; answers the updates for the clone.
    async fn copy(
        &mut self,
        wiring: &Wiring,
        values: Option<&Value>,
        by: By,
    ) -> Result<Option<Vec<StateUpdate>>, Error> {
        let Some(base) = &self.base else {
            return Err(Error::invalid_update(
                "Cannot copy a non-existent checkpoint",
            ));
        };
        let old = &base.checkpoint;
        let parents = old.metadata.iter().filter(|(key, _)| &***key == "parents");
        let parents = parents.map(|(key, value)| (key.clone(), value.clone()));
        let clone = Checkpoint {
            step: old.step + 1,
            source: Source::Fork,
            updated: None,
            // No run made it.
            run: None,
            run_supersteps: 0,
            metadata: parents.collect(),
            ..old.clone()
        };
        let updates = values.and_then(Value::as_list).unwrap_or_default();
        let by = match by {
            By::Edit { last } => By::Edit {
                last: last && updates.is_empty(),
            },
            By::Run => by,
        };
        self.store_beside(clone, by).await?;
        if updates.is_empty() {
            return Ok(None);
        }
        let live = self.live(wiring)?;
        let mut waiting: HashMap<Arc<str>, VecDeque<TaskId>> = HashMap::new();
        for task in self.planned(wiring, &live, 1) {
            waiting.entry(task.name).or_default().push_back(task.id);
        }
        let mut groups: Vec<(Arc<str>, Vec<StateUpdate>)> = vec![];
        for item in updates {
            let (Some(values), Some(node)) = (
                item.as_list().and_then(|item| item.first()),
                item.as_list().and_then(|item| item.get(1)?.as_str()),
            ) else {
                return Err(Error::invalid_update(format!(
                    "Invalid update item: {} when copying checkpoint",
                    item.to_json()
                )));
            };
            let node: Arc<str> = node.into();
            let update = StateUpdate {
                values: Some(values.clone()).filter(|values| !values.is_null()),
                command: None,
                task: waiting.get_mut(&node).and_then(VecDeque::pop_front),
                as_node: Some(node.clone()),
            };
            match groups.iter_mut().find(|(name, _)| *name == node) {
                Some((_, group)) => group.push(update),
                None => groups.push((node, vec![update])),
            }
        }
        Ok(Some(
            groups.into_iter().flat_map(|(_, group)| group).collect(),
        ))
    }

    /// What a task has written with `more`: a position that is taken keeps what is there.
    fn beside(&self, task: TaskId, more: Vec<Pending>) -> Vec<Pending> {
        let all = self.base.iter().flat_map(|base| &base.writes);
        let mut there: Vec<Pending> = all
            .filter(|(branch, write)| *branch == self.slot.branch && write.task == task)
            .map(|(_, write)| write.clone())
            .filter(|write| write.idx >= 0)
            .collect();
        let (before, path) = (there.len(), there.first().map(|write| write.path.clone()));
        for mut write in more {
            if there[..before].iter().all(|known| known.idx != write.idx) {
                write.path = path.clone().unwrap_or(write.path);
                there.push(write);
            }
        }
        there.sort_by_key(|write| write.idx);
        there
    }

    /// Runs the writers of nodes: updates, edges, routes.
    async fn ordinary(
        &mut self,
        wiring: &Wiring,
        updates: Vec<StateUpdate>,
        moved_past: bool,
        by: By,
    ) -> Result<(), Error> {
        let mut live = self.live(wiring)?;
        let mut waiting: HashMap<Arc<str>, VecDeque<TaskId>> = HashMap::new();
        for task in self.planned(wiring, &live, 1) {
            waiting.entry(task.name).or_default().push_back(task.id);
        }
        let several = updates.len() > 1;
        let mut chosen = vec![];
        for update in updates {
            let node = match &update.as_node {
                Some(node) => node.clone(),
                None if several => {
                    return Err(Error::invalid_update(
                        "as_node is required when applying multiple updates",
                    ));
                }
                None => live.last_node(wiring).ok_or_else(|| {
                    let message = "Ambiguous update, specify as_node: no node ran last alone";
                    self.mistake(Mistake::AmbiguousNode, message)
                })?,
            };
            let index = wiring.index(&node).ok_or_else(|| {
                self.mistake(Mistake::AsNode, format!("Node {node} does not exist"))
            })?;
            chosen.push((node, index, update));
        }
        let base = self.base.as_ref().map(|base| base.checkpoint.id);
        let mut tasks = vec![];
        for (position, (node, index, update)) in chosen.into_iter().enumerate() {
            let output = match update.command {
                Some(command) => {
                    for goto in &command.goto {
                        output::check_goto(wiring, Tolerance::default(), goto)?;
                    }
                    Output {
                        writes: command.update,
                        goto: command.goto,
                        ..Output::default()
                    }
                }
                None => Output {
                    writes: entries(wiring, update.values)?,
                    ..Output::default()
                },
            };
            let path = format!("~{INTERRUPT}, {position:010}");
            let prepared = || waiting.get_mut(&node).and_then(VecDeque::pop_front);
            let made_up = || base.map(|base| TaskId::of_update(base, position));
            let task = update.task.or_else(prepared).or_else(made_up);
            let place = || Place {
                tasks: task.iter().map(|task| (node.clone(), *task)).collect(),
                checkpoint: base,
            };
            let writes = output::written(wiring, &live, Tolerance::default(), index, output);
            let writes = writes.map_err(|error| error.at(place))?;
            tasks.push((node, path, writes, task));
        }
        let mut rows = vec![];
        if !moved_past {
            for (_, path, writes, task) in &tasks {
                if let Some(task) = task {
                    let written = pending(*task, path, &wiring.without_untracked(writes));
                    rows.push(self.beside(*task, written));
                }
            }
        }
        let triggers: [Arc<str>; 1] = [INTERRUPT.into()];
        let applied = tasks
            .iter()
            .map(|(node, path, writes, _)| TaskWrites {
                path,
                node,
                writes,
                triggers: &triggers,
            })
            .collect();
        apply(wiring, &mut live, applied).map_err(|error| {
            let Error::Channel { channel, .. } = &error else {
                return error;
            };
            let writes_it = |writes: &[(Arc<str>, Value)]| writes.iter().any(|(c, _)| c == channel);
            let by = tasks.iter().filter(|(_, _, writes, _)| writes_it(writes));
            let by = by.filter_map(|(node, _, _, task)| Some((node.clone(), (*task)?)));
            let place = Place {
                tasks: by.collect(),
                checkpoint: base,
            };
            error.at(|| place)
        })?;
        let step = self.step() + 1;
        self.store(wiring, live, Source::Update, step, rows, by)
            .await
    }
}

fn entries(wiring: &Wiring, values: Option<Value>) -> Result<Vec<(Arc<str>, Value)>, Error> {
    let Some(values) = values.filter(|values| !values.is_null()) else {
        return Ok(vec![]);
    };
    Ok(output::of_input(wiring, &values)?.writes)
}

fn pending(task: TaskId, path: &str, writes: &[(Arc<str>, Value)]) -> Vec<Pending> {
    let path: Arc<str> = path.into();
    writes
        .iter()
        .enumerate()
        .map(|(position, (channel, value))| Pending {
            task,
            path: path.clone(),
            idx: i32::try_from(position).unwrap_or(i32::MAX),
            channel: channel.clone(),
            value: value.clone(),
        })
        .collect()
}
