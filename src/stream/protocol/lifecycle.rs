//! How far each graph of a run has come: the root, and the graphs inside it by their namespaces.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;

use super::event::{Namespace, write_namespace};
use crate::{stream::frame::text, words::words};

words! {
    /// How far a graph has come. The words are the protocol's.
    pub enum Status, "state of a graph" {
        /// A graph inside another one began.
        Started = "started",
        /// The root graph began.
        Running = "running",
        /// It ended.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It waits for an input, or was cancelled.
        Interrupted = "interrupted",
    }
}

/// Most graphs inside others that are remembered after their end: those that began last.
const MOST: usize = 10_000;

/// The graphs of a run, in the order in which they began.
#[derive(Debug)]
pub struct Graphs {
    /// The name of the root graph.
    pub name: Arc<str>,
    /// How far the root graph has come.
    pub status: Status,
    /// How far those inside it have come.
    pub inner: IndexMap<Namespace, Status>,
    /// Those inside it that have not ended.
    open: BTreeSet<Namespace>,
}

impl Graphs {
    /// The graphs of a run that is about to begin.
    pub fn new(name: Arc<str>) -> Self {
        Self {
            name,
            status: Status::Running,
            inner: IndexMap::new(),
            open: BTreeSet::new(),
        }
    }

    /// Whether the graph at `ns`, which has begun if it is the root, has come as far as that.
    pub fn has_come_to(&self, ns: &Namespace, status: Status) -> bool {
        if ns.is_empty() {
            return status == self.status;
        }
        let found = self.inner.get(ns);
        found.is_some_and(|found| status == Status::Started || status == *found)
    }

    /// The namespaces whose beginning is to be announced now that something of `ns` is shown: its
    /// own, and before it those of the graphs around it.
    pub fn announce(&mut self, ns: &Namespace) -> Vec<Namespace> {
        if ns.is_empty() || self.open.contains(ns) {
            return vec![];
        }
        let mut new = vec![];
        for depth in 1..=ns.len() {
            let around: Namespace = ns[..depth].into();
            if !self.inner.contains_key(&around) {
                self.inner.insert(around.clone(), Status::Started);
                self.open.insert(around.clone());
                new.push(around);
            }
        }
        if self.inner.len() > 2 * MOST {
            let mut left = self.inner.len();
            self.inner.retain(|_, status| {
                left -= 1;
                *status == Status::Started || left < MOST
            });
        }
        new
    }

    /// Ends the graphs whose namespaces begin so, and returns them, the innermost first.
    pub fn end(&mut self, beginning: &[Arc<str>], status: Status) -> Vec<Namespace> {
        let from: Namespace = beginning.into();
        let below = self.open.range(from..);
        let mut ended: Vec<Namespace> = below
            .take_while(|ns| ns.starts_with(beginning))
            .cloned()
            .collect();
        for ns in &ended {
            self.open.remove(ns);
            self.inner.insert(ns.clone(), status);
        }
        // Those of a depth stay in their order.
        ended.sort_by_key(|ns| std::cmp::Reverse(ns.len()));
        ended
    }

    /// As [`end`](Self::end), but of the graphs inside the one at `ns`.
    pub fn end_inside(&mut self, ns: &Namespace, status: Status) -> Vec<Namespace> {
        let is_open = self.open.remove(ns);
        let ended = self.end(ns, status);
        if is_open {
            self.open.insert(ns.clone());
        }
        ended
    }
}

/// The name of the graph at a namespace: its node's.
pub fn graph_name(ns: &[Arc<str>]) -> &str {
    let last = ns.last().map_or("", |segment| &**segment);
    last.split_once(':').map_or(last, |(node, _)| node)
}

/// The task in which the graph at a namespace runs.
pub fn task_of(ns: &[Arc<str>]) -> Option<&str> {
    ns.last()?.split_once(':').map(|(_, task)| task)
}

/// Writes the data of a lifecycle event. The beginning of a graph inside another one names both again,
/// as official servers do.
pub fn write(out: &mut Vec<u8>, ns: &[Arc<str>], name: &str, status: Status, error: Option<&str>) {
    out.extend_from_slice(b"{\"event\":");
    text(out, status.as_str());
    if status == Status::Started {
        out.extend_from_slice(b",\"namespace\":");
        write_namespace(out, ns);
    }
    out.extend_from_slice(b",\"graph_name\":");
    text(out, name);
    if let (Status::Started, Some(task)) = (status, task_of(ns)) {
        out.extend_from_slice(b",\"trigger_call_id\":");
        text(out, task);
    }
    if let Some(error) = error {
        out.extend_from_slice(b",\"error\":");
        text(out, error);
    }
    out.push(b'}');
}

/// The id of a lifecycle event, which no frame stands for.
pub fn event_id(run: impl std::fmt::Display, ns: &[Arc<str>], status: Status) -> String {
    format!("synth:{run}:lc|{}|{}", ns.join("\0"), status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(parts: &[&str]) -> Namespace {
        parts.iter().map(|part| Arc::from(*part)).collect()
    }

    #[test]
    fn graphs_that_have_ended_are_forgotten_when_there_are_many() {
        let mut graphs = Graphs::new("root".into());
        let first = ns(&["open:1"]);
        graphs.announce(&first);
        for number in 0..3 * MOST {
            let one = ns(&[&format!("child:{number}")]);
            graphs.announce(&one);
            graphs.end(&one, Status::Completed);
        }
        assert!(graphs.inner.len() <= 2 * MOST + 1);
        assert_eq!(graphs.end(&[], Status::Completed), [first]);
    }

    #[test]
    fn graphs_are_announced_once_from_the_outside_and_end_from_the_inside() {
        let mut graphs = Graphs::new("root".into());
        let (child, grand) = (ns(&["child:1"]), ns(&["child:1", "grand:2"]));
        assert_eq!(graphs.announce(&grand), [child.clone(), grand.clone()]);
        assert!(graphs.announce(&child).is_empty());
        assert_eq!(
            graphs.end_inside(&child, Status::Completed),
            vec![grand.clone()]
        );
        assert_eq!(graphs.end(&child, Status::Completed), vec![child.clone()]);
        assert!(graphs.end(&[], Status::Failed).is_empty());
        assert!(graphs.announce(&grand).is_empty());
        let next = ns(&["child:3"]);
        assert_eq!(graphs.announce(&next), vec![next.clone()]);
        assert_eq!(graphs.end(&[], Status::Failed), vec![next]);
        assert_eq!(graph_name(&grand), "grand");
        assert_eq!(task_of(&grand), Some("2"));
        assert_eq!(graph_name(&[]), "");
        assert_eq!(
            event_id("r", &grand, Status::Completed),
            "synth:r:lc|child:1\0grand:2|completed"
        );
    }
}
