//! A chat agent with tools, one of which waits for a human's approval before it acts.
//!
//! ```sh
//! cargo run --example chat_agent                       # scripted, no network needed
//! OPENAI_API_KEY=... cargo run --example chat_agent    # with a model
//! ```
//!
//! Then, in another terminal, words as they come and state as it changes:
//!
//! ```sh
//! THREAD=$(curl -s localhost:2024/threads -H 'content-type: application/json' -d '{}' \
//!   | sed 's/.*"thread_id":"\([^"]*\)".*/\1/')
//! say() { curl -sN localhost:2024/threads/$THREAD/runs/stream \
//!   -H 'content-type: application/json' -d "$1"; }
//!
//! say '{"assistant_id": "agent", "stream_mode": ["messages-tuple", "custom"],
//!   "input": {"messages": [{"role": "user", "content": "Is it warm in Oslo?"}]}}'
//! ```
//!
//! Request a letter and the run stops with an interrupt; stop the server, restart it, resume:
//!
//! ```sh
//! say '{"assistant_id": "agent", "stream_mode": ["updates"],
//!   "input": {"messages": [{"role": "user", "content": "Write a letter to Ada"}]}}'
//! say '{"assistant_id": "agent", "stream_mode": ["updates"],
//!   "command": {"resume": {"decisions": [{"type": "approve"}]}}}'
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use backstitch::{Server, prelude::*};

/// Looks up the weather in a city.
#[tool]
async fn weather(city: String, ctx: Ctx) -> String {
    ctx.emit(json!({"looking_up": city}));
    format!("21 °C and clear in {city}")
}

/// Sends a letter.
#[tool]
async fn send_letter(to: String, text: String, ctx: Ctx) -> Result<String> {
    // Whatever happens later, a finished step is not done twice.
    let posted = async { Ok(format!("Posted to {to}: {text}")) };
    ctx.step("post", posted).await
}

/// A scripted model: calls the tool that a message names and repeats its result.
fn scripted(messages: &[Message], _: &[Arc<Tool>]) -> Result<Message> {
    let Some(last) = messages.last() else {
        anyhow::bail!("there is nothing to answer")
    };
    let text = last.text();
    let after = |word| {
        text.split_once(word)
            .map(|(_, rest)| rest.trim_end_matches('?'))
    };
    Ok(if last.tool_call_id().is_some() {
        Message::ai(format!("Done: {text}"))
    } else if let Some(city) = after(" in ") {
        Message::ai("Let me look.").calling("weather", json!({"city": city}))
    } else if let Some(name) = after("letter to ") {
        let letter = json!({"to": name, "text": format!("Dear {name}, all is well.")});
        Message::ai("I have written one.").calling("send_letter", letter)
    } else {
        Message::ai("Ask me “Is it warm in Oslo?”, or to write a “letter to Ada”.")
    })
}

/// A real model if the environment names one.
fn model() -> Result<Arc<dyn ChatModel>> {
    #[cfg(feature = "openai")]
    if openai::Client::is_configured() {
        return Ok(Arc::new(openai::Client::from_env()?));
    }
    let script = ScriptedModel::new(scripted);
    Ok(Arc::new(script.pace(Duration::from_millis(30))))
}

fn graph() -> Result<Arc<Compiled>> {
    let agent = agent(model()?)
        .tools([weather(), send_letter()])
        .prompt("Be brief.")
        .approve(["send_letter"]);
    Ok(agent.build()?)
}

#[tokio::main]
async fn main() -> ExitCode {
    Server::new().graph("agent", graph()).run().await
}
