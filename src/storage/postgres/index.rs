//! The message index and the events of a commit, as columns.

use std::borrow::Cow;

use uuid::Uuid;

use super::params::{Json, name};
use crate::{
    checkpoint::{Error, EventRow, NodeRow},
    tree::event,
};

/// Columns of node rows.
#[derive(Default)]
pub(super) struct Nodes<'a> {
    /// The node the first row follows.
    pub(super) base: Option<Uuid>,
    pub(super) ids: Vec<Uuid>,
    pub(super) parents: Vec<Option<Uuid>>,
    pub(super) ordinals: Vec<i32>,
    pub(super) kinds: Vec<&'static str>,
    pub(super) messages: Vec<Cow<'a, str>>,
    pub(super) replaced: Vec<Option<Cow<'a, str>>>,
    pub(super) places: Vec<i32>,
    pub(super) roles: Vec<Option<Cow<'a, str>>>,
    pub(super) numbers: Vec<Option<i64>>,
    pub(super) offsets: Vec<Option<i32>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(rows: &'a [NodeRow]) -> Self {
        let mut columns = Self {
            base: rows.first().and_then(|row| row.parent).map(|id| id.0),
            ..Self::default()
        };
        for row in rows {
            columns.ids.push(row.id.0);
            columns.parents.push(row.parent.map(|id| id.0));
            columns.ordinals.push(row.ordinal);
            columns.kinds.push(row.kind);
            columns.messages.push(name(&row.message_id));
            columns.replaced.push(row.edit_of.as_deref().map(name));
            columns.places.push(row.seq);
            columns.roles.push(row.role.as_deref().map(name));
            columns.numbers.push(row.event_number);
            columns.offsets.push(row.event_offset);
        }
        columns
    }
}

/// Columns of event rows.
#[derive(Default)]
pub(super) struct Events<'a> {
    pub(super) kinds: Vec<i16>,
    pub(super) payloads: Vec<Option<Json<'static>>>,
    pub(super) runs: Vec<Option<Uuid>>,
    pub(super) messages: Vec<Option<Cow<'a, str>>>,
}

impl<'a> Events<'a> {
    pub(super) fn of(rows: &'a [EventRow]) -> Result<Self, Error> {
        let mut columns = Self::default();
        for row in rows {
            let stored = event::split(row.kind, &row.payload)?;
            columns.kinds.push(stored.code);
            columns
                .payloads
                .push(stored.facts.as_ref().map(Json::of_map));
            columns.runs.push(stored.run.map(|id| id.0));
            columns.messages.push(row.message_id.as_deref().map(name));
        }
        Ok(columns)
    }
}
