//! States that outlive the code that wrote them: channels that went, came, or changed their form.

use std::sync::Arc;

use backstitch::{
    RunOptions, Thread,
    channel::{Kind, Reducer},
    graph::{Compiled, Graph, Output, START},
    prelude::{Graph as Typed, State, Update},
    run::{
        self, Durability, Ended, Error, Finished, History, Input, Mistake, StateUpdate, ThreadId,
    },
    value,
    value::Value,
};

use crate::{on_both, storages::Storage};

on_both!(
    a_channel_that_new_code_does_not_know_stays_as_it_was,
    an_unknown_channel_survives_edits_replays_and_runs_stored_at_their_end,
    a_new_channel_takes_its_default,
    a_new_field_without_a_value_names_its_node_and_channel,
    a_channel_of_another_kind_fails_the_run_and_nothing_else,
    a_reducer_that_cannot_take_the_stored_value_names_who_wrote,
    a_field_of_another_type_fails_the_run_and_nothing_else,
    a_node_that_went_is_passed_over,
);

/// Notes every turn in `old`, which grows beyond what one row holds, and counts in `n`.
fn first() -> Arc<Compiled> {
    Graph::untyped()
        .channel("old", Kind::Aggregate(Reducer::append()))
        .channel("single", Kind::Last)
        .channel("n", Kind::Aggregate(Reducer::sum()))
        .node("note", |ctx| async move {
            let n = ctx.input()["n"].clone();
            let note = value!({"turn": n.clone(), "text": "x".repeat(3000)});
            Ok(Output::update([
                ("old", value!([note])),
                ("single", n),
                ("n", value!(1)),
            ]))
        })
        .edge(START, "note")
        .build()
        .unwrap()
}

/// Knows `n` alone, and `new`.
fn second() -> Arc<Compiled> {
    Graph::untyped()
        .channel("n", Kind::Aggregate(Reducer::sum()))
        .channel("new", Kind::Aggregate(Reducer::append()))
        .node("count", |ctx| async move {
            let seen = ctx.input()["new"].clone();
            Ok(Output::update([("n", value!(1)), ("new", value!([seen]))]))
        })
        .edge(START, "count")
        .build()
        .unwrap()
}

async fn turn(thread: &Thread) -> Finished {
    turn_with(thread, RunOptions::default()).await
}

async fn turn_with(thread: &Thread, options: RunOptions) -> Finished {
    let finished = thread.run(Input::Value(value!({"n": 0})), options).await;
    finished.unwrap()
}

async fn head(thread: &Thread) -> run::ThreadState {
    thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap()
}

/// What is stored of a channel at the head: its value and its version.
async fn stored(thread: &Thread, channel: &str) -> (Option<Value>, Option<String>) {
    let checkpoint = head(thread).await.snapshot.checkpoint;
    let version = checkpoint.versions.get(channel).map(ToString::to_string);
    (checkpoint.values.get(channel).cloned(), version)
}

async fn a_channel_that_new_code_does_not_know_stays_as_it_was(storage: &Storage) {
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    for _ in 0..20 {
        turn(&old).await.result.unwrap();
    }
    let before = (stored(&old, "old").await, stored(&old, "single").await);
    let new = storage.local.thread_with(&second(), id);
    for round in 1..4 {
        let done = turn(&new).await;
        assert_eq!(done.result.unwrap(), Ended::Done);
        assert_eq!(done.values["n"], 20 + round);
        assert_eq!(done.values.get("old"), None);
        assert_eq!(
            (stored(&new, "old").await, stored(&new, "single").await),
            before
        );
    }
    // The old code finds everything, and goes on where it was.
    let done = turn(&old).await;
    assert_eq!(done.values["n"], 24);
    let notes = done.values["old"].as_list().unwrap();
    let turns: Vec<i64> = notes
        .iter()
        .filter_map(|note| note["turn"].as_i64())
        .collect();
    let expected: Vec<i64> = (0..20).chain([23]).collect();
    assert_eq!(turns, expected);
    // Also in the states that the new code made.
    let states = old.history(History::default()).await.unwrap();
    assert_eq!(states.len(), 3 * 24);
    let notes = |state: &run::ThreadState| state.snapshot.values["old"].as_list().unwrap().len();
    assert!(states[3..12].iter().all(|state| notes(state) == 20));
}

async fn an_unknown_channel_survives_edits_replays_and_runs_stored_at_their_end(storage: &Storage) {
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    turn(&old).await.result.unwrap();
    let before = stored(&old, "old").await;
    let new = storage.local.thread_with(&second(), id);
    let update = StateUpdate {
        values: Some(value!({"n": 5})),
        as_node: Some("count".into()),
        ..StateUpdate::default()
    };
    let edited = new.update_state(&"".into(), None, update).await.unwrap();
    assert_eq!(stored(&new, "old").await, before);
    let late = RunOptions {
        durability: Durability::Exit,
        ..RunOptions::default()
    };
    turn_with(&new, late).await.result.unwrap();
    assert_eq!(stored(&new, "old").await, before);
    let replay = RunOptions {
        at: Some(edited),
        ..RunOptions::default()
    };
    let done = new
        .run(Input::Value(value!({"n": 0})), replay)
        .await
        .unwrap();
    assert_eq!(done.values["n"], 7);
    assert_eq!(stored(&new, "old").await, before);
}

