//! Names of branches at the time of an event, read from the event log, so that a later rename
//! changes nothing about earlier events.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::BRANCH_RENAMED;
use crate::{
    checkpoint::Error,
    id::{BranchId, TreeId},
    tree::store::{Read, ThreadEvent},
    value::{Map, Value},
};

/// The name of a thread's first branch, for which there is no event.
const FIRST: &str = "main";

/// An event that names a branch.
#[derive(Debug)]
struct Naming {
    /// The number of the event.
    number: i64,
    before: Arc<str>,
    since: Arc<str>,
}

/// Names of branches over time.
#[derive(Debug, Default)]
pub struct BranchNames {
    /// Of each branch the events that name it, in order.
    namings: HashMap<BranchId, Vec<Naming>>,
    /// Names of branches that no event names.
    constant: HashMap<BranchId, Arc<str>>,
}

impl BranchNames {
    /// The names of the branches that some events are about.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn of(
        read: &mut dyn Read,
        tree: TreeId,
        events: &[ThreadEvent],
    ) -> Result<Self, Error> {
        let branches: HashSet<BranchId> = events.iter().filter_map(|event| event.branch).collect();
        let mut names = Self::default();
        if branches.is_empty() {
            return Ok(names);
        }
        let events = read
            .naming_events(tree, branches.iter().copied().collect())
            .await?;
        for event in &events {
            names.record(event);
        }
        for id in branches {
            if !names.namings.contains_key(&id) {
                let row = read.branch(tree, id).await?;
                let name = row.map_or_else(|| FIRST.into(), |row| row.name);
                names.constant.insert(id, name);
            }
        }
        Ok(names)
    }

    /// The name of a branch at the time of an event.
    pub fn at(&self, branch: BranchId, number: i64) -> Option<Arc<str>> {
        let Some(namings) = self.namings.get(&branch) else {
            return self.constant.get(&branch).cloned();
        };
        let last = namings.iter().rev().find(|naming| naming.number <= number);
        let before = || namings.first().map(|naming| &naming.before);
        last.map(|naming| &naming.since).or_else(before).cloned()
    }

    fn record(&mut self, event: &ThreadEvent) {
        let (Some(branch), Some(name)) = (event.branch, text(&event.payload, "branch")) else {
            return;
        };
        let before = match &*event.kind {
            BRANCH_RENAMED => text(&event.payload, "from"),
            _ => None,
        };
        let before = before.unwrap_or_else(|| name.clone());
        self.namings.entry(branch).or_default().push(Naming {
            number: event.number,
            before,
            since: name,
        });
    }
}

fn text(payload: &Map, key: &str) -> Option<Arc<str>> {
    match payload.get(key) {
        Some(Value::Str(text)) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::ThreadId, time::Timestamp, tree::event, value};

    fn told(branch: BranchId, number: i64, kind: &str, payload: &Value) -> ThreadEvent {
        let thread = ThreadId::mint();
        ThreadEvent {
            id: event::id(thread, number),
            thread,
            number,
            kind: kind.into(),
            payload: payload.as_map().cloned().unwrap_or_default(),
            branch: Some(branch),
            checkpoint: None,
            message_id: None,
            created_at: Timestamp(0),
        }
    }

    #[test]
    fn a_branch_had_the_name_of_its_time() {
        let (main, side, only) = (BranchId::mint(), BranchId::mint(), BranchId::mint());
        let mut names = BranchNames::default();
        names.constant.insert(only, "one".into());
        for event in [
            told(
                main,
                4,
                event::BRANCH_RENAMED,
                &value!({"branch": "b", "from": "main"}),
            ),
            told(
                main,
                7,
                event::BRANCH_RENAMED,
                &value!({"branch": "c", "from": "b"}),
            ),
            told(side, 5, event::BRANCH_CREATED, &value!({"branch": "side"})),
            told(side, 9, event::BRANCH_DELETED, &value!({"branch": "side"})),
        ] {
            names.record(&event);
        }
        let of = |branch, number| names.at(branch, number).unwrap().to_string();
        let over_time: Vec<_> = [1, 4, 6, 7, 8].map(|number| of(main, number)).into();
        assert_eq!(over_time, ["main", "b", "b", "c", "c"]);
        assert_eq!(
            (of(side, 4), of(side, 9), of(only, 1)),
            ("side".into(), "side".into(), "one".into())
        );
        assert_eq!(names.at(BranchId::mint(), 1), None);
    }
}
