//! The rows of a commit as one array per column.

use std::borrow::Cow;

use uuid::Uuid;

use crate::{
    checkpoint::{BlobRow, Error, EventRow, NodeRow, WriteRow, paths},
    storage::postgres::columns::{Json, name},
    tree::event,
};

/// Columns of blob rows.
#[derive(Default)]
pub(crate) struct Blobs<'a> {
    pub(crate) channels: Vec<Cow<'a, str>>,
    pub(crate) versions: Vec<String>,
    pub(crate) bases: Vec<Option<String>>,
    pub(crate) chains: Vec<i32>,
    pub(crate) tags: Vec<&'a str>,
    pub(crate) bytes: Vec<&'a [u8]>,
}

impl<'a> Blobs<'a> {
    pub(crate) fn of(rows: &'a [BlobRow]) -> Self {
        let mut columns = Self::default();
        columns.extend(rows);
        columns
    }

    pub(crate) fn extend(&mut self, rows: &'a [BlobRow]) {
        for row in rows {
            self.channels.push(name(&row.channel));
            self.versions.push(row.version.to_string());
            self.bases.push(row.base.map(|base| base.to_string()));
            self.chains.push(row.chain_bytes);
            self.tags.push(&row.tag);
            self.bytes.push(&row.bytes);
        }
    }
}

/// Columns of write rows.
#[derive(Default)]
pub(crate) struct Writes<'a> {
    pub(crate) nss: Vec<Cow<'a, str>>,
    pub(crate) checkpoints: Vec<Uuid>,
    pub(crate) tasks: Vec<Uuid>,
    pub(crate) idxs: Vec<i32>,
    pub(crate) paths: Vec<Cow<'a, str>>,
    /// Empty for output: a row without NULL takes eight bytes less.
    pub(crate) channels: Vec<Cow<'a, str>>,
    pub(crate) tags: Vec<&'a str>,
    pub(crate) bytes: Vec<&'a [u8]>,
    pub(crate) upserts: Vec<bool>,
}

impl<'a> Writes<'a> {
    pub(crate) fn of(rows: &'a [WriteRow]) -> Self {
        let mut columns = Self::default();
        columns.extend(rows);
        columns
    }

    pub(crate) fn extend(&mut self, rows: &'a [WriteRow]) {
        for row in rows {
            self.nss.push(name(&row.ns));
            self.checkpoints.push(row.checkpoint.0);
            self.tasks.push(row.task.0);
            self.idxs.push(row.idx);
            self.paths.push(path_of(&row.path));
            self.channels
                .push(row.channel.as_deref().map(name).unwrap_or_default());
            self.tags.push(&row.tag);
            self.bytes.push(&row.bytes);
            self.upserts.push(row.upsert);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}

/// The path of a task as it is stored.
pub(super) fn path_of(path: &str) -> Cow<'_, str> {
    match paths::shortened(path) {
        Cow::Borrowed(path) => name(path),
        Cow::Owned(path) => Cow::Owned(name(&path).into_owned()),
    }
}

/// Columns of node rows.
#[derive(Default)]
pub(crate) struct Nodes<'a> {
    /// The node the first row follows.
    pub(crate) base: Option<Uuid>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) parents: Vec<Option<Uuid>>,
    pub(crate) ordinals: Vec<i32>,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) messages: Vec<Cow<'a, str>>,
    pub(crate) replaced: Vec<Option<Cow<'a, str>>>,
    pub(crate) positions: Vec<i32>,
    pub(crate) roles: Vec<Option<Cow<'a, str>>>,
    pub(crate) numbers: Vec<Option<i64>>,
    pub(crate) offsets: Vec<Option<i32>>,
}

impl<'a> Nodes<'a> {
    pub(crate) fn of(rows: &'a [NodeRow]) -> Self {
        let mut columns = Self {
            base: rows.first().and_then(|row| row.parent).map(|id| id.0),
            ..Self::default()
        };
        columns.extend(rows);
        columns
    }

    pub(crate) fn extend(&mut self, rows: &'a [NodeRow]) {
        for row in rows {
            self.ids.push(row.id.0);
            self.parents.push(row.parent.map(|id| id.0));
            self.ordinals.push(row.ordinal);
            self.kinds.push(row.kind);
            self.messages.push(name(&row.message_id));
            self.replaced.push(row.edit_of.as_deref().map(name));
            self.positions.push(row.seq);
            self.roles.push(row.role.as_deref().map(name));
            self.numbers.push(row.event_number);
            self.offsets.push(row.event_offset);
        }
    }
}

/// Columns of event rows.
#[derive(Default)]
pub(crate) struct Events<'a> {
    pub(crate) kinds: Vec<i16>,
    pub(crate) payloads: Vec<Option<Json<'static>>>,
    pub(crate) runs: Vec<Option<Uuid>>,
    pub(crate) messages: Vec<Option<Cow<'a, str>>>,
}

impl<'a> Events<'a> {
    pub(crate) fn of(rows: &'a [EventRow]) -> Result<Self, Error> {
        let mut columns = Self::default();
        columns.extend(rows)?;
        Ok(columns)
    }

    pub(crate) fn extend(&mut self, rows: &'a [EventRow]) -> Result<(), Error> {
        for row in rows {
            let stored = event::encode(row.kind, &row.payload)?;
            self.kinds.push(stored.code);
            self.payloads.push(stored.facts.as_ref().map(Json::of_map));
            self.runs.push(stored.run.map(|id| id.0));
            self.messages.push(row.message_id.as_deref().map(name));
        }
        Ok(())
    }
}
