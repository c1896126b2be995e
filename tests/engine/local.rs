//! Graphs that a program runs by itself: invoked, streamed and resumed, with branches and tags.

use std::sync::Arc;

use backstitch::{
    Local, NodeRun, RunOptions,
    graph::Compiled,
    prelude::*,
    run::{Address, LocalError, StreamEvent},
    value,
};
use futures::StreamExt;

use crate::{on_both, storages::Storage};

mod interrupt;
mod node;
mod run_ahead;

on_both!(
    branches_tags_and_differences_are_those_of_the_tree,
    a_fork_shares_the_path_and_goes_on_by_itself,
);

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
    agreed: Option<bool>,
}

async fn reply(chat: Chat, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Update<Chat>> {
    ctx.emit(json!({"lines": chat.messages.len()}));
    let reply = ctx.chat(&*model, &chat.messages, &[]).await?;
    Ok(Chat::update().messages(reply))
}

async fn ask(ctx: Ctx) -> Update<Chat> {
    Chat::update().agreed(ctx.interrupt::<bool>("Good?").await)
}

fn chat() -> Arc<Compiled> {
    let model: Arc<dyn ChatModel> = Arc::new(ScriptedModel::replying([
        Message::ai("Good day!"),
        Message::ai("Good night!"),
    ]));
    Graph::<Chat>::new()
        .provide(model)
        .node("reply", reply)
        .node("ask", ask)
        .edge(START, "reply")
        .edge("reply", "ask")
        .build()
        .unwrap()
}

#[tokio::test]
async fn ids_of_new_messages_have_at_most_255_characters() {
    let thread = Local::memory().unwrap().thread(&chat());
    let hello = |length: usize| Message::human("Hello").with_id("x".repeat(length));
    let refused = thread.invoke(Chat::update().messages(hello(256))).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("at most 255 characters"), "{refused}");
    let taken = thread.invoke(Chat::update().messages(hello(255))).await;
    assert_eq!(taken.unwrap().values::<Chat>().unwrap().messages.len(), 2);
}

#[tokio::test]
async fn a_stream_shows_what_happens_in_typed_events() {
    let thread = Local::memory().unwrap().thread(&chat());
    let mut events = thread.stream(Chat::update().messages(Message::human("Hello")));
    let (mut text, mut shown, mut end) = (String::new(), vec![], None);
    while let Some(event) = events.next().await {
        match event.unwrap() {
            StreamEvent::Token { node, text: piece } => {
                assert_eq!(&*node, "reply");
                text.push_str(&piece);
            }
            StreamEvent::Custom(value) => shown.push(format!("custom {value}")),
            StreamEvent::Update { node, .. } => shown.push(format!("update {node}")),
            StreamEvent::Interrupt(interrupt) => {
                shown.push(format!("interrupt {}", interrupt.value));
            }
            StreamEvent::End(output) => end = Some(output),
            _ => assert!(end.is_none()),
        }
    }
    assert_eq!(text, "Good day!");
    assert_eq!(
        shown,
        [
            "custom {\"lines\":1}",
            "update reply",
            "interrupt \"Good?\""
        ]
    );
    let end = end.unwrap();
    assert_eq!(end.next(), ["ask".into()]);
    assert_eq!(
        end.values::<Chat>().unwrap().messages[1].text(),
        "Good day!"
    );

    let events: Vec<_> = thread.stream_resume(true).collect().await;
    let Some(Ok(StreamEvent::End(output))) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(output["agreed"], true);
    assert!(output.interrupts().is_empty() && output.next().is_empty());
}

#[tokio::test]
async fn a_dropped_stream_stops_its_run_and_the_thread_can_go_on() {
    let thread = Local::memory().unwrap().thread(&chat());
    let mut events = thread.stream(json!({"messages": "Hello"}));
    while let Some(event) = events.next().await {
        if let StreamEvent::Token { .. } = event.unwrap() {
            break;
        }
    }
    drop(events);
    let done = thread.invoke(()).await.unwrap();
    assert_eq!(done.interrupts()[0].value, "Good?");
}

