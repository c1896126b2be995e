//! The reference: executes a graph one task after the other on plain maps. What waits to run is
//! kept as it is meant (edges taken, joins seen, fan-outs sent) instead of versions of channels.

mod channels;
mod plan;
mod task;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value as Json, json};

use crate::lang::text;

/// What outlives a machine: counters of the case.
#[derive(Clone, Default)]
pub struct Counters {
    failures: HashMap<String, u64>,
    /// Bodies started, by path.
    pub started: BTreeMap<String, u64>,
}

impl Counters {
    fn fails(&mut self, key: String, times: u64) -> bool {
        let count = self.failures.entry(key).or_default();
        let fails = *count < times;
        *count += u64::from(fails);
        fails
    }
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    Done,
    /// Tasks wait: the questions, sorted.
    Asked(Vec<String>),
    /// A task failed with this class.
    Failed(&'static str),
}

/// A checkpoint as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub source: &'static str,
    pub step: i64,
    pub values: Json,
    /// Nodes, sorted.
    pub next: Vec<String>,
}

/// A task of the superstep that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Start,
    Node(String),
    Send(usize),
}

/// What a task has come to so far.
#[derive(Clone, Default)]
struct Progress {
    answers: Vec<Json>,
    question: Option<String>,
    /// The questions that were stored last: they show until the task has finished.
    stored: Vec<String>,
    writes: Option<Writes>,
    failed: bool,
    /// The graph inside, if it runs one.
    inside: Option<Box<Machine>>,
}

#[derive(Clone, Default)]
struct Writes {
    updates: Vec<(String, Json)>,
    nodes: Vec<String>,
    sends: Vec<(String, Json)>,
    joins: Vec<usize>,
}

/// A graph with its state.
#[derive(Clone)]
pub struct Machine {
    graph: Json,
    prefix: String,
    values: BTreeMap<String, Json>,
    input: Option<Json>,
    /// Plain edges taken in the last superstep.
    edges: BTreeSet<String>,
    /// Starts that each join has seen, and whether it may go (deferred targets).
    joins: Vec<(BTreeSet<String>, bool)>,
    /// Edges to deferred nodes, and whether they may go.
    deferred: BTreeMap<String, bool>,
    sends: Vec<(String, Json)>,
    progress: BTreeMap<Key, Progress>,
    pub step: i64,
    pub source: &'static str,
}

enum Ended {
    Writes(Writes),
    Asked,
    Failed,
}

type Refused = &'static str;

impl Machine {
    pub fn new(graph: &Json, prefix: &str) -> Self {
        let mut machine = Self {
            graph: graph.clone(),
            prefix: prefix.to_owned(),
            values: BTreeMap::new(),
            input: None,
            edges: BTreeSet::new(),
            joins: vec![(BTreeSet::new(), false); list(&graph["joins"]).len()],
            deferred: BTreeMap::new(),
            sends: vec![],
            progress: BTreeMap::new(),
            step: -2,
            source: "input",
        };
        for channel in list(&graph["channels"]) {
            let start = match text(&channel["kind"]) {
                "sum" | "max" => json!(0),
                "append" | "union" => json!([]),
                "concat" => json!(""),
                "merge" => json!({}),
                _ => continue,
            };
            machine
                .values
                .insert(text(&channel["name"]).to_owned(), start);
        }
        machine
    }

    pub fn record(&self) -> Record {
        Record {
            source: self.source,
            step: self.step,
            values: json!(self.values),
            next: sorted(self.tasks().into_iter().map(|(_, node)| node)),
        }
    }

    /// Nodes that wait, without those that have finished.
    pub fn unfinished(&self) -> Vec<String> {
        let done = |key: &Key| self.progress.get(key).is_some_and(|p| p.writes.is_some());
        let tasks = self.tasks().into_iter();
        sorted(tasks.filter(|(key, _)| !done(key)).map(|(_, node)| node))
    }

    /// New input: what waits is given up.
    pub fn take(&mut self, input: Json, out: &mut Vec<Machine>) {
        if !self.tasks().is_empty() {
            self.consume();
            self.clear(&BTreeSet::new());
        }
        self.edges.clear();
        self.sends.clear();
        self.progress.clear();
        self.input = Some(input);
        self.step += 1;
        self.source = "input";
        out.push(self.clone());
    }

