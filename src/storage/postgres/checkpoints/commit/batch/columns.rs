//! The rows of many supersteps as one array per column, each with the number of its branch.

use std::{borrow::Cow, collections::HashMap, mem};

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::super::arrays::{Blobs, Events, Nodes, Writes, path_of};
use crate::{
    checkpoint::{Commit, Error, WriteRow, metadata},
    storage::postgres::columns::{Json, Time, envelope_bytes},
};

/// What gates each branch.
#[derive(Default)]
struct Branches {
    trees: Vec<Uuid>,
    ids: Vec<Uuid>,
    epochs: Vec<i64>,
    parents: Vec<Option<Uuid>>,
    heads: Vec<Uuid>,
    counts: Vec<i32>,
    events: Vec<i64>,
}

/// Rows of `checkpoints`.
#[derive(Default)]
struct Checkpoints<'a> {
    numbers: Vec<i32>,
    positions: Vec<i32>,
    trees: Vec<Uuid>,
    ids: Vec<Uuid>,
    parents: Vec<Option<Uuid>>,
    threads: Vec<Uuid>,
    branches: Vec<Uuid>,
    nodes: Vec<Option<Uuid>>,
    event_numbers: Vec<i64>,
    events: Vec<i64>,
    runs: Vec<Option<Uuid>>,
    sources: Vec<&'static str>,
    steps: Vec<i64>,
    envelopes: Vec<Cow<'a, [u8]>>,
    blob_versions: Vec<Json<'a>>,
    metadata: Vec<Json<'a>>,
    times: Vec<Time>,
    run_supersteps: Vec<i32>,
    graphs: Vec<Option<&'a str>>,
    assistants: Vec<Option<Uuid>>,
    results: Results<'a>,
}

/// The results that rows of `checkpoints` have themselves.
#[derive(Default)]
struct Results<'a> {
    tasks: Vec<Option<Uuid>>,
    headers: Vec<Option<String>>,
    bytes: Vec<Option<Cow<'a, [u8]>>>,
}

impl<'a> Results<'a> {
    fn push(&mut self, results: Option<Cow<'a, WriteRow>>) {
        let row = results.as_deref();
        self.tasks.push(row.map(|row| row.task.0));
        self.headers
            .push(row.map(|row| row.header(&path_of(&row.path))));
        self.bytes.push(results.map(|row| match row {
            Cow::Borrowed(row) => Cow::Borrowed(&*row.bytes),
            Cow::Owned(row) => Cow::Owned(row.bytes),
        }));
    }
}

/// What rows of the other tables are of.
#[derive(Default)]
struct Owners {
    numbers: Vec<i32>,
    trees: Vec<Uuid>,
    threads: Vec<Uuid>,
    branches: Vec<Uuid>,
    checkpoints: Vec<Uuid>,
    runs: Vec<Option<Uuid>>,
    positions: Vec<i32>,
}

impl Owners {
    /// Names the owner of the rows up to `len`.
    fn fill(&mut self, len: usize, number: i32, position: i32, commit: &Commit) {
        let row = &commit.checkpoint;
        self.numbers.resize(len, number);
        self.trees.resize(len, commit.slot.tree.0);
        self.threads.resize(len, commit.slot.thread.0);
        self.branches.resize(len, commit.slot.branch.0);
        self.checkpoints.resize(len, row.id.0);
        self.runs.resize(len, row.run.map(|id| id.0));
        self.positions.resize(len, position);
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Columns<'a> {
    branches: Branches,
    rows: Checkpoints<'a>,
    blobs: Blobs<'a>,
    of_blobs: Owners,
    writes: Writes<'a>,
    of_writes: Owners,
    nodes: Nodes<'a>,
    of_nodes: Owners,
    /// The stored node whose ordinal is added to that of a row.
    bases: Vec<Option<Uuid>>,
    /// The events of nodes, counted from the first of their branch.
    node_events: Vec<Option<i64>>,
    events: Events<'a>,
    of_events: Owners,
    event_positions: Vec<i64>,
}

impl<'a> Columns<'a> {
    /// Adds the supersteps of one branch.
    pub(super) fn add(
        &mut self,
        commits: impl Iterator<Item = &'a Commit> + Clone,
    ) -> Result<(), Error> {
        let (Some(first), Some(last)) = (commits.clone().next(), commits.clone().last()) else {
            return Ok(());
        };
        let number = count(self.branches.ids.len() + 1);
        let (mut position, mut events) = (0, 0_i64);
        // Ordinals of nodes that are inserted with these supersteps are in no table yet.
        let mut ordinals: HashMap<Uuid, (Option<Uuid>, i32)> = HashMap::new();
        let mut commits = commits.peekable();
        let mut is_written = false;
        while let Some(commit) = commits.next() {
            position += 1;
            let before = events;
            events += i64::try_from(commit.events.len()).unwrap_or(i64::MAX);
            let results = commits.peek().and_then(|next| commit.results_in(next));
            let are_in_row = results.is_some();
            self.add_row(number, position, events, commit);
            self.rows.results.push(results);
            self.blobs.extend(&commit.blobs);
            self.of_blobs
                .fill(self.blobs.channels.len(), number, position, commit);
            // Where the row of the checkpoint before has the results, there are no others.
            if !mem::replace(&mut is_written, are_in_row) {
                self.writes.extend(&commit.writes);
            }
            self.of_writes
                .fill(self.writes.len(), number, position, commit);
            self.add_nodes(before, commit, &mut ordinals);
            self.of_nodes
                .fill(self.nodes.ids.len(), number, position, commit);
            self.events.extend(&commit.events)?;
            self.of_events
                .fill(self.events.kinds.len(), number, position, commit);
            self.event_positions.extend(before + 1..=events);
        }
        let branches = &mut self.branches;
        branches.trees.push(first.slot.tree.0);
        branches.ids.push(first.slot.branch.0);
        branches.epochs.push(first.slot.epoch);
        branches
            .parents
            .push(first.checkpoint.parent.map(|id| id.0));
        branches.heads.push(last.checkpoint.id.0);
        branches.counts.push(position);
        branches.events.push(events);
        Ok(())
    }

