//! What a client sends: a message to a task or a context, and how it wants to be answered.

use std::sync::Arc;

use super::{
    agent::Agent,
    codes::NO_NOTIFICATIONS,
    part::{self, Part},
};
use crate::{
    http::json_rpc::Failure,
    message::{ID_SETTING, is_id, is_too_long, most_of_new_id},
    value,
    value::{Map, Value},
};

/// A message of a client.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub id: Arc<str>,
    /// It is one of an agent, which is passed on.
    pub is_agents: bool,
    pub parts: Vec<Part>,
    pub context: Option<Arc<str>>,
    pub task: Option<Arc<str>>,
    /// The client does not wait for the end of the task.
    pub returns_at_once: bool,
    /// The most messages of the history that the client wants.
    pub history: Option<usize>,
}

/// A whole number in a range.
pub fn whole(map: &Map, name: &str, min: i64, max: i64) -> Result<Option<usize>, Failure> {
    let value = match map.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_i64().filter(|number| (min..=max).contains(number)),
    };
    let number = value.and_then(|number| usize::try_from(number).ok());
    let range = || match max {
        i64::MAX => format!("`{name}` must be an integer of at least {min}"),
        max => format!("`{name}` must be an integer between {min} and {max}"),
    };
    number.map(Some).ok_or_else(|| Failure::params(range()))
}

fn text(map: &Map, name: &str) -> Result<Option<Arc<str>>, Failure> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Str(text)) if text.is_empty() => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Failure::params(format!("`{name}` must be a string"))),
    }
}

fn object<'a>(map: &'a Map, name: &str) -> Result<Option<&'a Map>, Failure> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err(Failure::params(format!("`{name}` must be an object"))),
    }
}

impl Incoming {
    pub fn parse(params: &Map) -> Result<Self, Failure> {
        let Some(message) = object(params, "message")? else {
            return Err(Failure::params("Missing required parameter: message"));
        };
        let parts = match message.get("parts") {
            Some(Value::List(parts)) if !parts.is_empty() => parts,
            _ => {
                return Err(Failure::params(
                    "The message needs `parts`, a list of at least one",
                ));
            }
        };
        let id = text(message, "messageId")?;
        let id = id.ok_or_else(|| Failure::params("The message needs its `messageId`"))?;
        // It is that of the graph's message too.
        if !is_id(&id) || is_too_long(&id) {
            let reason = format!(
                "`messageId` has at most {} characters ({ID_SETTING}), none of them a control character",
                most_of_new_id()
            );
            return Err(Failure::params(reason));
        }
        let is_agents = match message.get("role").and_then(Value::as_str) {
            Some("user" | "ROLE_USER") => false,
            Some("agent" | "ROLE_AGENT") => true,
            _ => {
                return Err(Failure::params(
                    "The `role` of a message is that of a user or an agent",
                ));
            }
        };
        let none = Map::new();
        let wishes = object(params, "configuration")?.unwrap_or(&none);
        let notified = ["pushNotificationConfig", "taskPushNotificationConfig"];
        if notified
            .iter()
            .any(|name| wishes.get(name).is_some_and(|value| !value.is_null()))
        {
            let reason = "This server sends no notifications by itself: get the task instead";
            return Err(Failure::new(NO_NOTIFICATIONS, reason));
        }
        let flag = |name: &str| wishes.get(name).and_then(Value::as_bool);
        Ok(Self {
            id,
            is_agents,
            parts: parts.iter().map(Part::parse).collect::<Result<_, _>>()?,
            context: text(message, "contextId")?,
            task: text(message, "taskId")?,
            returns_at_once: flag("blocking") == Some(false)
                || flag("returnImmediately") == Some(true),
            history: whole(wishes, "historyLength", 0, i64::MAX)?,
        })
    }

