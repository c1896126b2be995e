//! The message index: which rows a change of a conversation's messages makes. Pure; the engine
//! asks on the way of every commit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::event;
use crate::{
    checkpoint::{EventRow, NodeRow},
    engine::{By, Change, Index, index::Rows},
    id::NodeId,
    value::{Map, Value},
};

#[cfg(test)]
mod tests;

/// Makes the rows. The default is right for runs and state edits; posts of messages say more.
#[derive(Clone, Debug, Default)]
pub struct Indexer {
    /// New messages that replace others through the message API: own id to replaced id.
    pub replaces: HashMap<Arc<str>, Arc<str>>,
    /// Messages whose event was written before: id to its number. No second one is written.
    pub announced: HashMap<Arc<str>, i64>,
}

impl Index for Indexer {
    fn index(&self, change: &Change<'_>) -> Rows {
        let mut rows = Maker {
            indexer: self,
            change,
            rows: Rows {
                last_node: change.last_node,
                ..Rows::default()
            },
            adds: 0,
        };
        rows.compare();
        if change.by == (By::Edit { last: true }) {
            rows.rows.events.push(EventRow {
                kind: event::CHECKPOINT_CREATED,
                ..EventRow::default()
            });
        }
        rows.rows
    }
}

struct Maker<'a> {
    indexer: &'a Indexer,
    change: &'a Change<'a>,
    rows: Rows,
    adds: i32,
}

impl<'a> Maker<'a> {
    /// Messages are compared by id, but those both lists begin with by identity, which is a
    /// pointer's comparison each: of a list that only grew, no more than the new ones is looked
    /// into.
    fn compare(&mut self) {
        let (old, new) = (self.change.before, self.change.after);
        if std::ptr::eq(old, new) {
            return;
        }
        let same = old
            .iter()
            .zip(new)
            .take_while(|(a, b)| a.is_identical(b) || a == b)
            .count();
        let (old, new) = (&old[same..], &new[same..]);
        if old.is_empty() {
            let mut seen = HashSet::new();
            for message in new.iter().filter(|message| seen.insert(id(message))) {
                self.add(message);
            }
            return;
        }
        let left: HashSet<&str> = new.iter().filter_map(id).collect();
        let before: HashMap<&str, &Value> = old
            .iter()
            .filter_map(|message| Some((id(message)?, message)))
            .collect();
        let mut gone = HashSet::new();
        for message in old {
            if let Some(id) = id(message)
                && !left.contains(id)
                && gone.insert(id)
            {
                self.note("remove", event::MESSAGE_REMOVED, message);
            }
        }
        let mut seen = HashSet::new();
        for message in new {
            let Some(id) = id(message).filter(|id| seen.insert(*id)) else {
                continue;
            };
            match before.get(id) {
                None => self.add(message),
                Some(old) if *old != message => {
                    self.note("edit", event::MESSAGE_EDITED, message);
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
        let known = self.indexer.announced.get(&id).copied();
        let role = role(message);
        if known.is_none() {
            let event = self.added(&id, role);
            self.rows.events.push(event);
        }
        self.adds += 1;
        let mut row = self.row("add", id, role);
        row.edit_of = self.indexer.replaces.get(&row.message_id).cloned();
        row.event_number = known;
        if known.is_some() {
            row.event_offset = None;
        }
        self.rows.last_node = Some(row.id);
        self.rows.nodes.push(row);
    }

    /// Answers of models count as such when a run makes them.
    fn added(&self, id: &Arc<str>, role: Option<&str>) -> EventRow {
        let by_run = self.change.by == By::Run;
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

    fn note(&mut self, kind: &'static str, event: &'static str, message: &'a Value) {
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
