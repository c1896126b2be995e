//! Which nodes run next, and what the tasks that end start.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{Key, Machine, Refused, Writes, list};
use crate::lang::text;

impl Machine {
    /// What runs next: fan-outs, then nodes by name.
    pub(super) fn tasks(&self) -> Vec<(Key, String)> {
        if self.input.is_some() {
            return vec![(Key::Start, "__start__".to_owned())];
        }
        let mut nodes: BTreeSet<String> = self.edges.clone();
        nodes.extend(
            self.deferred
                .iter()
                .filter(|(_, go)| **go)
                .map(|(node, _)| node.clone()),
        );
        for (join, (seen, go)) in list(&self.graph["joins"]).iter().zip(&self.joins) {
            let to = text(&join["to"]);
            if complete(join, seen) && (*go || !self.defers(to)) {
                nodes.insert(to.to_owned());
            }
        }
        let sends = self.sends.iter().enumerate();
        let sends = sends.map(|(index, (node, _))| (Key::Send(index), node.clone()));
        sends
            .chain(
                nodes
                    .into_iter()
                    .map(|node| (Key::Node(node.clone()), node)),
            )
            .collect()
    }

    pub(super) fn defers(&self, node: &str) -> bool {
        self.node(node)["defer"] == true
    }

    pub(super) fn node(&self, name: &str) -> &Json {
        let mut nodes = list(&self.graph["nodes"]).iter();
        nodes
            .find(|node| node["name"] == name)
            .unwrap_or(&Json::Null)
    }

    /// Takes away what started the tasks that run now.
    pub(super) fn consume(&mut self) {
        let runs: BTreeSet<String> = self
            .tasks()
            .into_iter()
            .filter(|(key, _)| matches!(key, Key::Node(_)))
            .map(|(_, node)| node)
            .collect();
        self.deferred
            .retain(|node, go| !(*go && runs.contains(node)));
        for index in 0..self.joins.len() {
            let join = &self.graph["joins"][index];
            let to = text(&join["to"]).to_owned();
            let (seen, go) = &self.joins[index];
            if runs.contains(&to) && complete(join, seen) && (*go || !self.defers(&to)) {
                self.joins[index] = (BTreeSet::new(), false);
            }
        }
    }

    /// Applies what the tasks of a superstep wrote.
    pub(super) fn apply(&mut self, tasks: Vec<(String, Writes)>) -> Result<(), Refused> {
        let updates: Vec<_> = tasks.iter().flat_map(|(_, w)| w.updates.clone()).collect();
        self.update(&updates, true)?;
        let mut starts = false;
        for (node, writes) in tasks {
            for to in writes.nodes {
                if self.node(&to).is_null() {
                    continue;
                }
                if self.defers(&to) {
                    self.deferred.insert(to, false);
                } else {
                    self.edges.insert(to);
                    starts = true;
                }
            }
            for index in writes.joins {
                let join = &self.graph["joins"][index];
                let defers = self.defers(text(&join["to"]));
                let new = self.joins[index].0.insert(node.clone());
                starts |= new && !defers && complete(join, &self.joins[index].0);
            }
            let known = |(to, _): &(String, Json)| !self.node(to).is_null();
            let sends: Vec<_> = writes.sends.into_iter().filter(known).collect();
            self.sends.extend(sends);
        }
        if !starts {
            // Nothing else is left to run: deferred nodes go.
            for go in self.deferred.values_mut() {
                *go = true;
            }
            for index in 0..self.joins.len() {
                let join = &self.graph["joins"][index];
                if self.defers(text(&join["to"])) && complete(join, &self.joins[index].0) {
                    self.joins[index].1 = true;
                }
            }
        }
        Ok(())
    }
}

fn complete(join: &Json, seen: &BTreeSet<String>) -> bool {
    list(&join["from"])
        .iter()
        .all(|from| seen.contains(text(from)))
}
