//! Mistakes of graphs, nodes and clients: each has a kind of its own, names where it happened, and
//! leaves the thread as it was.

use std::sync::Arc;

use backstitch::{
    RunOptions, Thread,
    channel::{Kind, Reducer},
    extract::Ctx,
    graph::{Compiled, END, Goto, Graph, Output, START},
    run::{
        self, ClientCommand, Ended, Error, Finished, Input, Mistake, StateUpdate, ThreadId,
        Tolerance,
    },
    value,
    value::Value,
};
use serde_json::json;

use crate::{on_both, storages::Storage};
use test_support::{client::Client, on_both_storages, place::Place, server::Setup};

on_both!(
    a_route_to_an_unknown_key_names_its_place,
    a_command_to_a_missing_node_names_its_place,
    a_client_that_goes_to_a_missing_node_is_refused,
    two_writes_to_one_slot_name_both_nodes,
    an_answer_to_a_finished_thread_is_refused,
    answers_to_unknown_questions_are_refused_and_named,
    an_answer_of_the_wrong_shape_leaves_the_question_open,
    an_edit_as_an_unknown_node_is_refused,
    an_edit_as_nobody_in_particular_is_refused,
    an_edit_during_a_run_is_refused,
    one_answer_for_several_questions_is_refused,
);

on_both_storages!(the_server_tells_mistakes_apart);

mod refused;

/// Does what `how` says: `key`, `goto`, `both`, `ask`, or nothing.
fn graph() -> Arc<Compiled> {
    let to = |node: &str| Goto {
        node: node.into(),
        arg: None,
    };
    Graph::untyped()
        .channel("how", Kind::Last)
        .channel("x", Kind::Last)
        .node("first", |ctx| async move {
            let how = ctx.input()["how"].clone();
            if how == *"goto" {
                return Ok(Output::default().goto(["nowhere"]));
            }
            if how == *"ask" {
                let number: i64 = ctx.interrupt("a number?").await;
                return Ok(Output::update([("x", value!(number))]));
            }
            if how == *"wait" {
                std::future::pending::<()>().await;
            }
            Ok(Output::default())
        })
        .node("left", |_| async { Ok(Output::update([("x", value!(1))])) })
        .node("right", |_| async {
            Ok(Output::update([("x", value!(2))]))
        })
        .edge(START, "first")
        .route(
            "first",
            "choose",
            move |state| {
                Ok(match state.get("how").and_then(Value::as_str) {
                    Some("key") => vec![to("middle")],
                    Some("both") => vec![to("left"), to("right")],
                    _ => vec![],
                })
            },
            Some([("left", "left"), ("right", "right")]),
        )
        .build()
        .unwrap()
}

fn thread(storage: &Storage) -> Thread {
    storage.local.thread_with(&graph(), ThreadId::mint())
}

async fn run(thread: &Thread, input: Input) -> Finished {
    thread.run(input, RunOptions::default()).await.unwrap()
}

async fn how(thread: &Thread, how: &str) -> Finished {
    run(thread, Input::Value(value!({ "how": how }))).await
}

fn answer(answer: impl Into<Value>) -> Input {
    Input::Command(ClientCommand {
        resume: Some(answer.into()),
        ..ClientCommand::default()
    })
}

/// The checkpoint the thread stands at, and its tasks: node and id.
async fn stands(thread: &Thread) -> (String, Vec<(String, String)>) {
    // The record of the superstep, which is there also when its results conflict.
    let states = thread.history(run::History::default()).await.unwrap();
    let newest = &states[0].snapshot;
    let tasks = newest.tasks.iter();
    (
        newest.checkpoint.id.to_string(),
        tasks
            .map(|task| (task.name.to_string(), task.id.to_string()))
            .collect(),
    )
}

/// The error is of this kind and names the tasks of `nodes`, and the checkpoint they run from.
async fn names(error: &Error, class: &str, thread: &Thread, nodes: &[&str]) {
    assert_eq!(error.class(), class, "{error}");
    let (checkpoint, tasks) = stands(thread).await;
    let message = error.message();
    assert!(message.contains(&checkpoint), "{message}");
    for node in nodes {
        let (_, task) = tasks.iter().find(|(name, _)| name == node).unwrap();
        assert!(
            message.contains(&format!("node `{node}`, task {task}")),
            "{message}"
        );
    }
}

