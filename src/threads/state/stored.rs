//! States of a page of history as they are read: a few at a time, while the response is written.

use std::{sync::Arc, time::Duration};

use futures::Stream;

use super::history::Listed;
use crate::{
    budget::Reservation,
    checkpoint::{
        CheckpointId, Page, PageScope, Saver, StoredRows,
        frame::{self, Chains, Decoded},
    },
    id::{BranchId, TreeId},
    runs::{Listing, listing::BATCH_BYTES, shared::memory::ReadMemory},
    threads::{Error, Result, Service, request::History},
    tree::{
        Thread,
        load::{References, keep_first_writes, keep_own_writes},
        members::Access,
    },
    value::Value,
};

/// How long a list waits for the memory of results.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a decoded checkpoint becomes the state that clients see.
pub(super) type Render = Box<dyn Fn(&Decoded) -> Result<Value> + Send + Sync>;

/// The states of a page, not read yet or only if they are small.
pub(super) struct StoredStates {
    saver: Arc<dyn Saver>,
    thread: Thread,
    ns: Arc<str>,
    listed: Vec<Listed>,
    /// Everything that is stored of all of them.
    rows: Option<StoredRows>,
    /// On whose behalf they are read.
    access: Access,
    /// For what their pending writes refer to, where that is large.
    memory: Option<ReadMemory>,
}

impl Service {
    /// The states of a page; `rows` is everything that is stored of them if that was read already.
    pub(super) fn stored_states(
        &self,
        thread: &Thread,
        page: &History,
        listed: Vec<Listed>,
        rows: Option<StoredRows>,
    ) -> StoredStates {
        StoredStates {
            saver: self.shared.parts.saver.clone(),
            thread: thread.clone(),
            ns: page.at.ns.clone(),
            listed,
            rows,
            access: self.access.clone(),
            memory: self.memory.clone(),
        }
    }
}

impl StoredStates {
    /// The states as `render` makes them.
    pub(super) fn render(self, render: Render) -> Listing<Value, Error> {
        let sum = |batch: &[Listed]| batch.iter().map(|one| one.weight).sum();
        let read = self.rows.as_ref().map(StoredRows::weight);
        let batches = batches(&self.listed, false);
        Listing {
            largest: self.listed.iter().map(|one| one.weight).max().unwrap_or(0),
            at_once: read.or(batches.into_iter().map(sum).max()).unwrap_or(0),
            items: Box::pin(self.values(render)),
        }
    }

    /// Reads a batch, makes a value of each of its checkpoints, and reads the next one when these
    /// were taken.
    fn values(self, render: Render) -> impl Stream<Item = Result<Value>> + Send {
        async_stream::try_stream! {
            let Self { saver, thread, ns, listed, rows: mut read, access, memory } = self;
            for batch in batches(&listed, read.is_some()) {
                let rows = match read.take() {
                    Some(rows) => rows,
                    None => read_batch(&saver, thread.tree, &ns, batch).await?,
                };
                let mut pending = pending_writes(&thread, batch, &rows)?;
                let references = References::of(&saver, thread.tree, &ns, &pending).await?;
                let weight = batch.iter().map(|one| one.weight).sum();
                let _results = results_of(memory.as_ref(), weight, references.weight()).await?;
                references.resolve(&mut pending).await?;
                access.record_shown(thread.id);
                let chains = Chains::new(&rows.blobs);
                for ((row, _), pending) in rows.rows.iter().zip(pending) {
                    let mut decoded = frame::decode_row(row, &[], &chains)?;
                    decoded.writes = pending.writes;
                    let value = render(&decoded)?;
                    drop(decoded);
                    yield value;
                }
            }
        }
    }
}

/// The memory of what the pending writes of a batch refer to, which is not known before the list begins; `weight` is
/// that of the batch itself. The list waits for it, and not for ever: others may wait for what it has.
async fn results_of(
    memory: Option<&ReadMemory>,
    weight: u64,
    references: u64,
) -> Result<Option<Reservation>> {
    let Some(memory) = memory else {
        return Ok(None);
    };
    memory.check_state(weight + references, "")?;
    let reserved = tokio::time::timeout(PATIENCE, memory.wait(references)).await;
    reserved.map_err(|_| Error::NoMemory)
}

/// Parts of a list that are read together; all of it is one when it was read already.
fn batches(listed: &[Listed], is_one: bool) -> Vec<&[Listed]> {
    let mut batches = vec![];
    let (mut start, mut weight) = (0, 0);
    for (at, one) in listed.iter().enumerate() {
        if !is_one && at > start && weight + one.weight > BATCH_BYTES {
            batches.push(&listed[start..at]);
            (start, weight) = (at, 0);
        }
        weight += one.weight;
    }
    batches.push(&listed[start..]);
    batches
}

async fn read_batch(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    batch: &[Listed],
) -> Result<StoredRows> {
    if batch.is_empty() {
        return Ok(StoredRows::default());
    }
    let ids: Vec<CheckpointId> = batch.iter().map(|one| one.id).collect();
    let scope = PageScope {
        most: u64::MAX,
        metadata: false,
    };
    match saver.page_of(tree, ns.clone(), ids, scope).await? {
        Page::Rows(rows) => Ok(rows),
        // Nothing is larger than that.
        Page::Sizes(_) => Ok(StoredRows::default()),
    }
}

/// The checkpoints of a batch without anything that they store, with the pending writes that each shows.
fn pending_writes(thread: &Thread, batch: &[Listed], rows: &StoredRows) -> Result<Vec<Decoded>> {
    let mut owners = batch.iter();
    let pending = rows.rows.iter().map(|(row, writes)| {
        // Both are in one order, and some checkpoints may be gone.
        let owner = owners.find(|listed| listed.id == row.id);
        let mut decoded = frame::decode_pending(row, writes)?;
        retain_writes(thread, &mut decoded, owner.and_then(|listed| listed.owner));
        Ok(decoded)
    });
    pending.collect()
}

/// Retains the writes of `owner`, or without one those that a record of all lineages shows.
fn retain_writes(thread: &Thread, decoded: &mut Decoded, owner: Option<BranchId>) {
    match owner {
        Some(owner) => decoded.retain_writes(|branch, _| branch == owner),
        None if thread.head == Some(decoded.checkpoint.id) => {
            keep_own_writes(decoded, thread.active_branch);
        }
        None => keep_first_writes(decoded),
    }
}
