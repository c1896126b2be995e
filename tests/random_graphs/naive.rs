//! The reference: executes a graph one task after the other on plain maps. What waits to run is
//! kept as it is meant (edges taken, joins seen, fan-outs sent) instead of versions of channels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value as Json, json};

use super::lang::{Scope, text};

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
                return match self.conflicts() {
                    true => Stop::Failed("InvalidUpdateError"),
                    false => Stop::Asked(questions),
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

    /// What runs next: fan-outs, then nodes by name.
    fn tasks(&self) -> Vec<(Key, String)> {
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

    fn defers(&self, node: &str) -> bool {
        self.node(node)["defer"] == true
    }

    fn node(&self, name: &str) -> &Json {
        let mut nodes = list(&self.graph["nodes"]).iter();
        nodes
            .find(|node| node["name"] == name)
            .unwrap_or(&Json::Null)
    }

    fn kind(&self, channel: &str) -> (&str, bool) {
        let mut channels = list(&self.graph["channels"]).iter();
        let found = channels.find(|found| found["name"] == channel).unwrap();
        (text(&found["kind"]), found["accumulate"] == true)
    }

    /// Takes away what started the tasks that run now.
    fn consume(&mut self) {
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

    /// Runs a task from its start.
    fn task(
        &self,
        key: &Key,
        node: &str,
        progress: &mut Progress,
        counters: &mut Counters,
    ) -> Ended {
        let input = match key {
            Key::Start => {
                let known = |name: &&String| {
                    let mut channels = list(&self.graph["channels"]).iter();
                    channels.any(|channel| channel["name"] == **name)
                };
                let input = self.input.as_ref().and_then(Json::as_object).unwrap();
                let updates = input.keys().filter(known);
                let mut writes = Writes {
                    updates: updates
                        .map(|name| (name.clone(), input[name].clone()))
                        .collect(),
                    ..Writes::default()
                };
                return match self.follow(node, &mut writes, counters) {
                    Ok(()) => Ended::Writes(writes),
                    Err(_) => Ended::Failed,
                };
            }
            Key::Node(_) => json!(self.values),
            Key::Send(index) => self.sends[*index].1.clone(),
        };
        let described = self.node(node);
        let attempts = described["retry"]["max_attempts"].as_u64().unwrap_or(1);
        for attempt in 1..=attempts {
            let ended = match described.get("graph") {
                Some(graph) => self.graph_inside(graph, node, &input, progress, counters),
                None => self.body(node, &input, progress, counters),
            };
            let ended = match ended {
                Ended::Writes(mut writes) => match self.follow(node, &mut writes, counters) {
                    Ok(()) => Ended::Writes(writes),
                    Err(_) => Ended::Failed,
                },
                other => other,
            };
            if attempt == attempts || !matches!(ended, Ended::Failed) {
                return ended;
            }
        }
        Ended::Failed
    }

    fn graph_inside(
        &self,
        graph: &Json,
        node: &str,
        input: &Json,
        progress: &mut Progress,
        counters: &mut Counters,
    ) -> Ended {
        let path = format!("{}{node}/", self.prefix);
        let inside = progress.inside.get_or_insert_with(|| {
            let mut machine = Machine::new(graph, &path);
            machine.take(input.clone(), &mut vec![]);
            Box::new(machine)
        });
        match inside.run(counters, &mut vec![]) {
            Stop::Done => Ended::Writes(Writes {
                updates: inside
                    .values
                    .clone()
                    .into_iter()
                    .filter(|(k, _)| k != "i")
                    .collect(),
                ..Writes::default()
            }),
            Stop::Asked(_) => Ended::Asked,
            Stop::Failed(_) => Ended::Failed,
        }
    }

    fn body(
        &self,
        node: &str,
        input: &Json,
        progress: &mut Progress,
        counters: &mut Counters,
    ) -> Ended {
        let path = format!("{}{node}", self.prefix);
        *counters.started.entry(path.clone()).or_default() += 1;
        let mut body = Body {
            scope: Scope::of(input.clone()),
            path,
            asked: 0,
            progress,
            counters,
            writes: Writes::default(),
        };
        let ended = body.all(list(&self.node(node)["ops"]), "");
        match ended {
            Some(ended) => ended,
            None => Ended::Writes(body.writes),
        }
    }

    /// Adds what follows a node: edges, joins, branches. A branch may fail the node.
    fn follow(
        &self,
        node: &str,
        writes: &mut Writes,
        counters: &mut Counters,
    ) -> Result<(), Refused> {
        for edge in list(&self.graph["edges"]) {
            if edge[0] == node {
                writes.nodes.push(text(&edge[1]).to_owned());
            }
        }
        for (index, join) in list(&self.graph["joins"]).iter().enumerate() {
            if list(&join["from"]).iter().any(|from| from == node) {
                writes.joins.push(index);
            }
        }
        let branches = list(&self.graph["branches"]).iter().enumerate();
        for (number, branch) in branches.filter(|(_, branch)| branch["from"] == node) {
            let mut view = self.clone();
            let own: Vec<_> = writes.updates.clone();
            view.update(&own, false)?;
            let scope = Scope::of(json!(view.values));
            let mut target = &branch["else"];
            for (index, rule) in list(&branch["rules"]).iter().enumerate() {
                if !scope.holds(&rule["when"]) {
                    continue;
                }
                let Some(raise) = rule.get("raise") else {
                    target = &rule["to"];
                    break;
                };
                let key = format!("{}{node}?{number}:{index}", self.prefix);
                if counters.fails(key, raise["times"].as_u64().unwrap()) {
                    return Err("Boom");
                }
            }
            go(target, &scope, writes);
        }
        Ok(())
    }

    /// Applies what the tasks of a superstep wrote.
    fn apply(&mut self, tasks: Vec<(String, Writes)>) -> Result<(), Refused> {
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

    /// Merges updates into the channels; with `clear` those that live for one superstep and got
    /// none are emptied.
    fn update(&mut self, updates: &[(String, Json)], clear: bool) -> Result<(), Refused> {
        let mut grouped: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
        for (channel, value) in updates {
            grouped.entry(channel).or_default().push(value);
        }
        for (channel, values) in &grouped {
            let (kind, accumulate) = self.kind(channel);
            let (kind, old) = (kind.to_owned(), self.values.get(*channel).cloned());
            let new = merged(&kind, accumulate, old, values)?;
            self.values.insert((*channel).to_owned(), new);
        }
        if clear {
            let written = grouped.keys().map(|name| (*name).to_owned()).collect();
            self.clear(&written);
        }
        Ok(())
    }

    /// Empties what lives for one superstep and was not written.
    fn clear(&mut self, written: &BTreeSet<String>) {
        for channel in list(&self.graph["channels"]) {
            let name = text(&channel["name"]);
            let short = match text(&channel["kind"]) {
                "any" | "ephemeral" => true,
                "topic" => channel["accumulate"] != true,
                _ => false,
            };
            if short && !written.contains(name) {
                self.values.remove(name);
            }
        }
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

fn merged(
    kind: &str,
    accumulate: bool,
    old: Option<Json>,
    values: &[&Json],
) -> Result<Json, Refused> {
    let replaced: Vec<&Json> = values
        .iter()
        .filter_map(|v| v.get("__overwrite__"))
        .collect();
    match replaced.as_slice() {
        [] => {}
        [one] => return Ok((*one).clone()),
        _ => return Err("InvalidUpdateError"),
    }
    let mut result = old.clone().unwrap_or_default();
    match kind {
        "last" if values.len() > 1 => return Err("InvalidUpdateError"),
        "last" | "any" | "ephemeral" => result = (*values.last().unwrap()).clone(),
        "topic" => {
            let mut items = match (accumulate, old) {
                (true, Some(Json::Array(items))) => items,
                _ => vec![],
            };
            for value in values {
                match value {
                    Json::Array(more) => items.extend(more.iter().cloned()),
                    one => items.push((*one).clone()),
                }
            }
            result = json!(items);
        }
        _ => {
            for value in values {
                result = folded(kind, result, value);
            }
        }
    }
    Ok(result)
}

fn folded(kind: &str, old: Json, value: &Json) -> Json {
    match kind {
        "sum" => json!(old.as_i64().unwrap() + value.as_i64().unwrap()),
        "max" => json!(old.as_i64().unwrap().max(value.as_i64().unwrap())),
        "concat" => json!(format!("{}{}", text(&old), text(value))),
        "append" => list(&old).iter().chain(list(value)).cloned().collect(),
        "union" => {
            let mut items = list(&old).to_vec();
            for value in list(value) {
                if !items.contains(value) {
                    items.push(value.clone());
                }
            }
            json!(items)
        }
        "merge" => {
            let mut map = old.as_object().unwrap().clone();
            map.extend(value.as_object().unwrap().clone());
            json!(map)
        }
        other => panic!("unknown kind {other}"),
    }
}

fn complete(join: &Json, seen: &BTreeSet<String>) -> bool {
    list(&join["from"])
        .iter()
        .all(|from| seen.contains(text(from)))
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn go(target: &Json, scope: &Scope, writes: &mut Writes) {
    match target {
        Json::Null => {}
        Json::Array(all) => all.iter().for_each(|one| go(one, scope, writes)),
        Json::Object(_) => writes.sends.extend(scope.sends(&target["send"], target)),
        name => writes.nodes.push(text(name).to_owned()),
    }
}

/// A body that runs.
struct Body<'a> {
    scope: Scope,
    path: String,
    asked: usize,
    progress: &'a mut Progress,
    counters: &'a mut Counters,
    writes: Writes,
}

impl Body<'_> {
    /// `Some` when it ends early.
    fn all(&mut self, ops: &[Json], at: &str) -> Option<Ended> {
        ops.iter()
            .enumerate()
            .find_map(|(index, op)| self.one(op, &format!("{at}{index}")))
    }

    fn one(&mut self, op: &Json, at: &str) -> Option<Ended> {
        let channel = op["channel"].as_str().unwrap_or_default().to_owned();
        let value = self.scope.eval(&op["value"]);
        match text(&op["op"]) {
            "sleep_ms" => {}
            "set" => *self.slot(channel) = value,
            "overwrite" => *self.slot(channel) = json!({ "__overwrite__": value }),
            "add" => {
                let slot = self.slot(channel);
                *slot = json!(slot.as_i64().unwrap_or(0) + value.as_i64().unwrap());
            }
            "append" => {
                let slot = self.slot(channel);
                let mut items = list(slot).to_vec();
                items.push(value);
                *slot = json!(items);
            }
            "interrupt" => {
                let Some(answer) = self.progress.answers.get(self.asked) else {
                    self.progress.question = Some(text(&value).to_owned());
                    return Some(Ended::Asked);
                };
                self.asked += 1;
                let name = text(&op["store_in"]).to_owned();
                self.scope.vars.insert(name, answer.clone());
            }
            "fail_times" => {
                let key = format!("{}:{at}", self.path);
                if self.counters.fails(key, op["times"].as_u64().unwrap()) {
                    return Some(Ended::Failed);
                }
            }
            "goto" => {
                let names = list(&op["to"]).iter().map(|name| text(name).to_owned());
                self.writes.nodes.extend(names);
            }
            "send" => self.writes.sends.extend(self.scope.sends(&op["node"], op)),
            "if" => {
                let part = match self.scope.holds(&op["when"]) {
                    true => "then",
                    false => "else",
                };
                return self.all(list(&op[part]), &format!("{at}.{part}."));
            }
            other => panic!("unknown op {other}"),
        }
        None
    }

    fn slot(&mut self, channel: String) -> &mut Json {
        let updates = &mut self.writes.updates;
        let at = match updates.iter().position(|(name, _)| *name == channel) {
            Some(at) => at,
            None => {
                updates.push((channel, Json::Null));
                updates.len() - 1
            }
        };
        &mut updates[at].1
    }
}
