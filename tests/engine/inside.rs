//! Runs from a checkpoint of a graph inside that keeps its state per thread. The expectations are
//! what LangGraph 1.2.22 does with the same `checkpoint_map`.

use std::{collections::HashMap, sync::Arc};

use backstitch::{
    RunOptions, Thread,
    channel::{Kind, Reducer},
    extract::Ctx,
    graph::{Compiled, Graph, Output, Persist, START, Untyped},
    run::{CheckpointId, ClientCommand, Ended, Finished, History, Input, ThreadId},
    value,
    value::Value,
};
use serde_json::json;

use crate::{on_both, storages::Storage};
use test_support::{client::Client, on_both_storages, place::Place, server::Setup};

on_both!(
    a_replay_forks_the_graph_inside_where_it_was_addressed,
    a_question_asked_inside_is_asked_again_and_answered_on_the_fork,
    an_old_state_inside_may_be_joined_with_the_newest_root,
    an_answer_at_an_old_state_inside_is_given_there,
    new_input_continues_the_state_inside_that_was_addressed,
    an_address_nobody_stored_counts_for_nothing,
);

on_both_storages!(the_server_runs_from_states_inside);

fn logs() -> Graph<Untyped> {
    Graph::untyped().channel("xs", Kind::Aggregate(Reducer::append()))
}

fn says(line: &'static str) -> Output {
    Output::update([("xs", value!([line]))])
}

/// `before`, then a graph inside of three nodes whose second may ask, then `after`.
fn graph(asks: bool) -> Arc<Compiled> {
    let own = |name: &'static str, line: Option<String>| {
        let lines = line.map(|line| ("xs", Value::list(vec![line.into()])));
        Output::update([("own", value!([name]))].into_iter().chain(lines))
    };
    let child = logs()
        .channel("own", Kind::Aggregate(Reducer::append()))
        .node("c1", move |_| async move {
            Ok(own("c1", Some("c1".to_owned())))
        })
        .node("c2", move |ctx: Ctx| async move {
            let answer: String = if asks {
                ctx.interrupt("q").await
            } else {
                "c2".to_owned()
            };
            Ok(own("c2", Some(answer)))
        })
        .node("c3", move |_| async move { Ok(own("c3", None)) })
        .edge(START, "c1")
        .edge("c1", "c2")
        .edge("c2", "c3")
        .persist(Persist::Thread)
        .build()
        .unwrap();
    logs()
        .node("before", |_| async { Ok(says("before")) })
        .subgraph("child", child)
        .node("after", |_| async { Ok(says("after")) })
        .edge(START, "before")
        .edge("before", "child")
        .edge("child", "after")
        .build()
        .unwrap()
}

/// The rows of a namespace, oldest first.
struct Rows(Vec<Row>);

struct Row {
    id: CheckpointId,
    parent: Option<CheckpointId>,
    source: String,
    step: i64,
    own: String,
}

impl Rows {
    async fn of(thread: &Thread, ns: &str) -> Self {
        let page = History {
            ns: Some(ns.into()),
            ..History::default()
        };
        let states = thread.history(page).await.unwrap();
        let mut rows: Vec<Row> = states
            .iter()
            .map(|state| {
                let checkpoint = &state.snapshot.checkpoint;
                Row {
                    id: checkpoint.id,
                    parent: checkpoint.parent,
                    source: format!("{:?}", checkpoint.source).to_lowercase(),
                    step: checkpoint.step,
                    own: strings(state.snapshot.values.get("own")),
                }
            })
            .collect();
        rows.sort_by_key(|row| row.id);
        Self(rows)
    }

    /// Rows from the `first` on: parent's position, source, step, own log.
    fn from(&self, first: usize) -> Vec<String> {
        let line = |row: &Row| {
            let parent = self.0.iter().position(|other| Some(other.id) == row.parent);
            let parent = parent.map_or("-".to_owned(), |parent| parent.to_string());
            format!("{parent} {} {} {}", row.source, row.step, row.own)
        };
        self.0.iter().skip(first).map(line).collect()
    }
}

fn strings(list: Option<&Value>) -> String {
    let list = list.and_then(Value::as_list).unwrap_or_default();
    let strings: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    strings.join(",")
}

async fn run(thread: &Thread, input: Input) -> Finished {
    thread.run(input, RunOptions::default()).await.unwrap()
}

async fn run_at(
    thread: &Thread,
    input: Input,
    root: CheckpointId,
    inside: CheckpointId,
) -> Finished {
    let options = RunOptions {
        at: Some(root),
        inside: HashMap::from([("child".into(), inside)]),
        ..RunOptions::default()
    };
    thread.run(input, options).await.unwrap()
}

fn new() -> Input {
    Input::Value(value!({"xs": ["in"]}))
}

fn answer(answer: &str) -> Input {
    Input::Command(ClientCommand {
        resume: Some(answer.into()),
        ..ClientCommand::default()
    })
}

fn asked(finished: &Finished) -> String {
    match &finished.result {
        Ok(Ended::Interrupted(asked)) => asked[0].id.to_string(),
        other => panic!("it does not ask: {other:?}"),
    }
}

fn xs(finished: &Finished) -> String {
    strings(finished.values.get("xs"))
}

