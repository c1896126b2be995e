//! Tests of drawings: JSON and Mermaid text of graphs.

use super::*;
use crate::{
    channel::Kind,
    graph::{Graph, NodeOpts, Output, Untyped},
};

fn graph(nodes: &[&str]) -> Graph<Untyped> {
    let graph = Graph::untyped().channel("x", Kind::Last);
    nodes.iter().fold(graph, |graph, node| {
        graph.node(*node, |_| async { Ok(Output::default()) })
    })
}

fn edges(drawing: &Drawing) -> Vec<String> {
    let arrow = |edge: &Edge| if edge.conditional { "?" } else { ">" };
    let edges = drawing.edges.iter();
    edges
        .map(|edge| format!("{} {} {}", edge.source, arrow(edge), edge.target))
        .collect()
}

fn nested() -> Arc<Compiled> {
    let grand = graph(&["leaf"]).edge(START, "leaf").build().expect("sound");
    let child = graph(&["enter"])
        .subgraph("grand", grand)
        .edge(START, "enter")
        .edge("enter", "grand");
    graph(&["before"])
        .subgraph("child", child.build().expect("sound"))
        .edge(START, "before")
        .edge("before", "child")
        .build()
        .expect("sound")
}

#[test]
fn edges_joins_and_ends_are_lines() {
    let graph = graph(&["first", "left", "right", "last"])
        .edge(START, "first")
        .edge("first", "right")
        .edge("first", "left")
        .join(["left", "right"], "last")
        .edge("last", END)
        .build()
        .expect("sound");
    assert_eq!(
        draw(&graph, 0).to_json(),
        serde_json::json!({
            "nodes": [
                { "id": "__start__", "type": "runnable", "data": { "name": "__start__" } },
                { "id": "first", "type": "runnable", "data": { "name": "first" } },
                { "id": "left", "type": "runnable", "data": { "name": "left" } },
                { "id": "right", "type": "runnable", "data": { "name": "right" } },
                { "id": "last", "type": "runnable", "data": { "name": "last" } },
                { "id": "__end__" },
            ],
            "edges": [
                { "source": "__start__", "target": "first" },
                { "source": "first", "target": "left" },
                { "source": "first", "target": "right" },
                { "source": "left", "target": "last" },
                { "source": "right", "target": "last" },
                { "source": "last", "target": "__end__" },
            ],
        })
    );
}

#[test]
fn choices_are_conditional_and_carry_the_answer_that_differs_from_the_target() {
    let graph = graph(&["model", "tools"])
        .edge(START, "model")
        .route(
            "model",
            "pick",
            |_| Ok(vec![]),
            Some([("call", "tools"), (END, END)]),
        )
        .edge("tools", "model")
        .build()
        .expect("sound");
    let drawing = draw(&graph, 0);
    assert_eq!(
        edges(&drawing),
        [
            "__start__ > model",
            "model ? tools",
            "model ? __end__",
            "tools > model"
        ]
    );
    assert_eq!(drawing.edges[1].label.as_deref(), Some("call"));
    assert_eq!(drawing.edges[2].label, None);
}

#[test]
fn destinations_of_commands_are_drawn_and_a_node_without_successor_ends() {
    let opts = NodeOpts::new().destinations(["hop", "land"]);
    let graph = Graph::untyped()
        .channel("x", Kind::Last)
        .node_with("hop", |_| async { Ok(Output::default()) }, opts)
        .node("land", |_| async { Ok(Output::default()) })
        .edge(START, "hop")
        .build()
        .expect("sound");
    assert_eq!(
        edges(&draw(&graph, 0)),
        [
            "__start__ > hop",
            "hop ? hop",
            "hop ? land",
            "land > __end__"
        ]
    );
}

