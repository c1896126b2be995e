//! Plans which checkpoints of a thread are removed when only those that are in use stay.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::id::{BranchId, CheckpointId};

/// A root checkpoint that the thread wrote.
#[derive(Clone, Copy, Debug)]
pub struct PruneCandidate {
    /// Key.
    pub id: CheckpointId,
    /// The checkpoint it follows.
    pub parent: Option<CheckpointId>,
    /// The branch that wrote it.
    pub branch: BranchId,
    /// It must stay: a branch, tag, fork or run needs it, another thread goes on from it, or it has an open interrupt.
    pub retained: bool,
    /// It contains the input of a run and nothing else.
    pub input: bool,
    /// Its parent is inherited, and lies before the checkpoint at which the thread begins.
    pub inherits: bool,
}

/// A state of a subgraph that belongs to a root checkpoint.
#[derive(Clone, Debug)]
pub struct SubgraphState {
    /// The root checkpoint.
    pub root: CheckpointId,
    /// Its namespace.
    pub ns: Arc<str>,
    /// The branch that wrote it.
    pub branch: BranchId,
}

/// The checkpoints to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// Checkpoints to remove.
    pub removed: Vec<CheckpointId>,
    /// Checkpoints that stay while their parent is removed, each with its new parent: the nearest
    /// ancestor that stays.
    pub reparented: Vec<(CheckpointId, Option<CheckpointId>)>,
}

/// Whether states in a namespace outlive the task that wrote them. The namespace of a task names
/// the task, and no other task reads it.
pub fn outlives_its_task(ns: &str) -> bool {
    !ns.is_empty() && !ns.contains(':')
}

/// Decides which root checkpoints of a thread are removed. Checkpoints that it inherits are not
/// among `rows` and stay.
///
/// A subgraph that stores its state for the thread reads the newest one on the path, so the
/// checkpoints with those states stay too. So does the bare input right above one that stays: it
/// leads from the first message of a turn to what was before the turn. And so does the first one of the thread above one
/// that stays, where the thread has gone back to before it begins: by its depth, whoever prunes the parent thread finds
/// what this one goes on from.
pub fn plan(rows: &[PruneCandidate], states: &[SubgraphState]) -> PrunePlan {
    let by_id: HashMap<CheckpointId, &PruneCandidate> =
        rows.iter().map(|row| (row.id, row)).collect();
    let mut retained: HashSet<CheckpointId> = rows
        .iter()
        .filter(|row| row.retained)
        .map(|row| row.id)
        .collect();
    retain_subgraph_states(rows, &by_id, states, &mut retained);
    retain_inputs(&by_id, &mut retained);
    retain_first_own(&by_id, &mut retained);
    let mut plan = PrunePlan::default();
    let mut nearest: HashMap<CheckpointId, Option<CheckpointId>> = HashMap::new();
    for row in rows {
        if !retained.contains(&row.id) {
            plan.removed.push(row.id);
            continue;
        }
        let is_removed = |id: &CheckpointId| by_id.contains_key(id) && !retained.contains(id);
        let mut passed = vec![];
        let mut above = row.parent;
        while let Some(id) = above.filter(is_removed) {
            if let Some(found) = nearest.get(&id) {
                above = *found;
                break;
            }
            passed.push(id);
            above = by_id.get(&id).and_then(|row| row.parent);
        }
        nearest.extend(passed.into_iter().map(|id| (id, above)));
        if above != row.parent {
            plan.reparented.push((row.id, above));
        }
    }
    plan
}

fn retain_inputs(
    by_id: &HashMap<CheckpointId, &PruneCandidate>,
    retained: &mut HashSet<CheckpointId>,
) {
    for id in retained.clone() {
        let mut at = by_id.get(&id).and_then(|row| row.parent);
        while let Some(row) = at.and_then(|id| by_id.get(&id))
            && row.input
            && retained.insert(row.id)
        {
            at = row.parent;
        }
    }
}

/// Of the rows above those that stay, the first one of the thread, where its parent is inherited.
fn retain_first_own(
    by_id: &HashMap<CheckpointId, &PruneCandidate>,
    retained: &mut HashSet<CheckpointId>,
) {
    let mut passed: HashSet<CheckpointId> = HashSet::new();
    for id in retained.clone() {
        let mut at = by_id.get(&id);
        while let Some(row) = at.filter(|row| passed.insert(row.id)) {
            if row.inherits {
                retained.insert(row.id);
            }
            at = row.parent.and_then(|id| by_id.get(&id));
        }
    }
}

fn retain_subgraph_states(
    rows: &[PruneCandidate],
    by_id: &HashMap<CheckpointId, &PruneCandidate>,
    states: &[SubgraphState],
    retained: &mut HashSet<CheckpointId>,
) {
    let mut by_root: HashMap<CheckpointId, Vec<&SubgraphState>> = HashMap::new();
    let mut names: HashSet<&str> = HashSet::new();
    for state in states.iter().filter(|state| outlives_its_task(&state.ns)) {
        by_root.entry(state.root).or_default().push(state);
        names.insert(&state.ns);
    }
    if names.is_empty() {
        return;
    }
    for start in rows.iter().filter(|row| row.retained) {
        let mut missing = names.clone();
        let mut owner = start.branch;
        let mut at = Some(start.id);
        while let Some(row) = at.and_then(|id| by_id.get(&id)) {
            for state in by_root.get(&row.id).into_iter().flatten() {
                if missing.contains(&*state.ns) {
                    // The state of another branch may have been copied: it stays, and the search
                    // goes on.
                    retained.insert(row.id);
                    if state.branch == owner && row.id != start.id {
                        missing.remove(&*state.ns);
                    }
                }
            }
            if missing.is_empty() {
                break;
            }
            owner = row.branch;
            at = row.parent;
        }
    }
}

#[cfg(test)]
mod tests;
