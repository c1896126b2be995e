//! Steps of one table as the columns of its statement.

use std::sync::Arc;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    storage::postgres::columns::{Time, name},
    time::Timestamp,
    tree::projection::{HeadRow, ProjectedRows, Projection, ProjectionStep},
};

/// The steps, and the rows of all of them.
pub(super) struct Columns {
    pub threads: Vec<Uuid>,
    trees: Vec<Uuid>,
    begins: Vec<i64>,
    ends: Vec<i64>,
    row_trees: Vec<Uuid>,
    row_threads: Vec<Uuid>,
    numbers: Vec<i64>,
    rest: Rest,
}

/// What the rows of a table have beside their key.
enum Rest {
    Timeline(Vec<i16>),
    Heads(Box<Heads>),
    Search(Vec<String>),
}

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

impl Rest {
    fn of(projection: Projection) -> Self {
        match projection {
            Projection::Timeline => Self::Timeline(vec![]),
            Projection::Heads => Self::Heads(Box::default()),
            Projection::Search => Self::Search(vec![]),
        }
    }
}

impl Columns {
    /// Those of the steps of one table.
    pub fn of<'a>(projection: Projection, steps: impl Iterator<Item = &'a ProjectionStep>) -> Self {
        let mut columns = Self {
            threads: vec![],
            trees: vec![],
            begins: vec![],
            ends: vec![],
            row_trees: vec![],
            row_threads: vec![],
            numbers: vec![],
            rest: Rest::of(projection),
        };
        for step in steps {
            columns.add(step);
        }
        columns
    }

    fn add(&mut self, step: &ProjectionStep) {
        match (&step.rows, &mut self.rest) {
            (ProjectedRows::Timeline(rows), Rest::Timeline(codes)) => {
                codes.extend(rows.iter().map(|row| row.code));
                self.numbers.extend(rows.iter().map(|row| row.number));
            }
            (ProjectedRows::Head(head), Rest::Heads(heads)) => {
                heads.push(head);
                self.numbers.push(head.number);
            }
            (ProjectedRows::Search(rows), Rest::Search(texts)) => {
                texts.extend(rows.iter().map(|row| name(&row.text).into_owned()));
                self.numbers.extend(rows.iter().map(|row| row.number));
            }
            // It is one of another table.
            _ => return,
        }
        self.threads.push(step.thread.0);
        self.trees.push(step.tree.0);
        self.begins.push(step.from);
        self.ends.push(step.to);
        self.row_trees.resize(self.numbers.len(), step.tree.0);
        self.row_threads.resize(self.numbers.len(), step.thread.0);
    }

    /// The parameters, in the order in which the statement counts them.
    pub fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &self.threads,
            &self.trees,
            &self.begins,
            &self.ends,
            &self.row_trees,
            &self.row_threads,
            &self.numbers,
        ];
        match &self.rest {
            Rest::Timeline(codes) => params.push(codes),
            Rest::Search(texts) => params.push(texts),
            Rest::Heads(heads) => params.extend([
                &heads.messages as &(dyn ToSql + Sync),
                &heads.branches,
                &heads.runs,
                &heads.message_ids,
                &heads.roles,
                &heads.previews,
                &heads.times,
            ]),
        }
        params
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
