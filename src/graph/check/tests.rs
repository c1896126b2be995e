//! Tests of the checks: every problem of a graph and its text.

use std::sync::Arc;

use super::*;
use crate::prelude::*;
use crate::{
    channel::Kind,
    extract::Ctx,
    graph::{Graph, Output, Untyped},
    state::goto,
};

#[derive(State)]
struct Post {
    topic: String,
    body: Option<String>,
    #[state(append)]
    notes: Vec<String>,
}

#[derive(State)]
struct Topic {
    topic: String,
}

async fn idle() {}

fn problems<S>(graph: Graph<S>) -> Vec<Problem> {
    graph
        .build()
        .map_or_else(|invalid| invalid.problems, |_| Vec::new())
}

fn name(name: &str) -> Arc<str> {
    name.into()
}

fn untyped(nodes: &[&str]) -> Graph<Untyped> {
    let graph = Graph::untyped().channel("x", Kind::Last);
    nodes.iter().fold(graph, |graph, node| {
        graph.node(*node, |_: Ctx| async { Ok(Output::default()) })
    })
}

#[test]
fn a_sound_graph_has_no_problems() {
    let graph = Graph::<Post>::new()
        .node("write", idle)
        .edge(START, "write")
        .edge("write", END);
    assert_eq!(problems(graph), []);
}

#[test]
fn every_problem_is_reported_at_once() {
    let invalid = Graph::<Post>::new()
        .node("write", idle)
        .node("write", idle)
        .node("a|b", idle)
        .edge("write", "nowhere")
        .recursion_limit(0)
        .build()
        .err()
        .expect("a graph with mistakes");
    insta::assert_snapshot!(invalid, @r"
    the graph does not hold together:
      there are two nodes `write`: give one of them another name
      the node name `a|b` is reserved: it must not be empty, begin with `__` or contain `|` or `:`
      the recursion limit is 0, which lets no node run
      the edge `write` to `nowhere` names `nowhere`, which is not a node (nodes: `write`, `a|b`)
      nothing follows START: add `.edge(START, ..)`
    ");
}

#[test]
fn edges_joins_and_closed_routes_name_only_nodes() {
    let at = |problem: &Problem| match problem {
        Problem::UnknownNode { at, name, .. } => format!("{at}: {name}"),
        other => other.to_string(),
    };
    let graph = untyped(&["a"])
        .edge(START, "a")
        .edge("b", "a")
        .join(["a", "c"], "d")
        .route("a", "pick", |_| Ok(vec![]), Some([("go", "e")]))
        .interrupt_before(["f"]);
    let found: Vec<String> = problems(graph).iter().map(at).collect();
    assert_eq!(
        found,
        [
            "interrupt_before: f",
            "the edge `b` to `a`: b",
            "the join `a`, `c` to `d`: c",
            "the join `a`, `c` to `d`: d",
            "the route `pick` from `a`: e",
        ]
    );
}

#[test]
fn an_open_route_may_choose_names_that_are_no_nodes() {
    let graph = untyped(&["a"])
        .edge(START, "a")
        .open_route("a", "pick", |_| {
            Ok(vec![crate::graph::Goto {
                node: "nowhere".into(),
                arg: None,
            }])
        });
    assert_eq!(problems(graph), []);
}

#[test]
fn a_node_may_lead_to_itself() {
    let graph = untyped(&["a"]).edge(START, "a").edge("a", "a");
    assert_eq!(problems(graph), []);
}

#[test]
fn start_has_no_predecessor_and_end_no_successor() {
    let graph = untyped(&["a"])
        .edge(START, "a")
        .edge("a", START)
        .edge(END, "a");
    assert_eq!(
        problems(graph),
        [
            Problem::IntoStart("the edge `a` to START".into()),
            Problem::FromEnd("the edge END to `a`".into()),
        ]
    );
}

#[test]
fn something_must_follow_start() {
    assert_eq!(problems(untyped(&["a"])), [Problem::NoEntry]);
}

#[test]
fn names_with_a_meaning_are_reserved() {
    for bad in ["", "__x", "a|b", "a:b", START, END] {
        let graph = untyped(&["a", bad]).edge(START, "a");
        let found = problems(graph);
        assert!(
            matches!(&found[..], [Problem::Reserved { what: "node", name }] if **name == *bad),
            "{bad:?}: {found:?}"
        );
    }
    let graph = untyped(&["a"])
        .edge(START, "a")
        .channel("__root__", Kind::Last)
        .channel("branch:to:a", Kind::Last)
        .channel("x", Kind::Last);
    assert_eq!(problems(graph).len(), 3);
}

#[test]
fn a_root_state_has_the_reserved_channel() {
    let graph = Graph::untyped()
        .root(Kind::Last)
        .node("a", |_| async { Ok(Output::default()) })
        .edge(START, "a");
    assert_eq!(problems(graph), []);
}

#[test]
fn a_node_that_nothing_leads_to_is_reported() {
    let graph = Graph::<Post>::new()
        .node("a", idle)
        .node("b", idle)
        .edge(START, "a");
    assert_eq!(problems(graph), [Problem::Unreachable(name("b"))]);
}

#[test]
fn a_node_that_returns_commands_may_lead_anywhere_unless_it_says_where() {
    async fn jump() -> Target {
        goto("b")
    }
    let graph = |opts| {
        Graph::<Post>::new()
            .node_with("a", jump, opts)
            .node("b", idle)
            .node("c", idle)
            .edge(START, "a")
    };
    assert_eq!(problems(graph(NodeOpts::new())), []);
    assert_eq!(
        problems(graph(NodeOpts::new().destinations(["b"]))),
        [Problem::Unreachable(name("c"))]
    );
}

#[test]
fn a_view_reads_only_channels_of_the_state() {
    #[derive(State)]
    struct Other {
        title: Option<String>,
    }
    async fn read(_: Topic, _: Other) {}
    let graph = Graph::<Post>::new().node("a", read).edge(START, "a");
    let found = problems(graph);
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "node `a` names channel `title`, which the state does not have (channels: `topic`, `body`, `notes`)"
        ]
    );
}

