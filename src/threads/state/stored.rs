//! States of a page of history as they are read: a few at a time, while the response is written.

use std::{sync::Arc, time::Duration};

use futures::Stream;
use tokio::sync::OwnedSemaphorePermit;

use super::history::Listed;
use crate::{
    budget::Reservation,
    checkpoint::{
        CheckpointId, Page, PageScope, Saver, StoredRows,
        frame::{self, Chains, Decoded},
    },
    contention::unlimited::within,
    id::{BranchId, TreeId},
    runs::{
        Listing,
        listing::BATCH_BYTES,
        shared::memory::{ReadMemory, States},
    },
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
/// How long it waits for its turn beside that, while the client of another list reads, unless its waits have no limit.
const LONG: Duration = Duration::from_secs(60);

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
    states: States,
    /// What the list has memory for.
    reserved: u64,
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
            states: self.shared.states.clone(),
            reserved: 0,
        }
    }
}

impl StoredStates {
    /// The states as `render` makes them.
    pub(super) fn render(mut self, render: Render) -> Listing<Value, Error> {
        let sum = |batch: &[Listed]| batch.iter().map(|one| one.weight).sum();
        let read = self.rows.as_ref().map(StoredRows::weight);
        let batches = batches(&self.listed, false);
        let largest = self.listed.iter().map(|one| one.weight).max().unwrap_or(0);
        let at_once = read.or(batches.into_iter().map(sum).max()).unwrap_or(0);
        self.reserved = largest.max(at_once);
        Listing {
            largest,
            at_once,
            items: Box::pin(self.values(render)),
        }
    }

    /// Reads a batch, makes a value of each of its checkpoints, and reads the next one when these
    /// were taken.
    fn values(self, render: Render) -> impl Stream<Item = Result<Value>> + Send {
        async_stream::try_stream! {
            let Self { saver, thread, ns, listed, rows: mut read, access, memory, states, reserved } = self;
            let mut has_begun = false;
            for batch in batches(&listed, read.is_some()) {
                let rows = match read.take() {
                    Some(rows) => rows,
                    None => read_batch(&saver, thread.tree, &ns, batch).await?,
                };
                let mut pending = pending_writes(&thread, batch, &rows)?;
                let mut of_all = Some(References::of(&saver, thread.tree, &ns, &pending).await?);
                // Large ones are read state by state.
                let is_large = of_all.as_ref().is_some_and(|all| all.weight() > BATCH_BYTES);
                let at_once = if is_large { 1 } else { pending.len().max(1) };
                let of_batch = batch.iter().map(|one| one.weight).sum::<u64>();
                let chains = Chains::new(&rows.blobs);
                let mut stored = rows.rows.iter();
                for part in pending.chunks_mut(at_once) {
                    let references = match of_all.take().filter(|_| !is_large) {
                        Some(all) => all,
                        None => References::of(&saver, thread.tree, &ns, part).await?,
                    };
                    let weight = of_batch + references.weight();
                    let more = weight.saturating_sub(reserved);
                    let _results = match &memory {
                        Some(memory) if has_begun => {
                            let could_have = memory.check_state(reserved + more, "").is_ok();
                            results_beside(memory, &states, more, could_have).await?
                        }
                        Some(memory) => results_of(memory, weight, more).await?,
                        None => ResultMemory::default(),
                    };
                    references.resolve(part).await?;
                    access.record_shown(thread.id);
                    for (pending, (row, _)) in part.iter_mut().zip(stored.by_ref()) {
                        let mut decoded = frame::decode_row(row, &[], &chains)?;
                        decoded.writes = std::mem::take(&mut pending.writes);
                        let value = render(&decoded)?;
                        drop(decoded);
                        has_begun = true;
                        yield value;
                    }
                }
            }
        }
    }
}

/// The memory of what the pending writes of a batch refer to.
#[derive(Default)]
struct ResultMemory {
    _reservation: Option<Reservation>,
    _beside: Option<OwnedSemaphorePermit>,
}

/// The memory of what the pending writes of the first batch refer to, which is not known before the list begins: the
/// batch weighs `weight` with it, `more` than the list has memory for. The list waits, and not for ever: others may
/// wait for what it has.
///
/// # Errors
/// 413: it is more than the client may have; 503: it was not there in time.
async fn results_of(memory: &ReadMemory, weight: u64, more: u64) -> Result<ResultMemory> {
    memory.check_state(weight, "")?;
    let reserved = tokio::time::timeout(PATIENCE, memory.wait(more)).await;
    Ok(ResultMemory {
        _reservation: reserved.map_err(|_| Error::NoMemory)?,
        _beside: None,
    })
}

/// The same once the list has begun, which is not to break off: where the memory is not there in time, or the client
/// could never have it beside what the list has, such parts are read one by one beside it.
///
/// # Errors
/// Another list has been read beside it for long, where the waits of this one have a limit.
async fn results_beside(
    memory: &ReadMemory,
    states: &States,
    more: u64,
    could_have: bool,
) -> Result<ResultMemory> {
    let patience = if could_have { PATIENCE } else { Duration::ZERO };
    let reserved = tokio::time::timeout(patience, memory.wait(more)).await;
    let Ok(reservation) = reserved else {
        let beside = within(LONG, states.list_beside()).await;
        return Ok(ResultMemory {
            _reservation: None,
            _beside: beside.ok_or(Error::NoMemory)?,
        });
    };
    Ok(ResultMemory {
        _reservation: reservation,
        _beside: None,
    })
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::contention::{shares::Percent, unlimited::without_limit};

    #[tokio::test(start_paused = true)]
    async fn a_list_that_has_begun_waits_for_its_turn_as_long_as_its_waits_have_no_limit() {
        let states = States::with_share(100 << 20, Percent::default());
        let ann: Arc<str> = "ann".into();
        let memory = states.read_by(ann.clone());
        let _taken = states.budget().charge(&ann, 50 << 20);
        let held = states.list_beside().await;
        let wait = || results_beside(&memory, &states, 10 << 20, true);
        assert!(matches!(wait().await, Err(Error::NoMemory)));
        let mut waits = std::pin::pin!(without_limit(wait()));
        let ten_minutes = Duration::from_secs(600);
        assert!(timeout(ten_minutes, waits.as_mut()).await.is_err());
        drop(held);
        assert!(waits.await.unwrap()._beside.is_some());
    }
}
