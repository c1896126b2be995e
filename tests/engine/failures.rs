//! What becomes of nodes that fail: policies for a whole graph, and error handlers. Events, order
//! and stored rows are as LangGraph 1.2.22 has them, unless a test says otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backstitch::{
    RunOptions, Thread,
    channel::{Kind, Reducer},
    extract::Ctx,
    graph::{Compiled, Goto, Graph, NodeOpts, Output, Retry, START, Untyped},
    prelude::Raised,
    run::{self, Body, ClientCommand, Ended, Event, Finished, History, Input, ThreadId},
    value,
    value::Value,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::{on_both, storages::Storage};

on_both!(
    a_graphs_policy_holds_for_nodes_without_one_and_not_inside,
    a_handler_runs_in_the_same_superstep_after_the_last_attempt,
    a_handler_says_itself_what_follows,
    every_fan_out_that_fails_has_its_own_handler,
    a_nodes_handler_goes_before_that_of_the_graph,
    a_handler_that_fails_is_all_that_runs_again,
    what_a_handler_asks_is_answered_without_the_node,
    a_handler_that_finished_does_not_run_again,
    a_failure_inside_is_handled_outside_and_the_other_way_round,
    a_replay_runs_the_node_again,
    a_wrong_answer_is_no_matter_for_a_handler,
    clearing_tasks_keeps_what_a_handler_wrote,
);

type Body1 = Box<dyn Fn(Ctx) -> BoxFuture<'static, anyhow::Result<Output>> + Send + Sync>;

/// A graph that logs.
fn graph() -> Graph<Untyped> {
    Graph::untyped().channel("log", Kind::Aggregate(Reducer::append()))
}

fn log(line: impl Into<Value>) -> Output {
    Output::update([("log", Value::list(vec![line.into()]))])
}

/// Logs its name.
fn says(name: &'static str) -> Body1 {
    Box::new(move |_| Box::pin(async move { Ok(log(name)) }))
}

/// Fails every time, and counts that.
fn fails(count: &Arc<AtomicUsize>) -> Body1 {
    let count = count.clone();
    Box::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err(Raised::new("KeyError", "boom").into()) })
    })
}

/// Logs what it learns of the failure.
fn tells() -> Body1 {
    Box::new(|ctx| {
        Box::pin(async move {
            let failure = ctx.failure().cloned().unwrap();
            Ok(log(format!("{} failed: {failure}", failure.node)))
        })
    })
}

fn count() -> Arc<AtomicUsize> {
    Arc::default()
}

fn built(graph: Graph<Untyped>) -> Arc<Compiled> {
    graph.build().unwrap()
}

fn thread(storage: &Storage, graph: Graph<Untyped>) -> Thread {
    storage.local.thread_with(&built(graph), ThreadId::mint())
}

async fn run(thread: &Thread, input: Input) -> Finished {
    thread.run(input, RunOptions::default()).await.unwrap()
}

async fn start(thread: &Thread) -> Finished {
    run(thread, Input::Value(value!({"log": ["in"]}))).await
}

fn answer(answer: impl Into<Value>) -> Input {
    Input::Command(ClientCommand {
        resume: Some(answer.into()),
        ..ClientCommand::default()
    })
}

