//! New runs that wait for a worker. A process retains the stream and the handle of each, for those who join it before it
//! begins; where too many wait, those that nobody watches are left to the storage, like the runs of another process.

use tokio::time::Instant;

use crate::{id::RunId, runs::Service};

/// Runs that are looked at for each one that begins to wait: more than one, since some are watched.
const TRIES: usize = 4;

impl Service {
    /// Lets a run wait whose row is written, and leaves others to the storage if it is one too many.
    pub(super) fn begin_to_wait(&self, run: RunId) {
        let inner = &self.inner;
        let mut active = inner.active.lock();
        let Some(pending) = active.pending.get_mut(&run) else {
            return;
        };
        pending.since = Some(Instant::now());
        active.add_waiting(run);
        for _ in 0..TRIES {
            if active.pending.len() <= inner.options.known_waiting {
                return;
            }
            let Some(oldest) = active.take_oldest_waiting() else {
                return;
            };
            let Some(pending) = active.pending.get(&oldest) else {
                continue;
            };
            // Whoever waits for the end of a run has a receiver of its result, besides the one of the handle here, and
            // gets it under the lock of `active`.
            let is_awaited = pending.result.receiver_count() > 1;
            let publisher = pending.handle.publisher.clone();
            if !is_awaited && inner.hub.remove_unread(&publisher, 1) {
                active.leave(oldest);
            } else {
                active.add_waiting(oldest);
            }
        }
    }
}
