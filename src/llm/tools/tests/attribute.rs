//! Tests of `#[tool]`: what a model reads of a function, and what the function gets.

use std::sync::Arc;

use crate::{
    Local,
    extract::RunConfig,
    llm::{Call, tools::*},
    message::ToolCall,
    prelude::*,
    run::{Ended, Input},
    value,
};

#[derive(State)]
struct Desk {
    #[state(messages)]
    messages: Vec<Message>,
    customer: Option<String>,
}

struct Prices {
    small: i64,
}

#[data]
struct Settings {
    currency: String,
}

#[data]
enum Size {
    Small,
    Large,
}

/// Tells what a room costs.
/// Breakfast is included.
///
/// Only for tonight.
#[tool]
async fn price(
    /// How large it is.
    size: Size,
    /// How many, by default one.
    rooms: Option<i64>,
    Config(settings): Config<Settings>,
    prices: Dep<Prices>,
) -> Result<String> {
    let one = match size {
        Size::Small => prices.small,
        Size::Large => 2 * prices.small,
    };
    Ok(format!(
        "{} {}",
        one * rooms.unwrap_or(1),
        settings.currency
    ))
}

/// Notes the customer's name.
#[tool(name = "set-customer")]
async fn set_customer(name: String) -> Command<Desk> {
    Desk::update().customer(name).into()
}

/// Tells who the customer is.
#[tool(description = "Who is it?", return_direct)]
async fn customer(View(desk): View<Desk>, Call(call): Call) -> ToolOutput {
    let name = desk.customer.unwrap_or_default();
    let id = call.id.unwrap_or_default();
    ToolOutput::new(name).artifact(json!({"call": id.to_string()}))
}

/// Books after a human has agreed.
#[tool]
async fn book(ctx: Ctx) -> String {
    ctx.emit("booking");
    let name: String = ctx.interrupt("In which name?").await;
    format!("booked for {name}")
}

fn graph(tools: Vec<Arc<Tool>>) -> Result<Arc<Compiled>, Invalid> {
    let calls = |desk: &Desk| -> Vec<Target> {
        let calls = desk.messages.last().map(Message::tool_calls);
        let calls = calls.unwrap_or_default();
        calls.iter().map(|call| goto("tools").with(call)).collect()
    };
    Graph::<Desk>::new()
        .provide(Arc::new(Prices { small: 50 }))
        .node("tools", tool_node(tools))
        .route(START, calls, ["tools"])
        .build()
}

fn calling(calls: &[(&str, Value)]) -> Input {
    let mut message = Message::ai("");
    for (index, (name, args)) in calls.iter().enumerate() {
        message = message.with_tool_call(ToolCall {
            id: Some(format!("call_{index}").into()),
            name: (*name).into(),
            args: args.clone(),
        });
    }
    Input::Value(value!({"messages": [message], "customer": "Bob"}))
}

fn options() -> crate::RunOptions {
    crate::RunOptions {
        config: RunConfig {
            context: value!({"currency": "NOK"}),
            ..RunConfig::default()
        },
        ..crate::RunOptions::default()
    }
}

#[test]
fn a_model_reads_the_doc_comments_of_the_function_and_of_its_arguments() {
    let price = price();
    assert_eq!(price.name(), "price");
    assert_eq!(
        price.description(),
        "Tells what a room costs. Breakfast is included.\n\nOnly for tonight."
    );
    let parameters = price.parameters();
    let properties = parameters["properties"].as_object().expect("an object");
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["size", "rooms"]);
    assert_eq!(
        properties["rooms"]["description"],
        "How many, by default one."
    );
    assert_eq!(parameters["required"], json!(["size"]));
    assert_eq!(set_customer().name(), "set-customer");
    assert_eq!(customer().description(), "Who is it?");
    assert!(customer().is_return_direct() && !price.is_return_direct());
    assert_eq!(
        *book().parameters(),
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn arguments_can_be_checked_without_a_call() {
    assert!(price().check(&value!({"size": "Small"})).is_ok());
    let error = price()
        .check(&value!({"size": "Huge"}))
        .expect_err("no such size");
    assert!(format!("{error:#}").contains("Huge"), "{error:#}");
}

#[tokio::test]
async fn tools_take_settings_dependencies_and_the_state_and_may_update_it() {
    let graph = graph(vec![price(), set_customer(), customer()]).expect("complete");
    let input = calling(&[
        ("price", value!({"size": "Large", "rooms": 3})),
        ("set-customer", value!({"name": "Ada"})),
        ("customer", value!({})),
    ]);
    let done = Local::run_once(&graph, input, options()).await;
    assert_eq!(done.values["customer"], "Ada");
    let messages = done.values["messages"].as_list().expect("a list");
    let texts: Vec<_> = messages
        .iter()
        .skip(1)
        .map(|m| m["content"].clone())
        .collect();
    // The third tool reads the state as it was when the superstep began.
    assert_eq!(texts, ["300 NOK", "Done.", "Bob"].map(Value::from));
    assert_eq!(messages[3]["artifact"], value!({"call": "call_2"}));
    assert_eq!(messages[1]["name"], "price");
}

#[tokio::test]
async fn a_tool_interrupts_and_goes_on_with_what_the_human_says() {
    let graph = graph(vec![book()]).expect("complete");
    let local = Local::memory().expect("a file");
    let thread = local.thread(&graph);
    let first = thread
        .run(calling(&[("book", value!({}))]), options())
        .await;
    let first = first.expect("it runs");
    let Ok(Ended::Interrupted(interrupts)) = &first.result else {
        panic!("{:?}", first.result)
    };
    assert_eq!(interrupts[0].value, "In which name?");
    let resume = crate::run::ClientCommand {
        resume: Some(value!("Ada")),
        ..Default::default()
    };
    let done = thread
        .run(Input::Command(resume), options())
        .await
        .expect("it runs");
    assert_eq!(done.values["messages"][1]["content"], "booked for Ada");
}

#[test]
fn what_a_tool_needs_and_does_not_find_is_reported_when_the_graph_is_built() {
    let built = Graph::<Desk>::new()
        .node("tools", tool_node([price(), price()]))
        .route(START, |_: &Desk| goto("tools").with("x"), ["tools"])
        .build();
    let Err(error) = built else {
        panic!("there are no prices")
    };
    let error = error.to_string();
    assert!(error.contains("Prices"), "{error}");
    assert!(error.contains("two tools `price`"), "{error}");
}
