//! Building a graph from the JSON of a case.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backstitch::{
    channel::{Kind, Reducer},
    error::Raised,
    extract::Ctx,
    graph::{Compiled, Goto, Graph, Names, NodeOpts, Output, Persist, Retry, Untyped},
    value::Value,
};
use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value as Json, json};

use super::lang::{Scope, World, text};

/// The graph that `graph` describes; `prefix` is the path of the node that runs it.
pub fn build(graph: &Json, world: &Arc<World>, prefix: &str) -> Arc<Compiled> {
    let mut built = Graph::untyped();
    for channel in list(&graph["channels"]) {
        built = built.channel(text(&channel["name"]), kind(channel));
    }
    for node in list(&graph["nodes"]) {
        let name = text(&node["name"]);
        let path = format!("{prefix}{name}");
        let mut opts = NodeOpts::new();
        if node["defer"] == true {
            opts = opts.defer();
        }
        if let Some(retry) = node.get("retry") {
            opts = opts.retry(policy(retry));
        }
        if let Some(child) = node.get("graph") {
            let child = build(child, world, &format!("{path}/"));
            built = built.subgraph_with(name, child, opts);
            continue;
        }
        let mut names = BTreeSet::new();
        called(&node["ops"], &mut names);
        let mut calls = vec![];
        for name in names {
            let child = build(&graph["graphs"][&name], world, &format!("{path}/"));
            calls.push((name, child));
        }
        if let Some((name, child)) = calls.last() {
            opts = opts.calls(name.as_str(), child.clone());
        }
        let body = Arc::new(Body {
            world: world.clone(),
            path,
            name: name.to_owned(),
            ops: node["ops"].clone(),
            calls,
        });
        built = built.node_with(name, move |ctx| run(body.clone(), ctx), opts);
    }
    for edge in list(&graph["edges"]) {
        built = built.edge(text(&edge[0]), text(&edge[1]));
    }
    for join in list(&graph["joins"]) {
        let from: Vec<&str> = list(&join["from"]).iter().map(text).collect();
        built = built.join(from, text(&join["to"]));
    }
    for (index, branch) in list(&graph["branches"]).iter().enumerate() {
        built = route(built, branch, index, world, prefix);
    }
    if let Some(names) = graph.get("interrupt_before") {
        built = built.interrupt_before(breakpoints(names));
    }
    if let Some(names) = graph.get("interrupt_after") {
        built = built.interrupt_after(breakpoints(names));
    }
    built
        .persist(match graph["persist"].as_str() {
            Some("thread") => Persist::Thread,
            Some("none") => Persist::None,
            _ => Persist::Inherit,
        })
        .build()
        .unwrap()
}