    /// The input of a run of the agent's graph: the fields of data, and a message of everything else.
    pub fn to_input(&self, agent: &Agent) -> Result<Value, Failure> {
        let mut input = Map::new();
        let mut shown = vec![];
        for part in &self.parts {
            match part {
                Part::Data(Value::Map(fields)) => {
                    let fields = fields
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone()));
                    input.extend(fields);
                }
                Part::Data(_) => {
                    let reason = "The data of a part must be an object: its fields are the input of the graph";
                    return Err(Failure::params(reason));
                }
                part => shown.push(part.clone()),
            }
        }
        if shown.is_empty() {
            return Ok(Value::map(input));
        }
        let Some(channel) = agent.messages() else {
            let graph = &agent.registered.graph;
            let names: Vec<String> = graph.input.iter().map(|name| format!("'{name}'")).collect();
            return Err(Failure::params(format!(
                "Assistant '{}' (graph '{}') takes no messages: the input of its graph has no field 'messages' for \
                 text and file parts. Send a data part with some of its fields: [{}]",
                agent.id,
                agent.registered.name,
                names.join(", ")
            )));
        };
        let message = value!({
            "type": (if self.is_agents { "ai" } else { "human" }),
            "content": (part::content(&shown)),
            "id": (Value::Str(self.id.clone()))
        });
        let mut messages = match input.remove(channel) {
            None | Some(Value::Null) => vec![],
            Some(Value::List(messages)) => messages.to_vec(),
            Some(one) => vec![one],
        };
        messages.push(message);
        input.insert(channel.clone(), Value::list(messages));
        Ok(Value::map(input))
    }

    /// What resumes the open interrupts: their ids with a value each, where there are several.
    pub fn to_resume_value(&self, open: &[&str]) -> Result<Value, Failure> {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text(text) => Some(&**text),
            _ => None,
        });
        let value = match (texts.collect::<Option<Vec<_>>>(), &self.parts[..]) {
            (Some(texts), _) => Value::str(texts.join("\n")),
            (None, [Part::Data(data)]) => data.clone(),
            (None, parts) => part::content(parts),
        };
        let names = |map: &Map| !map.is_empty() && map.keys().all(|key| open.contains(&&**key));
        if open.len() > 1 && !value.as_map().is_some_and(names) {
            return Err(Failure::params(format!(
                "The task waits for {} values: send one data part, an object of the ids of its interrupts ({}) and a \
                 value for each",
                open.len(),
                open.join(", ")
            )));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(parts: Value) -> Incoming {
        let params = value!({"message": {"role": "user", "messageId": "m", "parts": parts}});
        Incoming::parse(params.as_map().unwrap()).unwrap()
    }

    #[test]
    fn texts_resume_as_one_text_and_data_as_it_is() {
        let texts = value!([{"text": "a"}, {"kind": "text", "text": "b"}]);
        let value = incoming(texts).to_resume_value(&["i"]).unwrap();
        assert_eq!(value, Value::str("a\nb"));
        let data = value!([{"data": {"ok": true}}]);
        let value = incoming(data).to_resume_value(&["i"]).unwrap();
        assert_eq!(value, value!({"ok": true}));
    }

    #[test]
    fn several_interrupts_are_resumed_by_their_ids_alone() {
        let open = ["i1", "i2"];
        let by_id = incoming(value!([{"data": {"i2": "no"}}]));
        assert_eq!(by_id.to_resume_value(&open).unwrap(), value!({"i2": "no"}));
        for parts in [
            value!([{"text": "yes"}]),
            value!([{"data": {"x": 1}}]),
            value!([{"data": {}}]),
        ] {
            assert!(incoming(parts).to_resume_value(&open).is_err());
        }
    }

    #[test]
    fn a_message_without_what_it_needs_is_refused() {
        let part = || value!([{"text": "a"}]);
        for params in [
            value!({}),
            value!({"message": "x"}),
            value!({"message": {"role": "user", "messageId": "m"}}),
            value!({"message": {"role": "user", "messageId": "m", "parts": []}}),
            value!({"message": {"role": "user", "messageId": "m", "parts": "a"}}),
            value!({"message": {"role": "user", "parts": (part())}}),
            value!({"message": {"role": "user", "messageId": "a\0b", "parts": (part())}}),
            value!({"message": {"role": "user", "messageId": ("x".repeat(256)), "parts": (part())}}),
            value!({"message": {"role": "bogus", "messageId": "m", "parts": (part())}}),
            value!({"message": {"role": "user", "messageId": "m", "contextId": 1, "parts": (part())}}),
            value!({"message": {"role": "user", "messageId": "m", "parts": (part())},
                    "configuration": {"historyLength": (-1)}}),
            value!({"message": {"role": "user", "messageId": "m", "parts": (part())},
                    "configuration": {"pushNotificationConfig": {}}}),
        ] {
            assert!(
                Incoming::parse(params.as_map().unwrap()).is_err(),
                "{params:?}"
            );
        }
    }
}
