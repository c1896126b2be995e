//! Small graphs with known behaviour, one per feature of the Agent Server protocol: what
//! compatibility checks run against, and a tour for readers.
//!
//! ```sh
//! cargo run --example reference_server -- --memory
//! curl -N localhost:2024/runs/stream -H 'content-type: application/json' -d '{
//!   "assistant_id": "agent", "stream_mode": ["messages-tuple", "values"],
//!   "input": {"messages": [{"role": "user", "content": "tool: 2 3"}]}}'
//! ```
//!
//! The graphs name their channels by hand, because each mirrors a Python graph key by key, down
//! to how Python writes a value as text. `chat_agent.rs` shows the typed form one would choose.

use std::{process::ExitCode, sync::Arc, time::Duration};

use backstitch::{
    Server,
    channel::{Kind, Reducer},
    graph::{Compiled, Goto, Invalid, Output, Untyped},
    message::{AiChunk, Role, ToolCall, ToolCallChunk},
    prelude::*,
    value,
    value::Map,
};
use futures::stream;

type Built = Result<Arc<Compiled>, Invalid>;

#[tokio::main]
async fn main() -> ExitCode {
    Server::new()
        .graph("agent", agent())
        .graph("chatsub", chatsub())
        .graph("router", router())
        .graph("counter", counter())
        .graph("approve", approve())
        .graph("approve_many", approve_many())
        .graph("subgraph", subgraph())
        .graph("failing", failing())
        .graph("slow", slow())
        .graph("mapreduce", mapreduce())
        .graph("ctx", ctx())
        .run()
        .await
}

// ---------------------------------------------------------------------------------------------
// What the graphs are made of.

/// A graph with channels of these names and forms.
fn state(channels: &[(&str, Form)]) -> Graph<Untyped> {
    channels
        .iter()
        .fold(Graph::untyped(), |graph, (name, form)| {
            let list = |kind: Reducer| (Kind::Aggregate(kind), json!({"type": "array"}));
            let (kind, schema) = match form {
                Form::Last(None) => (Kind::Last, json!({})),
                Form::Last(Some(kind)) => (Kind::Last, json!({ "type": kind })),
                Form::Sum => (Kind::Aggregate(Reducer::sum()), json!({"type": "integer"})),
                Form::Append => list(Reducer::append()),
                Form::Messages => list(Reducer::messages()),
            };
            graph.channel_with(*name, kind, schema)
        })
}

