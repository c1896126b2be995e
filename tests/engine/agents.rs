//! The prebuilt agent beside that of the Python package `langchain`: conversations recorded there give the same
//! messages, states and interrupts here. agents/record.py has the conversations and records them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use backstitch::{
    Local,
    agent::{Agent, AgentState, Decision, Jump, Limit, Review, Summary},
    llm::Error,
    message::{AiChunk, ToolCall, ToolCallChunk},
    prelude::*,
    run::{ClientCommand, Input, ThreadState},
    value::to_value,
};
use parking_lot::Mutex;
use serde_json::Value as Json;

mod behaviour;
mod extensions;
mod support;

/// Where this agent does something else on purpose, with the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "too few decisions, then enough",
        "a resume value that does not fit leaves the interrupt open here: the right one is taken",
    ),
    (
        "a wrong structured response beside a tool call",
        "the model reads what is wrong here and responds anew; there the agent ends without a response",
    ),
];

/// Adds two whole numbers.
#[tool]
async fn add(a: i64, b: i64) -> String {
    format!("{a} + {b} = {}", a + b)
}

/// Looks up the weather in a city.
#[tool]
async fn weather(city: String) -> String {
    format!("21 degrees in {city}")
}

/// Sends a letter.
#[tool]
async fn send_letter(to: String, text: String) -> String {
    format!("Posted to {to}: {text}")
}

/// Fails.
#[tool]
async fn fail(reason: String) -> Result<String> {
    Err(anyhow::anyhow!("failed: {reason}"))
}

/// Looks up a value.
#[tool(return_direct)]
async fn lookup(key: String) -> String {
    format!("{key} is 42")
}

/// A person.
#[data]
struct Person {
    name: String,
    age: i64,
    nick: Option<String>,
}

fn tool_named(name: &str) -> Arc<Tool> {
    let all = [add(), weather(), send_letter(), fail(), lookup()];
    all.into_iter().find(|tool| tool.name() == name).unwrap()
}

