//! The graphs of a run as a tree, for `agent.getTree`.

use std::{collections::HashMap, sync::Arc};

use super::lifecycle::{Graphs, Status, graph_name};
use crate::value::{Map, Value};

/// The tree, from the root.
pub fn tree(graphs: &Graphs) -> Value {
    // By the graph around them.
    let mut inside: Inside<'_> = HashMap::new();
    for (ns, status) in &graphs.inner {
        if let [around @ .., _] = &**ns {
            inside.entry(around).or_default().push((&**ns, *status));
        }
    }
    node(&[], &graphs.name, graphs.status, &inside)
}

/// The graphs inside each graph, in the order in which they began.
type Inside<'a> = HashMap<&'a [Arc<str>], Vec<(&'a [Arc<str>], Status)>>;

fn node(ns: &[Arc<str>], name: &str, status: Status, inside: &Inside<'_>) -> Value {
    let segments = ns.iter().map(|segment| Value::Str(segment.clone()));
    let mut map = Map::from([
        ("namespace", Value::list(segments.collect())),
        ("status", status.as_str().into()),
        ("graph_name", name.into()),
    ]);
    let children = inside.get(ns).into_iter().flatten();
    let children = children.map(|(child, status)| node(child, graph_name(child), *status, inside));
    let children: Vec<_> = children.collect();
    if !children.is_empty() {
        map.insert("children", Value::list(children));
    }
    Value::map(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn graphs_inside_each_other_are_children() {
        let mut graphs = Graphs::new("subgraph".into());
        let ns: Arc<[Arc<str>]> = ["child:1".into(), "grand:2".into()].into();
        graphs.announce(&ns);
        graphs.end(&ns, Status::Completed);
        assert_eq!(
            tree(&graphs),
            value!({"namespace": [], "status": "running", "graph_name": "subgraph", "children": [
                {"namespace": ["child:1"], "status": "started", "graph_name": "child", "children": [
                    {"namespace": ["child:1", "grand:2"], "status": "completed", "graph_name": "grand"}
                ]}
            ]})
        );
    }
}
