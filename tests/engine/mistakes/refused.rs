//! What nodes return, edits write and commands carry, and channels or routes refuse.

use super::*;

on_both!(
    a_fan_out_to_the_end_names_its_place,
    what_is_no_message_names_who_wrote_it,
    an_edit_that_a_channel_or_a_route_refuses_names_its_place,
    a_command_that_a_channel_refuses_names_its_checkpoint,
);

/// One node that returns this, with a channel of messages and one slot.
fn returning(output: Output) -> Arc<Compiled> {
    Graph::untyped()
        .channel("messages", Kind::Aggregate(Reducer::messages()))
        .channel("x", Kind::Last)
        .node("first", move |_| {
            let output = output.clone();
            async move { Ok(output) }
        })
        .node("second", |_| async { Ok(Output::default()) })
        .edge(START, "first")
        .route(
            "second",
            "astray",
            |_| {
                Ok(vec![Goto {
                    node: "middle".into(),
                    arg: None,
                }])
            },
            Some([("first", "first")]),
        )
        .build()
        .unwrap()
}

async fn failed(thread: &Thread) -> Error {
    let input = Input::Value(value!({"x": 0}));
    run(thread, input).await.result.unwrap_err()
}

async fn a_fan_out_to_the_end_names_its_place(storage: &Storage) {
    let output = Output {
        goto: vec![Goto {
            node: END.into(),
            arg: Some(value!(1)),
        }],
        ..Output::default()
    };
    let thread = storage
        .local
        .thread_with(&returning(output), ThreadId::mint());
    let error = failed(&thread).await;
    assert_eq!(error.kind(), Some(Mistake::EndArgument));
    names(&error, "InvalidUpdateError", &thread, &["first"]).await;
    // The same is told of the task in the state.
    let state = thread.state(&"".into(), None, false).await.unwrap();
    let told = state.unwrap().snapshot.tasks[0].error.clone().unwrap();
    assert_eq!(told["message"], *error.message());
}

async fn what_is_no_message_names_who_wrote_it(storage: &Storage) {
    let gone = value!({"type": "remove", "id": "nobody"});
    for bad in [value!(5), gone] {
        let output = Output::update([("messages", bad)]);
        let thread = storage
            .local
            .thread_with(&returning(output), ThreadId::mint());
        let error = failed(&thread).await;
        assert!(matches!(&error, Error::Channel { channel, .. } if &**channel == "messages"));
        let class = error.class().to_owned();
        names(&error, &class, &thread, &["first"]).await;
    }
}

async fn an_edit_that_a_channel_or_a_route_refuses_names_its_place(storage: &Storage) {
    let thread = storage
        .local
        .thread_with(&returning(Output::default()), ThreadId::mint());
    let done = run(&thread, Input::Value(value!({"x": 0}))).await;
    done.result.unwrap();
    let before = stands(&thread).await;
    let write = |as_node: &str, values| StateUpdate {
        values: Some(values),
        as_node: Some(as_node.into()),
        command: None,
        task: None,
    };
    let x = || write("first", value!({"x": 1}));
    for (step, class, by) in [
        (vec![x(), x()], "InvalidUpdateError", "first"),
        (
            vec![write("second", value!({"x": 1}))],
            "KeyError",
            "second",
        ),
        (
            vec![write("first", value!({"messages": 5}))],
            "NotImplementedError",
            "first",
        ),
    ] {
        let edited = thread.bulk_update_state(&"".into(), None, vec![step]).await;
        let Err(run::LocalError::Engine(error)) = edited else {
            panic!("{edited:?}");
        };
        names(&error, class, &thread, &[]).await;
        let message = error.message();
        let named = format!("node `{by}`, task ");
        assert!(message.contains(&named), "{message}");
        assert_eq!(stands(&thread).await, before);
    }
}

async fn a_command_that_a_channel_refuses_names_its_checkpoint(storage: &Storage) {
    let thread = storage
        .local
        .thread_with(&returning(Output::default()), ThreadId::mint());
    let done = run(&thread, Input::Value(value!({"x": 0}))).await;
    done.result.unwrap();
    let before = stands(&thread).await;
    for (update, class) in [
        (vec![("messages".into(), value!(5))], "NotImplementedError"),
        (
            vec![("x".into(), value!(1)), ("x".into(), value!(2))],
            "InvalidUpdateError",
        ),
    ] {
        let command = ClientCommand {
            update,
            ..ClientCommand::default()
        };
        let error = run(&thread, Input::Command(command)).await.result;
        names(&error.unwrap_err(), class, &thread, &[]).await;
        assert_eq!(stands(&thread).await.0, before.0);
    }
}
