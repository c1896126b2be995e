//! The replies of the research desk without a model.

use std::sync::Arc;

use anyhow::Result;
use backstitch::prelude::*;

use super::{PLAN, REVIEW, SEARCH, WRITE};

/// The reply to one of the desk's orders.
pub fn reply(messages: &[Message], _: &[Arc<Tool>]) -> Result<Message> {
    let [order, text] = messages else {
        anyhow::bail!(
            "the script knows an order and a text, not {} messages",
            messages.len()
        )
    };
    let text = text.text();
    Ok(Message::ai(match order.text().as_str() {
        PLAN => plan(text.trim_start_matches("Topic: ")),
        SEARCH => format!(
            "A script has no sources, so this is a placeholder for what one would find. \
             The question was: {text}"
        ),
        WRITE => write(&text),
        REVIEW => review(&text),
        other => anyhow::bail!("the script does not know the order `{other}`"),
    }))
}

fn plan(topic: &str) -> String {
    format!(
        "What is there to know about {topic}?\nWhy should one care about {topic} today?\n\
         What is still unknown about {topic}?"
    )
}

fn write(notes: &str) -> String {
    let of = |kind: &str| -> Vec<&str> {
        let lines = notes.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(str::trim).collect()
    };
    let topic = of("Topic:").join(" ");
    let mut report = format!("# {topic}\n\n");
    for note in of("Note:") {
        report += &format!("{note}\n\n");
    }
    for remark in of("Remark:") {
        report += &format!("(Revised: {remark})\n\n");
    }
    report + "Written from a script; set OPENAI_API_KEY to have a model write it."
}

fn review(report: &str) -> String {
    if report.contains("(Revised: ") {
        "OK".to_owned()
    } else {
        "Say once more what the reader should remember.".to_owned()
    }
}
