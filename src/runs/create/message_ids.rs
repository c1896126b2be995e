//! The ids of the messages that the input of a run has.

use std::sync::Arc;

use super::Error;
use crate::{message, runs::request, value::Value};

/// Refuses a run whose input has a message with an id that the storages cannot index: the run could
/// only fail. `channels` are those of messages.
pub(super) fn check(channels: &[Arc<str>], request: &request::Run) -> Result<(), Error> {
    let update = request.command.as_ref();
    let update = update.and_then(|command| command.get("update"));
    for (field, written) in [
        ("input", request.input.as_ref()),
        ("command.update", update),
    ] {
        for channel in channels {
            let values = written.map_or(vec![], |written| values_of(written, channel));
            if values.into_iter().any(has_bad_id) {
                let reason = message::Error::IdForm;
                return Err(Error::Invalid(format!("{field}.{channel}: {reason}")));
            }
        }
    }
    Ok(())
}

/// What is written to a channel by a map, or by a list of pairs.
fn values_of<'a>(written: &'a Value, channel: &str) -> Vec<&'a Value> {
    match written {
        Value::List(pairs) => pairs
            .iter()
            .filter_map(|pair| match pair.as_list()? {
                [name, value] if name.as_str() == Some(channel) => Some(value),
                _ => None,
            })
            .collect(),
        other => other.get(channel).into_iter().collect(),
    }
}

fn has_bad_id(messages: &Value) -> bool {
    let is_bad = |message: &Value| {
        let id = message.get("id").and_then(Value::as_str);
        id.is_some_and(|id| !message::is_id(id))
    };
    match messages {
        Value::List(messages) => messages.iter().any(is_bad),
        single => is_bad(single),
    }
}