enum Form {
    /// Replaced by every write; the JSON type, if it has one.
    Last(Option<&'static str>),
    Sum,
    Append,
    Messages,
}

const TEXT: Form = Form::Last(Some("string"));
const INTEGER: Form = Form::Last(Some("integer"));
const BOOLEAN: Form = Form::Last(Some("boolean"));

/// A channel the node reads.
fn get(ctx: &Ctx, key: &str) -> Option<Value> {
    ctx.input().get(key).cloned()
}

/// What Python takes for true.
fn truthy(value: Option<Value>) -> bool {
    match value.unwrap_or_default() {
        Value::Null => false,
        Value::Bool(yes) => yes,
        Value::Str(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        number => number.as_f64() != Some(0.0),
    }
}

/// `str(value)` in Python.
fn text(value: &Value) -> String {
    match value {
        Value::Str(text) => text.to_string(),
        other => repr(other),
    }
}

/// `repr(value)` in Python.
fn repr(value: &Value) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Str(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::Str(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
        }
        Value::List(items) => format!("[{}]", join(items.iter().map(repr).collect())),
        Value::Map(map) => {
            let field = |(key, value): (&Arc<str>, &Value)| {
                format!("{}: {}", repr(&value!(key)), repr(value))
            };
            format!("{{{}}}", join(map.iter().map(field).collect()))
        }
        other => other.to_json(),
    }
}

fn to(node: &str) -> Goto {
    Goto {
        node: node.into(),
        arg: None,
    }
}

// ---------------------------------------------------------------------------------------------
// agent: a streaming model and a tool. chatsub: the same one level down.

fn agent() -> Built {
    state(&[("messages", Form::Messages)])
        .node("model", model)
        .node("tools", tools)
        .edge(START, "model")
        .route(
            "model",
            "tools_condition",
            |state| {
                let last = state.get("messages").and_then(|all| all.as_list()?.last());
                let calls = last.and_then(|last| last.get("tool_calls")?.as_list());
                let wanted = calls.is_some_and(|calls| !calls.is_empty());
                Ok(vec![to(if wanted { "tools" } else { END })])
            },
            Some([("tools", "tools"), (END, END)]),
        )
        .edge("tools", "model")
        .build()
}

fn chatsub() -> Result<Arc<Compiled>> {
    Ok(state(&[("messages", Form::Messages)])
        .subgraph("inner", agent()?)
        .edge(START, "inner")
        .build()?)
}

fn last_message(ctx: &Ctx) -> Result<Message> {
    let messages = &ctx.input()["messages"];
    match messages.as_list().and_then(<[_]>::last) {
        Some(last) => Ok(last.try_into()?),
        None => Err(Raised::new("IndexError", "list index out of range").into()),
    }
}

/// Says `echo: <text>`, word by word; for `tool: a b` it asks for the `add` tool first.
async fn model(ctx: Ctx) -> Result<Output> {
    let last = last_message(&ctx)?;
    let said = text(last.content());
    let mut pieces = match said.strip_prefix("tool:") {
        _ if last.role() == Role::Tool => words(&format!("tool said {said}")),
        Some(numbers) => vec![add_call(&numbers_of(numbers)?)],
        None => words(&format!("echo: {said}")),
    };
    pieces.push(AiChunk {
        last: true,
        ..AiChunk::text("")
    });
    pieces[0].id = Some(format!("lc_run--{}", uuid::Uuid::now_v7()).into());
    let reply = ctx.stream(stream::iter(pieces.into_iter().map(Ok))).await?;
    Ok(Output::update([("messages", value!([Value::from(reply)]))]))
}

fn words(text: &str) -> Vec<AiChunk> {
    let words = text.split(' ').enumerate();
    words
        .map(|(i, word)| match i {
            0 => AiChunk::text(word),
            _ => AiChunk::text(format!(" {word}")),
        })
        .collect()
}

fn numbers_of(text: &str) -> Result<[i64; 2]> {
    let raised = |message: String| Raised::new("ValueError", message);
    let mut numbers = Vec::new();
    for word in text.split_whitespace() {
        let number = word.parse::<i64>().map_err(|_| {
            let word = repr(&value!(word));
            raised(format!("invalid literal for int() with base 10: {word}"))
        })?;
        numbers.push(number);
    }
    let found = numbers.len();
    Ok(numbers.try_into().map_err(|_| match found {
        0 | 1 => raised(format!(
            "not enough values to unpack (expected 2, got {found})"
        )),
        _ => raised("too many values to unpack (expected 2)".to_owned()),
    })?)
}

fn add_call([a, b]: &[i64; 2]) -> AiChunk {
    AiChunk {
        tool_call_chunks: vec![ToolCallChunk {
            name: Some("add".into()),
            args: format!("{{\"a\": {a}, \"b\": {b}}}"),
            id: Some("call_1".into()),
            index: Some(0),
        }],
        ..AiChunk::text("")
    }
}

/// Answers all calls of the last message.
async fn tools(ctx: Ctx) -> Result<Output> {
    let calls = last_message(&ctx)?.tool_calls();
    let answers: Value = calls.iter().map(add).collect();
    Ok(Output::update([("messages", answers)]))
}

fn add(call: &ToolCall) -> Value {
    let answer = |content: String| {
        Message::tool(content, call.id.clone().unwrap_or_default()).with_name(call.name.clone())
    };
    let failed = |content: String| answer(content).with_field("status", "error");
    let number = |key: &str| call.args[key].as_i64();
    let message = match (&*call.name, number("a"), number("b")) {
        ("add", Some(a), Some(b)) => answer((i128::from(a) + i128::from(b)).to_string()),
        ("add", ..) => failed(format!(
            "Error invoking tool 'add' with kwargs {}: a and b must be integers",
            repr(&call.args)
        )),
        (name, ..) => failed(format!(
            "Error: {name} is not a valid tool, try one of [add]."
        )),
    };
    message.into()
}

// ---------------------------------------------------------------------------------------------
// counter: reducers, a sequence, parallel nodes and a join.

fn counter() -> Built {
    let steps = [("first", 1), ("left", 10), ("right", 100), ("last", 1000)];
    let graph = state(&[("count", Form::Sum), ("log", Form::Append)]);
    let graph = steps.into_iter().fold(graph, |graph, (name, by)| {
        graph.node(name, move |_| async move {
            Ok(Output::update([
                ("count", value!(by)),
                ("log", value!([name])),
            ]))
        })
    });
    graph
        .edge(START, "first")
        .edge("first", "left")
        .edge("first", "right")
        .join(["left", "right"], "last")
        .edge("last", END)
        .build()
}

// ---------------------------------------------------------------------------------------------
// approve: one question. approve_many: two in one superstep.

fn approve() -> Built {
    async fn ask(ctx: Ctx) -> Result<Output> {
        let request = get(&ctx, "request").unwrap_or_default();
        let question = value!({"question": "approve?", "request": request});
        let answer: Value = ctx.interrupt(question).await;
        Ok(Output::update([("answer", answer)]))
    }
    async fn finalize(ctx: Ctx) -> Result<Output> {
        let answer = get(&ctx, "answer").ok_or_else(|| Raised::new("KeyError", "'answer'"))?;
        let result = format!("answer={}", text(&answer));
        Ok(Output::update([("result", value!(result))]))
    }
    state(&[
        ("request", TEXT),
        ("answer", Form::Last(None)),
        ("result", TEXT),
    ])
    .node("ask", ask)
    .node("finalize", finalize)
    .edge(START, "ask")
    .edge("ask", "finalize")
    .build()
}

fn approve_many() -> Built {
    async fn ask(ctx: Ctx, name: &str, question: &str) -> Result<Output> {
        let answer: Value = ctx.interrupt(question).await;
        Ok(Output::update([("answers", value!([[name, answer]]))]))
    }
    state(&[("answers", Form::Append)])
        .node("ask_a", |ctx| ask(ctx, "a", "A?"))
        .node("ask_b", |ctx| ask(ctx, "b", "B?"))
        .edge(START, "ask_a")
        .edge(START, "ask_b")
        .build()
}

// ---------------------------------------------------------------------------------------------
// subgraph: three levels; the innermost asks a question if told to pause.

fn subgraph() -> Result<Arc<Compiled>> {
    async fn leaf(ctx: Ctx) -> Result<Output> {
        let mark = if truthy(get(&ctx, "pause")) {
            let answer: Value = ctx.interrupt(value!({"where": "leaf"})).await;
            format!("leaf:{}", text(&answer))
        } else {
            "leaf".to_owned()
        };
        Ok(Output::update([("path", value!([mark]))]))
    }
    async fn mark(label: &str) -> Result<Output> {
        Ok(Output::update([("path", value!([label]))]))
    }
    let level = || state(&[("path", Form::Append), ("pause", BOOLEAN)]);
    let grand = level().node("leaf", leaf).edge(START, "leaf").build()?;
    let child = level()
        .node("enter", |_| mark("enter"))
        .subgraph("grand", grand)
        .edge(START, "enter")
        .edge("enter", "grand")
        .build()?;
    Ok(level()
        .node("before", |_| mark("before"))
        .subgraph("child", child)
        .node("after", |_| mark("after"))
        .edge(START, "before")
        .edge("before", "child")
        .edge("child", "after")
        .build()?)
}

// ---------------------------------------------------------------------------------------------
// failing: raises on demand.

fn failing() -> Built {
    async fn good(_: Ctx) -> Result<Output> {
        Ok(Output::update([("done", value!(["good"]))]))
    }
    async fn bad(ctx: Ctx) -> Result<Output> {
        if truthy(get(&ctx, "fail")) {
            return Err(Raised::new("ValueError", "boom from node bad").into());
        }
        Ok(Output::update([("done", value!(["bad"]))]))
    }
    state(&[("fail", BOOLEAN), ("done", Form::Append)])
        .node("good", good)
        .node("bad", bad)
        .edge(START, "good")
        .edge("good", "bad")
        .build()
}

// ---------------------------------------------------------------------------------------------
// slow: sleeps, and says so with custom events.

fn slow() -> Built {
    async fn sleep(ctx: &Ctx) {
        let ms = get(ctx, "ms").and_then(|ms| ms.as_f64()).unwrap_or(100.0);
        let length = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
        tokio::time::sleep(length).await;
    }
    async fn work(ctx: Ctx) -> Result<Output> {
        let ticks = get(&ctx, "ticks").map_or(Some(2), |ticks| ticks.as_i64());
        let ticks = ticks.ok_or_else(|| Raised::new("TypeError", "`ticks` is no integer"))?;
        for tick in 0..ticks {
            ctx.emit(value!({ "tick": tick }));
            sleep(&ctx).await;
        }
        Ok(Output::update([("seen", value!(["work"]))]))
    }
    async fn rest(ctx: Ctx) -> Result<Output> {
        sleep(&ctx).await;
        Ok(Output::update([("seen", value!(["rest"]))]))
    }
    state(&[("ms", INTEGER), ("ticks", INTEGER), ("seen", Form::Append)])
        .node("work", work)
        .node("rest", rest)
        .edge(START, "work")
        .edge("work", "rest")
        .build()
}

// ---------------------------------------------------------------------------------------------
// mapreduce: one task per item.

fn mapreduce() -> Built {
    fn spread(state: &Map) -> Result<Vec<Goto>> {
        let items = state.get("items").and_then(Value::as_list);
        let task = |item: &Value| Goto {
            node: "square".into(),
            arg: Some(value!({ "item": item })),
        };
        Ok(items.unwrap_or_default().iter().map(task).collect())
    }
    async fn square(ctx: Ctx) -> Result<Output> {
        let square = match &ctx.input()["item"] {
            Value::Int(item) => item.checked_mul(*item).map(Value::from),
            Value::Float(item) => Some(value!(item * item)),
            _ => None,
        };
        let square = square.ok_or_else(|| Raised::new("TypeError", "an item is no number"))?;
        Ok(Output::update([("squares", value!([square]))]))
    }
    async fn reduce(ctx: Ctx) -> Result<Output> {
        let (squares, sum) = (get(&ctx, "squares").unwrap_or_default(), Reducer::sum());
        let mut squares = squares.as_list().unwrap_or_default().iter();
        let total = squares.try_fold(value!(0), |total, square| sum.fold(total, square))?;
        Ok(Output::update([("total", total)]))
    }
    state(&[
        ("items", Form::Last(Some("array"))),
        ("squares", Form::Append),
        ("total", INTEGER),
    ])
    .node("split", |_| async { Ok(Output::default()) })
    .node("square", square)
    .node("reduce", reduce)
    .edge(START, "split")
    .route("split", "spread", spread, Some([("square", "square")]))
    .edge("square", "reduce")
    .build()
}

// ---------------------------------------------------------------------------------------------
// ctx: what a node sees of its run, and the memory shared between threads.

#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used: it says which keys of a context are kept"
)]
struct Context {
    who: String,
}

