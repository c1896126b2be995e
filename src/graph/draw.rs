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

/// The two ends of an edge, in the order in which it is followed.
type Direction = fn(&Edge) -> (&str, &str);

impl Edge {
    fn forwards(&self) -> (&str, &str) {
        (&self.source, &self.target)
    }

    fn backwards(&self) -> (&str, &str) {
        (&self.target, &self.source)
    }
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

    /// Replaces a node by the drawing of its subgraph, as LangGraph's `xray` does. Edges into the node lead to where
    /// that begins, edges out of it come from where it ends. Its START is left out if one edge alone leads from there,
    /// to a node to which none leads back; its END likewise. One that begins or ends at several nodes stays closed.
    fn open(&mut self, node: &str, child: &Self) {
        let (forwards, backwards) = (Edge::forwards, Edge::backwards);
        let (Some(start), Some(end)) = (
            child.only_origin(None, forwards),
            child.only_origin(None, backwards),
        ) else {
            return;
        };
        let first = child.behind(start, forwards);
        let last = child.behind(end, backwards);
        let left_out =
            |name: &str| (name == start && first.is_some()) || (name == end && last.is_some());
        let inner = |name: &str| format!("{node}:{name}");
        for edge in &mut self.edges {
            if edge.target == node {
                edge.target = inner(first.unwrap_or(start));
            }
            if edge.source == node {
                edge.source = inner(last.unwrap_or(end));
            }
        }
        self.nodes.retain(|name| name != node);
        let nodes = child.nodes.iter().filter(|name| !left_out(name));
        self.nodes.extend(nodes.map(|name| inner(name)));
        let edges = child.edges.iter();
        let within = edges.filter(|edge| !left_out(&edge.source) && !left_out(&edge.target));
        self.edges.extend(within.map(|edge| Edge {
            source: inner(&edge.source),
            target: inner(&edge.target),
            ..edge.clone()
        }));
    }

    /// The one node that no edge reaches; `None` if several are not reached, or none. The node `without` is left out, and so
    /// are the edges that begin at it.
    fn only_origin(&self, without: Option<&str>, direction: Direction) -> Option<&str> {
        let stays = |name: &str| without != Some(name);
        let is_reached = |name: &str| {
            let mut edges = self.edges.iter().map(direction);
            edges.any(|(from, to)| to == name && stays(from))
        };
        let nodes = self.nodes.iter().map(String::as_str);
        let mut origins = nodes.filter(|name| stays(name) && !is_reached(name));
        let origin = origins.next()?;
        origins.next().is_none().then_some(origin)
    }

    /// The node behind another one, if a single edge leads there and no node but that one leads to it.
    fn behind(&self, node: &str, direction: Direction) -> Option<&str> {
        let edges = self.edges.iter().map(direction);
        let alone = edges.filter(|(from, _)| *from == node).count() == 1;
        self.only_origin(Some(node), direction).filter(|_| alone)
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
            // That of an opened subgraph has the subgraph's name before it.
            let (open, close) = match name.rsplit(':').next() {
                Some(START | END) => ("([", "])"),
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