async fn a_route_to_an_unknown_key_names_its_place(storage: &Storage) {
    let thread = thread(storage);
    let error = how(&thread, "key").await.result.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::RouteKey));
    assert!(error.message().contains("chose `middle`"), "{error}");
    names(&error, "KeyError", &thread, &["first"]).await;
}

async fn a_command_to_a_missing_node_names_its_place(storage: &Storage) {
    let thread = thread(storage);
    let error = how(&thread, "goto").await.result.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::Goto));
    assert!(error.message().contains("`nowhere`"), "{error}");
    names(&error, "UnknownNodeError", &thread, &["first"]).await;
    // LangGraph passes it over, and so does who asks for that.
    let options = RunOptions {
        tolerance: Tolerance::LANGGRAPH,
        ..RunOptions::default()
    };
    let done = thread.run(Input::Null, options).await.unwrap();
    assert_eq!(done.result.unwrap(), Ended::Done);
}

async fn a_client_that_goes_to_a_missing_node_is_refused(storage: &Storage) {
    let thread = thread(storage);
    how(&thread, "").await.result.unwrap();
    let before = stands(&thread).await;
    let command = ClientCommand {
        goto: vec![Goto {
            node: "nowhere".into(),
            arg: None,
        }],
        update: vec![("x".into(), value!(5))],
        ..ClientCommand::default()
    };
    let error = run(&thread, Input::Command(command)).await.result;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::Goto));
    names(&error, "UnknownNodeError", &thread, &[]).await;
    assert_eq!(stands(&thread).await, before);
    let state = thread.state(&"".into(), None, false).await.unwrap();
    assert_eq!(state.unwrap().snapshot.values.get("x"), None);
}

async fn two_writes_to_one_slot_name_both_nodes(storage: &Storage) {
    let thread = thread(storage);
    let error = how(&thread, "both").await.result.unwrap_err();
    assert!(matches!(&error, Error::Channel { channel, .. } if &**channel == "x"));
    assert_eq!(error.class(), "InvalidUpdateError");
    let message = error.message();
    assert!(
        message.starts_with("At key 'x': Can receive only one value per step"),
        "{message}"
    );
    let states = thread.history(run::History::default()).await.unwrap();
    let tasks = &states[0].snapshot.tasks;
    assert_eq!(tasks.len(), 2);
    for task in tasks {
        let named = format!("node `{}`, task {}", task.name, task.id);
        assert!(message.contains(&named), "{message}");
    }
    assert!(message.contains(&states[0].snapshot.checkpoint.id.to_string()));
    // As in LangGraph the state with both results is none; the one before them is there, and the
    // thread goes on with new input.
    let state = thread.state(&"".into(), None, false).await;
    assert!(
        matches!(&state.unwrap_err(), run::LocalError::Engine(error) if error.class() == "InvalidUpdateError")
    );
    assert_eq!(states[0].snapshot.values, value!({"how": "both"}));
    assert_eq!(states[0].snapshot.next.len(), 2);
    let done = how(&thread, "").await;
    assert_eq!(done.result.unwrap(), Ended::Done);
}

async fn an_answer_to_a_finished_thread_is_refused(storage: &Storage) {
    let thread = thread(storage);
    how(&thread, "").await.result.unwrap();
    let error = run(&thread, answer("late")).await.result.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::NothingToResume));
    names(&error, "NothingToResumeError", &thread, &[]).await;
    // Nothing of the answer is kept for a later question.
    let asked = how(&thread, "ask").await.result.unwrap();
    assert!(matches!(asked, Ended::Interrupted(_)), "{asked:?}");
}

async fn answers_to_unknown_questions_are_refused_and_named(storage: &Storage) {
    let thread = thread(storage);
    let Ended::Interrupted(asked) = how(&thread, "ask").await.result.unwrap() else {
        panic!("it does not ask");
    };
    let (known, unknown) = (asked[0].id.clone(), "0".repeat(32));
    let mixed = value!({(&*known): 1, (&*unknown): 2});
    for answers in [value!({(&*unknown): 2}), mixed] {
        let error = run(&thread, answer(answers)).await.result.unwrap_err();
        assert_eq!(error.kind(), Some(Mistake::UnknownInterrupt));
        let message = error.message();
        assert!(
            message.contains(&unknown) && !message.contains(&*known),
            "{message}"
        );
        names(&error, "UnknownInterruptError", &thread, &[]).await;
    }
    let done = run(&thread, answer(value!({(&*known): 1}))).await;
    assert_eq!(done.values["x"], 1);
}

