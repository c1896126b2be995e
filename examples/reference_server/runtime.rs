//! The graphs of the runtime: `failing` raises on demand, `slow` sleeps and emits events, `ctx` shows
//! the config of its run and writes to the memory shared between threads.

use std::{sync::Arc, time::Duration};

use backstitch::{graph::Output, prelude::*, value, value::Map};

use crate::parts::{BOOLEAN, Built, Form, INTEGER, TEXT, get, repr, state, text, truthy};

pub fn failing() -> Built {
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

pub fn slow() -> Built {
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

#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used: it says which keys of a context are kept"
)]
struct Context {
    who: String,
}

pub fn ctx() -> Built {
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
