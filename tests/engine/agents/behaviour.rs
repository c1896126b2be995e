//! What the agent does with replies that cannot be used, decisions that do not fit, and mistakes of its author.

use std::{sync::Arc, time::Duration};

use backstitch::{
    Local, RunOptions,
    agent::{Limit, Review, agent},
    graph::{NodeOpts, Retry},
    llm::{CallOptions, Reply, ToolChoice},
    message::{AiChunk, ToolCallChunk},
    prelude::*,
    run::{Input, StreamEvent},
    value,
};
use futures::StreamExt;

use super::{
    add, fail, send_letter,
    support::{Recorder, calling, hello, messages, resume, run, says, texts, thread},
    weather,
};

#[tokio::test]
async fn arguments_that_are_no_json_are_shown_to_the_model() {
    let model = Recorder::replying([calling("add", r#"{"a": 2, "b"#, "c1"), says("Sorry.")]);
    let graph = agent(model.clone()).tools([add()]).build().unwrap();
    let done = run(&graph).await;
    let all = messages(&done);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(all[2].tool_call_id(), Some("c1"));
    assert_eq!(all[2].get("status").unwrap(), "error");
    assert!(all[2].text().contains("not a JSON object"), "{all:?}");
    // The next request has the result right after the call.
    assert_eq!(model.requests()[1].len(), 3);
}

#[tokio::test]
async fn a_model_that_never_sends_a_reply_of_use_fails_the_run_after_a_few() {
    let cut = || calling("add", "{", "c1");
    let model = Recorder::replying(std::iter::repeat_with(cut).take(20));
    let graph = agent(model.clone())
        .tools([add()])
        .corrections(2)
        .build()
        .unwrap();
    let done = run(&graph).await;
    let error = done.result.unwrap_err().to_string();
    assert!(error.contains("3 replies in a row"), "{error}");
    assert_eq!(model.requests().len(), 3);
}

#[data]
struct Person {
    name: String,
    age: i64,
}

#[tokio::test]
async fn models_that_follow_schemas_respond_with_text_and_correct_it() {
    let mut model = Recorder::replying([
        says("{\"name\": \"Ada\"}"),
        says("{\"name\": \"Ada\", \"age\": 36}"),
    ]);
    model.follows_schemas = true;
    let graph = agent(model.clone())
        .respond_with::<Person>()
        .build()
        .unwrap();
    let done = run(&graph).await;
    assert_eq!(
        done.values["structured_response"],
        value!({"name": "Ada", "age": 36})
    );
    let calls = model.calls.lock();
    let (request, tools, options) = &calls[1];
    assert!(
        request.last().unwrap().text().contains("age"),
        "{request:?}"
    );
    assert!(tools.is_empty());
    let schema = options.schema.as_ref().unwrap();
    assert_eq!(
        (&*schema.name, &schema.schema["required"]),
        ("Person", &json!(["name", "age"]))
    );
}

#[tokio::test]
async fn other_models_respond_by_a_tool_that_they_have_to_call() {
    let model = Recorder::replying([calling("Person", r#"{"name": "Ada", "age": 36}"#, "c1")]);
    let graph = agent(model.clone())
        .respond_with::<Person>()
        .call_options(CallOptions::new().temperature(0.5))
        .build()
        .unwrap();
    let done = run(&graph).await;
    assert_eq!(done.values["structured_response"]["age"], 36);
    let (_, tools, options) = &model.calls.lock()[0];
    assert_eq!(tools, &["Person"]);
    assert_eq!(options.tool_choice, ToolChoice::Any);
    assert_eq!(options.temperature, Some(0.5));
}

#[tokio::test]
async fn edits_that_no_tool_takes_leave_the_interrupt_open_and_say_why() {
    let model = Recorder::replying([calling("add", r#"{"a": 2, "b": 3}"#, "c1"), says("Done.")]);
    let graph = agent(model)
        .tools([add()])
        .approve(["add"])
        .build()
        .unwrap();
    let thread = thread(&graph);
    thread.run(hello(), RunOptions::default()).await.unwrap();
    let edit = |action: Value| value!({"decisions": [{"type": "edit", "edited_action": action}]});
    for (value, expected) in [
        (value!("yes"), "a list of one decision a tool call"),
        (
            value!({"decisions": "approve"}),
            "a list of one decision a tool call",
        ),
        (
            value!({"decisions": [{"kind": "approve"}]}),
            "needs a \"type\"",
        ),
        (
            value!({"decisions": [{"type": "maybe"}]}),
            "\"maybe\" is not allowed",
        ),
        (
            value!({"decisions": [{"type": "respond"}]}),
            "needs a text in \"message\"",
        ),
        (
            edit(value!({"name": "add", "args": {"a": "two", "b": 3}})),
            "do not fit",
        ),
        (
            edit(value!({"name": "sub", "args": {}})),
            "no tool `sub`, only: add",
        ),
        (
            edit(value!({"name": "add"})),
            "\"edit\" needs \"edited_action\"",
        ),
    ] {
        let done = thread
            .run(resume(value), RunOptions::default())
            .await
            .unwrap();
        let error = done.result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let value = edit(value!({"name": "add", "args": {"a": 20, "b": 30}}));
    let done = thread
        .run(resume(value), RunOptions::default())
        .await
        .unwrap();
    let texts = texts(&done);
    assert!(texts[2].ends_with("20 + 30 = 50"), "{texts:?}");
    assert!(
        texts[2].contains("A human has changed this call"),
        "{texts:?}"
    );
}

/// A reply with two calls of `add`, whose ids are these.
fn twice(ids: [Option<&str>; 2]) -> AiChunk {
    let chunks = ids
        .into_iter()
        .zip(0i64..)
        .map(|(id, index)| ToolCallChunk {
            name: Some("add".into()),
            args: format!(r#"{{"a": {index}, "b": 1}}"#),
            id: id.map(Into::into),
            index: Some(index),
        });
    AiChunk {
        tool_call_chunks: chunks.collect(),
        ..AiChunk::default()
    }
}

#[tokio::test]
async fn decisions_belong_to_their_calls_also_where_a_server_sets_no_ids_or_one_for_all() {
    for ids in [[None, None], [Some(""), Some("")], [Some("c"), Some("c")]] {
        let model = Recorder::replying([twice(ids), says("Done.")]);
        let graph = agent(model)
            .tools([add()])
            .approve(["add"])
            .build()
            .unwrap();
        let thread = thread(&graph);
        thread.run(hello(), RunOptions::default()).await.unwrap();
        let edited = value!({"name": "add", "args": {"a": 20, "b": 30}});
        let decisions = value!({"decisions": [
            {"type": "approve"}, {"type": "edit", "edited_action": edited},
        ]});
        let done = thread
            .run(resume(decisions), RunOptions::default())
            .await
            .unwrap();
        let texts = texts(&done);
        assert!(texts[2].ends_with("0 + 1 = 1"), "{ids:?}: {texts:?}");
        assert!(texts[3].ends_with("20 + 30 = 50"), "{ids:?}: {texts:?}");
        assert_eq!(texts.len(), 5, "{ids:?}: {texts:?}");
    }
}

#[tokio::test]
async fn a_model_that_only_talks_instead_of_responding_fails_the_run_after_a_few() {
    for reply in [says("I think so."), calling("lookup", "{}", "c1")] {
        let replies = std::iter::repeat_with(|| reply.clone()).take(20);
        let model = Recorder::replying(replies);
        let graph = agent(model.clone())
            .respond_with::<Person>()
            .corrections(2)
            .build()
            .unwrap();
        let done = run(&graph).await;
        let error = done.result.unwrap_err().to_string();
        assert!(error.contains("3 replies in a row"), "{error}");
        assert_eq!(model.requests().len(), 3);
    }
}

#[tokio::test]
async fn responses_of_earlier_turns_are_not_counted_as_wrong() {
    let response = || calling("Person", r#"{"name": "Ada", "age": 36}"#, "c1");
    let model = Recorder::replying(std::iter::repeat_with(response).take(3));
    let graph = agent(model)
        .respond_with::<Person>()
        .corrections(0)
        .build()
        .unwrap();
    let thread = thread(&graph);
    for _ in 0..3 {
        // As in a loop around the agent, without anything new from a human.
        let more = value!({"messages": [{"type": "system", "content": "Check it."}]});
        let done = thread
            .run(Input::Value(more), RunOptions::default())
            .await
            .unwrap();
        done.result.unwrap();
        assert_eq!(done.values["structured_response"]["age"], 36);
    }
}

#[tokio::test]
async fn decisions_about_calls_that_are_gone_change_nothing() {
    let model = Recorder::replying([calling("add", r#"{"a": 2, "b": 3}"#, "c1"), says("Bye.")]);
    let graph = agent(model)
        .tools([add()])
        .approve(["add"])
        .build()
        .unwrap();
    let thread = thread(&graph);
    thread.run(hello(), RunOptions::default()).await.unwrap();
    // A client edits the conversation while the interrupt is open.
    let update = backstitch::run::StateUpdate {
        values: Some(
            value!({"messages": [{"type": "remove", "id": "__remove_all__"}, {"type": "human", "content": "Never mind"}]}),
        ),
        as_node: Some("__start__".into()),
        ..Default::default()
    };
    thread.update_state(&"".into(), None, update).await.unwrap();
    let value = value!({"decisions": [{"type": "approve"}]});
    let done = thread
        .run(resume(value), RunOptions::default())
        .await
        .unwrap();
    assert!(
        !texts(&done).iter().any(|text| text.contains("= 5")),
        "{:?}",
        texts(&done)
    );
}

#[tokio::test]
async fn reviews_may_concern_some_calls_and_describe_them() {
    let model = Recorder::replying([
        calling("send_letter", r#"{"to": "Bob", "text": "x"}"#, "c1"),
        calling("send_letter", r#"{"to": "Ada", "text": "y"}"#, "c2"),
    ]);
    let review = Review::new()
        .when(|call| call.args["to"] == "Ada")
        .describe(|call| format!("A letter to {}?", call.args["to"].as_str().unwrap()));
    let graph = agent(model)
        .tools([send_letter()])
        .review("send_letter", review);
    let graph = graph.build().unwrap();
    let thread = thread(&graph);
    thread.run(hello(), RunOptions::default()).await.unwrap();
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    let interrupts = state.snapshot.interrupts();
    assert_eq!(interrupts.len(), 1);
    let request = &interrupts[0].value["action_requests"][0];
    assert_eq!(request["description"], "A letter to Ada?");
    assert_eq!(request["args"]["text"], "y");
}

#[tokio::test]
async fn a_limit_may_fail_the_run() {
    let model = Recorder::replying([calling("fail", r#"{"reason": "x"}"#, "c1"), says("never")]);
    let graph = agent(model)
        .tools([fail()])
        .limit_model_calls(Limit::per_run(1).or_fail());
    let done = run(&graph.build().unwrap()).await;
    let error = done.result.unwrap_err().to_string();
    assert!(
        error.contains("limit of calls of the model is reached: 1 in this run"),
        "{error}"
    );
}

#[tokio::test]
async fn a_limit_of_tools_that_fails_the_run_does_not_call_the_model_twice() {
    let model = Recorder::replying([
        calling("fail", r#"{"reason": "x"}"#, "c1"),
        calling("fail", r#"{"reason": "y"}"#, "c2"),
        says("never"),
    ]);
    let calls = model.clone();
    let graph = agent(model)
        .tools([fail()])
        .model_opts(NodeOpts::new().retry(Retry::times(3).every(Duration::from_millis(1))))
        .limit_tool("fail", Limit::per_run(1).or_fail());
    let graph = graph.build().unwrap();
    assert!(graph.drawing(0).nodes.iter().any(|node| &**node == "limit"));
    let done = run(&graph).await;
    let error = done.result.unwrap_err().to_string();
    assert!(
        error.contains("limit of calls of `fail` is reached: 1 in this run"),
        "{error}"
    );
    assert_eq!(calls.requests().len(), 2, "once a turn");
}

#[test]
fn mistakes_are_reported_when_the_agent_is_built() {
    let model = ScriptedModel::replying([]);
    let built = agent(model)
        .tools([weather(), weather(), add()])
        .approve(["wether"])
        .review("add", Review::new().allow([]))
        .limit_tool("sub", Limit::per_run(1))
        .last_messages(0)
        .build();
    let Err(error) = built else {
        panic!("all of it is wrong")
    };
    let error = error.to_string();
    for expected in [
        "approvals of `wether`, which is none of its tools (weather, weather, add)",
        "the review of `add` allows no decision",
        "limit of calls of `sub`",
        "shown 0 messages",
        "two tools `weather`",
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_recorded_response_by_schema_is_repeated_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("conversation.jsonl");
    let ask = async |model: ScriptedModel, recorded: bool| {
        let model: Arc<dyn ChatModel> = if recorded {
            Arc::new(backstitch::llm::Recorder::new(model, &record))
        } else {
            Arc::new(model)
        };
        let graph = agent(model).respond_with::<Person>().build().unwrap();
        let thread = Local::memory().unwrap().thread(&graph);
        let done = thread.invoke(json!({"messages": "Who?"})).await.unwrap();
        done["structured_response"].to_json_value()
    };
    let text = r#"{"name": "Ada", "age": 36}"#;
    let real = ScriptedModel::replying([Message::ai(text)]).schemas(true);
    let first = ask(real, true).await;
    assert_eq!(first["name"], "Ada");
    let repeated = ask(ScriptedModel::recorded(&record).unwrap(), false).await;
    assert_eq!(repeated, first);
}

#[test]
fn what_a_prompt_needs_and_does_not_find_is_reported_when_the_graph_is_built() {
    struct Clock;
    let graph = agent(ScriptedModel::replying([]))
        .prompt_with(|_: Dep<Clock>| "Be brief.".to_owned())
        .build();
    let problems = graph.err().unwrap().to_string();
    assert!(problems.contains("Clock"), "{problems}");
}

/// Of an attempt that was cut nothing is stored.
#[tokio::test]
async fn of_a_reply_that_was_cut_and_came_again_the_last_pieces_are_the_message_that_is_stored() {
    let whole = Message::ai("It is warm and sunny in Oslo.");
    let replies = [Reply::cut(whole.clone(), 3), whole.clone().into()];
    let model = ScriptedModel::in_turn(replies);
    let again = NodeOpts::new().retry(Retry::times(2));
    let graph = agent(model).model_opts(again).build().unwrap();
    let thread = Local::memory().unwrap().thread(&graph);
    let mut events = thread.stream(json!({"messages": "Hi"}));
    let (mut shown, mut stored) = (String::new(), Value::Null);
    while let Some(event) = events.next().await {
        match event.unwrap() {
            StreamEvent::Token { text, .. } => shown += &text,
            StreamEvent::End(done) => stored = done["messages"].clone(),
            _ => {}
        }
    }
    let stored = stored.as_list().unwrap().iter();
    let texts: Vec<_> = stored.map(|message| message["content"].clone()).collect();
    assert_eq!(texts, ["Hi", "It is warm and sunny in Oslo."]);
    assert_eq!(shown, "It is warm It is warm and sunny in Oslo.");
}

#[tokio::test]
async fn a_fact_replaces_another_one_and_is_a_sentence_or_two() {
    let local = Local::memory().unwrap();
    // The result of the only call that the model makes in a new conversation.
    let call = async |name: &str, arguments: serde_json::Value| {
        let replies = [
            Message::ai("").calling(name, arguments),
            Message::ai("Done."),
        ];
        let memory = backstitch::agent::Memory::new(["facts"]).at_most(2);
        let graph = agent(ScriptedModel::replying(replies));
        let graph = graph.tools(memory.tools()).build().unwrap();
        let thread = local.thread(&graph);
        let done = thread.invoke(json!({"messages": "Hi"})).await.unwrap();
        done["messages"][2]["content"].as_str().unwrap().to_owned()
    };
    let noted = call("remember", json!({"fact": "Ada likes tea."})).await;
    let id = noted.strip_prefix("Remembered as ").unwrap();
    let id = id.trim_end_matches('.').to_owned();
    let again = call("remember", json!({"fact": "Ada likes tea."})).await;
    assert_eq!(again, noted, "it is stored once");
    let replaced = json!({"fact": "Ada likes coffee.", "replaces": id});
    call("remember", replaced).await;
    let known = call("recall", json!({"about": "drinks"})).await;
    assert!(
        known.contains("coffee") && !known.contains("tea"),
        "{known}"
    );
    for fact in ["Bob has a dog.", "Eve has a cat."] {
        call("remember", json!({"fact": fact})).await;
    }
    let known = call("recall", json!({"about": "pets"})).await;
    assert_eq!(known.lines().count(), 2, "{known}");
    let novel = call("remember", json!({"fact": "x".repeat(5000)})).await;
    assert!(novel.contains("4096 bytes"), "{novel}");
}
