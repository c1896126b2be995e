//! From a tape of numbers to a graph and a script of calls, in the language of the oracle's cases.
//! A shorter tape and smaller numbers give a simpler case, so that failures shrink.

use serde_json::{Value as Json, json};

/// A tape of choices; past its end every choice is the first one.
pub struct Tape<'a> {
    numbers: &'a [u16],
    at: usize,
}

impl<'a> Tape<'a> {
    pub fn new(numbers: &'a [u16]) -> Self {
        Self { numbers, at: 0 }
    }

    /// A number below `count`.
    pub fn pick(&mut self, count: usize) -> usize {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(number) % count.max(1)
    }

    /// True in so many of a hundred cases, and never past the end.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.pick(100) >= 100 - percent
    }
}

/// Names in the order of definition, which is not that of the alphabet.
const NAMES: [&str; 6] = ["c", "a", "e", "b", "d", "f"];

/// A node that loops stops when the count of nodes that ran has come to this.
const ROUNDS: i64 = 5;

struct Generator<'a, 'b> {
    tape: &'a mut Tape<'b>,
    /// Nodes that fan-outs start: several tasks of one node may run at once.
    sent: Vec<&'static str>,
    names: &'static [&'static str],
    questions: bool,
}

/// A random graph.
pub fn graph(tape: &mut Tape<'_>) -> Json {
    let mut channels = vec![
        json!({"name": "n", "kind": "sum"}),
        json!({"name": "log", "kind": "append"}),
    ];
    for (name, kind) in [
        ("x", "last"),
        ("t", "topic"),
        ("v", "any"),
        ("m", "max"),
        ("c", "concat"),
        ("d", "merge"),
        ("un", "union"),
    ] {
        channels.push(json!({"name": name, "kind": kind}));
    }
    channels.push(json!({"name": "e", "kind": "ephemeral", "guard": false}));
    channels.push(json!({"name": "ta", "kind": "topic", "accumulate": true}));
    let count = 1 + tape.pick(NAMES.len());
    let mut generator = Generator {
        questions: tape.chance(50),
        names: &NAMES[..count],
        sent: vec![],
        tape,
    };
    let sent = generator.tape.pick(3);
    for _ in 0..sent {
        let name = NAMES[generator.tape.pick(count)];
        generator.sent.push(name);
    }
    let mut nodes = vec![];
    let (mut edges, mut branches, mut joins) = (vec![], vec![], vec![]);
    for index in 0..count {
        nodes.push(generator.node(index));
        generator.after(index, &mut edges, &mut branches);
    }
    edges.insert(0, json!(["__start__", NAMES[0]]));
    for name in &NAMES[1..count] {
        if generator.tape.chance(30) {
            edges.push(json!(["__start__", name]));
        }
    }
    if generator.tape.chance(15) && !generator.sent.is_empty() {
        let target = generator.send();
        branches.push(json!({"from": "__start__", "rules": [], "else": target}));
    }
    while count > 2 && generator.tape.chance(30) {
        let to = 2 + generator.tape.pick(count - 2);
        let (a, b) = (generator.tape.pick(to), generator.tape.pick(to));
        if a != b {
            joins.push(json!({"from": [NAMES[a], NAMES[b]], "to": NAMES[to]}));
        }
    }
    // Two joins of the same form are one channel.
    joins.dedup();
    let mut seen = vec![];
    joins.retain(|join| {
        let new = !seen.contains(join);
        seen.push(join.clone());
        new
    });
    json!({
        "channels": channels, "nodes": nodes, "edges": edges, "joins": joins,
        "branches": branches,
    })
}

