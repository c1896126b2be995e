//! The programs of the recorded conversations, made of this library: tools, hooks and agents as programs.py has them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use backstitch::{
    agent::{Agent, AgentState, Decision, Jump, Limit, Next, Review, Summary, agent, hand_off},
    llm::{Error, ToolResult},
    message::{AiChunk, ToolCall, ToolCallChunk},
    prelude::*,
    value,
};
use parking_lot::Mutex;
use serde_json::Value as Json;

/// Adds two whole numbers.
#[tool]
pub async fn add(a: i64, b: i64) -> String {
    format!("{a} + {b} = {}", a + b)
}

/// Looks up the weather in a city.
#[tool]
pub async fn weather(city: String) -> String {
    format!("21 degrees in {city}")
}

/// Sends a letter.
#[tool]
pub async fn send_letter(to: String, text: String) -> String {
    format!("Posted to {to}: {text}")
}

/// Fails.
#[tool]
pub async fn fail(reason: String) -> Result<String> {
    Err(anyhow::anyhow!("failed: {reason}"))
}

/// Looks up a value.
#[tool(return_direct)]
async fn lookup(key: String) -> String {
    format!("{key} is 42")
}

/// Notes the customer's name.
#[tool]
async fn note(name: String) -> ToolOutput {
    ToolOutput::new("Noted.").update(Desk::update().customer(name))
}

/// Goes to a node of its own agent.
#[tool]
async fn go(to: String) -> ToolOutput {
    let node: Arc<str> = match &*to {
        "end" => END.into(),
        other => other.into(),
    };
    ToolOutput::new("Going.").goto(goto(node))
}

/// An agent that does what another one asks for.
struct Worker(Arc<Compiled>);

/// Gives a task to a worker.
#[tool]
async fn ask(task: String, worker: Dep<Worker>, ctx: Ctx) -> Result<String> {
    let input = value!({"messages": [Message::human(task)]});
    let values: Value = ctx.call(&worker.0.0, input).await?;
    let last = values["messages"].as_list().and_then(<[Value]>::last);
    let last = last.ok_or_else(|| anyhow::anyhow!("the worker has not replied"))?;
    Ok(Message::try_from(last)?.text())
}

/// A person.
#[data]
struct Person {
    name: String,
    age: i64,
    nick: Option<String>,
}

fn tool_named(name: &str) -> Arc<Tool> {
    let all = [
        add(),
        weather(),
        send_letter(),
        fail(),
        lookup(),
        note(),
        go(),
    ];
    all.into_iter().find(|tool| tool.name() == name).unwrap()
}

/// What the model was shown, call by call.
pub type Shown = Arc<Mutex<Vec<Vec<Message>>>>;

/// A model that replies with the messages of the script, one after another.
fn model(script: &Json, shown: &Shown) -> ScriptedModel {
    let replies: Vec<Message> = script.as_array().unwrap().iter().map(reply).collect();
    let (next, shown) = (AtomicUsize::new(0), shown.clone());
    ScriptedModel::new(move |messages, _| {
        shown.lock().push(messages.to_vec());
        let reply = replies.get(next.fetch_add(1, Ordering::Relaxed));
        Ok(reply.cloned().ok_or(Error::ScriptEnds {
            replies: replies.len(),
        })?)
    })
}

fn reply(one: &Json) -> Message {
    let mut whole = AiChunk::text(one["text"].as_str().unwrap());
    let calls = one["calls"].as_array().unwrap();
    let invalid = one["invalid"].as_array().unwrap();
    for (index, call) in (0..).zip(calls.iter().chain(invalid)) {
        // Arguments that are no JSON come as their text.
        let args = call["args"].as_str().map(str::to_owned);
        whole.tool_call_chunks.push(ToolCallChunk {
            name: Some(call["name"].as_str().unwrap().into()),
            args: args.unwrap_or_else(|| call["args"].to_string()),
            id: Some(call["id"].as_str().unwrap().into()),
            index: Some(index),
        });
    }
    whole.message()
}

fn limit(options: &Json) -> Limit {
    let limit = match (options["run"].as_u64(), options["thread"].as_u64()) {
        (Some(run), None) => Limit::per_run(run),
        (_, thread) => Limit::in_thread(thread.unwrap()),
    };
    if options["end"] == true {
        limit.or_end()
    } else {
        limit
    }
}

async fn stop_before() -> Update<AgentState> {
    AgentState::update()
        .jump_to(Jump::End)
        .messages(Message::ai("Closed."))
}

async fn stop_after() -> Update<AgentState> {
    AgentState::update().jump_to(Jump::End)
}

