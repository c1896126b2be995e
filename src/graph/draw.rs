//! Pictures of a graph: the JSON that Agent Server clients draw, and Mermaid text.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Body, Compiled, END, Node, START, Writers};

/// Nodes and edges of a graph, ready to be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    /// Names in definition order, between START and END; those of opened subgraphs follow END.
    pub nodes: Vec<String>,
    /// Edges in the order of their starts.
    pub edges: Vec<Edge>,
}

/// A line from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Where it begins.
    pub source: String,
    /// Where it ends.
    pub target: String,
    /// Whether it is taken only if a route or a command chooses it.
    pub conditional: bool,
    /// The choice of the route that takes it, if it is not the name of the target.
    pub label: Option<String>,
}

/// Draws a graph. Subgraphs are opened `depth` levels deep: 0 shows each as one node.
pub fn draw(graph: &Compiled, depth: usize) -> Drawing {
    let mut drawing = flat(graph);
    if depth > 0 {
        for node in &graph.nodes {
            if let Some((_, child)) = children(node).next() {
                drawing.open(&node.name, &draw(child, depth - 1));
            }
        }
    }
    drawing
}

/// The graphs inside a graph by namespace (`child`, `child|grand`), as
/// `/assistants/{id}/subgraphs` lists them.
pub fn subgraphs(graph: &Compiled, recurse: bool) -> Vec<(String, Arc<Compiled>)> {
    let mut found = Vec::new();
    for node in &graph.nodes {
        for (name, child) in children(node) {
            found.push((name.to_owned(), child.clone()));
            if recurse {
                let nested = subgraphs(child, true).into_iter();
                found.extend(nested.map(|(inner, graph)| (format!("{name}|{inner}"), graph)));
            }
        }
    }
    found
}

/// The graphs a node runs, the name of each one's namespace first.
fn children(node: &Node) -> impl Iterator<Item = (&str, &Arc<Compiled>)> {
    let own = match &node.body {
        Body::Graph(child) => Some(child),
        Body::Function(_) => None,
    };
    let called = node.calls.iter().map(|(_, child)| child);
    own.into_iter()
        .chain(called)
        .map(|child| (&*node.name, child))
}

fn flat(graph: &Compiled) -> Drawing {
    let mut nodes = vec![START.to_owned()];
    nodes.extend(graph.nodes.iter().map(|node| node.name.to_string()));
    nodes.push(END.to_owned());
    let mut drawing = Drawing {
        nodes,
        edges: Vec::new(),
    };
    drawing.follow(graph, START, &graph.start, &[]);
    for node in &graph.nodes {
        let before = drawing.edges.len();
        drawing.follow(graph, &node.name, &node.writers, &node.destinations);
        if drawing.edges.len() == before {
            drawing.edge(&node.name, END, false, None);
        }
    }
    drawing
}

impl Drawing {
    fn edge(&mut self, source: &str, target: &str, conditional: bool, label: Option<&str>) {
        let edge = Edge {
            source: source.to_owned(),
            target: target.to_owned(),
            conditional,
            label: label.map(str::to_owned),
        };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    fn follow(
        &mut self,
        graph: &Compiled,
        from: &str,
        writers: &Writers,
        destinations: &[Arc<str>],
    ) {
        for to in &writers.edges {
            self.edge(from, to, false, None);
        }
        for join in (graph.joins.iter()).filter(|join| writers.joins.contains(&join.channel)) {
            self.edge(from, &join.to, false, None);
        }
        if writers.ends {
            self.edge(from, END, false, None);
        }
        for route in &writers.routes {
            match &route.targets {
                Some(targets) => {
                    for (key, to) in targets {
                        let label = (key != to).then_some(&**key);
                        self.edge(from, to, true, label);
                    }
                }
                // An open choice may lead anywhere.
                None => {
                    for node in &graph.nodes {
                        self.edge(from, &node.name, true, None);
                    }
                    self.edge(from, END, true, None);
                }
            }
        }
        for to in destinations {
            self.edge(from, to, true, None);
        }
    }

    /// Replaces a node by the drawing of its subgraph. Edges into the node lead to what
    /// follows the child's START, edges out of it come from what precedes the child's END.
    fn open(&mut self, node: &str, child: &Self) {
        let inner = |name: &str| format!("{node}:{name}");
        let first: Vec<&Edge> = child.edges.iter().filter(|e| e.source == START).collect();
        let last: Vec<&Edge> = child.edges.iter().filter(|e| e.target == END).collect();
        let mut edges = Vec::new();
        for edge in std::mem::take(&mut self.edges) {
            let targets: Vec<(String, bool)> = if edge.target == node {
                let first = first.iter();
                first.map(|e| (inner(&e.target), e.conditional)).collect()
            } else {
                vec![(edge.target.clone(), false)]
            };
            let sources: Vec<(String, bool)> = if edge.source == node {
                let last = last.iter();
                last.map(|e| (inner(&e.source), e.conditional)).collect()
            } else {
                vec![(edge.source.clone(), false)]
            };
            for (source, from_choice) in &sources {
                for (target, to_choice) in &targets {
                    edges.push(Edge {
                        source: source.clone(),
                        target: target.clone(),
                        conditional: edge.conditional || *from_choice || *to_choice,
                        label: edge.label.clone(),
                    });
                }
            }
        }
        self.edges = edges;
        self.nodes.retain(|name| name != node);
        let nodes = child.nodes.iter().filter(|n| *n != START && *n != END);
        self.nodes.extend(nodes.map(|name| inner(name)));
        let within = child.edges.iter();
        let within = within.filter(|e| e.source != START && e.target != END);
        for edge in within {
            self.edges.push(Edge {
                source: inner(&edge.source),
                target: inner(&edge.target),
                ..edge.clone()
            });
        }
    }

    /// The response of `GET /assistants/{id}/graph`.
    pub fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().map(|name| {
            if name == END {
                json!({ "id": name })
            } else {
                json!({ "id": name, "type": "runnable", "data": { "name": name } })
            }
        });
        let edges = self.edges.iter().map(|edge| {
            let mut shown = json!({ "source": edge.source, "target": edge.target });
            if let Some(label) = &edge.label {
                shown["data"] = label.as_str().into();
            }
            if edge.conditional {
                shown["conditional"] = true.into();
            }
            shown
        });
        json!({ "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>() })
    }

    /// A Mermaid flow chart. Choices are dotted lines.
    pub fn to_mermaid(&self) -> String {
        // Names may contain anything, so nodes are numbered and names are quoted labels.
        let id = |name: &str| {
            let at = self.nodes.iter().position(|node| node == name);
            at.map_or_else(|| "unknown".to_owned(), |at| format!("n{at}"))
        };
        let quote = |text: &str| text.replace('#', "#35;").replace('"', "#quot;");
        let mut text = "flowchart TD\n".to_owned();
        for name in &self.nodes {
            let (open, close) = match name.as_str() {
                START | END => ("([", "])"),
                _ => ("[", "]"),
            };
            let shown = match name.as_str() {
                START => "start",
                END => "end",
                name => name,
            };
            text += &format!("    {}{open}\"{}\"{close}\n", id(name), quote(shown));
        }
        for edge in &self.edges {
            let line = match (&edge.label, edge.conditional) {
                (Some(label), true) => format!("-. \"{}\" .->", quote(label)),
                (None, true) => "-.->".to_owned(),
                (Some(label), false) => format!("-- \"{}\" -->", quote(label)),
                (None, false) => "-->".to_owned(),
            };
            text += &format!("    {} {line} {}\n", id(&edge.source), id(&edge.target));
        }
        text
    }
}

#[cfg(test)]
mod tests;
