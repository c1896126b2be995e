//! The server that integration tests start when they need graphs that misbehave or wait.

use std::time::Duration;

use backstitch::{Server, prelude::*};

fn add(old: i64, new: i64) -> i64 {
    old + new
}

/// `first`, then `left` and `right` at once, then `last`.
#[derive(State)]
struct Counter {
    #[state(merge = add)]
    count: i64,
    #[state(append)]
    log: Vec<String>,
}

async fn first() -> Update<Counter> {
    Counter::update().count(1i64).log("first")
}

async fn left() -> Update<Counter> {
    Counter::update().count(10i64).log("left")
}

async fn right() -> Update<Counter> {
    Counter::update().count(100i64).log("right")
}

async fn last() -> Update<Counter> {
    Counter::update().count(1000i64).log("last")
}

/// Replies with 200 characters that depend on the number of messages so far.
#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

async fn bot(chat: Chat) -> Update<Chat> {
    let seed = u32::try_from(chat.messages.len()).unwrap_or(u32::MAX);
    Chat::update().messages(Message::ai(text(seed)))
}

/// 200 letters and spaces drawn from `seed`.
fn text(seed: u32) -> String {
    let letters = b"abcdefghijklmnopqrstuvwxyz      ";
    let mut x = seed;
    let mut draw = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(letters[(x >> 27) as usize])
    };
    (0..200).map(|_| draw()).collect()
}

/// Asks once, then says what was answered.
#[derive(State)]
struct Approve {
    request: Option<String>,
    answer: Option<Value>,
    result: Option<String>,
}

async fn ask(state: Approve, ctx: Ctx) -> Update<Approve> {
    let question = json!({"question": "approve?", "request": state.request});
    let answer: Value = ctx.interrupt(question).await;
    Approve::update().answer(answer)
}

async fn finalize(state: Approve) -> Update<Approve> {
    let answer = state.answer.unwrap_or(Value::Null);
    let answer = answer
        .as_str()
        .map_or_else(|| answer.to_json(), str::to_owned);
    Approve::update().result(format!("answer={answer}"))
}

/// Emits `ticks` custom events, `ms` milliseconds apart, in `work`; `rest` waits once more.
#[derive(State)]
struct Slow {
    ms: Option<u64>,
    ticks: Option<u64>,
    #[state(append)]
    seen: Vec<String>,
}

impl Slow {
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(self.ms.unwrap_or(100))).await;
    }
}

async fn work(state: Slow, ctx: Ctx) -> Update<Slow> {
    for tick in 0..state.ticks.unwrap_or(2) {
        ctx.emit(json!({"tick": tick}));
        state.pause().await;
    }
    Slow::update().seen("work")
}

async fn rest(state: Slow) -> Update<Slow> {
    state.pause().await;
    Slow::update().seen("rest")
}

/// Does as it is told in `how`, after one node that works.
#[derive(State)]
struct Fault {
    how: Option<String>,
    #[state(append)]
    done: Vec<String>,
}

async fn good() -> Update<Fault> {
    Fault::update().done("good")
}

async fn bad(state: Fault) -> Result<Command<Fault>> {
    let done = Command::from(Fault::update().done("bad"));
    match state.how.as_deref() {
        Some("panic") => panic!("this node panics on purpose"),
        Some("error") => Err(backstitch::error::Raised::new("ValueError", "no luck").into()),
        Some("endless") => Ok(done.goto("bad")),
        _ => Ok(done),
    }
}

fn stray(state: &Fault) -> &'static str {
    match state.how.as_deref() {
        Some("astray") => "nowhere",
        _ => END,
    }
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let counter = Graph::<Counter>::new()
        .node("first", first)
        .node("left", left)
        .node("right", right)
        .node("last", last)
        .edge(START, "first")
        .edge("first", "left")
        .edge("first", "right")
        .join(["left", "right"], "last")
        .build();
    let chat = Graph::<Chat>::new()
        .node("bot", bot)
        .edge(START, "bot")
        .build();
    let approve = Graph::<Approve>::new()
        .node("ask", ask)
        .node("finalize", finalize)
        .edge(START, "ask")
        .edge("ask", "finalize")
        .build();
    let slow = Graph::<Slow>::new()
        .node("work", work)
        .node("rest", rest)
        .edge(START, "work")
        .edge("work", "rest")
        .build();
    let fault = Graph::<Fault>::new()
        .node("good", good)
        .node("bad", bad)
        .edge(START, "good")
        .edge("good", "bad")
        .route("bad", stray, ["good", END])
        .build();
    Server::new()
        .graph("counter", counter)
        .graph("chat", chat)
        .graph("approve", approve)
        .graph("slow", slow)
        .graph("fault", fault)
        .run()
        .await
}
