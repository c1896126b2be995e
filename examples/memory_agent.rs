//! An agent with a long-term memory: what it remembers in one conversation it recalls in another one, by meaning.
//!
//! ```sh
//! cargo run --example memory_agent
//! ```
//!
//! It runs without a network: the model is a script and the embedding model a list of topics. Real ones are
//! `model("anthropic:claude-sonnet-4-5")?` and `llm::embedding_model("openai:text-embedding-3-small")?`.

use std::sync::Arc;

use async_trait::async_trait;
use backstitch::{Local, Thread, agent::Memory, llm::Embeddings, prelude::*};

/// An embedding model that knows three topics: texts with words of one topic are near each other.
struct Topics;

const TOPICS: [&[&str]; 3] = [
    &["coffee", "drink", "pour", "tea", "thirsty"],
    &["animal", "dog", "pet", "walk"],
    &["broken", "lamp", "light", "repair"],
];

#[async_trait]
impl Embeddings for Topics {
    fn name(&self) -> &str {
        "topics"
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>> {
        let vector = |text: &String| {
            let text = text.to_lowercase();
            let words: Vec<&str> = text.split(|c: char| !c.is_alphabetic()).collect();
            let count = |topic: &[&str]| words.iter().filter(|word| topic.contains(word)).count();
            // No vector is zero: a text without a topic is equally far from all.
            TOPICS.map(|topic| count(topic) as f32 + 0.01).to_vec()
        };
        Ok(texts.iter().map(vector).collect())
    }
}

/// A real model decides by itself what is worth remembering and when to recall.
fn script() -> ScriptedModel {
    let notes = Message::ai("")
        .calling("remember", json!({"fact": "Ada drinks tea with lemon."}))
        .calling("remember", json!({"fact": "Ada's dog is called Byte."}))
        .calling(
            "remember",
            json!({"fact": "The lamp in the hall is broken."}),
        );
    let question = Message::ai("").calling("recall", json!({"about": "what to pour for Ada"}));
    ScriptedModel::in_turn([
        notes.into(),
        Message::ai("I will keep that in mind.").into(),
        question.into(),
        Message::ai("Tea, with lemon.").into(),
    ])
}

/// Says something in a conversation and prints what follows.
async fn say(thread: &Thread, text: &str) -> Result<()> {
    let done = thread.invoke(json!({"messages": text})).await?;
    for message in done["messages"].as_list().unwrap_or_default() {
        let message = Message::try_from(message)?;
        for call in message.tool_calls() {
            println!("   calls {} with {}", call.name, call.args.to_json());
        }
        if !message.text().is_empty() {
            println!("{:>5}: {}", message.role().as_str(), message.text());
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let graph = agent(script())
        .prompt("Remember what will matter later, and recall it before you reply.")
        .tools(Memory::new(["facts"]).at_most(1).tools())
        .build()?;
    let local = Local::memory()?.embeddings(Arc::new(Topics), &["text"])?;

    println!("Monday");
    let monday = local.thread(&graph);
    say(
        &monday,
        "Ada takes tea with lemon, her dog is Byte, and the hall lamp is broken.",
    )
    .await?;

    println!("\nTuesday, in another conversation");
    let tuesday = local.thread(&graph);
    say(&tuesday, "Ada is thirsty. What can I offer her?").await
}
