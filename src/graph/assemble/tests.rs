//! Tests of assembling: joins, writers and what nodes read.

use super::*;
use crate::{
    channel::{Kind, Reducer},
    graph::{Graph, NodeOpts, Output, Persist, Untyped},
    prelude::{State, Update},
};

fn graph(nodes: &[&str]) -> Graph<Untyped> {
    let graph = Graph::untyped().channel("x", Kind::Last);
    nodes.iter().fold(graph, |graph, node| {
        graph.node(*node, |_| async { Ok(Output::default()) })
    })
}

fn strings(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

#[test]
fn static_edges_are_sorted_each_once_and_without_end() {
    let graph = graph(&["b", "a", "c"])
        .edge(START, "b")
        .edge(START, "a")
        .edge(START, "b")
        .edge("b", "c")
        .edge("b", END)
        .edge("b", "a")
        .build()
        .expect("sound");
    assert_eq!(strings(&graph.start.edges), ["a", "b"]);
    let writers = &graph.node("b").expect("a node").writers;
    assert_eq!(strings(&writers.edges), ["a", "c"]);
    assert!(writers.ends && !graph.start.ends);
}

#[test]
fn joins_keep_the_authors_order_in_their_name_and_are_written_sorted() {
    let graph = graph(&["a", "b", "c", "d"])
        .edge(START, "a")
        .edge(START, "b")
        .join(["b", "a"], "d")
        .join(["a", "b"], "d")
        .join(["a", "b"], "c")
        .join(["a", "b"], "c")
        .build()
        .expect("sound");
    let channels: Vec<&str> = graph.joins.iter().map(|join| &*join.channel).collect();
    assert_eq!(channels, ["join:b+a:d", "join:a+b:d", "join:a+b:c"]);
    let writers = &graph.node("a").expect("a node").writers;
    assert_eq!(
        strings(&writers.joins),
        ["join:a+b:c", "join:a+b:d", "join:b+a:d"]
    );
    let started = &graph.node("d").expect("a node").joins;
    assert_eq!(strings(started), ["join:b+a:d", "join:a+b:d"]);
}

#[test]
fn a_join_to_end_only_ends() {
    let graph = graph(&["a", "b"])
        .edge(START, "a")
        .edge(START, "b")
        .join(["a", "b"], END)
        .build()
        .expect("sound");
    assert!(graph.joins.is_empty());
    assert!(graph.node("a").is_some_and(|node| node.writers.ends));
}

#[test]
fn routes_keep_the_order_of_registration() {
    let graph = graph(&["a"])
        .edge(START, "a")
        .open_route("a", "z", |_| Ok(vec![]))
        .route(START, "other", |_| Ok(vec![]), Some([(END, END)]))
        .open_route("a", "b", |_| Ok(vec![]))
        .build()
        .expect("sound");
    let writers = &graph.node("a").expect("a node").writers;
    let names: Vec<&str> = writers.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["z", "b"]);
    assert_eq!(graph.start.routes.len(), 1);
}

#[test]
fn all_channels_are_input_and_output_unless_said() {
    let both = || {
        graph(&["a"])
            .channel("y", Kind::Aggregate(Reducer::messages()))
            .edge(START, "a")
    };
    let plain = both().build().expect("sound");
    assert_eq!(strings(&plain.input), ["x", "y"]);
    assert_eq!(strings(&plain.output), ["x", "y"]);
    assert_eq!(strings(&plain.messages), ["y"]);
    let some = both()
        .input(["y"])
        .output(["x"])
        .persist(Persist::Thread)
        .build()
        .expect("sound");
    assert_eq!(
        (strings(&some.input), strings(&some.output), some.persist),
        (vec!["y"], vec!["x"], Persist::Thread)
    );
}

#[derive(State)]
struct Wide {
    first: Option<String>,
    second: Option<String>,
    third: Option<String>,
}

#[derive(State)]
struct Third {
    third: Option<String>,
}

#[derive(State)]
struct First {
    first: Option<String>,
}

#[test]
fn a_node_reads_the_channels_of_its_views_in_the_order_of_the_state() {
    async fn views(_: Third, _: First) -> Update<Wide> {
        Wide::update()
    }
    async fn nothing() {}
    let graph = Graph::<Wide>::new()
        .node("views", views)
        .node("nothing", nothing)
        .node_with("said", views, NodeOpts::new().reads(["second"]))
        .edge(START, "views")
        .edge("views", "nothing")
        .edge("nothing", "said")
        .build()
        .expect("sound");
    let reads = |node: &str| {
        let node = graph.node(node).expect("a node");
        node.reads.as_ref().map(|reads| strings(reads).join(","))
    };
    assert_eq!(reads("views").as_deref(), Some("first,third"));
    assert_eq!(reads("nothing"), None);
    assert_eq!(reads("said").as_deref(), Some("second"));
}