/// `*` or a list of names.
pub fn breakpoints(names: &Json) -> Names {
    match names {
        Json::Array(names) => Names::Some(names.iter().map(|name| text(name).into()).collect()),
        _ => Names::All,
    }
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn kind(channel: &Json) -> Kind {
    let guard = channel["guard"] != false;
    match text(&channel["kind"]) {
        "last" => Kind::Last,
        "sum" => Kind::Aggregate(Reducer::sum()),
        "append" => Kind::Aggregate(Reducer::append()),
        "concat" => Kind::Aggregate(Reducer::concat()),
        "max" => Kind::Aggregate(Reducer::max()),
        "merge" => Kind::Aggregate(Reducer::merge()),
        "union" => Kind::Aggregate(Reducer::union()),
        "messages" => Kind::Aggregate(Reducer::messages()),
        "ephemeral" => Kind::Ephemeral { guard },
        "topic" => Kind::Topic {
            accumulate: channel["accumulate"] == true,
        },
        "any" => Kind::Any,
        "untracked" => Kind::Untracked { guard },
        other => panic!("unknown channel kind {other}"),
    }
}

fn policy(retry: &Json) -> Retry {
    let times = u32::try_from(retry["max_attempts"].as_u64().unwrap()).unwrap();
    let mut policy = Retry::times(times).starting_at(Duration::from_millis(1));
    policy.jitter = false;
    let Some(kinds) = retry.get("on") else {
        return policy;
    };
    let kinds: Vec<String> = list(kinds)
        .iter()
        .map(|kind| text(kind).to_owned())
        .collect();
    policy.only_if(move |error| {
        let raised = error.downcast_ref::<Raised>();
        raised.is_some_and(|raised| kinds.contains(&raised.class))
    })
}

/// Names of the graphs that `call` operations refer to.
fn called(ops: &Json, names: &mut BTreeSet<String>) {
    for op in list(ops) {
        if op["op"] == "call" {
            names.insert(text(&op["graph"]).to_owned());
        }
        called(&op["then"], names);
        called(&op["else"], names);
    }
}

fn raised(of: &Json) -> anyhow::Error {
    let kind = of["kind"].as_str().unwrap_or("Boom");
    Raised::new(kind, text(&of["error"])).into()
}

fn route(
    graph: Graph<Untyped>,
    branch: &Json,
    index: usize,
    world: &Arc<World>,
    prefix: &str,
) -> Graph<Untyped> {
    let from = text(&branch["from"]).to_owned();
    let name = match branch["name"].as_str() {
        Some(name) => name.to_owned(),
        None => format!("route{index}"),
    };
    let key = format!("{prefix}{from}?{name}");
    let map: Option<Vec<(String, String)>> = branch["map"].as_object().map(|map| {
        map.iter()
            .map(|(key, node)| (key.clone(), text(node).to_owned()))
            .collect()
    });
    let (branch, world) = (branch.clone(), world.clone());
    let choose = move |state: &backstitch::value::Map| {
        let scope = Scope::of(Value::map(state.clone()).to_json_value());
        for (index, rule) in list(&branch["rules"]).iter().enumerate() {
            if !scope.holds(&rule["when"]) {
                continue;
            }
            let Some(raise) = rule.get("raise") else {
                return Ok(targets(&scope, &rule["to"]));
            };
            let times = raise["times"].as_u64().unwrap_or(u64::MAX);
            if world.fails(format!("{key}:rule{index}"), times) {
                return Err(raised(raise));
            }
        }
        Ok(targets(&scope, &branch["else"]))
    };
    graph.route(from, name, choose, map)
}

fn targets(scope: &Scope, target: &Json) -> Vec<Goto> {
    match target {
        Json::Null => vec![],
        Json::Array(all) => all.iter().flat_map(|one| targets(scope, one)).collect(),
        Json::Object(_) => sends(scope, &target["send"], target),
        name => vec![Goto {
            node: text(name).into(),
            arg: None,
        }],
    }
}

fn sends(scope: &Scope, node: &Json, op: &Json) -> Vec<Goto> {
    scope
        .sends(node, op)
        .into_iter()
        .map(|(node, arg)| Goto {
            node: node.into(),
            arg: Some(Value::from(arg)),
        })
        .collect()
}

struct Body {
    world: Arc<World>,
    path: String,
    name: String,
    ops: Json,
    calls: Vec<(String, Arc<Compiled>)>,
}

async fn run(body: Arc<Body>, ctx: Ctx) -> anyhow::Result<Output> {
    body.world.start(&body.path);
    let mut running = Running {
        scope: Scope::of(ctx.input().to_json_value()),
        ctx,
        body: body.clone(),
        done: vec![],
        now: Building::default(),
    };
    running.all(&body.ops, "").await?;
    running.done.push(running.now);
    // A command for the parent is raised, whatever other commands there are.
    let to_parent = running.done.iter().position(|command| command.parent);
    if let Some(index) = to_parent {
        let command = running.done.swap_remove(index);
        return Ok(command.output());
    }
    let mut output = Output::default();
    for command in running.done {
        let part = command.output();
        output.writes.extend(part.writes);
        output.goto.extend(part.goto);
    }
    Ok(output)
}

#[derive(Default)]
struct Building {
    update: Vec<(String, Json)>,
    goto: Vec<Goto>,
    parent: bool,
}

impl Building {
    fn slot(&mut self, channel: &Json) -> &mut Json {
        let name = text(channel);
        let at = match self.update.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            None => {
                self.update.push((name.to_owned(), Json::Null));
                self.update.len() - 1
            }
        };
        &mut self.update[at].1
    }

    fn output(self) -> Output {
        Output {
            writes: self
                .update
                .into_iter()
                .map(|(name, value)| (name.into(), Value::from(value)))
                .collect(),
            goto: self.goto,
            to_parent: self.parent,
        }
    }
}