#[tokio::test]
async fn the_error_of_a_run_names_the_node_also_one_of_a_graph_inside() {
    async fn fine() {}
    async fn fails() -> Result<()> {
        anyhow::bail!("no bees today")
    }
    let inside = Graph::<Chat>::new()
        .node("count", fails)
        .edge(START, "count")
        .build()
        .unwrap();
    let graph = Graph::<Chat>::new()
        .node("fine", fine)
        .subgraph("hive", inside)
        .edge(START, "fine")
        .edge("fine", "hive")
        .build()
        .unwrap();
    let thread = Local::memory().unwrap().thread(&graph);
    let failed = thread.invoke(value!({"agreed": true})).await.unwrap_err();
    let LocalError::Run { node, .. } = &failed else {
        panic!("{failed:?}");
    };
    assert_eq!(node.as_deref(), Some("count"));
    assert!(failed.to_string().starts_with("node `count`: "), "{failed}");
    assert!(failed.to_string().contains("no bees today"), "{failed}");

    let options = RunOptions {
        recursion_limit: Some(1),
        ..RunOptions::default()
    };
    let limited = thread.with(options).invoke(value!({"agreed": true})).await;
    let Err(LocalError::Run { node: None, source }) = limited else {
        panic!("{limited:?}");
    };
    assert_eq!(source.class(), "GraphRecursionError");
}

#[tokio::test]
async fn values_that_have_no_encoded_form_and_values_for_no_interrupt_are_refused() {
    let thread = Local::memory().unwrap().thread(&chat());
    let strange = std::collections::HashMap::from([((1, 2), 3)]);
    let refused = thread.resume(strange).await.unwrap_err();
    assert!(matches!(refused, LocalError::Input(_)), "{refused:?}");
    let nothing = thread.resume(true).await.unwrap_err();
    assert!(matches!(nothing, LocalError::Run { .. }), "{nothing:?}");
    let twice = Chat::update().agreed(true).agreed(false);
    let refused = thread.invoke(twice).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the input updates channel `agreed` twice: give it one value"
    );
}

#[derive(State)]
struct Story {
    #[state(messages)]
    messages: Vec<Message>,
    end: Option<String>,
}

fn story() -> Arc<Compiled> {
    async fn tell() {}
    let graph = Graph::<Story>::new().node("tell", tell);
    graph.edge(START, "tell").build().unwrap()
}

fn line(text: &str) -> StoryUpdate {
    Story::update().messages(Message::human(text))
}

async fn branches_tags_and_differences_are_those_of_the_tree(storage: &Storage) {
    let thread = storage.local.thread(&story());
    let missing = thread.branches().await.unwrap_err();
    assert!(matches!(missing, LocalError::Refused(_)), "{missing:?}");
    thread.invoke(line("There is a fork.")).await.unwrap();
    let tag = thread.tag("fork", Address::default()).await.unwrap();
    let left = line("They go left.").end("a lake".to_owned());
    thread.invoke(left).await.unwrap();
    assert_eq!(thread.tags().await.unwrap(), [tag]);

    let other = thread.rewind(Address::tag("fork")).await.unwrap();
    assert!(other.is_active);
    let right = thread.invoke(line("They go right.")).await.unwrap();
    let right: Story = right.values().unwrap();
    let told: Vec<_> = right.messages.iter().map(Message::text).collect();
    assert_eq!(told, ["There is a fork.", "They go right."]);

    let other = Address::branch(other.name);
    let diff = thread.diff(Address::branch("main"), other).await.unwrap();
    assert_eq!(diff.removed[0].text(), "They go left.");
    assert_eq!(diff.added[0].text(), "They go right.");
    assert_eq!(diff.channels.removed["end"], "a lake");

    thread.switch("main").await.unwrap();
    let on_main = thread.invoke(line("The lake is cold.")).await.unwrap();
    assert_eq!(on_main.values::<Story>().unwrap().messages.len(), 3);
    let last: Story = on_main.values().unwrap();
    let before = Address::message(last.messages[2].id().unwrap()).before();
    let side = thread.branch("side", before).await.unwrap();
    assert!(!side.is_active);
    let names: Vec<_> = thread.branches().await.unwrap();
    assert_eq!(names.len(), 3);
    assert_eq!(names.iter().filter(|branch| branch.is_active).count(), 1);
    thread.delete_branch("side").await.unwrap();
    thread.delete_tag("fork").await.unwrap();
    for gone in [
        thread.switch("side").await.unwrap_err(),
        thread.rewind(Address::tag("fork")).await.unwrap_err(),
        thread.branch("a b", Address::default()).await.unwrap_err(),
    ] {
        assert!(matches!(gone, LocalError::Refused(_)), "{gone:?}");
    }
}

async fn a_fork_shares_the_path_and_goes_on_by_itself(storage: &Storage) {
    let thread = storage.local.thread(&story());
    thread.invoke(line("one")).await.unwrap();
    let fork = thread.fork(Address::default()).await.unwrap();
    assert_ne!(fork.id(), thread.id());
    let told = fork.invoke(line("two")).await.unwrap();
    assert_eq!(told.values::<Story>().unwrap().messages.len(), 2);
    let told = thread.invoke(line("three")).await.unwrap();
    assert_eq!(told.values::<Story>().unwrap().messages[1].text(), "three");
}
