//! Which checkpoints of a thread go when only those are kept that somebody stands on.

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
    /// A pin, or one with an open question.
    pub retained: bool,
    /// It holds the input of a run and nothing else.
    pub input: bool,
}

/// A state of a graph inside that belongs to a root checkpoint.
#[derive(Clone, Debug)]
pub struct SubgraphState {
    /// The root checkpoint.
    pub root: CheckpointId,
    /// Its namespace.
    pub ns: Arc<str>,
    /// The branch that wrote it.
    pub branch: BranchId,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// Checkpoints that go.
    pub removed: Vec<CheckpointId>,
    /// Checkpoints that stay while the one they follow goes, with the nearest one above that
    /// stays.
    pub reparented: Vec<(CheckpointId, Option<CheckpointId>)>,
}

/// Whether what is stored in a namespace outlives the task that wrote it. A task's own namespace
/// names it and is read by no other.
pub fn outlives_its_task(ns: &str) -> bool {
    !ns.is_empty() && !ns.contains(':')
}

/// Decides for all root checkpoints of a thread. Checkpoints it inherits are not among `rows` and
/// stay.
///
/// A graph inside that keeps its state for the thread reads the newest one on the path: the
/// checkpoints that hold those stay too. So does the bare input right above one that stays: it
/// leads from the first message of a turn to what was before the turn.
pub fn plan(rows: &[PruneCandidate], inner: &[SubgraphState]) -> PrunePlan {
    let by_id: HashMap<CheckpointId, &PruneCandidate> =
        rows.iter().map(|row| (row.id, row)).collect();
    let mut kept: HashSet<CheckpointId> = rows
        .iter()
        .filter(|row| row.retained)
        .map(|row| row.id)
        .collect();
    keep_inner(rows, &by_id, inner, &mut kept);
    keep_inputs(&by_id, &mut kept);
    let mut plan = PrunePlan::default();
    let mut nearest: HashMap<CheckpointId, Option<CheckpointId>> = HashMap::new();
    for row in rows {
        if !kept.contains(&row.id) {
            plan.removed.push(row.id);
            continue;
        }
        let goes = |id: &CheckpointId| by_id.contains_key(id) && !kept.contains(id);
        let mut passed = vec![];
        let mut above = row.parent;
        while let Some(id) = above.filter(goes) {
            if let Some(known) = nearest.get(&id) {
                above = *known;
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

fn keep_inputs(by_id: &HashMap<CheckpointId, &PruneCandidate>, kept: &mut HashSet<CheckpointId>) {
    for id in kept.clone() {
        let mut at = by_id.get(&id).and_then(|row| row.parent);
        while let Some(row) = at.and_then(|id| by_id.get(&id))
            && row.input
            && kept.insert(row.id)
        {
            at = row.parent;
        }
    }
}

fn keep_inner(
    rows: &[PruneCandidate],
    by_id: &HashMap<CheckpointId, &PruneCandidate>,
    inner: &[SubgraphState],
    kept: &mut HashSet<CheckpointId>,
) {
    let mut states: HashMap<CheckpointId, Vec<&SubgraphState>> = HashMap::new();
    let mut names: HashSet<&str> = HashSet::new();
    for state in inner.iter().filter(|state| outlives_its_task(&state.ns)) {
        states.entry(state.root).or_default().push(state);
        names.insert(&state.ns);
    }
    if names.is_empty() {
        return;
    }
    for start in rows.iter().filter(|row| row.retained) {
        let mut wanted = names.clone();
        let mut owner = start.branch;
        let mut at = Some(start.id);
        while let Some(row) = at.and_then(|id| by_id.get(&id)) {
            for state in states.get(&row.id).into_iter().flatten() {
                if wanted.contains(&*state.ns) {
                    // Of another branch: perhaps copied along, so it stays and the search goes on.
                    kept.insert(row.id);
                    if state.branch == owner && row.id != start.id {
                        wanted.remove(&*state.ns);
                    }
                }
            }
            if wanted.is_empty() {
                break;
            }
            owner = row.branch;
            at = row.parent;
        }
    }
}

#[cfg(test)]
mod tests;