    fn add_row(&mut self, number: i32, position: i32, events: i64, commit: &'a Commit) {
        let (rows, row) = (&mut self.rows, &commit.checkpoint);
        rows.numbers.push(number);
        rows.positions.push(position);
        rows.trees.push(commit.slot.tree.0);
        rows.ids.push(row.id.0);
        rows.parents.push(row.parent.map(|id| id.0));
        rows.threads.push(commit.slot.thread.0);
        rows.branches.push(commit.slot.branch.0);
        rows.nodes.push(row.last_node.map(|id| id.0));
        rows.event_numbers.push(row.event_number);
        rows.events.push(events);
        rows.runs.push(row.run.map(|id| id.0));
        rows.sources.push(row.source.as_str());
        rows.steps.push(row.step);
        rows.envelopes.push(envelope_bytes(&row.envelope));
        rows.blob_versions
            .push(Json::new(row.blob_versions.as_str()));
        let own = metadata::Columns::of(&row.metadata);
        rows.metadata.push(Json::new(own.rest));
        rows.graphs.push(own.graph);
        rows.assistants.push(own.assistant.map(|id| id.0));
        rows.times.push(Time(row.created_at));
        rows.run_supersteps.push(row.run_supersteps);
    }

    fn add_nodes(
        &mut self,
        events_before: i64,
        commit: &'a Commit,
        ordinals: &mut HashMap<Uuid, (Option<Uuid>, i32)>,
    ) {
        let from = self.nodes.ids.len();
        self.nodes.extend(&commit.nodes);
        let parent = commit.nodes.first().and_then(|row| row.parent);
        let parent = parent.map(|id| id.0);
        let known = parent.and_then(|id| ordinals.get(&id).copied());
        let (base, above) = known.unwrap_or((parent, 0));
        for (at, row) in (from..).zip(&commit.nodes) {
            self.nodes.ordinals[at] += above;
            self.bases.push(base);
            let offset = row.event_offset.map(i64::from);
            self.node_events
                .push(offset.map(|offset| events_before + offset));
            if row.kind == "add" {
                ordinals.insert(row.id.0, (base, row.ordinal + above));
            }
        }
    }

    /// The values, in the order of [`MANY`](super::MANY).
    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let (branches, rows) = (&self.branches, &self.rows);
        let (blobs, writes, nodes, events) = (&self.blobs, &self.writes, &self.nodes, &self.events);
        vec![
            &branches.trees,
            &branches.ids,
            &branches.epochs,
            &branches.parents,
            &branches.heads,
            &branches.counts,
            &branches.events,
            // $8
            &rows.numbers,
            &rows.positions,
            &rows.trees,
            &rows.ids,
            &rows.parents,
            &rows.threads,
            &rows.branches,
            &rows.nodes,
            &rows.event_numbers,
            &rows.events,
            &rows.runs,
            &rows.sources,
            &rows.steps,
            &rows.envelopes,
            &rows.metadata,
            &rows.times,
            &rows.run_supersteps,
            // $25
            &self.of_blobs.numbers,
            &self.of_blobs.trees,
            &blobs.channels,
            &blobs.versions,
            &blobs.bases,
            &blobs.chains,
            &blobs.tags,
            &blobs.bytes,
            // $33
            &self.of_writes.numbers,
            &self.of_writes.trees,
            &writes.checkpoints,
            &self.of_writes.branches,
            &writes.tasks,
            &writes.idxs,
            &writes.paths,
            &writes.channels,
            &writes.tags,
            &writes.bytes,
            // $43
            &self.of_nodes.numbers,
            &self.of_nodes.positions,
            &self.of_nodes.trees,
            &nodes.ids,
            &nodes.parents,
            &self.bases,
            &nodes.ordinals,
            &nodes.kinds,
            &nodes.messages,
            &nodes.replaced,
            &self.of_nodes.checkpoints,
            &nodes.positions,
            &self.of_nodes.threads,
            &self.of_nodes.branches,
            &self.of_nodes.runs,
            &nodes.roles,
            &nodes.numbers,
            &self.node_events,
            // $61
            &self.of_events.numbers,
            &self.event_positions,
            &self.of_events.trees,
            &self.of_events.threads,
            &events.kinds,
            &events.payloads,
            &self.of_events.branches,
            &self.of_events.checkpoints,
            &events.runs,
            &events.messages,
            // $71
            &rows.blob_versions,
            &rows.graphs,
            &rows.assistants,
            &rows.results.tasks,
            &rows.results.headers,
            &rows.results.bytes,
        ]
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
