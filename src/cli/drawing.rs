//! `graph`: the nodes of a graph and where each one leads.

use std::io;

use serde_json::Value;

use super::screen::Screen;
use crate::{
    client::{Client, Error, segment},
    graph::draw::{Drawing, Edge},
};

pub(super) async fn load(client: &Client, id: &str) -> Result<Value, Error> {
    let path = format!("/assistants/{}/graph", segment(id));
    client.get(&path).await.map_err(|error| match error {
        Error::Refused { status: 404, .. } => Error::Refused {
            status: 404,
            detail: format!("the server has no graph or assistant `{id}`"),
        },
        error => error,
    })
}

/// Each node with where it leads: `→` always, `⇢` if a route or a command chooses it.
pub(super) fn draw(found: &Value, screen: &mut Screen) -> io::Result<()> {
    let drawing = parse(found);
    for node in &drawing.nodes {
        for edge in drawing.edges.iter().filter(|edge| edge.source == *node) {
            let arrow = if edge.conditional { "⇢" } else { "→" };
            let label = edge.label.as_deref();
            let label = label.map(|label| format!("  ({label})"));
            screen.line(&format!(
                "{} {arrow} {}{}",
                edge.source,
                edge.target,
                label.unwrap_or_default()
            ))?;
        }
    }
    Ok(())
}

pub(super) fn mermaid(found: &Value, screen: &mut Screen) -> io::Result<()> {
    screen.text(&parse(found).to_mermaid())
}

fn parse(found: &Value) -> Drawing {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |name: &str| found[name].as_array().into_iter().flatten();
    Drawing {
        nodes: list("nodes").map(|node| text(&node["id"])).collect(),
        edges: list("edges")
            .map(|edge| Edge {
                source: text(&edge["source"]),
                target: text(&edge["target"]),
                conditional: edge["conditional"] == true,
                label: edge["data"].as_str().map(str::to_owned),
            })
            .collect(),
    }
}
