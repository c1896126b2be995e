//! The graphs that benchmarks of agent servers run: deterministic, without models and network.
//!
//! ```sh
//! cargo run --release --example bench_server -- --memory
//! curl -N localhost:2024/runs/stream -H 'content-type: application/json' \
//!   -d '{"assistant_id": "seq10", "input": {"count": 0, "log": []}, "stream_mode": "updates"}'
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use backstitch::{
    Server,
    channel::{Kind, Reducer},
    graph::{Compiled, Goto, Invalid, Output, Untyped},
    message::AiChunk,
    prelude::*,
    value,
};
use futures::Stream;

type Built = Result<Arc<Compiled>, Invalid>;

/// Tokens after which a stream yields, as a model does while it waits for its next one.
const BURST: i64 = 16;

#[tokio::main]
async fn main() -> ExitCode {
    Server::new()
        .graph("seq10", seq10())
        .graph("chat", chat())
        .graph("tokens_custom", tokens_custom("token"))
        .graph("tokens_large", tokens_custom(&"token ".repeat(80)))
        .graph("tokens_msg", tokens_msg())
        .graph("fanout", fanout())
        .graph("loop", looping())
        .graph("sleeper", sleeper())
        .graph("grower", grower(Persist::Inherit))
        .graph("nested_grower", nested_grower())
        .run()
        .await
}

fn integer(graph: Graph<Untyped>, name: &str) -> Graph<Untyped> {
    graph.channel_with(name, Kind::Last, json!({"type": "integer"}))
}

fn sum(graph: Graph<Untyped>, name: &str) -> Graph<Untyped> {
    let kind = Kind::Aggregate(Reducer::sum());
    graph.channel_with(name, kind, json!({"type": "integer"}))
}

fn append(graph: Graph<Untyped>, name: &str) -> Graph<Untyped> {
    let kind = Kind::Aggregate(Reducer::append());
    graph.channel_with(name, kind, json!({"type": "array"}))
}

fn messages(graph: Graph<Untyped>) -> Graph<Untyped> {
    let kind = Kind::Aggregate(Reducer::messages());
    graph.channel_with("messages", kind, json!({"type": "array"}))
}

/// A chain of ten nodes; each counts itself and signs a log.
fn seq10() -> Built {
    let mut graph = append(sum(Graph::untyped(), "count"), "log");
    let mut before: Arc<str> = START.into();
    for k in 0..10 {
        let name: Arc<str> = format!("n{k}").into();
        let signature = Value::Str(name.clone());
        graph = graph
            .node(name.clone(), move |_| {
                let writes = [("count", value!(1)), ("log", value!([signature.clone()]))];
                async { Ok(Output::update(writes)) }
            })
            .edge(before, name.clone());
        before = name;
    }
    graph.edge(before, END).build()
}

/// Replies with a text made of the length of the conversation.
fn chat() -> Built {
    async fn bot(ctx: Ctx) -> Result<Output> {
        let said = ctx.input()["messages"].as_list().map_or(0, <[_]>::len);
        let reply = Message::ai(text(said as u32));
        Ok(Output::update([("messages", value!([Value::from(reply)]))]))
    }
    messages(Graph::untyped())
        .node("bot", bot)
        .edge(START, "bot")
        .edge("bot", END)
        .build()
}

/// 200 characters that hardly compress: the top bits of a 32-bit linear congruential generator.
fn text(seed: u32) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz      ";
    let next = |x: &u32| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(next(&seed), next)
        .take(200)
        .map(|x| char::from(LETTERS[(x >> 27) as usize]))
        .collect()
}

fn count(ctx: &Ctx) -> i64 {
    ctx.input()["n"].as_i64().unwrap_or(1_000)
}

/// Sends `n` custom events with this text each.
fn tokens_custom(token: &str) -> Built {
    async fn emit(ctx: Ctx, token: Value) -> Result<Output> {
        let n = count(&ctx);
        for i in 0..n {
            ctx.emit(value!({"i": i, "t": token.clone()}));
            if i % BURST == BURST - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Output::update([("done", value!(n))]))
    }
    let token = Value::from(token);
    integer(integer(Graph::untyped(), "n"), "done")
        .node("emit", move |ctx| emit(ctx, token.clone()))
        .edge(START, "emit")
        .edge("emit", END)
        .build()
}

