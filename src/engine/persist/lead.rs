//! The lead of a run over the storage: what it has done and is not durable yet.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use super::{ahead_memory::AheadMemory, writer::RunWriter};
use crate::checkpoint::Error;

/// The lead of one run. Whoever is about to end the run from outside [closes](Self::close) it first: what is not durable by
/// then is never written.
#[derive(Clone, Default)]
pub struct Lead(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The memory for what all runs of the process are ahead.
    memory: Arc<AheadMemory>,
    /// So many want it to be closed.
    closers: AtomicUsize,
    /// The writer of the present attempt, once there is one.
    writer: Mutex<Weak<RunWriter>>,
}

impl Lead {
    /// One that takes its memory from what is there for all runs.
    pub fn within(memory: Arc<AheadMemory>) -> Self {
        Self(Arc::new(Inner {
            memory,
            ..Inner::default()
        }))
    }

    /// The memory for what all runs of the process are ahead.
    pub(super) fn memory(&self) -> Arc<AheadMemory> {
        self.0.memory.clone()
    }

    /// Lets this writer be waited for, in place of that of an earlier attempt.
    pub fn follow(&self, writer: &Arc<RunWriter>) {
        *self.0.writer.lock() = Arc::downgrade(writer);
    }

    /// Whether the run is to wait before each superstep until those before it are durable.
    pub fn is_closed(&self) -> bool {
        self.0.closers.load(Ordering::SeqCst) > 0
    }

    /// Lets the run go on as in `Sync` durability until what is returned is dropped. A run in `Exit` stores nothing before
    /// its end all the same.
    pub fn close(&self) -> ClosedLead {
        self.0.closers.fetch_add(1, Ordering::SeqCst);
        ClosedLead(self.clone())
    }
}

/// A lead that is closed as long as this is there.
#[must_use = "the run may be ahead again when this is dropped"]
pub struct ClosedLead(Lead);

impl ClosedLead {
    /// Waits until everything is durable that the run has done by now.
    ///
    /// # Errors
    /// A write has failed, or another writer took over.
    pub async fn stored(&self) -> Result<(), Error> {
        let writer = self.0.0.writer.lock().upgrade();
        match writer {
            Some(writer) => writer.stored_so_far().await,
            // It has not begun, or it is over.
            None => Ok(()),
        }
    }
}

impl Drop for ClosedLead {
    fn drop(&mut self) {
        self.0.0.closers.fetch_sub(1, Ordering::SeqCst);
    }
}