impl Generator<'_, '_> {
    fn name(&mut self) -> &'static str {
        self.names[self.tape.pick(self.names.len())]
    }

    /// An expression for a text that differs from task to task.
    fn text(&mut self, node: &str) -> Json {
        match self.tape.pick(3) {
            0 => json!(node),
            1 => json!({"$str": [node, {"$get": "n"}]}),
            _ => json!({"$str": [node, {"$get": "i"}]}),
        }
    }

    /// A fan-out to nodes that may be fanned out to.
    fn send(&mut self) -> Json {
        let node = self.sent[self.tape.pick(self.sent.len())];
        let count = 1 + self.tape.pick(3);
        // What they get keeps them from sending on.
        let args: Vec<Json> = (0..count)
            .map(|i| json!({"$lit": {"n": 100, "i": i}}))
            .collect();
        json!({"send": node, "args": args})
    }

    fn node(&mut self, index: usize) -> Json {
        let name = NAMES[index];
        let alone = !self.sent.contains(&name);
        let mut node = json!({"name": name});
        if self.tape.chance(12) {
            node["graph"] = self.child(alone);
        } else {
            node["ops"] = self.ops(name, alone).into();
        }
        if index > 0 && self.tape.chance(12) {
            node["defer"] = json!(true);
        }
        if self.tape.chance(15) && node.get("ops").is_some() {
            node["retry"] = json!({"max_attempts": 1 + self.tape.pick(3)});
        }
        node
    }

    fn ops(&mut self, name: &str, alone: bool) -> Vec<Json> {
        let mut ops = vec![json!({"op": "sleep_ms", "ms": self.tape.pick(6)})];
        ops.push(json!({"op": "add", "channel": "n", "value": 1}));
        let asks = self.questions && self.tape.chance(25);
        if asks {
            let questions = 1 + self.tape.pick(2);
            for k in 0..questions {
                let question = json!({"$str": [name, k, {"$get": "n"}, {"$get": "i"}]});
                let var = format!("a{k}");
                ops.push(json!({"op": "interrupt", "value": question, "store_in": var}));
                ops.push(json!({"op": "append", "channel": "log", "value": {"$var": var}}));
            }
        }
        if self.tape.chance(80) {
            let value = self.text(name);
            ops.push(json!({"op": "append", "channel": "log", "value": value}));
        }
        for (channel, percent) in [
            ("x", 6),
            ("t", 15),
            ("v", 12),
            ("m", 15),
            ("c", 15),
            ("d", 15),
            ("un", 15),
            ("e", 12),
            ("ta", 12),
        ] {
            if !self.tape.chance(percent) {
                continue;
            }
            let text = self.text(name);
            let value = match channel {
                "m" => json!(self.tape.pick(9)),
                "d" => json!({"k": text, (name): 1}),
                "un" => json!([text, "same"]),
                "t" | "ta" if self.tape.chance(50) => json!([text, "more"]),
                _ => text,
            };
            ops.push(json!({"op": "set", "channel": channel, "value": value}));
        }
        if self.tape.chance(4) {
            let value = json!([format!("{name}!")]);
            ops.push(json!({"op": "overwrite", "channel": "log", "value": value}));
        }
        if alone && self.tape.chance(12) {
            let times = 1 + self.tape.pick(2);
            ops.push(json!({"op": "fail_times", "times": times, "kind": "Boom", "error": "boom"}));
        }
        let again = json!({"lt": [{"$get": "n"}, ROUNDS]});
        if self.tape.chance(15) {
            let to: Vec<&str> = (0..1 + self.tape.pick(2)).map(|_| self.name()).collect();
            let go = json!({"op": "goto", "to": to});
            ops.push(json!({"op": "if", "when": again, "then": [go], "else": []}));
        }
        if !self.sent.is_empty() && self.tape.chance(20) {
            let send = self.send();
            let send = json!({"op": "send", "node": send["send"], "args": send["args"]});
            ops.push(json!({"op": "if", "when": again, "then": [send], "else": []}));
        }
        ops
    }

    /// A graph inside: a chain of one or two nodes.
    fn child(&mut self, alone: bool) -> Json {
        let names = &["q", "p"][..1 + self.tape.pick(2)];
        let mut nodes = vec![];
        let mut edges = vec![json!(["__start__", "q"])];
        for name in names {
            let mut ops = vec![json!({"op": "append", "channel": "log", "value": name})];
            if self.questions && self.tape.chance(20) {
                let question = json!({"$str": [name, {"$get": "n"}, {"$get": "i"}]});
                ops.push(json!({"op": "interrupt", "value": question, "store_in": "a"}));
                ops.push(json!({"op": "append", "channel": "log", "value": {"$var": "a"}}));
            }
            if alone && self.tape.chance(15) {
                ops.push(json!({"op": "fail_times", "times": 1, "kind": "Boom", "error": "boom"}));
            }
            nodes.push(json!({"name": name, "ops": ops}));
        }
        if names.len() == 2 {
            edges.push(json!(["q", "p"]));
        }
        // What comes back is added to what the parent has.
        json!({
            "channels": [
                {"name": "n", "kind": "last"}, {"name": "i", "kind": "last"},
                {"name": "log", "kind": "append"},
            ],
            "nodes": nodes, "edges": edges, "joins": [], "branches": [],
        })
    }

    /// What follows a node: edges go forward only, branches may go back for a few rounds.
    fn after(&mut self, index: usize, edges: &mut Vec<Json>, branches: &mut Vec<Json>) {
        let name = NAMES[index];
        for later in &NAMES[index + 1..self.names.len()] {
            if self.tape.chance(35) {
                edges.push(json!([name, later]));
            }
        }
        if !self.tape.chance(25) {
            return;
        }
        let again = json!({"lt": [{"$get": "n"}, ROUNDS]});
        let mut rules = vec![];
        if !self.sent.contains(&name) && self.tape.chance(15) {
            let raise = json!({"error": "edge", "kind": "Boom", "times": 1});
            rules.push(json!({"when": true, "raise": raise}));
        }
        let target = match self.tape.pick(4) {
            3 if !self.sent.is_empty() => json!([self.send(), self.name()]),
            2 => json!([self.name(), "__end__", "nowhere"]),
            _ => json!(self.name()),
        };
        rules.push(json!({"when": again, "to": target}));
        branches.push(json!({"from": name, "rules": rules, "else": "__end__"}));
    }
}

/// A random script: what is to be called, in a form that suits whatever state the thread is in.
pub fn script(tape: &mut Tape<'_>, graph: &Json) -> Vec<Json> {
    let nodes = graph["nodes"].as_array().unwrap();
    let mut calls = vec![json!({"call": "invoke", "input": input(tape)})];
    for _ in 0..tape.pick(7) {
        calls.push(match tape.pick(10) {
            0..4 => json!({"call": "go_on", "share": tape.pick(4)}),
            4 | 5 => json!({"call": "invoke", "input": input(tape)}),
            6 => {
                let node = &nodes[tape.pick(nodes.len())]["name"];
                let values = json!({"log": ["edit"], "n": 1});
                json!({"call": "update_state", "as_node": node, "values": values})
            }
            7 => json!({"call": "replay", "at": tape.pick(12)}),
            _ => json!({"call": "go_on", "share": 0}),
        });
    }
    calls
}

fn input(tape: &mut Tape<'_>) -> Json {
    let mut input = json!({"log": ["in"], "n": 1 + tape.pick(4)});
    if tape.chance(30) {
        input["x"] = json!("in");
    }
    if tape.chance(20) {
        input["t"] = json!(["in"]);
    }
    input
}
