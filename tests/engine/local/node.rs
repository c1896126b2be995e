//! One node by itself: what it gets, and what it does.

use super::*;

#[derive(State)]
struct Post {
    topic: String,
    #[state(append)]
    notes: Vec<String>,
    body: Option<String>,
}

#[derive(Deserialize)]
struct Style {
    loud: bool,
}

async fn write(post: Post, style: Config<Style>, ctx: Ctx) -> Result<Command<Post>> {
    let n: usize = ctx.step("count", async { Ok(post.notes.len()) }).await?;
    ctx.emit(json!({"notes": n}));
    ctx.remember(&["posts"], "topic", &post.topic).await?;
    let topic: Option<String> = ctx.recall(&["posts"], "topic").await?;
    let mut body = format!("{} ({n})", topic.unwrap_or_default());
    if style.0.loud {
        body = body.to_uppercase();
    }
    let first: bool = ctx.interrupt(&body).await;
    let second: bool = ctx.interrupt("Sure?").await;
    let next = if first && second { "publish" } else { END };
    Ok(Post::update().body(body).notes("written").goto(next))
}

fn node() -> NodeRun<Post> {
    NodeRun::<Post>::of(write)
        .state(Post::update().topic("bees").notes(["a", "b"]))
        .context(json!({"loud": true}))
}

#[tokio::test]
async fn a_node_by_itself_reads_emits_interrupts_and_writes() {
    let asked = node().resume(true).run().await.unwrap();
    assert!(asked.is_interrupted() && asked.writes.is_empty());
    assert_eq!(asked.interrupts, ["BEES (2)", "Sure?"]);

    let done = node().resume(true).resume(true).run().await.unwrap();
    assert!(!done.is_interrupted());
    assert_eq!(done.emitted, [value!({"notes": 2})]);
    assert_eq!(&*done.goto[0].node, "publish");
    let state = done.state().unwrap();
    assert_eq!(state.body.as_deref(), Some("BEES (2)"));
    assert_eq!(state.notes, ["a", "b", "written"]);
    assert_eq!(state.topic, "bees");
}

#[tokio::test]
async fn what_a_node_by_itself_lacks_is_named() {
    let missing = |output: Result<_>| match output {
        Err(error) => error.to_string(),
        Ok(backstitch::run::NodeOutput::<Post> { .. }) => panic!("it runs"),
    };
    let wrong = NodeRun::<Post>::of(write).state(value!({"topics": "bees"}));
    insta::assert_snapshot!(missing(wrong.run().await), @"the state has no channel `topics` (did you mean `topic`?)");
    let wrong = node().resume("maybe").run().await;
    assert!(missing(wrong).contains("the answer does not fit"));
    async fn needs(_: Dep<String>) {}
    let wrong = NodeRun::<Post>::of(needs).run().await;
    assert!(missing(wrong).contains(".provide(Arc<alloc::string::String>)"));
    async fn calls(ctx: Ctx) -> Result<()> {
        ctx.call::<Value>("child", json!({})).await.map(drop)
    }
    let wrong = NodeRun::<Post>::of(calls).calls("chid", chat()).run().await;
    insta::assert_snapshot!(missing(wrong), @r#"node `node` calls no graph `child` (did you mean `chid`?): name it with `NodeOpts::new().calls("child", graph)`"#);
}

#[tokio::test]
async fn a_node_by_itself_streams_and_calls_graphs() {
    async fn talk(arg: Arg<String>, ctx: Ctx) -> Result<Update<Post>> {
        let input = Chat::update().messages(Message::human(arg.0));
        let reply: Chat = ctx.call("chat", input).await?;
        let last = reply.messages.last().map(Message::text).unwrap_or_default();
        Ok(Post::update().body(last))
    }
    async fn echo(chat: Chat) -> Update<Chat> {
        Chat::update().messages(Message::ai(chat.messages[0].text()))
    }
    let graph = Graph::<Chat>::new().node("echo", echo);
    let graph = graph.edge(START, "echo").build().unwrap();
    let node = NodeRun::<Post>::of(talk).arg("Hello").calls("chat", graph);
    let done = node.state(json!({"topic": "x"})).run().await.unwrap();
    assert_eq!(done.state().unwrap().body.as_deref(), Some("Hello"));
}