/// The log of a run that got to its end.
fn logged(done: Finished) -> Vec<String> {
    assert_eq!(done.result.unwrap(), Ended::Done);
    let log = done.values["log"].as_list().unwrap_or_default();
    log.iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

fn at_once(attempts: u32) -> Retry {
    Retry::times(attempts)
        .every(Duration::from_millis(1))
        .only_if(|_| true)
}

async fn a_graphs_policy_holds_for_nodes_without_one_and_not_inside(storage: &Storage) {
    let [plain, own, handler, inner] = [count(), count(), count(), count()];
    for (node, attempts) in [("plain", 3), ("own", 2), ("child", 3)] {
        let counts = [&plain, &own, &handler, &inner];
        counts
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
        let graph = graph()
            .retry(at_once(3))
            .node("plain", fails(&plain))
            .node_with("own", fails(&own), NodeOpts::new().retry(at_once(2)))
            .subgraph("child", child_of(&inner))
            .on_error("own", fails(&handler))
            .open_route(START, "choose", move |_| {
                Ok(vec![Goto {
                    node: node.into(),
                    arg: None,
                }])
            });
        let error = start(&thread(storage, graph)).await.result.unwrap_err();
        assert_eq!(error.class(), "KeyError");
        let ran = counts.map(|count| count.load(Ordering::Relaxed));
        let expected = match node {
            "plain" => [attempts, 0, 0, 0],
            // The policy is that of handlers too.
            "own" => [0, attempts, 3, 0],
            // Nodes inside fail at once; the node around them is tried again.
            _ => [0, 0, 0, attempts],
        };
        assert_eq!(ran, expected, "{node}");
    }
}

fn child_of(count: &Arc<AtomicUsize>) -> Arc<Compiled> {
    built(graph().node("deep", fails(count)).edge(START, "deep"))
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl run::Sink for Recorder {
    fn wants(&self, kind: run::Kind, _: &str) -> bool {
        matches!(kind, run::Kind::Updates | run::Kind::Tasks)
    }

    fn emit(&self, event: Event) {
        let line = match event.body {
            Body::TaskStart { task, .. } => format!("{} starts", task.name),
            Body::TaskEnd { task, error, .. } => match error {
                Some(_) => format!("{} fails", task.name),
                None => format!("{} ends", task.name),
            },
            Body::Update { node, cached, .. } => {
                format!("{node} updates{}", if cached { " again" } else { "" })
            }
            _ => return,
        };
        self.0.lock().push(line);
    }
}

async fn recorded(thread: &Thread, input: Input) -> (Finished, Vec<String>) {
    let recorder = Arc::new(Recorder::default());
    let options = RunOptions {
        sink: recorder.clone(),
        ..RunOptions::default()
    };
    let done = thread.run(input, options).await.unwrap();
    let lines = recorder.0.lock().clone();
    (done, lines)
}

async fn a_handler_runs_in_the_same_superstep_after_the_last_attempt(storage: &Storage) {
    let attempts = count();
    let thread = thread(
        storage,
        graph()
            .node_with("a", fails(&attempts), NodeOpts::new().retry(at_once(2)))
            .on_error("a", tells())
            .node("after", says("after"))
            .edge(START, "a")
            .edge("a", "after"),
    );
    let (done, events) = recorded(&thread, Input::Value(value!({"log": ["in"]}))).await;
    // The node's edges are not taken.
    assert_eq!(logged(done), ["in", "a failed: KeyError: boom"]);
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
    assert_eq!(
        events,
        [
            "a starts",
            "a fails",
            "__error_handler__a updates",
            "__error_handler__a ends"
        ]
    );
    let states = thread.history(History::default()).await.unwrap();
    assert_eq!(
        states.len(),
        3,
        "one superstep for the node and its handler"
    );
    let failed = &states[1].snapshot;
    assert_eq!(failed.tasks.len(), 1);
    assert!(failed.tasks[0].error.is_some() && failed.tasks[0].result.is_none());
    let seen = &states[0].snapshot.checkpoint.consumed_versions;
    assert!(seen["__error_handler__a"].is_empty());
    assert!(seen["a"].contains_key("branch:to:a"));
}

async fn a_handler_says_itself_what_follows(storage: &Storage) {
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&count()))
            .node("b", says("b"))
            .node("z", says("after"))
            .on_error("a", |_| async { Ok(log("sorry").goto(["z"])) })
            .edge(START, "a")
            .edge(START, "b"),
    );
    // Results are merged in the order of the tasks' paths: that of a handler follows its node's.
    assert_eq!(logged(start(&thread).await), ["in", "sorry", "b", "after"]);
}

async fn every_fan_out_that_fails_has_its_own_handler(storage: &Storage) {
    let send = |i: i64| Goto {
        node: "a".into(),
        arg: Some(value!({ "i": i })),
    };
    let thread = thread(
        storage,
        graph()
            .node("a", |ctx: Ctx| async move {
                match ctx.input()["i"].as_i64() {
                    Some(2) => Ok(log("two")),
                    _ => anyhow::bail!("odd"),
                }
            })
            .node("m", says("m"))
            .on_error("a", |ctx: Ctx| async move {
                assert!(ctx.has_arg());
                Ok(log(format!("handled {}", ctx.input()["i"].to_json())))
            })
            .edge(START, "m")
            .open_route(START, "fan", move |_| Ok(vec![send(1), send(2), send(3)])),
    );
    assert_eq!(
        logged(start(&thread).await),
        ["in", "m", "handled 1", "two", "handled 3"]
    );
}

async fn a_nodes_handler_goes_before_that_of_the_graph(storage: &Storage) {
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&count()))
            .node("b", fails(&count()))
            .on_any_error(tells())
            .on_error("b", says("own"))
            .edge(START, "a")
            .edge(START, "b"),
    );
    let (done, events) = recorded(&thread, Input::Value(value!({"log": ["in"]}))).await;
    assert_eq!(logged(done), ["in", "a failed: KeyError: boom", "own"]);
    assert!(events.contains(&"__default_error_handler__ ends".to_owned()));
    assert!(events.contains(&"__error_handler__b ends".to_owned()));
}

async fn a_handler_that_fails_is_all_that_runs_again(storage: &Storage) {
    let (node, handler) = (count(), count());
    let tries = handler.clone();
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&node))
            .node("b", says("b"))
            .on_error("a", move |ctx: Ctx| {
                let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    anyhow::ensure!(!first, "no help");
                    let failure = ctx.failure().cloned().unwrap();
                    Ok(log(failure.to_string()))
                }
            })
            .edge(START, "a")
            .edge(START, "b"),
    );
    let error = start(&thread).await.result.unwrap_err();
    assert_eq!(error.message(), "no help");
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    let next: Vec<&str> = state.snapshot.next.iter().map(|name| &**name).collect();
    assert_eq!(next, ["a"]);
    let (done, events) = recorded(&thread, Input::Null).await;
    assert_eq!(logged(done), ["in", "KeyError: boom", "b"]);
    assert_eq!(
        events,
        [
            "a starts",
            "b starts",
            "__error_handler__a starts",
            "b updates again",
            "__error_handler__a updates",
            "__error_handler__a ends"
        ]
    );
    assert_eq!(
        [node, handler].map(|count| count.load(Ordering::Relaxed)),
        [1, 2]
    );
}