async fn ask_twice(state: AgentState) -> Update<AgentState> {
    if state.messages.len() < 3 {
        AgentState::update()
            .jump_to(Jump::Model)
            .messages(Message::human("Sure?"))
    } else {
        AgentState::update()
    }
}

async fn call_first(state: AgentState) -> Update<AgentState> {
    let mut call = AiChunk::text("");
    call.tool_call_chunks.push(ToolCallChunk {
        name: Some("weather".into()),
        args: r#"{"city": "Oslo"}"#.to_owned(),
        id: Some("c1".into()),
        index: Some(0),
    });
    if state.messages.len() == 1 {
        AgentState::update()
            .jump_to(Jump::Tools)
            .messages(call.message())
    } else {
        AgentState::update()
    }
}

#[derive(State)]
struct Desk {
    #[state(messages)]
    messages: Vec<Message>,
    customer: Option<String>,
    #[state(append)]
    log: Vec<String>,
}

#[data]
struct Settings {
    language: String,
}

async fn open(desk: Desk) -> Update<Desk> {
    Desk::update().log(format!("open: {} messages", desk.messages.len()))
}

async fn count(desk: Desk) -> Update<Desk> {
    Desk::update().log(format!("before: {} messages", desk.messages.len()))
}

async fn log_reply(desk: Desk) -> Update<Desk> {
    let last = desk.messages.last().map(Message::text).unwrap_or_default();
    Desk::update().log(format!("reply: {last}"))
}

async fn close(desk: Desk) -> Update<Desk> {
    Desk::update().log(format!("close: {} messages", desk.messages.len()))
}

async fn brackets(call: ToolCall, next: Next) -> Result<ToolResult> {
    let result = next.run(call).await?;
    let text = format!("[{}]", result.message().text());
    let message = result.message().clone().with_field("content", text);
    Ok(result.with_message(message))
}

async fn again_with_ones(mut call: ToolCall, next: Next) -> Result<ToolResult> {
    next.run(call.clone()).await?;
    call.args = value!({"a": 1, "b": 1});
    next.run(call).await
}

async fn only_oslo(call: ToolCall, next: Next) -> Result<ToolResult> {
    if call.args["city"] == "Oslo" {
        return next.run(call).await;
    }
    let message = Message::tool("Only Oslo.", call.id.unwrap_or_default());
    Ok(ToolResult::new(message.with_name(call.name)))
}

async fn second_try(mut call: ToolCall, next: Next) -> Result<ToolResult> {
    if let Ok(result) = next.run(call.clone()).await {
        return Ok(result);
    }
    call.name = "add".into();
    call.args = value!({"a": 2, "b": 2});
    next.run(call).await
}

/// What agents of every state may have.
fn with_options<S: State>(
    mut agent: Agent<S>,
    options: &Json,
    model: &Arc<dyn ChatModel>,
) -> Agent<S> {
    if let Some(name) = options["name"].as_str() {
        agent = agent.name(name);
    }
    if let Some(prompt) = options["prompt"].as_str() {
        agent = agent.prompt(prompt);
    }
    if options["errors"] == false {
        agent = agent.fail_on_tool_errors();
    }
    for name in options["approve"].as_array().into_iter().flatten() {
        let mut review = Review::new();
        if options["allowed"].is_array() {
            review = review.allow([Decision::Approve, Decision::Reject]);
        }
        agent = agent.review(name.as_str().unwrap(), review);
    }
    if options["respond"] == true || options["respond_by_schema"] == true {
        agent = agent.respond_with::<Person>();
    }
    if options["model_limit"].is_object() {
        agent = agent.limit_model_calls(limit(&options["model_limit"]));
    }
    let of_tools = &options["tool_limit"];
    if let Some(tool) = of_tools["tool"].as_str() {
        agent = agent.limit_tool(tool, limit(of_tools));
    } else if of_tools.is_object() {
        agent = agent.limit_tool_calls(limit(of_tools));
    }
    if let Some(most) = options["summary"]["messages"].as_u64() {
        let keep = options["summary"]["keep"].as_u64().unwrap();
        let summary = Summary::by(model.clone()).after_messages(most as usize);
        agent = agent.summarize(summary.keep(keep as usize));
    }
    if let Some(most) = options["last"].as_u64() {
        agent = agent.last_messages(most as usize);
    }
    for hook in options["around"].as_array().into_iter().flatten() {
        agent = match hook.as_str().unwrap() {
            "brackets" => agent.around_tools(brackets),
            "again_with_ones" => agent.around_tools(again_with_ones),
            "only_oslo" => agent.around_tools(only_oslo),
            "second_try" => agent.around_tools(second_try),
            other => panic!("there is no hook {other}"),
        };
    }
    agent
}

