//! Properties of supersteps, and runs that are large, cancelled or broken.
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use backstitch::{
    Local,
    channel::{Kind, Reducer},
    checkpoint::{Source, Versions},
    engine::{
        Ended, Input,
        apply::{TaskWrites, apply},
        channels::Channels,
        plan::plan,
        topology::Topology,
    },
    graph::{Compiled, END, Goto, Graph, Output, START},
    id::{CheckpointId, ThreadId},
    local::{History, RunOptions},
    tree::ThreadState,
    value,
    value::Value,
};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

const NODES: [&str; 5] = ["b", "e", "a", "d", "c"];

/// A graph whose nodes write what `writes` says and run for at most a few rounds.
fn graph(edges: &[(usize, usize)], defer: usize, sends: bool) -> Arc<Compiled> {
    let mut graph = Graph::untyped()
        .channel("log", Kind::Aggregate(Reducer::append()))
        .channel("n", Kind::Aggregate(Reducer::sum()))
        .channel("any", Kind::Any)
        .channel("hint", Kind::Ephemeral { guard: false })
        .channel("topic", Kind::Topic { accumulate: false });
    for (index, name) in NODES.into_iter().enumerate() {
        let mut opts = backstitch::graph::NodeOpts::new();
        if index == defer {
            opts = opts.defer();
        }
        let node = move |ctx: backstitch::extract::Ctx| async move {
            let n = ctx.input().get("n").and_then(Value::as_i64);
            let mut output = Output::update([
                ("log", value!([name])),
                ("n", value!(1)),
                ("any", value!(name)),
                ("hint", value!(name)),
                ("topic", value!([name])),
            ]);
            if n.unwrap_or(100) < 12 && sends {
                output.goto.push(Goto {
                    node: NODES[(index + 1) % NODES.len()].into(),
                    arg: Some(value!({"n": 20})),
                });
            }
            Ok(output)
        };
        graph = graph.node_with(name, node, opts);
    }
    graph = graph.edge(START, NODES[0]).edge(START, NODES[1]);
    for (from, to) in edges {
        // Only forward, so that runs end.
        let (from, to) = (from.min(to), from.max(to));
        if from != to {
            graph = graph.edge(NODES[*from], NODES[*to]);
        }
    }
    graph = graph.join([NODES[0], NODES[1]], NODES[4]);
    graph.edge(NODES[4], END).build().unwrap()
}

fn counters(versions: &Versions) -> Vec<(String, u64)> {
    versions
        .iter()
        .map(|(name, version)| (name.to_string(), version.counter))
        .collect()
}

/// What a checkpoint would hold, without what is random.
fn facts(live: &Channels, wiring: &Topology, updated: &BTreeSet<Arc<str>>) -> String {
    let seen: Vec<_> = live
        .consumed_versions
        .iter()
        .map(|(node, versions)| (node, counters(versions)))
        .collect();
    let values = live.snapshot(wiring);
    format!(
        "{values:?} {:?} {seen:?} {updated:?}",
        counters(&live.versions)
    )
}

