//! The replies of the chat agent without a model: a few phrases, understood by their words.

use std::sync::Arc;

use anyhow::Result;
use backstitch::{message::Role, prelude::*};

const INTRODUCTION: &str = "I am a scripted stand-in, not a language model: start the server with \
    OPENAI_API_KEY (or with OPENAI_BASE_URL, for a model of your own) to talk to a real one. ";

const HELP: &str = "I understand a few phrases. Try “What is the weather in Oslo and Rome?”, \
    “What is (2 + 3) * 4?”, “What time is it in Europe/Oslo?” or “My name is Ada.”";

/// The reply to a conversation.
pub fn reply(messages: &[Message], _: &[Arc<Tool>]) -> Result<Message> {
    let first = messages.iter().all(|m| m.role() != Role::Ai);
    let introduction = if first { INTRODUCTION } else { "" };
    let results = tool_results(messages);
    if !results.is_empty() {
        return Ok(Message::ai(results.join(" ")));
    }
    let request = messages.last().map(Message::text).unwrap_or_default();
    let calls = wishes(&request);
    let text = match calls.len() {
        0 if request.to_lowercase().contains("my name?") => match known_name(messages) {
            Some(name) => format!("Your name is {name}."),
            None => "You have not told me. Say “My name is …”.".to_owned(),
        },
        0 if let Some(name) = name_in(&request) => format!("Nice to meet you, {name}!"),
        0 if greets(&request) => format!("Hello! {HELP}"),
        0 => HELP.to_owned(),
        1 => "Let me look.".to_owned(),
        many => format!("Let me do these {many} things at once."),
    };
    let message = Message::ai(format!("{introduction}{text}"));
    Ok(calls.into_iter().fold(message, |message, (tool, args)| {
        message.calling(tool, Value::from(args))
    }))
}

/// The last name that the user stated on this branch of the conversation.
fn known_name(messages: &[Message]) -> Option<String> {
    let by_user = messages.iter().rev().filter(|m| m.role() == Role::Human);
    by_user.map(Message::text).find_map(|text| name_in(&text))
}

/// The word after `my name is`.
fn name_in(text: &str) -> Option<String> {
    const PHRASE: &str = "my name is ";
    // Lengths agree byte for byte only for ASCII: other texts are searched as they are.
    let at = text.to_ascii_lowercase().find(PHRASE)? + PHRASE.len();
    let rest = text.get(at..)?;
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    (!name.is_empty()).then_some(name)
}

/// The results of tools since the last message of the model, as sentences.
fn tool_results(messages: &[Message]) -> Vec<String> {
    let mut results: Vec<String> = messages
        .iter()
        .rev()
        .take_while(|message| message.role() == Role::Tool)
        .map(|message| match message.name() {
            Some("clock") => format!("It is {}.", message.text()),
            Some("weather") => format!("I see {}.", message.text()),
            _ => format!("{}.", message.text().trim_end_matches('.')),
        })
        .collect();
    results.reverse();
    results
}

/// The tools that a text requests, with their arguments.
fn wishes(text: &str) -> Vec<(&'static str, serde_json::Value)> {
    let mut calls = Vec::new();
    let lower = text.to_lowercase();
    if ["weather", "temperature", "rain"]
        .iter()
        .any(|word| lower.contains(word))
    {
        let cities = cities(text).into_iter();
        calls.extend(cities.map(|city| ("weather", json!({"city": city}))));
    }
    if let Some(expression) = expression(text) {
        calls.push(("calculate", json!({"expression": expression})));
    }
    let words = || lower.split(|c: char| !c.is_alphabetic());
    if words().any(|word| matches!(word, "time" | "clock" | "date" | "day")) {
        let zone = text
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
            .find(|word| word.contains('/') && word.starts_with(char::is_alphabetic));
        calls.push(("clock", json!({"time_zone": zone})));
    }
    calls
}

/// The names after `in`: `Oslo`, `New York`.
fn cities(text: &str) -> Vec<String> {
    let Some((_, after)) = text.split_once(" in ") else {
        return Vec::new();
    };
    let end = after.find(['?', '.', '!', ';']).unwrap_or(after.len());
    after[..end]
        .split([','])
        .flat_map(|part| part.split(" and "))
        .flat_map(|part| part.split(" or "))
        .map(|city| {
            city.trim()
                .trim_end_matches(" today")
                .trim_end_matches(" now")
        })
        .filter(|city| city.starts_with(char::is_uppercase))
        .map(str::to_owned)
        .collect()
}

/// The arithmetic expression in a text: an operator between digits.
fn expression(text: &str) -> Option<String> {
    const OPERATORS: [char; 7] = ['+', '-', '−', '*', '×', '/', '÷'];
    let belongs = |c: char| {
        c.is_ascii_digit() || OPERATORS.contains(&c) || matches!(c, '(' | ')' | '.' | ' ')
    };
    let found = text
        .split(|c| !belongs(c))
        .map(|part| part.trim().trim_end_matches('.').trim_end())
        .find(|part| {
            let numbers = part.split(OPERATORS);
            let with_digits = |part: &&str| part.contains(|c: char| c.is_ascii_digit());
            numbers.filter(with_digits).count() > 1
        })?;
    Some(found.to_owned())
}

fn greets(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic());
    words.any(|word| matches!(word, "hello" | "hi" | "hey"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Vec<(&'static str, serde_json::Value)> {
        wishes(text)
    }

    #[test]
    fn phrases_become_tool_calls() {
        assert_eq!(
            asked("What is the weather in Oslo and New York today?"),
            [
                ("weather", json!({"city": "Oslo"})),
                ("weather", json!({"city": "New York"})),
            ]
        );
        assert_eq!(
            asked("What is (2 + 3) * 4?"),
            [("calculate", json!({"expression": "(2 + 3) * 4"}))]
        );
        assert_eq!(
            asked("What time is it in Europe/Oslo?"),
            [("clock", json!({"time_zone": "Europe/Oslo"}))]
        );
        assert_eq!(asked("Tell me about 2026-sized llamas."), []);
    }

    #[test]
    fn the_first_answer_says_that_it_is_scripted_and_later_ones_do_not() {
        let mut messages = vec![Message::system("x"), Message::human("hello")];
        let first = reply(&messages, &[]).expect("an answer");
        assert!(first.text().contains("scripted"), "{first:?}");
        assert!(first.text().contains("OPENAI_API_KEY"), "{first:?}");
        messages.extend([first, Message::human("hello")]);
        let second = reply(&messages, &[]).expect("an answer");
        assert!(second.text().starts_with("Hello!"), "{second:?}");
    }

    #[test]
    fn results_of_tools_become_the_answer() {
        let messages = [
            Message::human("weather in Oslo, and 1 + 1"),
            Message::ai("Let me look."),
            Message::tool("4 °C in Oslo", "a").with_name("weather"),
            Message::tool("1 + 1 = 2", "b").with_name("calculate"),
        ];
        let answer = reply(&messages, &[]).expect("an answer");
        assert_eq!(answer.text(), "I see 4 °C in Oslo. 1 + 1 = 2.");
        assert!(answer.tool_calls().is_empty());
    }
}