async fn a_new_channel_takes_its_default(storage: &Storage) {
    #[derive(State)]
    struct Grown {
        #[state(append)]
        list: Vec<String>,
        #[state(default)]
        number: i64,
        maybe: Option<String>,
        seen: Option<String>,
    }
    async fn look(state: Grown) -> Update<Grown> {
        Grown::update().seen(format!(
            "{:?} {} {:?}",
            state.list, state.number, state.maybe
        ))
    }
    let id = ThreadId::mint();
    turn(&storage.local.thread_with(&first(), id))
        .await
        .result
        .unwrap();
    let grown = Typed::<Grown>::new()
        .node("look", look)
        .edge(START, "look")
        .build();
    let new = storage.local.thread_with(&grown.unwrap(), id);
    let done = turn(&new).await;
    assert_eq!(done.values["seen"], "[] 0 None");
    // A default is no write: nothing is stored of it.
    for channel in ["list", "number", "maybe"] {
        assert_eq!(stored(&new, channel).await, (None, None), "{channel}");
    }
}

/// The run fails with the state's own kind of error, which names these things and the checkpoint
/// it ran from; nothing of the thread changes for the code that knows it.
async fn fails(new: &Thread, old: &Thread, names: &[&str]) -> Error {
    let before = head(old).await.snapshot;
    let error = turn(new).await.result.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::StoredForm), "{error}");
    assert_eq!(error.class(), "StateError");
    let message = error.message();
    for name in names {
        assert!(message.contains(name), "{name} is not in: {message}");
    }
    let states = old.history(History::default()).await.unwrap();
    let ids: Vec<String> = states
        .iter()
        .map(|state| state.snapshot.checkpoint.id.to_string())
        .collect();
    assert!(ids.iter().any(|id| message.contains(id)), "{message}");
    let known = |values: &Value| (values["old"].clone(), values["n"].clone());
    assert_eq!(
        known(&head(old).await.snapshot.values),
        known(&before.values)
    );
    error
}

async fn a_new_field_without_a_value_names_its_node_and_channel(storage: &Storage) {
    #[derive(State)]
    struct Strict {
        #[state(append)]
        old: Vec<Value>,
        must: String,
    }
    async fn look(state: Strict) {
        drop((state.must, state.old));
    }
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    turn(&old).await.result.unwrap();
    let strict = Typed::<Strict>::new()
        .node("look", look)
        .edge(START, "look")
        .build();
    let new = storage.local.thread_with(&strict.unwrap(), id);
    fails(
        &new,
        &old,
        &["node `look`", "channel `must`", "has no value yet", "task "],
    )
    .await;
    assert_eq!(turn(&old).await.result.unwrap(), Ended::Done);
}

async fn a_channel_of_another_kind_fails_the_run_and_nothing_else(storage: &Storage) {
    let changed = Graph::untyped()
        .channel("single", Kind::Topic { accumulate: true })
        .node("look", |_| async { Ok(Output::default()) })
        .edge(START, "look")
        .build()
        .unwrap();
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    turn(&old).await.result.unwrap();
    let at = head(&old).await.snapshot.checkpoint.id.to_string();
    let new = storage.local.thread_with(&changed, id);
    fails(&new, &old, &["node `look`", "channel `single`", &at]).await;
    // Nothing of the failed run was stored: the old code sees the same head, and goes on.
    assert_eq!(head(&old).await.snapshot.checkpoint.id.to_string(), at);
    assert_eq!(turn(&old).await.values["n"], 2);
}

async fn a_reducer_that_cannot_take_the_stored_value_names_who_wrote(storage: &Storage) {
    let changed = Graph::untyped()
        .channel("single", Kind::Aggregate(Reducer::append()))
        .node("add", |_| async {
            Ok(Output::update([("single", value!(["x"]))]))
        })
        .edge(START, "add")
        .build()
        .unwrap();
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    turn(&old).await.result.unwrap();
    let new = storage.local.thread_with(&changed, id);
    let error = turn(&new).await.result.unwrap_err();
    assert_eq!(error.class(), "TypeError", "{error}");
    let at = head(&old).await.snapshot.checkpoint.id.to_string();
    for name in ["'single'", "node `add`", "task ", &at] {
        assert!(error.message().contains(name), "{error}");
    }
    assert_eq!(turn(&old).await.values["n"], 2);
}

async fn a_field_of_another_type_fails_the_run_and_nothing_else(storage: &Storage) {
    #[derive(State)]
    struct Changed {
        single: Option<Vec<String>>,
    }
    async fn look(state: Changed) {
        drop(state.single);
    }
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&first(), id);
    turn(&old).await.result.unwrap();
    let changed = Typed::<Changed>::new()
        .node("look", look)
        .edge(START, "look")
        .build();
    let new = storage.local.thread_with(&changed.unwrap(), id);
    fails(&new, &old, &["node `look`", "channel `single`", "task "]).await;
    assert_eq!(turn(&old).await.values["n"], 2);
}

async fn a_node_that_went_is_passed_over(storage: &Storage) {
    let asks = Graph::untyped()
        .channel("n", Kind::Aggregate(Reducer::sum()))
        .node("ask", |ctx| async move {
            let answer: Value = ctx.interrupt("?").await;
            Ok(Output::update([("n", answer)]))
        })
        .edge(START, "ask")
        .build()
        .unwrap();
    let id = ThreadId::mint();
    let old = storage.local.thread_with(&asks, id);
    assert!(matches!(
        turn(&old).await.result.unwrap(),
        Ended::Interrupted(_)
    ));
    let new = storage.local.thread_with(&second(), id);
    let done = new.run(Input::Null, RunOptions::default()).await.unwrap();
    assert_eq!(done.result.unwrap(), Ended::Done);
    assert_eq!(turn(&new).await.values["n"], 1);
}