async fn ran(graph: &Arc<Compiled>, input: Value) -> Vec<ThreadState> {
    let local = Local::memory().unwrap();
    let thread = local.thread_with(graph, ThreadId::mint());
    for _ in 0..2 {
        let input = Input::Value(input.clone());
        let done = thread.run(input, RunOptions::default()).await.unwrap();
        assert_eq!(done.result.unwrap(), Ended::Done);
    }
    let mut states = thread.history(History::default()).await.unwrap();
    states.reverse();
    states
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

type Edges = Vec<(usize, usize)>;

fn edges() -> impl Strategy<Value = Edges> {
    proptest::collection::vec((0..NODES.len(), 0..NODES.len()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_and_its_writes_give_the_next_one(
        edges in edges(), defer in 0..9_usize, sends: bool,
    ) {
        let graph = graph(&edges, defer, sends);
        let wiring = Topology::new(graph.clone());
        let states = runtime().block_on(ran(&graph, value!({"log": ["in"], "n": 0})));
        prop_assert!(states.len() > 4);
        for pair in states.windows(2) {
            let (before, after) = (&pair[0], &pair[1].snapshot.checkpoint);
            prop_assert_eq!(after.parent, Some(before.snapshot.checkpoint.id));
            if after.source != Source::Loop {
                continue;
            }
            let (live, updated) = replayed(&wiring, before, |tasks| tasks.reverse());
            let values = live.snapshot(&wiring);
            prop_assert_eq!(&values, &after.values);
            prop_assert_eq!(counters(&live.versions), counters(&after.versions));
            let seen: Vec<_> = live.consumed_versions.iter().map(|(n, v)| (n.clone(), counters(v))).collect();
            let stored: Vec<_> = after.consumed_versions.iter().map(|(n, v)| (n.clone(), counters(v))).collect();
            prop_assert_eq!(seen, stored);
            let updated: Vec<_> = updated.into_iter().collect();
            prop_assert_eq!(Some(&updated), after.updated.as_ref());
        }
    }

    #[test]
    fn who_finishes_first_does_not_matter(
        edges in edges(), defer in 0..9_usize, order in any::<u64>(),
    ) {
        let graph = graph(&edges, defer, true);
        let wiring = Topology::new(graph.clone());
        let states = runtime().block_on(ran(&graph, value!({"log": ["in"], "n": 0})));
        for state in &states {
            let (plain, updated) = replayed(&wiring, state, |_| {});
            let shuffled = |tasks: &mut Vec<TaskWrites<'_>>| {
                let mut random = order;
                for at in (1..tasks.len()).rev() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    tasks.swap(at, usize::try_from(random >> 33).unwrap() % (at + 1));
                }
            };
            let (other, updated_too) = replayed(&wiring, state, shuffled);
            prop_assert_eq!(
                facts(&plain, &wiring, &updated),
                facts(&other, &wiring, &updated_too)
            );
        }
    }

    #[test]
    fn versions_only_rise_and_all_of_a_superstep_are_the_same(
        edges in edges(), defer in 0..9_usize, sends: bool,
    ) {
        let graph = graph(&edges, defer, sends);
        let states = runtime().block_on(ran(&graph, value!({"n": 3})));
        for pair in states.windows(2) {
            let before = &pair[0].snapshot.checkpoint.versions;
            let after = &pair[1].snapshot.checkpoint.versions;
            let greatest = before.values().map(|v| v.counter).max().unwrap_or(0);
            let mut new = BTreeSet::new();
            for (name, version) in after {
                match before.get(name) {
                    Some(old) if old == version => {}
                    old => {
                        prop_assert!(old.is_none_or(|old| old.counter < version.counter));
                        new.insert((version.counter, version.salt));
                    }
                }
            }
            prop_assert!(new.len() <= 1, "several new versions: {:?}", new);
            if let Some((counter, _)) = new.first() {
                prop_assert_eq!(*counter, greatest + 1);
            }
            for name in before.keys() {
                prop_assert!(after.contains_key(name));
            }
        }
    }
}

/// Plans the tasks of a stored state and applies what is stored of them, in another order.
fn replayed(
    wiring: &Topology,
    state: &ThreadState,
    order: impl FnOnce(&mut Vec<TaskWrites<'_>>),
) -> (Channels, BTreeSet<Arc<str>>) {
    let checkpoint = &state.snapshot.checkpoint;
    let mut live = Channels::restore(wiring, checkpoint).unwrap();
    let step = checkpoint.step + 1;
    let tasks = plan(wiring, &live, checkpoint.id, "", step, None);
    let writes: Vec<Vec<(Arc<str>, Value)>> = tasks
        .iter()
        .map(|task| {
            let own = state.writes.iter().filter(|write| write.task == task.id);
            own.map(|write| (write.channel.clone(), write.value.clone()))
                .collect()
        })
        .collect();
    let mut applied: Vec<TaskWrites<'_>> = tasks
        .iter()
        .zip(&writes)
        .map(|(task, writes)| TaskWrites {
            path: &task.path,
            node: &task.name,
            writes,
            triggers: &task.triggers,
        })
        .collect();
    order(&mut applied);
    let updated = apply(wiring, &mut live, applied).unwrap();
    (live, updated)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_run_in_one_superstep() {
    let graph = Graph::untyped()
        .channel("n", Kind::Aggregate(Reducer::append()))
        .node("one", |ctx| async move {
            Ok(Output::update([("n", value!([ctx.input().clone()]))]))
        })
        .open_route(START, "fan", |_| {
            Ok((0..1000)
                .map(|index| Goto {
                    node: "one".into(),
                    arg: Some(Value::Int(index)),
                })
                .collect())
        })
        .build()
        .unwrap();
    let local = Local::memory().unwrap();
    let thread = local.thread_with(&graph, ThreadId::mint());
    let input = Input::Value(value!({"n": []}));
    let done = thread.run(input, RunOptions::default()).await.unwrap();
    let all: Vec<Value> = (0..1000).map(Value::Int).collect();
    assert_eq!(done.values["n"], Value::list(all));
    let states = thread.history(History::default()).await.unwrap();
    assert_eq!(states.len(), 3);
    assert_eq!(states[1].snapshot.tasks.len(), 1000);
    assert!(
        states[1]
            .snapshot
            .tasks
            .iter()
            .all(|task| task.result.is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_supersteps_run_one_after_the_other() {
    let graph = Graph::untyped()
        .channel("n", Kind::Aggregate(Reducer::sum()))
        .node("one", |_| async { Ok(Output::update([("n", value!(1))])) })
        .edge(START, "one")
        .open_route("one", "again", |state| {
            let more = state.get("n").and_then(Value::as_i64) < Some(10_000);
            Ok(vec![Goto {
                node: if more { "one" } else { END }.into(),
                arg: None,
            }])
        })
        .build()
        .unwrap();
    let local = Local::memory().unwrap();
    let thread = local.thread_with(&graph, ThreadId::mint());
    let input = Input::Value(value!({"n": 0}));
    let done = thread.run(input, RunOptions::default()).await.unwrap();
    assert_eq!(done.result.unwrap(), Ended::Done);
    assert_eq!(done.values["n"], 10_000);
    let head = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(head.snapshot.checkpoint.step, 10_000);
    assert_eq!(head.snapshot.checkpoint.depth, 10_001);
}

/// `slow` waits for ever the first time, `quick` finishes, `bad` panics once if it is there.
fn broken(panics: bool) -> (Arc<Compiled>, Arc<AtomicUsize>) {
    let quick = Arc::new(AtomicUsize::new(0));
    let (count, failed) = (quick.clone(), Arc::new(AtomicBool::new(false)));
    let graph = Graph::untyped()
        .channel("log", Kind::Aggregate(Reducer::append()))
        .node("quick", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok(Output::update([("log", value!(["quick"]))])) }
        })
        .node("broken", move |_| {
            let first = !failed.swap(true, Ordering::Relaxed);
            async move {
                match (first, panics) {
                    (true, true) => panic!("on purpose"),
                    (true, false) => std::future::pending().await,
                    _ => Ok(Output::update([("log", value!(["mended"]))])),
                }
            }
        })
        .edge(START, "quick")
        .edge(START, "broken")
        .build()
        .unwrap();
    (graph, quick)
}

async fn goes_on(local: &Local, graph: &Arc<Compiled>, thread: ThreadId, quick: &AtomicUsize) {
    let thread = local.thread_with(graph, thread);
    let state = thread.state(&"".into(), None, true).await.unwrap().unwrap();
    assert_eq!(state.snapshot.next, [Arc::from("broken")]);
    assert_eq!(state.snapshot.values["log"], value!(["quick"]));
    let done = thread
        .run(Input::Null, RunOptions::default())
        .await
        .unwrap();
    assert_eq!(done.result.unwrap(), Ended::Done);
    assert_eq!(done.values["log"], value!(["mended", "quick"]));
    // What had finished was not run again.
    assert_eq!(quick.load(Ordering::Relaxed), 1);
    let states = thread.history(History::default()).await.unwrap();
    let ids: Vec<CheckpointId> = states.iter().map(|s| s.snapshot.checkpoint.id).collect();
    for pair in states.windows(2) {
        assert_eq!(
            pair[0].snapshot.checkpoint.parent,
            Some(pair[1].snapshot.checkpoint.id)
        );
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_fails_its_task_and_nothing_else() {
    let (graph, quick) = broken(true);
    let local = Local::memory().unwrap();
    let id = ThreadId::mint();
    let input = Input::Value(value!({"log": []}));
    let thread = local.thread_with(&graph, id);
    let done = thread.run(input, RunOptions::default()).await.unwrap();
    assert_eq!(done.result.unwrap_err().class(), "NodePanicked");
    goes_on(&local, &graph, id, &quick).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_keeps_what_had_finished() {
    let (graph, quick) = broken(false);
    let local = Local::memory().unwrap();
    let id = ThreadId::mint();
    let cancel = CancellationToken::new();
    let thread = local.thread_with(&graph, id);
    let run = tokio::spawn({
        let cancel = cancel.clone();
        async move {
            let options = RunOptions {
                cancel,
                ..RunOptions::default()
            };
            thread.run(Input::Value(value!({"log": []})), options).await
        }
    });
    let thread = local.thread_with(&graph, id);
    // Until the finished task's result is stored.
    loop {
        tokio::task::yield_now().await;
        let state = thread.state(&"".into(), None, false).await.unwrap();
        if state.is_some_and(|state| state.snapshot.next == [Arc::from("broken")]) {
            break;
        }
    }
    cancel.cancel();
    let done = run.await.unwrap().unwrap();
    assert_eq!(done.result.unwrap_err().class(), "CancelledError");
    goes_on(&local, &graph, id, &quick).await;
}
