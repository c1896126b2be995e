//! Updates that are written as nodes: their writers run, with edges and routes.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{StateUpdate, StateUpdater};
use crate::{
    checkpoint::{Pending, Source},
    engine::{
        apply::{TaskWrites, Writes, apply},
        channels::Channels,
        error::{Error, ErrorLocation, Mistake},
        message_ids,
        message_index::ChangeSource,
        output,
        pending::indexed,
        reserved::INTERRUPT,
        tolerance::Tolerance,
        topology::Topology,
    },
    extract::RunConfig,
    graph::Output,
    id::{TaskId, update_task_id},
    value::Value,
};

impl StateUpdater {
    /// Tasks that wait at the base, by node.
    pub fn waiting_tasks(
        &self,
        topology: &Topology,
        channels: &Channels,
    ) -> HashMap<Arc<str>, VecDeque<TaskId>> {
        let mut waiting: HashMap<Arc<str>, VecDeque<TaskId>> = HashMap::new();
        for task in self.planned(topology, channels, 1) {
            waiting.entry(task.name).or_default().push_back(task.id);
        }
        waiting
    }

    /// What a task has written, with `more`: a position that is taken stays as it is.
    fn merged(&self, task: TaskId, more: Vec<Pending>) -> Vec<Pending> {
        let stored = self.base.iter().flat_map(|base| &base.writes);
        let mut all: Vec<Pending> = stored
            .filter(|(branch, write)| *branch == self.slot.branch && write.task == task)
            .map(|(_, write)| write.clone())
            .filter(|write| write.idx >= 0)
            .collect();
        let (before, path) = (all.len(), all.first().map(|write| write.path.clone()));
        for mut write in more {
            if all[..before].iter().all(|old| old.idx != write.idx) {
                write.path = path.clone().unwrap_or(write.path);
                all.push(write);
            }
        }
        all.sort_by_key(|write| write.idx);
        all
    }

    /// Runs the writers of nodes: updates, edges, routes.
    pub async fn write_as_nodes(
        &mut self,
        topology: &Topology,
        updates: Vec<StateUpdate>,
        moved_past: bool,
        by: ChangeSource,
    ) -> Result<(), Error> {
        let mut channels = self.channels(topology)?;
        let mut waiting = self.waiting_tasks(topology, &channels);
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
                None => channels.last_node(topology).ok_or_else(|| {
                    let message = "Ambiguous update, specify as_node: no node ran last alone";
                    self.mistake(Mistake::AmbiguousNode, message)
                })?,
            };
            let index = topology.index(&node).ok_or_else(|| {
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
                        output::check_goto(topology, Tolerance::default(), goto)?;
                    }
                    Output {
                        writes: command.update,
                        goto: command.goto,
                        ..Output::default()
                    }
                }
                None => Output {
                    writes: entries(topology, update.values)?,
                    ..Output::default()
                },
            };
            let path: Arc<str> = format!("~{INTERRUPT}, {position:010}").into();
            let prepared = || waiting.get_mut(&node).and_then(VecDeque::pop_front);
            let made_up = || base.map(|base| update_task_id(base, position));
            let task = update.task.or_else(prepared).or_else(made_up);
            let location = || ErrorLocation {
                tasks: task.iter().map(|task| (node.clone(), *task)).collect(),
                checkpoint: base,
            };
            // A change of the state belongs to no run, whose config routes could read.
            let (tolerance, config) = (Tolerance::default(), RunConfig::default());
            let way = (tolerance, &config);
            let mut written = output.writes.iter();
            let stored = |name: &str| channels.get(name);
            let checked = written.try_for_each(|(channel, value)| {
                message_ids::check(&topology.graph, stored, channel, value)
            });
            let writes = checked
                .and_then(|()| output::written(topology, &channels, way, index, output))
                .map_err(|error| error.at(location))?;
            tasks.push((node, path, writes, task));
        }
        let mut rows = vec![];
        if !moved_past {
            for (_, path, writes, task) in &tasks {
                if let Some(task) = task {
                    let written = indexed(*task, path, &topology.without_untracked(writes));
                    rows.push(self.merged(*task, written));
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
        apply(topology, &mut channels, applied).map_err(|error| {
            let Error::Channel { channel, .. } = &error else {
                return error;
            };
            let writes_it = |writes: &[(Arc<str>, Value)]| writes.iter().any(|(c, _)| c == channel);
            let by = tasks.iter().filter(|(_, _, writes, _)| writes_it(writes));
            let by = by.filter_map(|(node, _, _, task)| Some((node.clone(), (*task)?)));
            let location = ErrorLocation {
                tasks: by.collect(),
                checkpoint: base,
            };
            error.at(|| location)
        })?;
        let step = self.step() + 1;
        self.store(topology, channels, Source::Update, step, rows, by)
            .await
    }
}

fn entries(topology: &Topology, values: Option<Value>) -> Result<Writes, Error> {
    let Some(values) = values.filter(|values| !values.is_null()) else {
        return Ok(vec![]);
    };
    Ok(output::of_input(topology, &values)?.writes)
}
