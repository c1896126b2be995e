//! Steps as the columns of their statement.

use std::sync::Arc;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    storage::postgres::columns::{Time, name},
    time::Timestamp,
    tree::projection::{HeadRow, ProjectionStep},
};

/// The steps, and the rows of all of them.
pub(super) struct Columns {
    pub threads: Vec<Uuid>,
    trees: Vec<Uuid>,
    begins: Vec<i64>,
    ends: Vec<i64>,
    numbers: Vec<i64>,
    heads: Heads,
}

/// What the rows have beside their key.
#[derive(Default)]
struct Heads {
    messages: Vec<i64>,
    branches: Vec<i64>,
    runs: Vec<i64>,
    message_ids: Vec<Option<String>>,
    roles: Vec<Option<String>>,
    previews: Vec<Option<String>>,
    times: Vec<Time>,
}

impl Columns {
    /// Those of some steps.
    pub fn of<'a>(steps: impl Iterator<Item = &'a ProjectionStep>) -> Self {
        let mut columns = Self {
            threads: vec![],
            trees: vec![],
            begins: vec![],
            ends: vec![],
            numbers: vec![],
            heads: Heads::default(),
        };
        for step in steps {
            columns.add(step);
        }
        columns
    }

    fn add(&mut self, step: &ProjectionStep) {
        self.heads.push(&step.head);
        self.numbers.push(step.head.number);
        self.threads.push(step.thread.0);
        self.trees.push(step.tree.0);
        self.begins.push(step.from);
        self.ends.push(step.to);
    }

    /// The parameters, in the order in which the statement counts them.
    pub fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let heads = &self.heads;
        vec![
            &self.threads,
            &self.trees,
            &self.begins,
            &self.ends,
            &self.numbers,
            &heads.messages,
            &heads.branches,
            &heads.runs,
            &heads.message_ids,
            &heads.roles,
            &heads.previews,
            &heads.times,
        ]
    }
}

impl Heads {
    fn push(&mut self, head: &HeadRow) {
        let own = |text: &Option<Arc<str>>| text.as_deref().map(|text| name(text).into_owned());
        self.messages.push(head.messages);
        self.branches.push(head.branches);
        self.runs.push(head.runs);
        self.message_ids.push(own(&head.last_message_id));
        self.roles.push(own(&head.last_role));
        self.previews.push(own(&head.last_preview));
        self.times.push(Time(Timestamp(head.updated_at)));
    }
}