async fn an_answer_of_the_wrong_shape_leaves_the_question_open(storage: &Storage) {
    let thread = thread(storage);
    how(&thread, "ask").await.result.unwrap();
    let open = async || {
        let state = thread.state(&"".into(), None, false).await.unwrap();
        state.unwrap().snapshot.interrupts()
    };
    let before = open().await;
    assert_eq!(before.len(), 1);
    let by_id = value!({(&*before[0].id): "no number"});
    for wrong in [value!("no number"), by_id] {
        let error = run(&thread, answer(wrong)).await.result.unwrap_err();
        assert_eq!(error.kind(), Some(Mistake::ResumeShape));
        assert!(
            error.message().contains("the answer does not fit"),
            "{error}"
        );
        names(&error, "ValueError", &thread, &["first"]).await;
        assert_eq!(open().await, before);
        // The wrong answer is gone: the node asks again.
        let asked = run(&thread, Input::Null).await.result.unwrap();
        assert_eq!(asked, Ended::Interrupted(before.clone()));
    }
    let done = run(&thread, answer(7)).await;
    assert_eq!(done.result.unwrap(), Ended::Done);
    assert_eq!(done.values["x"], 7);
}

fn edit(as_node: Option<&str>) -> StateUpdate {
    StateUpdate {
        values: Some(value!({"x": 5})),
        as_node: as_node.map(Into::into),
        ..StateUpdate::default()
    }
}

async fn refused_edit(thread: &Thread, as_node: Option<&str>) -> Error {
    let before = stands(thread).await;
    let done = thread.update_state(&"".into(), None, edit(as_node)).await;
    let Err(run::LocalError::Engine(error)) = done else {
        panic!("{done:?}");
    };
    assert_eq!(stands(thread).await, before);
    error
}

async fn an_edit_as_an_unknown_node_is_refused(storage: &Storage) {
    let thread = thread(storage);
    how(&thread, "").await.result.unwrap();
    let error = refused_edit(&thread, Some("nowhere")).await;
    assert_eq!(error.kind(), Some(Mistake::AsNode));
    assert!(
        error.message().starts_with("Node nowhere does not exist"),
        "{error}"
    );
    names(&error, "InvalidUpdateError", &thread, &[]).await;
}

async fn an_edit_as_nobody_in_particular_is_refused(storage: &Storage) {
    let write =
        |channel: &'static str| move |_| async move { Ok(Output::update([(channel, value!(1))])) };
    let graph = Graph::untyped()
        .channel("x", Kind::Last)
        .channel("y", Kind::Last)
        .node("left", write("x"))
        .node("right", write("y"))
        .edge(START, "left")
        .edge(START, "right")
        .build()
        .unwrap();
    let thread = storage.local.thread_with(&graph, ThreadId::mint());
    run(&thread, Input::Value(value!({"x": 0})))
        .await
        .result
        .unwrap();
    let error = refused_edit(&thread, None).await;
    assert_eq!(error.kind(), Some(Mistake::AmbiguousNode));
    assert!(error.message().contains("specify as_node"), "{error}");
    names(&error, "InvalidUpdateError", &thread, &[]).await;
}

async fn an_edit_during_a_run_is_refused(storage: &Storage) {
    let thread = thread(storage);
    how(&thread, "").await.result.unwrap();
    let running = tokio::spawn({
        let thread = thread.clone();
        async move { how(&thread, "wait").await }
    });
    // Until the run has stored its input.
    while thread.history(run::History::default()).await.unwrap().len() < 5 {
        tokio::task::yield_now().await;
    }
    let edited = thread
        .update_state(&"".into(), None, edit(Some("first")))
        .await;
    let error = edited.unwrap_err();
    assert!(
        matches!(error, run::LocalError::Running(id) if id == thread.id()),
        "{error}"
    );
    assert!(error.to_string().contains(&thread.id().to_string()));
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    thread
        .update_state(&"".into(), None, edit(Some("first")))
        .await
        .unwrap();
}