fn ctx() -> Built {
    async fn show(ctx: Ctx) -> Result<Output> {
        let config = ctx.config();
        let plain = |(key, value): &(&Arc<str>, &Value)| {
            let plain = matches!(value, Value::Str(_) | Value::Int(_) | Value::Bool(_));
            plain && !key.starts_with("__")
        };
        let owned = |(key, value): (&Arc<str>, &Value)| (key.clone(), value.clone());
        let shown = |(key, value): (&Arc<str>, &Value)| {
            let text = match value {
                // A tuple there.
                Value::List(items) if items.len() == 1 => format!("({},)", repr(&items[0])),
                Value::List(items) => {
                    let items: Vec<String> = items.iter().map(repr).collect();
                    format!("({})", items.join(", "))
                }
                value => text(value),
            };
            (key.clone(), value!(text))
        };
        let configurable: Map = config
            .configurable
            .iter()
            .filter(plain)
            .map(owned)
            .collect();
        let metadata: Map = config.metadata.iter().map(shown).collect();
        let context = match &config.context {
            Value::Null => value!({}),
            context => context.clone(),
        };
        let note = value!({"text": get(&ctx, "text")});
        ctx.remember(&["notes"], "last", note).await?;
        let out = value!({
            "context": context,
            "configurable": configurable,
            "metadata": metadata,
            "tags": config.tags.clone(),
            "recursion_limit": config.recursion_limit,
        });
        Ok(Output::update([("out", out)]))
    }
    state(&[("text", TEXT), ("out", Form::Last(Some("object")))])
        .context::<Context>()
        .node("show", show)
        .edge(START, "show")
        .build()
}

// ---------------------------------------------------------------------------------------------
// router: commands that say what runs next.

fn router() -> Built {
    async fn hop(ctx: Ctx) -> Result<Output> {
        let n = get(&ctx, "n").map_or(Some(0), |n| n.as_i64());
        let n = n.ok_or_else(|| Raised::new("TypeError", "`n` is no integer"))?;
        let hop = format!("hop{n}");
        let update = Output::update([("n", value!(n.saturating_sub(1))), ("hops", value!([hop]))]);
        Ok(update.goto([if n > 1 { "hop" } else { "land" }]))
    }
    async fn land(_: Ctx) -> Result<Output> {
        Ok(Output::update([("hops", value!(["land"]))]))
    }
    let destinations = NodeOpts::new().destinations(["hop", "land"]);
    state(&[("n", INTEGER), ("hops", Form::Append)])
        .node_with("hop", hop, destinations)
        .node("land", land)
        .edge(START, "hop")
        .build()
}
