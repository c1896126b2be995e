//! The prebuilt agent beside that of the Python package `langchain`: conversations recorded there give the same
//! messages, states and interrupts here. agents/record.py records those of agents/conversations.py.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use backstitch::{
    Local, RunOptions,
    message::ToolCall,
    prelude::*,
    run::{ClientCommand, Input, ThreadState},
    value::to_value,
};
use serde_json::Value as Json;

mod behaviour;
mod extensions;
mod programs;
mod support;

use programs::{Shown, add, fail, send_letter, weather};

/// What is compared of each turn. `channels` has the counts of limits in a thread and the edits of humans; the counts of a
/// run are stored neither here nor there.
const COMPARED: &[&str] = &[
    "failed",
    "messages",
    "structured_response",
    "channels",
    "output",
    "interrupts",
    "shown",
];

/// Where this agent does something else on purpose: the conversation, what differs in it, and the reason.
const DIFFERENCES: &[(&str, &[&str], &str)] = &[
    (
        "too few decisions, then enough",
        &[
            "failed",
            "messages",
            "channels",
            "output",
            "interrupts",
            "shown",
        ],
        "a resume value that does not fit leaves the interrupt open here: the right one is taken",
    ),
    (
        "edited arguments that the tool does not take",
        &[
            "failed",
            "messages",
            "channels",
            "output",
            "interrupts",
            "shown",
        ],
        "the human who edits reads what is wrong here, and the interrupt stays open; there the model reads it",
    ),
    (
        "a call edited to an unknown tool",
        &["channels", "interrupts"],
        "the run fails there too, but with the edit stored: it fails again on every resume; here the interrupt stays open",
    ),
    (
        "a wrong structured response beside a tool call",
        &["messages", "structured_response", "shown"],
        "the model reads what is wrong here and responds anew; there the agent ends without a response",
    ),
    (
        "a wrong response by schema",
        &[
            "failed",
            "messages",
            "structured_response",
            "output",
            "shown",
        ],
        "the model reads what is wrong here, as with a response by tool; there the run fails",
    ),
    (
        "five wrong structured responses",
        &[
            "failed",
            "messages",
            "structured_response",
            "output",
            "shown",
        ],
        "after three corrections in a row the run fails here; there the model is asked until the recursion limit",
    ),
    (
        "arguments that are no JSON",
        &["messages", "shown"],
        "the model reads that they are none here and calls anew; there the agent ends with an empty message",
    ),
    (
        "a tool that fails by default",
        &["failed", "messages", "output", "shown"],
        "the model reads errors of tools here unless `fail_on_tool_errors`; there a middleware has to ask for that",
    ),
    (
        "a hand-off beside a tool call",
        &["shown"],
        "the call beside it has no result: here the model is told so, since providers refuse calls without one",
    ),
    (
        "the last messages of a turn that is longer",
        &["shown"],
        "of a turn that is longer the model is shown all here; there `trim_messages` leaves nothing to show",
    ),
];

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
        let mut values = json!({"messages": [Message::human(text)]});
        for (name, value) in turn["state"].as_object().into_iter().flatten() {
            values[name] = value.clone();
        }
        return Input::Value(to_value(&values).unwrap());
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
    let graph = programs::program(case, &shown);
    let thread = Local::memory().unwrap().thread(&graph);
    let mut turns = Vec::new();
    for turn in case["turns"].as_array().unwrap() {
        let mut options = RunOptions::default();
        options.config.context = to_value(&case["options"]["context"]).unwrap();
        let done = thread.run(input(turn), options).await.unwrap();
        let state = thread
            .state(&"".into(), None, false)
            .await
            .unwrap()
            .unwrap();
        let values = state.snapshot.checkpoint.values.iter();
        let values = values.map(|(name, value)| (name.to_string(), value.to_json_value()));
        let values = Json::Object(values.collect());
        let plain = |message: &Message| plain(message, &known, &results);
        let messages = values["messages"].as_array().unwrap().iter();
        let messages =
            messages.map(|message| plain(&(&to_value(message).unwrap()).try_into().unwrap()));
        let calls = std::mem::take(&mut *shown.lock());
        let calls = calls
            .iter()
            .map(|call| call.iter().map(plain).collect::<Json>());
        let apart = |name: &str| ["messages", "structured_response"].contains(&name);
        let set = |values: &Json| {
            let values = values.as_object().unwrap().clone().into_iter();
            values.filter(|(_, value)| !value.is_null())
        };
        // Those of the engine are no part of the state.
        let channels = set(&values).filter(|(name, _)| !apart(name) && !name.starts_with("__"));
        let output = set(&done.values.to_json_value()).map(|(name, _)| name);
        let output: BTreeSet<String> = output.filter(|name| !name.starts_with("__")).collect();
        let failed = done.result.is_err();
        turns.push(json!({
            "failed": failed,
            "messages": messages.collect::<Json>(),
            "structured_response": values["structured_response"],
            "channels": Json::Object(channels.collect()),
            "output": if failed { BTreeSet::new() } else { output },
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
    assert!(recorded.len() >= 70);
    let mut differences: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for case in &recorded {
        let name = case["name"].as_str().unwrap();
        let found = played(case).await;
        let turns = case["turns"].as_array().unwrap();
        for (number, (found, expected)) in found.iter().zip(turns).enumerate() {
            for key in COMPARED {
                let mut expected = expected[*key].clone();
                if let (&"shown", Some(calls)) = (key, expected.as_array_mut()) {
                    calls.retain(is_no_summary);
                }
                // A list to which nothing was added yet is not stored here.
                if let (&"channels", Some(channels)) = (key, expected.as_object_mut()) {
                    channels.retain(|_, value| *value != json!([]));
                }
                if found[*key] != expected {
                    let found = &found[*key];
                    let text = format!("turn {number}\n  there {expected}\n  here  {found}");
                    differences.entry((name, key)).or_insert(text);
                }
            }
        }
    }
    let mut problems = Vec::new();
    for (name, keys, _) in DIFFERENCES {
        for key in *keys {
            if differences.remove(&(*name, *key)).is_none() {
                problems.push(format!("\n{name}: {key} makes no difference"));
            }
        }
    }
    let others = differences.iter();
    problems.extend(others.map(|((name, key), text)| format!("\n{name}: {key}: {text}")));
    assert!(problems.is_empty(), "{}", problems.concat());
}
