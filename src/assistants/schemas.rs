//! The JSON schemas of an assistant's graph and of the graphs inside it, as clients see them.

use crate::{
    graph::{Compiled, draw},
    value::{Map, Value},
};

/// The JSON schemas of a graph as clients see them.
pub(super) fn schemas(graph: &Compiled) -> Map {
    let schemas = &graph.schemas;
    let of = |schema: &serde_json::Value| Value::from_serde_json(schema.clone());
    let mut map = Map::with_capacity(6);
    map.insert("input_schema", of(&schemas.input));
    map.insert("output_schema", of(&schemas.output));
    map.insert("state_schema", of(&schemas.state));
    let context = schemas.context.as_ref().map(of);
    let config = context.clone();
    map.insert(
        "config_schema",
        config.unwrap_or_else(|| Value::map(Map::new())),
    );
    map.insert("context_schema", context);
    map
}

/// The schemas of the graphs inside one by namespace: all of them, or those of one namespace.
/// Those of a deeper level are only found if `recurse` says so.
pub(super) fn subgraphs(graph: &Compiled, namespace: Option<&str>, recurse: bool) -> Value {
    let mut map = Map::new();
    for (name, inner) in draw::subgraphs(graph, recurse) {
        // A node that calls several graphs is known by the first one.
        if namespace.is_none_or(|wanted| wanted == name) && !map.contains_key(&name) {
            map.insert(name, Value::map(schemas(&inner)));
        }
    }
    Value::map(map)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        channel::Kind,
        graph::{Graph, NodeOpts, Output, START, Untyped},
    };

    fn plain(title: &str) -> Graph<Untyped> {
        Graph::untyped()
            .title(title)
            .channel("x", Kind::Last)
            .node("only", |_| async { Ok(Output::default()) })
            .edge(START, "only")
    }

    fn titles(found: &Value) -> Vec<(String, String)> {
        let found = found.as_map().expect("a map of namespaces");
        let pair = |(ns, schemas): (&Arc<str>, &Value)| {
            let title = schemas
                .get("input_schema")
                .and_then(|input| input.get("title"));
            let title = title.and_then(Value::as_str).unwrap_or_default();
            (ns.to_string(), title.to_owned())
        };
        found.iter().map(pair).collect()
    }

    #[test]
    fn a_node_that_calls_several_graphs_is_known_by_the_first() {
        let [first, second] = ["first", "second"].map(|title| plain(title).build().expect("sound"));
        let opts = NodeOpts::new().calls("a", first).calls("b", second);
        let outer = plain("outer")
            .node_with("caller", |_| async { Ok(Output::default()) }, opts)
            .edge("only", "caller")
            .build()
            .expect("sound");
        let found = subgraphs(&outer, None, false);
        assert_eq!(titles(&found), [("caller".to_owned(), "first".to_owned())]);
    }

    #[test]
    fn deeper_levels_are_found_only_when_asked_for() {
        let leaf = plain("leaf").build().expect("sound");
        let inner = plain("inner").subgraph("grand", leaf).edge("only", "grand");
        let inner = inner.build().expect("sound");
        let outer = plain("outer")
            .subgraph("child", inner)
            .edge("only", "child");
        let outer = outer.build().expect("sound");
        let names = |namespace, recurse| {
            let found = titles(&subgraphs(&outer, namespace, recurse));
            found.into_iter().map(|(ns, _)| ns).collect::<Vec<_>>()
        };
        assert_eq!(names(None, false), ["child"]);
        assert_eq!(names(None, true), ["child", "child|grand"]);
        assert_eq!(names(Some("child"), true), ["child"]);
        assert_eq!(names(Some("child|grand"), true), ["child|grand"]);
        assert!(names(Some("child|grand"), false).is_empty());
        assert!(names(Some("grand"), true).is_empty());
    }
}
