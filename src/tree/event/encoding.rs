//! Encodes events for storage and decodes them.

use super::{RUN, RUN_FINISHED, STATUS, code, kind};
use crate::{
    checkpoint::Error,
    id::RunId,
    value::{Map, Value},
};

/// The type and payload of an event as they are stored.
#[derive(Debug)]
pub struct EncodedEvent {
    /// The number of its type.
    pub code: i16,
    /// The payload's `run_id`, which has a column.
    pub run: Option<RunId>,
    /// The rest of the payload; `None` when it is empty.
    pub facts: Option<Map>,
}

/// Encodes an event for storage: takes out of the payload what has a column and what is the
/// default, so that nothing is left of most payloads.
///
/// # Errors
/// There is no such type.
pub fn encode(kind: &str, payload: &Map) -> Result<EncodedEvent, Error> {
    let mut stored = EncodedEvent {
        code: code(kind)?,
        run: None,
        facts: None,
    };
    if payload.is_empty() {
        return Ok(stored);
    }
    let mut facts = payload.clone();
    if let Some(run) = run_of(payload) {
        facts.remove(RUN);
        stored.run = Some(run);
    }
    if kind == RUN_FINISHED && facts.get(STATUS) == Some(&Value::str(USUAL)) {
        facts.remove(STATUS);
    }
    stored.facts = (!facts.is_empty()).then_some(facts);
    Ok(stored)
}

/// Decodes the type and payload of a stored event.
///
/// # Errors
/// The number is not one of a type.
pub fn decode(stored: EncodedEvent) -> Result<(&'static str, Map), Error> {
    let kind = kind(stored.code)?;
    let mut payload = Map::new();
    if let Some(run) = stored.run {
        payload.insert(RUN, run.to_string());
    }
    if kind == RUN_FINISHED {
        payload.insert(STATUS, USUAL);
    }
    payload.extend(stored.facts.unwrap_or_default());
    Ok((kind, payload))
}

/// The status that is not stored, because most runs end with it.
const USUAL: &str = "success";

fn run_of(payload: &Map) -> Option<RunId> {
    let text = payload.get(RUN)?.as_str()?;
    let run: RunId = text.parse().ok()?;
    // A run id in another spelling stays in the payload.
    (run.to_string() == text).then_some(run)
}