#[test]
fn a_view_agrees_with_the_state_about_types() {
    #[derive(State)]
    struct Wrong {
        topic: u32,
        #[state(append)]
        notes: Vec<bool>,
    }
    #[derive(State)]
    struct Fine {
        topic: Option<String>,
        body: Value,
        notes: Vec<String>,
    }
    async fn wrong(_: Wrong) {}
    async fn fine(_: Fine) {}
    let graph = Graph::<Post>::new()
        .node("a", wrong)
        .node("b", fine)
        .edge(START, "a")
        .edge(START, "b");
    let found: Vec<String> = problems(graph).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "node `a` takes channel `topic` as integer, but the state holds string",
            "node `a` takes channel `notes` as array of boolean, but the state holds array of string",
        ]
    );
}

#[test]
fn dependencies_are_provided() {
    struct Model;
    async fn ask(_: Dep<Model>) {}
    let graph = || Graph::<Post>::new().node("a", ask).edge(START, "a");
    let found = problems(graph());
    assert!(
        matches!(&found[..], [Problem::MissingDep { at, dep }] if at == "node `a`" && dep.ends_with("Model")),
        "{found:?}"
    );
    assert_eq!(problems(graph().provide(Arc::new(Model))), []);
}

#[test]
fn a_node_with_an_argument_is_started_by_routes_and_commands_only() {
    async fn grade(_: Arg<String>) {}
    let graph = || Graph::<Post>::new().node("a", idle).node("grade", grade);
    let routed =
        graph()
            .edge(START, "a")
            .route("a", |_: &Post| goto("grade").with("essay"), ["grade"]);
    assert_eq!(problems(routed), []);
    let plain = graph().edge(START, "a").edge("a", "grade");
    assert_eq!(
        problems(plain),
        [Problem::NoArgument {
            at: "the edge `a` to `grade`".into(),
            node: name("grade"),
        }]
    );
}

