//! Results of nodes that are used again for equal inputs.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use backstitch::{
    RunOptions,
    channel::{Kind, Reducer},
    graph::{Cache, Compiled, Goto, Graph, NodeOpts, Output, START},
    run::{self, Body, Ended, Event, History, Input, ThreadId},
    value,
    value::Value,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{on_both, storages::Storage};
use test_support::{client::Client, on_both_storages, place::Place, server::Setup};

on_both!(
    a_known_result_is_told_as_cached_and_stored_like_any_other,
    results_of_failures_and_questions_are_not_kept,
    tasks_of_one_superstep_with_equal_inputs_use_one_result_later,
    a_result_belongs_to_its_node,
);

on_both_storages!(the_server_uses_results_again_in_every_thread);

fn counted(count: &Arc<AtomicUsize>, name: &'static str) -> NodeFn {
    let count = count.clone();
    Box::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let output = Output::update([("log", value!([name]))]);
        Box::pin(async move { Ok(output) })
    })
}

type NodeFn = Box<
    dyn Fn(backstitch::extract::Ctx) -> futures::future::BoxFuture<'static, anyhow::Result<Output>>
        + Send
        + Sync,
>;

fn by_x() -> NodeOpts {
    NodeOpts::new().cache(Cache::forever().key(|input| input["x"].clone()))
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl run::Sink for Recorder {
    fn wants(&self, kind: run::Kind, _: &str) -> bool {
        matches!(kind, run::Kind::Updates | run::Kind::Tasks)
    }

    fn emit(&self, event: Event) {
        self.0.lock().push(match event.body {
            Body::TaskStart { task, .. } => format!("start {}", task.name),
            Body::TaskEnd { task, .. } => format!("end {}", task.name),
            Body::Update { node, cached, .. } => format!("update {node} {cached}"),
            _ => return,
        });
    }
}

/// Two nodes, the first with a route, both by `x` alone.
fn graph(count: &Arc<AtomicUsize>) -> Arc<Compiled> {
    Graph::untyped()
        .channel("x", Kind::Last)
        .channel("log", Kind::Aggregate(Reducer::append()))
        .node_with("one", counted(count, "one"), by_x())
        .node_with("two", counted(count, "two"), by_x())
        .edge(START, "one")
        .open_route("one", "on", |_| {
            Ok(vec![Goto {
                node: "two".into(),
                arg: None,
            }])
        })
        .build()
        .unwrap()
}

async fn a_known_result_is_told_as_cached_and_stored_like_any_other(storage: &Storage) {
    let count = Arc::new(AtomicUsize::new(0));
    let graph = graph(&count);
    let mut records = vec![];
    for round in 0..2 {
        let told = Arc::new(Recorder::default());
        let thread = storage.local.thread_with(&graph, ThreadId::mint());
        let options = RunOptions {
            sink: told.clone(),
            ..RunOptions::default()
        };
        // Only `x` counts.
        let input = value!({"x": 1, "log": [round]});
        let done = thread.run(Input::Value(input), options).await.unwrap();
        assert_eq!(done.result.unwrap(), Ended::Done);
        assert_eq!(done.values["log"], value!([round, "one", "two"]));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let told = told.0.lock().join(", ");
        // As LangGraph tells it: a start, an update with a mark, no end.
        match round {
            0 => assert_eq!(
                told,
                "start one, update one false, end one, start two, update two false, end two"
            ),
            _ => assert_eq!(
                told,
                "start one, update one true, start two, update two true"
            ),
        }
        let states = thread.history(History::default()).await.unwrap();
        let results = states.iter().flat_map(|state| &state.snapshot.tasks);
        let results: Vec<_> = results.map(|task| task.result.clone()).collect();
        records.push((states.len(), results[..2].to_vec()));
    }
    assert_eq!(records[0], records[1]);
    let thread = storage.local.thread_with(&graph, ThreadId::mint());
    let input = Input::Value(value!({"x": 2, "log": []}));
    thread.run(input, RunOptions::default()).await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

async fn results_of_failures_and_questions_are_not_kept(storage: &Storage) {
    let count = Arc::new(AtomicUsize::new(0));
    let runs = count.clone();
    let graph = Graph::untyped()
        .channel("x", Kind::Last)
        .channel("answer", Kind::Last)
        .node_with(
            "ask",
            move |ctx| {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                async move {
                    anyhow::ensure!(run > 0, "the first run fails");
                    let answer: Value = ctx.interrupt("?").await;
                    Ok(Output::update([("answer", answer)]))
                }
            },
            by_x(),
        )
        .edge(START, "ask")
        .build()
        .unwrap();
    let thread = storage.local.thread_with(&graph, ThreadId::mint());
    let input = Input::Value(value!({"x": 1}));
    let run = async |input| thread.run(input, RunOptions::default()).await.unwrap();
    assert!(run(input.clone()).await.result.is_err());
    let asked = run(input.clone()).await.result.unwrap();
    assert!(matches!(asked, Ended::Interrupted(_)), "{asked:?}");
    let asked = run(Input::Null).await.result.unwrap();
    assert!(matches!(asked, Ended::Interrupted(_)), "{asked:?}");
    let command = run::ClientCommand {
        resume: Some(value!("yes")),
        ..run::ClientCommand::default()
    };
    let done = run(Input::Command(command)).await;
    assert_eq!(done.values["answer"], "yes");
    assert_eq!(count.load(Ordering::Relaxed), 4);
    // The whole task is known now, its answer included.
    assert_eq!(run(input).await.values["answer"], "yes");
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

async fn tasks_of_one_superstep_with_equal_inputs_use_one_result_later(storage: &Storage) {
    let count = Arc::new(AtomicUsize::new(0));
    let graph = Graph::untyped()
        .channel("log", Kind::Aggregate(Reducer::append()))
        .node_with("one", counted(&count, "one"), by_x())
        .open_route(START, "fan", |_| {
            let tasks = [1, 2, 1].map(|x| Goto {
                node: "one".into(),
                arg: Some(value!({ "x": x })),
            });
            Ok(tasks.to_vec())
        })
        .build()
        .unwrap();
    for runs in [3, 3] {
        let thread = storage.local.thread_with(&graph, ThreadId::mint());
        let input = Input::Value(value!({"log": []}));
        let done = thread.run(input, RunOptions::default()).await.unwrap();
        assert_eq!(done.values["log"], value!(["one", "one", "one"]));
        assert_eq!(count.load(Ordering::Relaxed), runs);
    }
}

async fn a_result_belongs_to_its_node(storage: &Storage) {
    let counts = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
    for count in &counts {
        // A graph of the same form is another graph.
        let thread = storage.local.thread_with(&graph(count), ThreadId::mint());
        let input = Input::Value(value!({"x": 1, "log": []}));
        thread.run(input, RunOptions::default()).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}

fn the_server_uses_results_again_in_every_thread(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let looked = |text: &str| {
        let body = json!({"assistant_id": "notes", "input": {"who": "ada", "text": text}});
        client.run(&client.thread(), &body)["looked"].clone()
    };
    assert_eq!(
        [looked("a"), looked("a"), looked("b"), looked("a")],
        [1, 1, 2, 1]
    );
    let thread = client.thread();
    let body = json!({
        "assistant_id": "notes", "input": {"who": "ada", "text": "b"}, "stream_mode": "updates",
    });
    let mut open = client.open_stream(&thread, &body);
    let text = String::from_utf8(open.rest()).unwrap();
    let cached = "{\"look\":{\"looked\":2},\"__metadata__\":{\"cached\":true}}";
    assert!(text.contains(cached), "{text}");
}