    /// As after an edit by the node: its updates and what follows it.
    pub fn edit(
        &mut self,
        node: &str,
        values: &Json,
        counters: &mut Counters,
        out: &mut Vec<Machine>,
    ) -> Result<(), Refused> {
        let updates = values.as_object().unwrap();
        let updates = updates
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut writes = Writes {
            updates,
            ..Writes::default()
        };
        self.follow(node, &mut writes, counters)?;
        self.edges.clear();
        self.sends.clear();
        self.input = None;
        self.apply(vec![(node.to_owned(), writes)])?;
        self.progress.clear();
        self.step += 1;
        self.source = "update";
        out.push(self.clone());
        Ok(())
    }

    /// As after a replay of the present checkpoint.
    pub fn replay(&mut self, out: &mut Vec<Machine>) {
        self.progress.clear();
        self.step += 1;
        self.source = "fork";
        out.push(self.clone());
    }

    /// Questions as a state shows them, sorted: also those of tasks that were answered and failed.
    pub fn shown_questions(&self) -> Vec<String> {
        let unfinished = self
            .progress
            .values()
            .filter(|progress| progress.writes.is_none());
        sorted(unfinished.flat_map(|progress| progress.stored.clone()))
    }

    /// Questions that wait, sorted, those of graphs inside too.
    pub fn questions(&self) -> Vec<String> {
        let mut all = vec![];
        for progress in self.progress.values() {
            all.extend(progress.question.clone());
            if let (Some(inside), None) = (&progress.inside, &progress.writes) {
                all.extend(inside.questions());
            }
        }
        all.sort();
        all
    }

    /// Answers every open question that is in `chosen`.
    pub fn answer(&mut self, chosen: &[String]) {
        for progress in self.progress.values_mut() {
            if let Some(question) = &progress.question
                && chosen.contains(question)
            {
                progress.answers.push(answer_to(question));
                progress.question = None;
            }
            if let Some(inside) = &mut progress.inside {
                inside.answer(chosen);
            }
        }
    }

    /// Runs until nothing is left or tasks ask or fail.
    pub fn run(&mut self, counters: &mut Counters, out: &mut Vec<Machine>) -> Stop {
        loop {
            let tasks = self.tasks();
            if tasks.is_empty() {
                return Stop::Done;
            }
            let mut failed = false;
            for (key, node) in &tasks {
                let mut progress = self.progress.remove(key).unwrap_or_default();
                if progress.writes.is_none() {
                    (progress.failed, progress.question) = (false, None);
                    match self.task(key, node, &mut progress, counters) {
                        Ended::Writes(writes) => progress.writes = Some(writes),
                        Ended::Asked => {
                            let inside = progress.inside.as_ref();
                            let questions = inside.map(|inside| inside.questions());
                            let own = || progress.question.clone().into_iter().collect();
                            progress.stored = questions.unwrap_or_else(own);
                        }
                        Ended::Failed => progress.failed = true,
                    }
                }
                failed |= progress.failed;
                self.progress.insert(key.clone(), progress);
            }
            if failed {
                return Stop::Failed("Boom");
            }
            let questions = self.questions();
            if !questions.is_empty() {
                return if self.conflicts() {
                    Stop::Failed("InvalidUpdateError")
                } else {
                    Stop::Asked(questions)
                };
            }
            let mut writes: Vec<_> = tasks
                .iter()
                .map(|(key, node)| {
                    let order = (matches!(key, Key::Send(_)), key.clone());
                    (
                        order,
                        node.clone(),
                        self.progress[key].writes.clone().unwrap(),
                    )
                })
                .collect();
            // Nodes by name, then fan-outs by index.
            writes.sort_by(|a, b| a.0.cmp(&b.0));
            let before = self.clone();
            self.consume();
            self.edges.clear();
            self.sends.clear();
            self.input = None;
            let writes = writes
                .into_iter()
                .map(|(_, node, writes)| (node, writes))
                .collect();
            if let Err(class) = self.apply(writes) {
                *self = before;
                return Stop::Failed(class);
            }
            self.progress.clear();
            self.step += 1;
            self.source = "loop";
            out.push(self.clone());
        }
    }

    /// Whether what has finished cannot be shown: several tasks wrote what takes one write.
    pub fn conflicts(&self) -> bool {
        let finished = self
            .progress
            .values()
            .filter_map(|progress| progress.writes.as_ref());
        let updates: Vec<_> = finished.flat_map(|writes| writes.updates.clone()).collect();
        self.clone().update(&updates, true).is_err()
    }
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// What the test answers to a question.
pub fn answer_to(question: &str) -> Json {
    json!(format!("re {question}"))
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}
