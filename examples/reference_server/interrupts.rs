//! The graphs with interrupts: `approve` has one, `approve_many` two in one superstep, and
//! `subgraph` one in the innermost of three levels if its input says so.

use std::sync::Arc;

use backstitch::{
    graph::{Compiled, Output},
    prelude::*,
    value,
};

use crate::parts::{BOOLEAN, Built, Form, TEXT, get, state, text, truthy};

pub fn approve() -> Built {
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

pub fn approve_many() -> Built {
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

pub fn subgraph() -> Result<Arc<Compiled>> {
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