struct Running {
    ctx: Ctx,
    body: Arc<Body>,
    scope: Scope,
    done: Vec<Building>,
    now: Building,
}

impl Running {
    fn all<'a>(&'a mut self, ops: &'a Json, at: &'a str) -> BoxFuture<'a, anyhow::Result<()>> {
        async move {
            for (index, op) in list(ops).iter().enumerate() {
                self.one(op, format!("{at}{index}")).await?;
            }
            Ok(())
        }
        .boxed()
    }

    async fn one(&mut self, op: &Json, at: String) -> anyhow::Result<()> {
        let value = || self.scope.eval(&op["value"]);
        match text(&op["op"]) {
            "set" => {
                let value = value();
                *self.now.slot(&op["channel"]) = value;
            }
            "append" => {
                let value = value();
                let slot = self.now.slot(&op["channel"]);
                if slot.is_null() {
                    *slot = json!([]);
                }
                slot.as_array_mut().unwrap().push(value);
            }
            "add" => {
                let value = value().as_i64().unwrap();
                let slot = self.now.slot(&op["channel"]);
                *slot = json!(slot.as_i64().unwrap_or(0) + value);
            }
            "overwrite" => {
                let value = value();
                // The other form is a plain object to the expectations.
                *self.now.slot(&op["channel"]) = json!({"type": "__overwrite__", "value": value});
            }
            "let" => {
                let value = value();
                self.scope.vars.insert(text(&op["var"]).to_owned(), value);
            }
            "interrupt" => {
                let answer: Value = self.ctx.interrupt(Value::from(value())).await;
                self.keep(op, answer);
            }
            "goto" => {
                let names: Vec<&Json> = match &op["to"] {
                    Json::Array(names) => names.iter().collect(),
                    one => vec![one],
                };
                self.now.goto.extend(names.into_iter().map(|name| Goto {
                    node: text(name).into(),
                    arg: None,
                }));
            }
            "send" | "send_each" => self.now.goto.extend(sends(&self.scope, &op["node"], op)),
            "parent" => self.now.parent = true,
            "next_command" => self.done.push(std::mem::take(&mut self.now)),
            "fail" => return Err(raised(op)),
            "fail_times" => {
                let key = format!("{}:{at}", self.body.path);
                if self.body.world.fails(key, op["times"].as_u64().unwrap()) {
                    return Err(raised(op));
                }
            }
            // Part of what the cases describe: which of two nodes ends first.
            "sleep_ms" => {
                let wait = Duration::from_millis(op["ms"].as_u64().unwrap());
                tokio::time::sleep(wait).await;
            }
            "emit_custom" => self
                .ctx
                .emit(json!({"node": self.body.name, "value": value()})),
            "if" => {
                let (branch, ops) = if self.scope.holds(&op["when"]) {
                    ("then", &op["then"])
                } else {
                    ("else", &op["else"])
                };
                self.all(ops, &format!("{at}.{branch}.")).await?;
            }
            "call" => {
                let input = Value::from(self.scope.eval(&op["input"]));
                let name = text(&op["graph"]);
                let (_, graph) = self.body.calls.iter().find(|(n, _)| n == name).unwrap();
                let values = self.ctx.call(graph, input).await?;
                self.keep(op, values);
            }
            other => panic!("unknown op {other}"),
        }
        Ok(())
    }

    fn keep(&mut self, op: &Json, value: Value) {
        if let Some(name) = op["store_in"].as_str() {
            let value = value.to_json_value();
            self.scope.vars.insert(name.to_owned(), value);
        }
    }
}
