//! Runs that are created at one moment, each on a thread of its own: what becomes of one does not touch the
//! others.

use backstitch::{
    id::{RunId, ThreadId},
    runs::{Created, NewRun, Run, Status, Strategy},
    tree::{
        NewThread,
        members::{Access, Level},
    },
    value,
};

use super::backend::*;

/// What becomes of runs that are created at once, in their order.
async fn create(b: &Backend, all: Vec<NewRun>) -> Vec<Created> {
    let creating = all.into_iter().map(|new| b.runs.create_run(new));
    let created = futures::future::join_all(creating).await;
    created.into_iter().map(Result::unwrap).collect()
}

fn by(principal: &str) -> Access {
    Access::of(principal.into(), "request".into(), Level::Writer)
}

/// A new run and what is to become of it.
async fn expected(b: &Backend, number: usize) -> (NewRun, &'static str) {
    let thread = b.thread().await;
    let new = NewRun {
        kwargs: value!({"input": {"number": number as i64}}),
        ..new_run(thread)
    };
    match number {
        3 => (
            NewRun {
                access: by("bob"),
                ..new
            },
            "denied",
        ),
        5 => {
            let id = b.start(new_run(b.thread().await)).await.0.id;
            (NewRun { id, ..new }, "exists")
        }
        8 => {
            b.start(new_run(thread)).await;
            b.queue(new_run(thread)).await;
            (
                NewRun {
                    max_queued: 1,
                    ..new
                },
                "queue full",
            )
        }
        11 => {
            b.start(new_run(thread)).await;
            let strategy = Strategy::Reject;
            (NewRun { strategy, ..new }, "busy")
        }
        13 => {
            b.start(new_run(thread)).await;
            (new, "queued")
        }
        17 => {
            let thread = ThreadId::mint();
            (NewRun { thread, ..new }, "no thread")
        }
        19 => {
            let unchanged_since = Some(0);
            (
                NewRun {
                    unchanged_since,
                    ..new
                },
                "changed",
            )
        }
        21 => (
            NewRun {
                access: by("local"),
                ..new
            },
            "started",
        ),
        _ => (new, "started"),
    }
}

pub async fn runs_that_are_created_at_once_are_refused_alone(b: &Backend) {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    for number in 0..32 {
        let (new, word) = expected(b, number).await;
        all.push(new);
        words.push(word);
    }
    let created = create(b, all.clone()).await;
    for ((new, word), created) in all.iter().zip(words).zip(created) {
        let (found, run) = match created {
            Created::Started(run, slot) => {
                let thread = b.trees.thread(new.thread).await.unwrap().unwrap();
                assert_eq!((slot.epoch, slot.branch), (1, thread.active_branch));
                assert!(thread.busy);
                ("started", Some(run))
            }
            Created::Queued(run) => ("queued", Some(run)),
            Created::NoThread => ("no thread", None),
            Created::Denied(_) => ("denied", None),
            Created::Exists => ("exists", None),
            Created::Changed => ("changed", None),
            Created::Busy => ("busy", None),
            Created::QueueFull(_) => ("queue full", None),
        };
        assert_eq!(found, word);
        let stored = b.runs.run(new.thread, new.id).await.unwrap();
        match run {
            None => assert!(stored.is_none(), "{stored:?}"),
            Some(run) => {
                let stored = stored.unwrap();
                assert_eq!(format!("{run:?}"), format!("{stored:?}"));
                assert_eq!(stored.kwargs, new.kwargs);
                assert_eq!(stored.principal.as_ref(), new.access.principal());
                let kinds: Vec<_> = kinds(b, new.thread).await;
                let last = match stored.status {
                    Status::Running => &["RunEnqueued", "RunStarted"][..],
                    _ => &["RunEnqueued"],
                };
                assert!(
                    kinds.ends_with(
                        &last
                            .iter()
                            .map(|kind| (*kind).into())
                            .collect::<Vec<String>>()
                    ),
                    "{kinds:?}"
                );
            }
        }
    }
    b.tables.check(false).await;
}

async fn kinds(b: &Backend, thread: ThreadId) -> Vec<String> {
    let events = b.probe.events(thread).await;
    let numbers: Vec<_> = events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    events.into_iter().map(|(_, kind)| kind).collect()
}

pub async fn of_runs_with_one_id_that_are_created_at_once_one_is_there(b: &Backend) {
    for _ in 0..5 {
        let id = RunId::mint();
        let mut all = Vec::new();
        for _ in 0..8 {
            let thread = b.thread().await;
            all.push(NewRun {
                id,
                ..new_run(thread)
            });
        }
        let created = create(b, all).await;
        let is_started = |one: &&Created| matches!(one, Created::Started(..));
        assert_eq!(created.iter().filter(is_started).count(), 1, "{created:?}");
        let exist = |one: &&Created| matches!(one, Created::Exists);
        assert_eq!(created.iter().filter(exist).count(), 7, "{created:?}");
    }
}

/// A run on a new thread with metadata of its own, which the run inherits but for some.
async fn rich(b: &Backend) -> NewRun {
    let id = ThreadId::mint();
    let metadata = map(value!({"a\"b\\": 1, "own,{}": 2, "kept \0": "ü", "graph_id": "x"}));
    let new = NewThread {
        metadata,
        ..new_thread(id)
    };
    b.trees.create_thread(new).await.unwrap().unwrap();
    NewRun {
        kwargs: value!({"input": null, "webhook": "https://example.com/hook?a=b"}),
        metadata: map(value!({"own": true})),
        own_metadata: Some(vec!["own,{}".into(), "a\"b\\".into(), "none \0".into()]),
        thread_metadata: map(value!({"graph_id": "agent"})),
        thread_config: map(value!({"configurable": {"k": [1, null]}})),
        after: std::time::Duration::from_secs(60),
        ..new_run(id)
    }
}

/// What is stored of it, but for its ids and times.
async fn shape(b: &Backend, run: &Run) -> String {
    let row = b.run(run).await;
    let thread = b.trees.thread(run.thread).await.unwrap().unwrap();
    let delay = row.run_at.0 - row.created_at.0;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {delay}",
        row.status,
        row.metadata,
        row.kwargs,
        row.branch,
        row.base,
        row.attempt,
        thread.metadata,
        thread.config
    )
}

pub async fn a_run_that_is_created_with_others_is_as_one_that_is_alone(b: &Backend) {
    let alone = rich(b).await;
    let alone = shape(b, &b.queue(alone).await).await;
    let mut all = Vec::new();
    for _ in 0..16 {
        all.push(rich(b).await);
    }
    for created in create(b, all).await {
        let Created::Queued(run) = created else {
            panic!("{created:?}");
        };
        assert_eq!(shape(b, &run).await, alone);
    }
    b.tables.check(false).await;
}
