//! The message index: the rows that a change of a conversation's messages adds to it. Pure; the
//! engine calls it for every commit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::event;
use crate::{
    checkpoint::{EventRow, NodeRow},
    engine::{ChangeSource, MessageChange, MessageIndex, message_index::IndexRows},
    id::NodeId,
    value::{Map, Value},
};

#[cfg(test)]
mod tests;

/// Computes the rows. The default is for runs and state updates; posts of messages fill in more.
#[derive(Clone, Debug, Default)]
pub struct Indexer {
    /// New messages that replace others through the message API: from the new id to the old one.
    pub replaces: HashMap<Arc<str>, Arc<str>>,
    /// Messages whose event was written before: from the id to the number of the event. No second
    /// event is written.
    pub announced: HashMap<Arc<str>, i64>,
}

impl MessageIndex for Indexer {
    fn index(&self, change: &MessageChange<'_>) -> IndexRows {
        let mut rows = RowBuilder {
            indexer: self,
            change,
            rows: IndexRows {
                last_node: change.last_node,
                ..IndexRows::default()
            },
            adds: 0,
        };
        rows.compare();
        if change.by == (ChangeSource::Update { last: true }) {
            rows.rows.events.push(EventRow {
                kind: event::CHECKPOINT_CREATED,
                ..EventRow::default()
            });
        }
        rows.rows
    }
}

struct RowBuilder<'a> {
    indexer: &'a Indexer,
    change: &'a MessageChange<'a>,
    rows: IndexRows,
    adds: i32,
}

impl<'a> RowBuilder<'a> {
    /// Compares the messages before and after the change by id. The messages that both lists begin
    /// with are compared by pointer first, so that of a list that only grew just the new messages
    /// are read.
    fn compare(&mut self) {
        let (old, new) = (self.change.before, self.change.after);
        if std::ptr::eq(old, new) {
            return;
        }
        let shared = Value::common_start(old, new);
        let (old, new) = (&old[shared..], &new[shared..]);
        if old.is_empty() {
            let mut visited = HashSet::new();
            for message in new.iter().filter(|message| visited.insert(id(message))) {
                self.add(message);
            }
            return;
        }
        let remaining: HashSet<&str> = new.iter().filter_map(id).collect();
        let before: HashMap<&str, &Value> = old
            .iter()
            .filter_map(|message| Some((id(message)?, message)))
            .collect();
        let mut removed = HashSet::new();
        for message in old {
            if let Some(id) = id(message)
                && !remaining.contains(id)
                && removed.insert(id)
            {
                self.push_change("remove", event::MESSAGE_REMOVED, message);
            }
        }
        let mut visited = HashSet::new();
        for message in new {
            let Some(id) = id(message).filter(|id| visited.insert(*id)) else {
                continue;
            };
            match before.get(id) {
                None => self.add(message),
                Some(old) if *old != message => {
                    self.push_change("edit", event::MESSAGE_EDITED, message);
                }
                Some(_) => {}
            }
        }
    }

    fn add(&mut self, message: &'a Value) {
        let Some(id) = id(message) else {
            return;
        };
        let id: Arc<str> = id.into();
        let announced = self.indexer.announced.get(&id).copied();
        let role = role(message);
        if announced.is_none() {
            let event = self.added_event(&id, role);
            self.rows.events.push(event);
        }
        self.adds += 1;
        let mut row = self.row("add", id, role);
        row.edit_of = self.indexer.replaces.get(&row.message_id).cloned();
        row.event_number = announced;
        if announced.is_some() {
            row.event_offset = None;
        }
        self.rows.last_node = Some(row.id);
        self.rows.nodes.push(row);
    }

    /// The event of a new message. A model's message counts as a response only when a run adds it.
    fn added_event(&self, id: &Arc<str>, role: Option<&str>) -> EventRow {
        let by_run = self.change.by == ChangeSource::Run;
        let (kind, payload) = match role {
            Some("human") => (event::USER_MESSAGE_ADDED, Map::new()),
            Some("ai") if by_run => {
                let run = self.change.run.map(event::about_run);
                (event::LLM_RESPONSE_GENERATED, run.unwrap_or_default())
            }
            _ => {
                let mut payload = Map::new();
                if let Some(role) = role {
                    payload.insert("role", role);
                }
                (event::MESSAGE_ADDED, payload)
            }
        };
        EventRow {
            kind,
            payload,
            message_id: Some(id.clone()),
        }
    }

    fn push_change(&mut self, kind: &'static str, event: &'static str, message: &'a Value) {
        let Some(id) = id(message) else {
            return;
        };
        let id: Arc<str> = id.into();
        self.rows.events.push(EventRow {
            kind: event,
            message_id: Some(id.clone()),
            ..EventRow::default()
        });
        let row = self.row(kind, id, role(message));
        self.rows.nodes.push(row);
    }

    /// A row about the event that was pushed last.
    fn row(&self, kind: &'static str, id: Arc<str>, role: Option<&str>) -> NodeRow {
        NodeRow {
            id: NodeId::mint(),
            parent: self.rows.last_node,
            ordinal: self.adds,
            kind,
            message_id: id,
            edit_of: None,
            seq: count(self.rows.nodes.len()),
            role: role.map(Into::into),
            event_number: None,
            event_offset: Some(count(self.rows.events.len())),
        }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn id(message: &Value) -> Option<&str> {
    message.get("id")?.as_str()
}

fn role(message: &Value) -> Option<&str> {
    message.get("type")?.as_str()
}
