//! One task: its body, the graph inside it, and what follows it.

use serde_json::{Value as Json, json};

use super::{Counters, Ended, Key, Machine, Progress, Refused, Stop, Writes, list};
use crate::lang::{Scope, text};

impl Machine {
    /// Runs a task from its start.
    pub(super) fn task(
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

    pub(super) fn graph_inside(
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

    pub(super) fn body(
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
    pub(super) fn follow(
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
                let part = if self.scope.holds(&op["when"]) {
                    "then"
                } else {
                    "else"
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