async fn one_answer_for_several_questions_is_refused(storage: &Storage) {
    let asks = |channel: &'static str| {
        move |ctx: Ctx| async move {
            let answer: i64 = ctx.interrupt("a number?").await;
            Ok(Output::update([(channel, value!(answer))]))
        }
    };
    let graph = Graph::untyped()
        .channel("x", Kind::Last)
        .channel("y", Kind::Last)
        .node("left", asks("x"))
        .node("right", asks("y"))
        .edge(START, "left")
        .edge(START, "right")
        .build()
        .unwrap();
    let thread = storage.local.thread_with(&graph, ThreadId::mint());
    run(&thread, Input::Value(value!({"x": 0})))
        .await
        .result
        .unwrap();
    let before = stands(&thread).await;
    let error = run(&thread, answer(1)).await.result.unwrap_err();
    assert_eq!(error.kind(), Some(Mistake::AmbiguousResume));
    assert_eq!(error.class(), "RuntimeError");
    assert!(error.message().contains("interrupt id"), "{error}");
    assert_eq!(stands(&thread).await, before);
    // Nothing of it is kept.
    let asked = run(&thread, Input::Null).await.result.unwrap();
    assert!(
        matches!(&asked, Ended::Interrupted(asked) if asked.len() == 2),
        "{asked:?}"
    );
}

fn the_server_tells_mistakes_apart(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let fails = |thread: &str, body: serde_json::Value| {
        let error = client.run(thread, &body)["__error__"].clone();
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (text("error"), text("message"))
    };
    let head = |thread: &str| {
        let state = client.state(thread);
        state["checkpoint"]["checkpoint_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let ask = |how: &str| json!({"assistant_id": "astray", "input": {"how": how}});
    let command =
        |command: serde_json::Value| json!({"assistant_id": "astray", "command": command});

    for (how, class, says) in [
        ("key", "KeyError", "chose `nowhere`"),
        ("goto", "UnknownNodeError", "`nowhere`"),
        (
            "both",
            "InvalidUpdateError",
            "Can receive only one value per step",
        ),
    ] {
        let thread = client.thread();
        let (error, message) = fails(&thread, ask(how));
        assert_eq!(error, class, "{message}");
        for part in [says, "node `", "task ", &head(&thread)] {
            assert!(message.contains(part), "{message}");
        }
        // The run, its thread and the state's tasks tell the same.
        let listed = client.get(&format!("/threads/{thread}")).json();
        assert_eq!(listed["status"], "error");
        assert!(listed["error"].to_string().contains(says), "{listed}");
    }

    let thread = client.thread();
    client.run(&thread, &ask("ask"));
    let state = client.state(&thread);
    let task = state["tasks"][0]["id"].as_str().unwrap().to_owned();
    let unknown = "0".repeat(32);
    let (error, message) = fails(&thread, command(json!({"resume": {(&*unknown): 1}})));
    assert_eq!(error, "UnknownInterruptError", "{message}");
    assert!(
        message.contains(&unknown) && message.contains(&head(&thread)),
        "{message}"
    );
    let (error, message) = fails(&thread, command(json!({"resume": "no number"})));
    assert_eq!(error, "ValueError");
    for part in ["does not fit", "`first`", &task, &head(&thread)] {
        assert!(message.contains(part), "{message}");
    }
    let (error, message) = fails(&thread, command(json!({"goto": "nowhere"})));
    assert_eq!(error, "UnknownNodeError");
    assert!(
        message.contains("`nowhere`") && message.contains(&head(&thread)),
        "{message}"
    );
    assert_eq!(
        client.state(&thread)["tasks"][0]["interrupts"],
        state["tasks"][0]["interrupts"]
    );
    let done = client.run(&thread, &command(json!({"resume": 7})));
    assert_eq!(done["x"], 7);
    // Clients of LangGraph may answer twice: the state is told again.
    assert_eq!(client.run(&thread, &command(json!({"resume": 8}))), done);

    let path = format!("/threads/{thread}/state");
    let unknown = json!({"values": {"x": 1}, "as_node": "nowhere"});
    let detail = client.post(&path, &unknown).refused(400);
    assert!(
        detail.contains("nowhere") && detail.contains(&head(&thread)),
        "{detail}"
    );
    let two = client.thread();
    client.run(
        &two,
        &json!({"assistant_id": "astray", "input": {"how": "two"}}),
    );
    let path = format!("/threads/{two}/state");
    let detail = client
        .post(&path, &json!({"values": {"x": 1}}))
        .refused(400);
    assert!(
        detail.contains("as_node") && detail.contains(&head(&two)),
        "{detail}"
    );

    let busy = client.thread();
    client.run(&busy, &ask(""));
    let body = json!({"assistant_id": "astray", "input": {"how": "wait"}});
    let path = format!("/threads/{busy}");
    assert_eq!(client.post(&format!("{path}/runs"), &body).status, 200);
    let edit = json!({"values": {"x": 1}, "as_node": "first"});
    let detail = client.post(&format!("{path}/state"), &edit).refused(409);
    assert!(detail.contains(&busy), "{detail}");
}
