//! The shares that principals have in the log: each keeps its newest chunks, and the oldest go.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Log, NewChunk};

/// What a principal may write between two checks, as a part of its share.
const CHECKED: i64 = 16;
/// Chunks that are removed in one transaction.
const BATCH: usize = 1000;
/// Principals whose written bytes are counted; beyond them all are checked anew.
const COUNTED: usize = 10_000;

/// The log's bytes for one principal, enforced beside the writes: between two checks a process may write
/// a sixteenth of it more.
pub(super) struct Shares {
    most: i64,
    /// Bytes that principals may still write before they are checked.
    unchecked: Mutex<HashMap<Arc<str>, i64>>,
    /// One check at a time is enough.
    checking: Arc<Semaphore>,
}

impl Shares {
    /// Shares of so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: i64::try_from(most).unwrap_or(i64::MAX),
            unchecked: Mutex::default(),
            checking: Arc::new(Semaphore::new(1)),
        }
    }

    /// Counts a chunk that was written. A principal of which this process has written nothing yet, or
    /// as much as a check is due for, is checked in a task of its own.
    pub(super) fn count(&self, log: &Arc<dyn Log>, chunk: &NewChunk) {
        let Some(principal) = &chunk.principal else {
            return;
        };
        let mut unchecked = self.unchecked.lock();
        if let Some(left) = unchecked.get_mut(principal) {
            *left -= chunk.bytes();
            if *left > 0 {
                return;
            }
        }
        // While another check is under way, the next chunk makes this one due again.
        let Ok(turn) = self.checking.clone().try_acquire_owned() else {
            return;
        };
        if unchecked.len() >= COUNTED {
            unchecked.clear();
        }
        unchecked.insert(principal.clone(), self.most / CHECKED);
        drop(unchecked);
        let (log, principal, most) = (log.clone(), principal.clone(), self.most);
        tokio::spawn(async move {
            let _turn = turn;
            trim(&*log, &principal, most).await;
        });
    }
}

async fn trim(log: &dyn Log, principal: &Arc<str>, most: i64) {
    let mut removed = 0;
    loop {
        match log.trim_principal(principal.clone(), most, BATCH).await {
            Ok(chunks) => {
                removed += chunks;
                if chunks < BATCH as u64 {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(%error, %principal, "old frames of a principal could not be removed");
                break;
            }
        }
    }
    if removed > 0 {
        tracing::warn!(%principal, chunks = removed, "the log of a principal is full: its oldest frames are removed");
    }
}