#[test]
fn a_subgraph_shares_channels_of_the_same_name_and_type() {
    #[derive(State)]
    struct Apart {
        #[state(default)]
        other: u32,
    }
    #[derive(State)]
    struct Clash {
        #[state(default)]
        topic: u32,
    }
    fn child<S: State>() -> Arc<Compiled> {
        let graph = Graph::<S>::new().node("a", idle).edge(START, "a");
        graph.build().expect("a sound graph")
    }
    let parent = |child| {
        Graph::<Post>::new()
            .subgraph("child", child)
            .edge(START, "child")
    };
    assert_eq!(problems(parent(child::<Topic>())), []);
    assert_eq!(
        problems(parent(child::<Apart>())),
        [Problem::NothingShared(name("child"))]
    );
    let found = problems(parent(child::<Clash>()));
    assert!(
        matches!(&found[..], [Problem::WrongType { channel, .. }] if &**channel == "topic"),
        "{found:?}"
    );
}

#[test]
fn input_output_and_reads_name_channels() {
    let graph = untyped(&["a"])
        .edge(START, "a")
        .input(["x", "y"])
        .output(["z"]);
    assert_eq!(problems(graph).len(), 2);
    let graph = Graph::untyped()
        .channel("x", Kind::Last)
        .node_with(
            "a",
            |_| async { Ok(Output::default()) },
            NodeOpts::new().reads(["x", "y"]),
        )
        .edge(START, "a");
    assert_eq!(problems(graph).len(), 1);
}

#[test]
fn options_that_let_nothing_run_are_refused() {
    let opts = NodeOpts::new()
        .retry(Retry::times(0))
        .timeout(std::time::Duration::ZERO)
        .destinations(["nowhere"]);
    let graph = Graph::<Post>::new()
        .node_with("a", idle, opts)
        .edge(START, "a");
    assert_eq!(problems(graph).len(), 3);
}

#[test]
fn a_policy_of_the_graph_that_lets_nothing_run_is_refused() {
    let graph = untyped(&["a"]).edge(START, "a").retry(Retry::times(0));
    assert!(matches!(&problems(graph)[..], [Problem::BadOption(_)]));
}

async fn curious(_: Failure) {}

#[test]
fn only_error_handlers_take_a_failure_and_each_node_has_one() {
    let graph = || Graph::<Post>::new().edge(START, "a");
    let sound = graph().node("a", idle).on_error("a", curious);
    assert_eq!(problems(sound.on_any_error(curious)), []);
    assert_eq!(
        problems(graph().node("a", curious)),
        [Problem::NoFailure(name("a"))]
    );
    let twice = graph().node("a", idle).on_any_error(curious);
    let twice = twice.on_error("a", curious).on_error("a", idle);
    assert_eq!(
        problems(twice.on_any_error(idle)),
        [
            Problem::DuplicateHandler("node `a`".to_owned()),
            Problem::DuplicateHandler("the graph".to_owned())
        ]
    );
    let unknown = graph().node("a", idle).on_error("b", idle);
    assert!(matches!(
        &problems(unknown)[..],
        [Problem::UnknownNode { .. }]
    ));
}

#[test]
fn a_handler_that_commands_may_lead_anywhere() {
    let lonely = || Graph::<Post>::new().node("a", idle).node("b", idle);
    assert_eq!(
        problems(lonely().edge(START, "a")),
        [Problem::Unreachable(name("b"))]
    );
    let handled = lonely().edge(START, "a");
    let handled = handled.on_error("a", async || crate::state::goto("b"));
    assert_eq!(problems(handled), []);
}
