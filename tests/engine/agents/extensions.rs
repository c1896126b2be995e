//! Agents with more than a model and tools: hooks, states of their own, dynamic prompts, other agents.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use backstitch::{
    RunOptions,
    agent::{Agent, AgentState, Next, agent, hand_off},
    message::ToolCall,
    prelude::*,
    run::Input,
    value,
};

use super::{
    add,
    support::{Recorder, calling, hello, messages, run, says, texts, thread},
};

#[tokio::test]
async fn functions_around_tools_change_calls_and_results_and_retry() {
    let model = Recorder::replying([calling("add", r#"{"a": 2, "b": 3}"#, "c1"), says("Done.")]);
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let graph = agent(model)
        .tools([add()])
        .around_tools(async |call: ToolCall, next: Next| {
            let result = next.run(call).await?;
            let text = format!("[{}]", result.message().text());
            let message = result.message().clone().with_field("content", text);
            Ok(result.with_message(message))
        })
        .around_tools(move |mut call: ToolCall, next: Next| {
            let counted = counted.clone();
            async move {
                next.run(call.clone()).await?;
                counted.fetch_add(1, Ordering::Relaxed);
                call.args = value!({"a": 1, "b": 1});
                next.run(call).await
            }
        })
        .build()
        .unwrap();
    let done = run(&graph).await;
    assert_eq!(texts(&done)[2], "[1 + 1 = 2]");
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[data]
struct Settings {
    language: String,
}

#[derive(State)]
struct Desk {
    #[state(messages)]
    messages: Vec<Message>,
    customer: Option<String>,
    #[state(append)]
    log: Vec<String>,
}

/// Notes the customer's name.
#[tool]
async fn note(name: String) -> ToolOutput {
    ToolOutput::new("Noted.").update(Desk::update().customer(name))
}

async fn greet(desk: Desk) -> Update<Desk> {
    Desk::update().log(format!("{} messages", desk.messages.len()))
}

async fn log_reply(desk: Desk) -> Update<Desk> {
    let last = desk.messages.last().map(Message::text).unwrap_or_default();
    Desk::update().log(format!("reply: {last}"))
}

#[tokio::test]
async fn a_state_of_ones_own_is_read_by_prompts_and_hooks_and_updated_by_tools() {
    let model = Recorder::replying([
        calling("note", r#"{"name": "Ada"}"#, "c1"),
        says("Hello Ada."),
    ]);
    let graph = Agent::<Desk>::new(model.clone())
        .tools([note()])
        .context::<Settings>()
        .prompt_with(|ctx: Ctx| {
            let language = ctx.config().context["language"]
                .as_str()
                .unwrap_or("?")
                .to_owned();
            let customer = ctx.input()["customer"]
                .as_str()
                .unwrap_or("nobody")
                .to_owned();
            format!("Speak {language} to {customer}.")
        })
        .before_agent("open", greet)
        .before_model("count", greet)
        .after_model("log", log_reply)
        .after_agent("close", greet)
        .build()
        .unwrap();
    let mut options = RunOptions::default();
    options.config.context = value!({"language": "Norwegian"});
    let done = thread(&graph).run(hello(), options).await.unwrap();
    assert_eq!(done.values["customer"], "Ada");
    let prompts: Vec<String> = model
        .requests()
        .iter()
        .map(|request| request[0].text())
        .collect();
    assert_eq!(
        prompts,
        ["Speak Norwegian to nobody.", "Speak Norwegian to Ada."]
    );
    let expected = value!([
        "1 messages",
        "1 messages",
        "reply: ",
        "3 messages",
        "reply: Hello Ada.",
        "4 messages"
    ]);
    assert_eq!(done.values["log"], expected);
    let nodes = graph.drawing(0).nodes;
    assert!(
        ["model", "tools", "open", "count", "log", "close"]
            .iter()
            .all(|name| nodes.iter().any(|node| node == name))
    );
}

#[tokio::test]
async fn the_model_is_shown_the_last_messages_and_results_of_calls_that_have_none() {
    let model = Recorder::replying([says("Go on."), says("Bye.")]);
    let graph = agent(model.clone())
        .tools([add()])
        .last_messages(3)
        .build()
        .unwrap();
    let thread = thread(&graph);
    let history = value!({"messages": [
        {"type": "human", "content": "old"},
        {"type": "ai", "content": "old reply"},
        {"type": "human", "content": "new"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "add", "args": {}, "id": "c9"}]},
        {"type": "human", "content": "well?"},
    ]});
    thread
        .run(Input::Value(history), RunOptions::default())
        .await
        .unwrap();
    let request = &model.requests()[0];
    let texts: Vec<String> = request.iter().map(Message::text).collect();
    assert_eq!(
        texts,
        [
            "new",
            "",
            "This call has no result: it may have been carried out. Check before you repeat it.",
            "well?"
        ]
    );
    let state = thread
        .state(&"".into(), None, false)
        .await
        .unwrap()
        .unwrap();
    let stored = state.snapshot.checkpoint.values["messages"]
        .as_list()
        .unwrap()
        .len();
    assert_eq!(stored, 6, "what is added for the model is not stored");
}

#[tokio::test]
async fn a_hand_off_goes_on_with_another_agent_and_the_whole_conversation() {
    let front = Recorder::replying([calling("transfer_to_support", "{}", "c1")]);
    let support = Recorder::replying([says("Support here.")]);
    let to_support = hand_off("support", "For broken things.");
    let front = agent(front)
        .name("front")
        .tools([to_support])
        .build()
        .unwrap();
    let helpers = agent(support.clone()).name("support").build().unwrap();
    let opts = NodeOpts::new().destinations(["support"]);
    let graph = Graph::<AgentState>::new()
        .subgraph_with("front", front, opts)
        .subgraph("support", helpers)
        .edge(START, "front")
        .build()
        .unwrap();
    let done = run(&graph).await;
    assert_eq!(
        texts(&done),
        ["Hi", "", "support takes over.", "Support here."]
    );
    let roles: Vec<_> = support.requests()[0]
        .iter()
        .map(|m| m.role().as_str().to_owned())
        .collect();
    assert_eq!(roles, ["human", "ai", "tool"]);
    assert_eq!(messages(&done)[3].name(), Some("support"));
}
