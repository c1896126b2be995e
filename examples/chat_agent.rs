//! A chat agent with tools, one of which interrupts for a human before it acts.
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
//! say '{"assistant_id": "agent", "stream_mode": ["updates"], "command": {"resume": true}}'
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use backstitch::{
    Server,
    graph::{Compiled, Invalid},
    prelude::*,
};

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
    /// How often the model was called.
    #[state(merge = add)]
    turns: u32,
}

fn add(old: u32, new: u32) -> u32 {
    old + new
}

/// Looks up the weather in a city.
#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

async fn weather(Weather { city }: Weather, ctx: Ctx) -> Result<String> {
    ctx.emit(json!({"looking_up": city}));
    Ok(format!("21 °C and clear in {city}"))
}

/// Sends a letter, after a human has agreed.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Letter {
    to: String,
    text: String,
}

async fn send_letter(letter: Letter, ctx: Ctx) -> Result<String> {
    let question = json!({"question": "Send this letter?", "letter": letter});
    let yes: bool = ctx.interrupt(question).await;
    if !yes {
        return Ok("The human said no.".to_owned());
    }
    // Whatever happens later, a finished step is not done twice.
    let receipt = ctx
        .step("post", async { Ok(format!("Posted to {}.", letter.to)) })
        .await?;
    Ok(receipt)
}

async fn agent(
    chat: Chat,
    model: Dep<dyn ChatModel>,
    tools: Dep<Vec<Arc<Tool>>>,
    ctx: Ctx,
) -> Result<Update<Chat>> {
    let reply = ctx.chat(&*model, &chat.messages, &tools).await?;
    Ok(Chat::update().messages(reply).turns(1u32))
}

/// One task per tool call; nothing left to call means that the reply is ready.
fn pending_calls(chat: &Chat) -> Vec<Target> {
    let last = chat.messages.last();
    match last.map(Message::tool_calls).unwrap_or_default() {
        calls if calls.is_empty() => vec![goto(END)],
        calls => calls.iter().map(|c| goto("tools").with(c)).collect(),
    }
}

fn graph(model: Arc<dyn ChatModel>) -> Result<Arc<Compiled>, Invalid> {
    let tools = vec![tool("weather", weather), tool("send_letter", send_letter)];
    let patient = NodeOpts::new()
        .retry(Retry::times(3))
        .timeout(Duration::from_secs(300));
    Graph::<Chat>::new()
        .provide(model)
        .provide(Arc::new(tools.clone()))
        .node_with("agent", agent, patient)
        .node("tools", tool_node(tools))
        .edge(START, "agent")
        .route("agent", pending_calls, ["tools", END])
        .edge("tools", "agent")
        .build()
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

#[tokio::main]
async fn main() -> ExitCode {
    let graph = model().and_then(|model| Ok(graph(model)?));
    Server::new().graph("agent", graph).run().await
}