async fn what_a_handler_asks_is_answered_without_the_node(storage: &Storage) {
    let node = count();
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&node))
            .on_error("a", |ctx: Ctx| async move {
                let what: String = ctx.interrupt("what now?").await;
                Ok(log(what))
            })
            .edge(START, "a"),
    );
    let Ended::Interrupted(asked) = start(&thread).await.result.unwrap() else {
        panic!("it does not ask");
    };
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    // LangGraph's state does not show it: there nobody could tell what is asked.
    assert_eq!(state.snapshot.interrupts(), asked);
    assert_eq!(state.snapshot.tasks.len(), 1);
    assert_eq!(logged(run(&thread, answer("go on")).await), ["in", "go on"]);
    assert_eq!(node.load(Ordering::Relaxed), 1);
}

async fn a_handler_that_finished_does_not_run_again(storage: &Storage) {
    let (node, handler) = (count(), count());
    let ran = handler.clone();
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&node))
            .node("b", |ctx: Ctx| async move {
                let answer: String = ctx.interrupt("well?").await;
                Ok(log(answer))
            })
            .on_error("a", move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
                async { Ok(log("handled")) }
            })
            .edge(START, "a")
            .edge(START, "b"),
    );
    let asked = start(&thread).await;
    assert!(
        matches!(asked.result, Ok(Ended::Interrupted(_))),
        "{asked:?}"
    );
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(state.snapshot.values["log"], value!(["in", "handled"]));
    let next: Vec<&str> = state.snapshot.next.iter().map(|name| &**name).collect();
    assert_eq!(next, ["b"]);
    // LangGraph runs it a second time.
    assert_eq!(
        logged(run(&thread, answer("fine")).await),
        ["in", "handled", "fine"]
    );
    assert_eq!(
        [node, handler].map(|count| count.load(Ordering::Relaxed)),
        [1, 1]
    );
}

async fn a_failure_inside_is_handled_outside_and_the_other_way_round(storage: &Storage) {
    let outside = thread(
        storage,
        graph()
            .subgraph("child", child_of(&count()))
            .on_error("child", tells())
            .edge(START, "child"),
    );
    let done = start(&outside).await;
    assert_eq!(logged(done), ["in", "child failed: KeyError: boom"]);

    // A handler inside may command the graph around it.
    let child = graph()
        .node("deep", fails(&count()))
        .on_error("deep", |_| async {
            let mut output = log("up").goto(["z"]);
            output.to_parent = true;
            Ok(output)
        })
        .edge(START, "deep");
    let inside = thread(
        storage,
        graph()
            .subgraph("child", built(child))
            .node("z", says("z"))
            .edge(START, "child"),
    );
    assert_eq!(logged(start(&inside).await), ["in", "up", "z"]);
}

async fn a_replay_runs_the_node_again(storage: &Storage) {
    let node = count();
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&node))
            .on_error("a", tells())
            .edge(START, "a"),
    );
    start(&thread).await.result.unwrap();
    let states = thread.history(History::default()).await.unwrap();
    let options = RunOptions {
        at: Some(states[1].snapshot.checkpoint.id),
        ..RunOptions::default()
    };
    let done = thread.run(Input::Null, options).await.unwrap();
    assert_eq!(logged(done), ["in", "a failed: KeyError: boom"]);
    assert_eq!(node.load(Ordering::Relaxed), 2);
}

async fn a_wrong_answer_is_no_matter_for_a_handler(storage: &Storage) {
    let thread = thread(
        storage,
        graph()
            .node("a", |ctx: Ctx| async move {
                let number: i64 = ctx.interrupt("a number?").await;
                Ok(log(number.to_string()))
            })
            .on_any_error(tells())
            .edge(START, "a"),
    );
    start(&thread).await.result.unwrap();
    let error = run(&thread, answer("none")).await.result.unwrap_err();
    assert_eq!(error.kind(), Some(run::Mistake::ResumeShape));
    assert_eq!(logged(run(&thread, answer(7)).await), ["in", "7"]);
}

async fn clearing_tasks_keeps_what_a_handler_wrote(storage: &Storage) {
    let thread = thread(
        storage,
        graph()
            .node("a", fails(&count()))
            .node("b", |ctx: Ctx| async move {
                let answer: String = ctx.interrupt("well?").await;
                Ok(log(answer))
            })
            .on_error("a", says("handled"))
            .edge(START, "a")
            .edge(START, "b"),
    );
    start(&thread).await.result.unwrap();
    let clear = run::StateUpdate {
        values: None,
        as_node: Some(backstitch::graph::END.into()),
        ..run::StateUpdate::default()
    };
    thread.update_state(&"".into(), None, clear).await.unwrap();
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(state.snapshot.values["log"], value!(["in", "handled"]));
    assert!(state.snapshot.next.is_empty());
}