/// An agent with a state of its own.
fn desk(options: &Json, tools: Vec<Arc<Tool>>, model: &Arc<dyn ChatModel>) -> Graph<Desk> {
    let agent = Agent::<Desk>::new(model.clone()).tools(tools);
    let mut agent = with_options(agent, options, model);
    if options["log"] == true {
        agent = agent
            .before_agent("open", open)
            .before_model("count", count)
            .after_model("log_reply", log_reply)
            .after_agent("close", close);
    }
    if options["close"] == true {
        agent = agent.after_agent("close", close);
    }
    if options["prompt_of_desk"] == true {
        agent = agent.context::<Settings>().prompt_with(|ctx: Ctx| {
            let language = ctx.config().context["language"].clone();
            let customer = ctx.input()["customer"].clone();
            let text =
                |value: Value, otherwise: &str| value.as_str().unwrap_or(otherwise).to_owned();
            format!(
                "Speak {} to {}.",
                text(language, "?"),
                text(customer, "nobody")
            )
        });
    }
    agent.into_graph()
}

fn plain_agent(
    options: &Json,
    tools: Vec<Arc<Tool>>,
    model: &Arc<dyn ChatModel>,
) -> Graph<AgentState> {
    let mut agent = with_options(agent(model.clone()).tools(tools), options, model);
    if options["stop_before"] == true {
        agent = agent.before_model("stop_before", stop_before);
    }
    if options["stop_after"] == true {
        agent = agent.after_model("stop_after", stop_after);
    }
    if options["ask_twice"] == true {
        agent = agent.after_model("ask_twice", ask_twice);
    }
    if options["call_first"] == true {
        agent = agent.before_model("call_first", call_first);
    }
    agent.into_graph()
}

/// The agent that spoke last; a new conversation begins with the sales.
fn whose_turn(state: &AgentState) -> &'static str {
    let by_agent = |message: &&Message| message.role() == Role::Ai;
    let last = state.messages.iter().rev().find(by_agent);
    match last.and_then(Message::name) {
        Some("support") => "support",
        _ => "sales",
    }
}

/// Two agents that hand over to each other; the one that spoke last goes on.
fn swarm(model: &Arc<dyn ChatModel>) -> Graph<AgentState> {
    let member = |name: &str, other: &str| {
        let tools = [hand_off(other, "Hands the conversation over."), weather()];
        let agent = agent(model.clone()).name(name).tools(tools);
        agent.build().unwrap()
    };
    let to = |agent: &'static str| NodeOpts::new().destinations([agent]);
    Graph::<AgentState>::new()
        .subgraph_with("sales", member("sales", "support"), to("support"))
        .subgraph_with("support", member("support", "sales"), to("sales"))
        .route(START, whose_turn, ["sales", "support"])
}

/// An agent with a tool that is an agent.
fn supervisor(options: &Json, model: &Arc<dyn ChatModel>) -> Graph<AgentState> {
    let tools = vec![weather(), send_letter(), fail()];
    let mut options = options.clone();
    options["name"] = "worker".into();
    let worker = plain_agent(&options, tools, model).build().unwrap();
    let lead = agent(model.clone()).name("lead").tools([ask()]);
    lead.provide(Arc::new(Worker(worker))).into_graph()
}

/// The program of a conversation.
pub fn program(case: &Json, shown: &Shown) -> Arc<Compiled> {
    let options = if case["options"].is_object() {
        &case["options"]
    } else {
        &json!({})
    };
    let model = model(&case["script"], shown).schemas(options["respond_by_schema"] == true);
    let model: &Arc<dyn ChatModel> = &(Arc::new(model) as _);
    let tools = case["tools"].as_array().into_iter().flatten();
    let tools = tools.map(|name| tool_named(name.as_str().unwrap()));
    let tools: Vec<Arc<Tool>> = tools.collect();
    let graph = match case["graph"].as_str() {
        Some("swarm") => swarm(model).build(),
        Some("supervisor") => supervisor(options, model).build(),
        Some("nested") => {
            let inner = plain_agent(options, tools, model).build().unwrap();
            let graph = Graph::<AgentState>::new().subgraph("inner", inner);
            graph.edge(START, "inner").build()
        }
        _ if options["desk"] == true => desk(options, tools, model).build(),
        _ => plain_agent(options, tools, model).build(),
    };
    graph.unwrap()
}
