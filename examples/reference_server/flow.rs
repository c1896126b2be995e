//! The graphs of control flow: `counter` has parallel nodes and a join, `router` commands that
//! choose what runs next, `mapreduce` one task per item.

use backstitch::{
    channel::Reducer,
    graph::{Goto, Output},
    prelude::*,
    value,
    value::Map,
};

use crate::parts::{Built, Form, INTEGER, get, state};

pub fn counter() -> Built {
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

pub fn router() -> Built {
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

pub fn mapreduce() -> Built {
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
