//! How long the ids of messages may be that nodes and clients write.

use std::{collections::HashSet, sync::Arc};

use super::error::Error;
use crate::{graph::Compiled, message, value::Value};

/// Refuses a write to a channel of messages that has a message with a longer id than new messages may have. Ids that
/// a channel of messages has already stay usable: nodes return their messages, move them to other channels and
/// remove them.
///
/// # Errors
/// Such an id.
pub fn check<'a>(
    graph: &Compiled,
    stored: impl Fn(&str) -> Option<&'a Value>,
    channel: &Arc<str>,
    written: &Value,
) -> Result<(), Error> {
    if !graph.messages.contains(channel) {
        return Ok(());
    }
    let mut long = message::ids_in(written)
        .filter(|id| message::is_too_long(id))
        .peekable();
    if long.peek().is_none() {
        return Ok(());
    }
    let stored = graph.messages.iter().filter_map(|channel| stored(channel));
    let stored: HashSet<&Arc<str>> = stored.flat_map(message::ids_in).collect();
    if long.all(|id| stored.contains(id)) {
        Ok(())
    } else {
        Err(Error::channel(channel, message::Error::IdForm.into()))
    }
}

/// The same for an input: a map of channels, or all of the state where that is no map.
///
/// # Errors
/// As [`check`].
pub fn check_input<'a>(
    graph: &Compiled,
    stored: impl Fn(&str) -> Option<&'a Value>,
    input: &Value,
) -> Result<(), Error> {
    for channel in &graph.messages {
        if let Some(written) = input_of(graph, input, channel) {
            check(graph, &stored, channel, written)?;
        }
    }
    Ok(())
}

/// What an input writes to a channel.
pub fn input_of<'a>(graph: &Compiled, input: &'a Value, channel: &str) -> Option<&'a Value> {
    if graph.root_state {
        Some(input)
    } else {
        input.get(channel)
    }
}