/// What the model was shown, call by call.
type Shown = Arc<Mutex<Vec<Vec<Message>>>>;

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
    for (index, call) in (0..).zip(one["calls"].as_array().unwrap()) {
        whole.tool_call_chunks.push(ToolCallChunk {
            name: Some(call["name"].as_str().unwrap().into()),
            args: call["args"].to_string(),
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

fn built(case: &Json, shown: &Shown) -> Arc<Compiled> {
    let options = &case["options"];
    let model: Arc<dyn ChatModel> = Arc::new(model(&case["script"], shown));
    let tools = case["tools"].as_array().into_iter().flatten();
    let tools = tools.map(|name| tool_named(name.as_str().unwrap()));
    let mut agent: Agent<AgentState> = backstitch::agent::agent(model.clone()).tools(tools);
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
    if options["respond"] == true {
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
        let summary = Summary::by(model).after_messages(most as usize);
        agent = agent.summarize(summary.keep(keep as usize));
    }
    if options["stop_before"] == true {
        agent = agent.before_model("stop_before", stop_before);
    }
    if options["stop_after"] == true {
        agent = agent.after_model("stop_after", stop_after);
    }
    agent.build().unwrap()
}

/// A message in the form of the record: sentences that a program has made up count as one.
fn plain(message: &Message, known: &HashSet<&str>, results: &[&str]) -> Json {
    let text = message.text();
    let text = if known.contains(text.as_str()) {
        text
    } else {
        match results.iter().find(|result| text.ends_with(**result)) {
            Some(result) => format!("(own words) {result}"),
            None => "(own words)".to_owned(),
        }
    };
    let mut out = json!({"type": message.role().as_str(), "content": text});
    if let Some(name) = message.name() {
        out["name"] = name.into();
    }
    let calls = message.tool_calls();
    if !calls.is_empty() {
        let calls = calls.iter().map(|ToolCall { id, name, args }| {
            json!({"name": &**name, "args": args.to_json_value(), "id": id.as_deref()})
        });
        out["tool_calls"] = calls.collect();
    }
    if let Some(id) = message.tool_call_id() {
        let status = message.get("status").and_then(Value::as_str);
        out["tool_call_id"] = id.into();
        out["status"] = status.unwrap_or("success").into();
    }
    out
}

fn input(turn: &Json) -> Input {
    if let Some(text) = turn["input"].as_str() {
        return Input::Value(to_value(&json!({"messages": [Message::human(text)]})).unwrap());
    }
    Input::Command(ClientCommand {
        resume: Some(to_value(&turn["resume"]).unwrap()),
        ..ClientCommand::default()
    })
}

fn interrupts(state: &ThreadState) -> Json {
    let interrupts = state.snapshot.interrupts();
    let values = interrupts.iter().map(|interrupt| {
        let mut value = interrupt.value.to_json_value();
        for action in value["action_requests"].as_array_mut().unwrap() {
            action["description"] = "(own words)".into();
        }
        value
    });
    values.collect()
}

/// What came of a conversation here, in the form of the record.
async fn played(case: &Json) -> Vec<Json> {
    let strings = |key: &str| -> Vec<&str> {
        let list = case[key].as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap()).collect()
    };
    let known: HashSet<&str> = strings("known").into_iter().collect();
    let results = strings("results");
    let shown = Shown::default();
    let graph = built(case, &shown);
    let thread = Local::memory().unwrap().thread(&graph);
    let mut turns = Vec::new();
    for turn in case["turns"].as_array().unwrap() {
        let done = thread.run(input(turn), Default::default()).await.unwrap();
        let state = thread
            .state(&"".into(), None, false)
            .await
            .unwrap()
            .unwrap();
        let messages = state.snapshot.checkpoint.values["messages"]
            .as_list()
            .unwrap()
            .to_vec();
        let plain = |message: &Message| plain(message, &known, &results);
        let messages = messages
            .iter()
            .map(|message| plain(&message.try_into().unwrap()));
        let calls = std::mem::take(&mut *shown.lock());
        let calls = calls
            .iter()
            .map(|call| call.iter().map(plain).collect::<Json>());
        let response = state
            .snapshot
            .checkpoint
            .values
            .get("structured_response")
            .cloned();
        turns.push(json!({
            "failed": done.result.is_err(),
            "messages": messages.collect::<Json>(),
            "structured_response": response.unwrap_or_default().to_json_value(),
            "interrupts": interrupts(&state),
            "shown": calls.filter(is_no_summary).collect::<Json>(),
        }));
    }
    turns
}

/// How a summary is requested is each program's own.
fn is_no_summary(call: &Json) -> bool {
    let messages = call.as_array().unwrap();
    messages
        .iter()
        .any(|message| message["content"] != "(own words)")
}

#[tokio::test]
async fn conversations_recorded_with_langchain_go_the_same_way() {
    let recorded: Vec<Json> = serde_json::from_str(include_str!("agents/recorded.json")).unwrap();
    assert!(recorded.len() >= 30);
    let mut differences = BTreeMap::new();
    for case in &recorded {
        let name = case["name"].as_str().unwrap();
        let found = played(case).await;
        for (number, (found, expected)) in found
            .iter()
            .zip(case["turns"].as_array().unwrap())
            .enumerate()
        {
            for key in [
                "failed",
                "messages",
                "structured_response",
                "interrupts",
                "shown",
            ] {
                let mut expected = expected[key].clone();
                if let (true, Some(calls)) = (key == "shown", expected.as_array_mut()) {
                    calls.retain(is_no_summary);
                }
                if found[key] != expected {
                    let text = format!(
                        "turn {number}, {key}\n  there {expected}\n  here  {}",
                        found[key]
                    );
                    differences.entry(name).or_insert(text);
                }
            }
        }
    }
    for (name, _) in DIFFERENCES {
        assert!(
            differences.remove(name).is_some(),
            "{name} makes no difference"
        );
    }
    let list = differences
        .iter()
        .map(|(name, text)| format!("\n{name}: {text}"));
    assert!(differences.is_empty(), "{}", list.collect::<String>());
}