/// A thread after a run, with the ids of its root's third checkpoint and of those inside.
async fn started(storage: &Storage, asks: bool) -> (Thread, CheckpointId, Vec<CheckpointId>) {
    let thread = storage.local.thread_with(&graph(asks), ThreadId::mint());
    run(&thread, new()).await.result.unwrap();
    let root = Rows::of(&thread, "").await.0[2].id;
    let inside = Rows::of(&thread, "child").await.0;
    (thread, root, inside.iter().map(|row| row.id).collect())
}

async fn a_replay_forks_the_graph_inside_where_it_was_addressed(storage: &Storage) {
    let (thread, root, inside) = started(storage, false).await;
    let done = run_at(&thread, Input::Null, root, inside[2]).await;
    assert_eq!(xs(&done), "in,before,in,before,c1,c2,after");
    assert_eq!(
        Rows::of(&thread, "child").await.from(5),
        ["2 fork 2 c1", "5 loop 3 c1,c2", "6 loop 4 c1,c2,c3"]
    );
    assert_eq!(
        Rows::of(&thread, "").await.from(5),
        ["2 fork 2 ", "5 loop 3 ", "6 loop 4 "]
    );
}

async fn a_question_asked_inside_is_asked_again_and_answered_on_the_fork(storage: &Storage) {
    let thread = storage.local.thread_with(&graph(true), ThreadId::mint());
    let first = asked(&run(&thread, new()).await);
    let root = Rows::of(&thread, "").await.0[2].id;
    let inside = Rows::of(&thread, "child").await.0[2].id;
    run(&thread, answer("A")).await.result.unwrap();
    let again = asked(&run_at(&thread, Input::Null, root, inside).await);
    assert_ne!(again, first);
    assert_eq!(Rows::of(&thread, "child").await.from(5), ["2 fork 2 c1"]);
    let done = run(&thread, answer("B")).await;
    assert_eq!(xs(&done), "in,before,in,before,c1,B,after");
    assert_eq!(
        Rows::of(&thread, "child").await.from(5),
        ["2 fork 2 c1", "5 loop 3 c1,c2", "6 loop 4 c1,c2,c3"]
    );
}

async fn an_old_state_inside_may_be_joined_with_the_newest_root(storage: &Storage) {
    let (thread, root, inside) = started(storage, true).await;
    // The root stands at this checkpoint; the graph inside goes back by one.
    asked(&run_at(&thread, Input::Null, root, inside[1]).await);
    assert_eq!(
        Rows::of(&thread, "child").await.from(3),
        ["1 fork 1 ", "3 loop 2 c1"]
    );
    let done = run(&thread, answer("B")).await;
    assert_eq!(xs(&done), "in,before,in,before,c1,B,after");
}

async fn an_answer_at_an_old_state_inside_is_given_there(storage: &Storage) {
    for moved_on in [false, true] {
        let (thread, root, inside) = started(storage, true).await;
        if moved_on {
            run(&thread, answer("A")).await.result.unwrap();
        }
        let done = run_at(&thread, answer("Z"), root, inside[2]).await;
        assert_eq!(xs(&done), "in,before,in,before,c1,Z,after", "{moved_on}");
        let before = if moved_on { 5 } else { 3 };
        let [first, second] = [before, before + 1];
        assert_eq!(
            Rows::of(&thread, "child").await.from(before),
            [
                "2 fork 2 c1".to_owned(),
                format!("{first} loop 3 c1,c2"),
                format!("{second} loop 4 c1,c2,c3")
            ]
        );
    }
}

async fn new_input_continues_the_state_inside_that_was_addressed(storage: &Storage) {
    let (thread, root, inside) = started(storage, true).await;
    run(&thread, answer("A")).await.result.unwrap();
    let input = Input::Value(value!({"xs": ["new"]}));
    let finished = run_at(&thread, input, root, inside[2]).await;
    asked(&finished);
    assert_eq!(xs(&finished), "in,before,new,before");
    assert_eq!(
        Rows::of(&thread, "child").await.from(5),
        ["2 input 2 c1", "5 loop 3 c1", "6 loop 4 c1,c1"]
    );
}

async fn an_address_nobody_stored_counts_for_nothing(storage: &Storage) {
    let (thread, root, _) = started(storage, false).await;
    let nowhere = CheckpointId::mint(0, []);
    let done = run_at(&thread, Input::Null, root, nowhere).await;
    assert_eq!(xs(&done), "in,before,in,before,c1,c2,after");
    assert_eq!(Rows::of(&thread, "child").await.from(5)[0], "- input -1 ");
}

fn the_server_runs_from_states_inside(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let body = json!({"assistant_id": "keeper", "input": {"log": ["in"]}});
    let asked = client.run(&thread, &body);
    let path = format!("/threads/{thread}/state?subgraphs=true");
    let state = client.get(&path).json();
    let inside = &state["tasks"][0]["state"]["checkpoint"];
    assert_eq!(inside["checkpoint_map"]["child"], inside["checkpoint_id"]);
    let answered = |answer: &str| {
        let body = json!({"assistant_id": "keeper", "command": {"resume": answer}});
        client.run(&thread, &body)["kept"].clone()
    };
    assert_eq!(answered("A"), json!(["first", "A"]));
    let back = json!({"assistant_id": "keeper", "input": null, "checkpoint": inside});
    let again = client.run(&thread, &back);
    assert_eq!(
        again["__interrupt__"][0]["value"],
        asked["__interrupt__"][0]["value"]
    );
    // The first node inside did not run again, and what it kept is there.
    assert_eq!(answered("B"), json!(["first", "B"]));
}
