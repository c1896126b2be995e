//! Tests of tools: their schemas, results and errors.

use anyhow::Context;

use super::*;
use crate::{
    extract::{FromTask, NoEngine, Report, RunConfig},
    graph::Deps,
    message::ToolCall,
    prelude::*,
    value,
};

fn task(call: &ToolCall) -> Ctx {
    task_at(call, Arc::default())
}

fn task_at(call: &ToolCall, host: Arc<NoEngine>) -> Ctx {
    let input = value::to_value(call).expect("a call has a stored form");
    let (config, deps) = (RunConfig::default(), Deps::default());
    Ctx::without_engine("tools", (input, true), config, deps, host)
}

/// Divides whole numbers.
#[derive(Deserialize, JsonSchema)]
struct Divide {
    /// What is divided.
    a: i64,
    b: i64,
}

#[derive(Serialize)]
struct Quotient {
    whole: i64,
    rest: i64,
}

async fn divide(Divide { a, b }: Divide, _: Ctx) -> Result<Quotient> {
    let whole = a.checked_div(b).context("the divisor is 0")?;
    Ok(Quotient {
        whole,
        rest: a - whole * b,
    })
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

async fn clock(_: Nothing, _: Ctx) -> Result<&'static str> {
    Ok("noon")
}

/// Runs a call through the node and gives the message it adds.
async fn run(name: &str, args: Value) -> Message {
    let tools = [tool("divide", divide), tool("clock", clock)];
    let ctx = task(&ToolCall {
        id: Some("call_7".into()),
        name: name.into(),
        args,
    });
    let Call(call) = Call::from_task(&ctx).expect("the argument is a call");
    let message = run_tool(&tools, &call, ctx).await.into_message();
    assert_eq!(message.tool_call_id(), Some("call_7"));
    assert_eq!(message.name(), Some(name));
    message
}

fn status(message: &Message) -> Option<&str> {
    message.get("status").and_then(Value::as_str)
}

#[test]
fn a_model_sees_the_doc_comments_and_types_of_the_arguments() {
    let divide = tool("divide", divide);
    assert_eq!(divide.description(), "Divides whole numbers.");
    let parameters = divide.parameters();
    assert_eq!(parameters["type"], "object");
    assert_eq!(
        parameters["properties"]["a"]["description"],
        "What is divided."
    );
    assert_eq!(parameters["required"], json!(["a", "b"]));
    let clock = tool("clock", clock);
    assert_eq!(
        *clock.parameters(),
        json!({"type": "object", "properties": {}})
    );
}

#[tokio::test]
async fn texts_are_answered_as_they_are_and_other_results_as_json() {
    let text = run("clock", value!({})).await;
    assert_eq!((text.text().as_str(), status(&text)), ("noon", None));
    let json = run("divide", value!({"a": 7, "b": 2})).await;
    assert_eq!(json.text(), r#"{"whole":3,"rest":1}"#);
}

#[tokio::test]
async fn a_failing_tool_answers_with_its_error() {
    let failed = run("divide", value!({"a": 1, "b": 0})).await;
    assert_eq!(failed.text(), "Error: the divisor is 0");
    assert_eq!(status(&failed), Some("error"));
    let unfit = run("divide", value!({"a": "one", "b": 0})).await;
    assert!(
        unfit
            .text()
            .starts_with("Error: the arguments do not fit: "),
        "{unfit:?}"
    );
    let unknown = run("multiply", value!({})).await;
    assert_eq!(
        unknown.text(),
        "Error: there is no tool `multiply`, only: divide, clock"
    );
}

#[tokio::test]
async fn calls_of_tools_are_reported_with_arguments_results_and_errors() {
    async fn reports(name: &str, args: Value) -> Vec<(&'static str, Value)> {
        let call = ToolCall {
            id: Some("call_7".into()),
            name: name.into(),
            args,
        };
        let host = Arc::<NoEngine>::default();
        let ctx = task_at(&call, host.clone());
        run_tool(&[tool("divide", divide)], &call, ctx).await;
        let all = std::mem::take(&mut *host.0.lock());
        let one = |report| match report {
            Report::ToolStart(run) => {
                assert_eq!(run.call.as_deref(), Some("call_7"));
                ("start", run.input.clone())
            }
            Report::ToolEnd(_, output) => ("end", output),
            Report::ToolError(_, error) => ("error", error),
            _ => panic!("no model is called"),
        };
        all.into_iter().map(one).collect()
    }
    let fits = value!({"a": 7, "b": 2});
    let done = reports("divide", fits.clone()).await;
    assert_eq!(done[0], ("start", fits));
    assert_eq!(done[1].0, "end");
    assert_eq!(done[1].1.get("content").unwrap(), r#"{"whole":3,"rest":1}"#);
    let failed = reports("divide", value!({"a": 7, "b": 0})).await;
    let error = value!({"error": "ToolError", "message": "the divisor is 0"});
    assert_eq!((failed.len(), &failed[1]), (2, &("error", error)));
    assert!(reports("multiply", value!({})).await.is_empty());
}

#[test]
fn images_and_texts_are_content_and_data_that_only_looks_like_it_is_json() {
    let content = |value: Value| ToolOutput::new(value).into_parts().unwrap().0;
    let image = value!({"type": "image", "base64": "AAAA", "mime_type": "image/png"});
    let blocks = value!([{"type": "text", "text": "A map:"}, (image.clone())]);
    assert_eq!(content(blocks.clone()), blocks);
    for data in [
        image,
        value!([]),
        value!(["one", "two"]),
        value!([{"type": "text"}]),
        value!([{"type": "file", "size": 3}]),
        value!([{"type": "file", "id": 5}]),
        value!([{"type": "file", "url": null}]),
        value!([{"type": "document", "id": "D-7", "title": "Tides"}]),
        value!([{"type": "image", "data": "some text"}]),
        value!([{"type": "text", "text": "a"}, {"type": "folder"}]),
    ] {
        assert_eq!(content(data.clone()), Value::str(data.to_json()));
    }
}

#[test]
fn a_graph_without_messages_cannot_have_a_tool_node() {
    #[derive(State)]
    struct Mute {
        text: String,
    }
    let built = Graph::<Mute>::new()
        .node("tools", tool_node([tool("clock", clock)]))
        .route(START, |_: &Mute| goto("tools").with("x"), ["tools"])
        .build();
    let Err(error) = built else {
        panic!("there is no channel `messages`")
    };
    assert!(error.to_string().contains("`messages`"), "{error}");
}

mod attribute;