/// Streams a message in `n` pieces.
fn tokens_msg() -> Built {
    async fn llm(ctx: Ctx) -> Result<Output> {
        let reply = ctx.stream(tokens(count(&ctx))).await?;
        Ok(Output::update([("messages", value!([Value::from(reply)]))]))
    }
    integer(messages(Graph::untyped()), "n")
        .node("llm", llm)
        .edge(START, "llm")
        .edge("llm", END)
        .build()
}

fn tokens(n: i64) -> impl Stream<Item = Result<AiChunk>> + Send {
    async_stream::stream! {
        for i in 0..n {
            yield Ok(AiChunk::text(format!("tok{i} ")));
            if i % BURST == BURST - 1 {
                tokio::task::yield_now().await;
            }
        }
        yield Ok(AiChunk { last: true, ..AiChunk::text("") });
    }
}

/// One task per number below `n`, and one that adds up what they found.
fn fanout() -> Built {
    async fn work(ctx: Ctx) -> Result<Output> {
        let i = ctx.input()["i"].as_i64().unwrap_or_default();
        Ok(Output::update([("results", value!([2 * i]))]))
    }
    async fn join(ctx: Ctx) -> Result<Output> {
        let results = ctx.input()["results"].as_list().unwrap_or_default();
        let total: i64 = results.iter().filter_map(Value::as_i64).sum();
        Ok(Output::update([("total", value!(total))]))
    }
    integer(append(integer(Graph::untyped(), "n"), "results"), "total")
        .node("work", work)
        .node("join", join)
        .route(
            START,
            "spread",
            |state| {
                let n = state.get("n").and_then(Value::as_i64).unwrap_or_default();
                let task = |i: i64| Goto {
                    node: "work".into(),
                    arg: Some(value!({"i": i})),
                };
                Ok((0..n).map(task).collect())
            },
            Some([("work", "work")]),
        )
        .edge("work", "join")
        .edge("join", END)
        .build()
}

/// Runs one node until it has counted to `target`; every superstep replaces a note.
fn looping() -> Built {
    async fn step(ctx: Ctx) -> Result<Output> {
        let done = ctx.input()["count"].as_i64().unwrap_or_default() + 1;
        let note = format!("{:.<100}", format!("step-{done:06}"));
        Ok(Output::update([
            ("count", value!(1)),
            ("note", value!(note)),
        ]))
    }
    let graph =
        sum(Graph::untyped(), "count").channel_with("note", Kind::Last, json!({"type": "string"}));
    integer(graph, "target")
        .node("step", step)
        .edge(START, "step")
        .route(
            "step",
            "again",
            |state| {
                let get = |key| state.get(key).and_then(Value::as_i64).unwrap_or_default();
                let node = if get("count") < get("target") {
                    "step"
                } else {
                    END
                };
                Ok(vec![Goto {
                    node: node.into(),
                    arg: None,
                }])
            },
            Some([("step", "step"), (END, END)]),
        )
        .build()
}

fn seconds() -> Graph<Untyped> {
    Graph::untyped().channel_with("seconds", Kind::Last, json!({"type": "number"}))
}

async fn sleep(ctx: Ctx) -> Result<Output> {
    let seconds = ctx.input()["seconds"].as_f64().unwrap_or_default();
    tokio::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 300.0))).await;
    Ok(Output::update([("done", value!(1))]))
}

/// Does nothing for a while, at most five minutes.
fn sleeper() -> Built {
    integer(seconds(), "done")
        .node("sleep", sleep)
        .edge(START, "sleep")
        .edge("sleep", END)
        .build()
}

/// Appends `n` items to its state, and does nothing for a while then.
fn grower(persist: Persist) -> Built {
    async fn grow(ctx: Ctx) -> Result<Output> {
        let items: Vec<Value> = (0..count(&ctx)).map(|_| Value::Null).collect();
        Ok(Output::update([("items", Value::list(items))]))
    }
    integer(integer(append(seconds(), "items"), "n"), "done")
        .node("grow", grow)
        .node("sleep", sleep)
        .edge(START, "grow")
        .edge("grow", "sleep")
        .edge("sleep", END)
        .persist(persist)
        .build()
}

/// The same inside, with a state that the thread keeps.
fn nested_grower() -> Built {
    integer(integer(seconds(), "n"), "done")
        .subgraph("inside", grower(Persist::Thread)?)
        .edge(START, "inside")
        .edge("inside", END)
        .build()
}