#[test]
fn an_open_choice_may_lead_anywhere() {
    let graph = graph(&["a", "b"])
        .edge(START, "a")
        .open_route("a", "pick", |_| Ok(vec![]))
        .build()
        .expect("sound");
    assert_eq!(
        edges(&draw(&graph, 0))[1..4],
        ["a ? a", "a ? b", "a ? __end__"]
    );
}

#[test]
fn subgraphs_open_as_deep_as_asked() {
    let graph = nested();
    assert_eq!(
        draw(&graph, 0).nodes,
        ["__start__", "before", "child", "__end__"]
    );
    let once = draw(&graph, 1);
    assert_eq!(
        once.nodes,
        [
            "__start__",
            "before",
            "__end__",
            "child:enter",
            "child:grand"
        ]
    );
    assert_eq!(
        edges(&draw(&graph, usize::MAX)),
        [
            "__start__ > before",
            "before > child:enter",
            "child:grand:leaf > __end__",
            "child:enter > child:grand:leaf",
        ]
    );
}

/// A graph around `child`, with all that is inside opened.
fn around(child: Graph<Untyped>) -> Drawing {
    let graph = graph(&["a", "z"])
        .subgraph("sub", child.build().expect("sound"))
        .edge(START, "a")
        .edge("a", "sub")
        .edge("sub", "z");
    draw(&graph.build().expect("sound"), usize::MAX)
}

/// What LangGraph 1.2.24 draws of the same graphs.
#[test]
fn the_start_and_the_end_inside_are_shown_where_several_edges_meet() {
    let stop = |_: &_| Ok(vec![]);
    let agent = graph(&["agent", "tools"])
        .edge(START, "agent")
        .route(
            "agent",
            "pick",
            stop,
            Some([("tools", "tools"), (END, END)]),
        )
        .edge("tools", "agent");
    assert_eq!(
        edges(&around(agent)),
        [
            "__start__ > a",
            "a > sub:__start__",
            "z > __end__",
            "sub:__end__ > z",
            "sub:__start__ > sub:agent",
            "sub:agent ? sub:tools",
            "sub:agent ? sub:__end__",
            "sub:tools > sub:agent",
        ]
    );
    let either = graph(&["p", "q"]).route(START, "pick", stop, Some([("p", "p"), ("q", "q")]));
    assert_eq!(
        edges(&around(either))[4..],
        [
            "sub:__start__ ? sub:p",
            "sub:__start__ ? sub:q",
            "sub:p > sub:__end__",
            "sub:q > sub:__end__",
        ]
    );
    let early = graph(&["p", "q"]).edge(START, "p").route(
        "p",
        "pick",
        stop,
        Some([("q", "q"), (END, END)]),
    );
    let early = around(early);
    assert_eq!(
        early.nodes,
        [
            "__start__",
            "a",
            "z",
            "__end__",
            "sub:p",
            "sub:q",
            "sub:__end__"
        ]
    );
    assert_eq!(
        edges(&early),
        [
            "__start__ > a",
            "a > sub:p",
            "z > __end__",
            "sub:__end__ > z",
            "sub:p ? sub:q",
            "sub:p ? sub:__end__",
            "sub:q > sub:__end__",
        ]
    );
}

#[test]
fn subgraphs_are_listed_by_namespace() {
    let names = |recurse| {
        let found = subgraphs(&nested(), recurse);
        found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(false), ["child"]);
    assert_eq!(names(true), ["child", "child|grand"]);
}

#[test]
fn mermaid_quotes_names_and_dots_choices() {
    let graph = graph(&["say \"hi\""])
        .edge(START, "say \"hi\"")
        .route("say \"hi\"", "pick", |_| Ok(vec![]), Some([("done", END)]))
        .build()
        .expect("sound");
    assert_eq!(
        draw(&graph, 0).to_mermaid(),
        r#"flowchart TD
    n0(["start"])
    n1["say #quot;hi#quot;"]
    n2(["end"])
    n0 --> n1
    n1 -. "done" .-> n2
"#
    );
}
