//! How many runs this process executes at once. The slots are anybody's. Once all are taken, an eighth more is for those
//! who have few: they would wait for the end of others' runs, however long that takes. A slot is kept from the decision
//! that a run may begin until it has begun or waits, so that decisions at the same time count each other.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    id::{RunId, ThreadId},
    runs::{
        RequestSlots, Service,
        active::{ActiveRuns, Reserved},
    },
    value::Value,
};

/// The least memory of a request for which a run takes one more slot.
const LEAST: usize = 16 << 10;

/// Slots that are kept while runs for them are looked for; given back when this is dropped, since the runs that were
/// found have begun then.
pub(in crate::runs) struct ClaimedSlots<'a> {
    service: &'a Service,
    /// How many there are.
    pub count: usize,
    /// They are for principals whose runs take fewer than this; for all, if there is no such number.
    pub most_of_one: Option<usize>,
}

impl Drop for ClaimedSlots<'_> {
    fn drop(&mut self) {
        self.service.inner.active.lock().end_claim(self.count);
    }
}

impl Service {
    /// Keeps the slots of a new run with this request, if it may begin at once: there is room for it, and no older ones
    /// wait for that.
    /// [`release_slot`](Self::release_slot) must follow unless the run begins.
    ///
    /// A thread has one at a time: runs that wait for each other before they are written would keep slots in which
    /// others could run meanwhile.
    pub(in crate::runs) fn reserve_slot(
        &self,
        run: RunId,
        thread: ThreadId,
        principal: Option<&Arc<str>>,
        request: &Value,
    ) -> bool {
        let slots = self.slots_of(request);
        let inner = &self.inner;
        if inner.contended.load(Ordering::Relaxed) {
            return false;
        }
        let name = principal.map_or("", |name| &**name);
        if inner.full.lock().contains(name) {
            return false;
        }
        let mut active = inner.active.lock();
        let (all, beyond) = (inner.options.slots, self.beyond());
        let taken = active.taken();
        // However many it takes, one is always executed.
        let has_room = taken == 0 || taken + slots <= all;
        let has_room_beyond = || {
            let of_one = principal.map(|name| active.taken_by(name));
            taken + slots <= all + beyond && of_one.is_some_and(|taken| taken + slots <= beyond)
        };
        let may_begin = !active.has_reserved(thread) && (has_room || has_room_beyond());
        if may_begin {
            let reserved = Reserved {
                thread,
                principal: principal.cloned(),
                slots,
            };
            active.reserve(run, reserved);
        }
        may_begin
    }

    /// Gives back the slot of a new run that does not begin at once, if one was kept for it.
    pub(in crate::runs) fn release_slot(&self, run: RunId) {
        if self.inner.active.lock().release(run) {
            self.use_free_slots();
        }
    }

    /// Lets the worker read the queue if runs may wait there because no slot was free a moment ago.
    pub(in crate::runs) fn use_free_slots(&self) {
        let inner = &self.inner;
        if inner.contended.load(Ordering::Relaxed) || !inner.full.lock().is_empty() {
            inner.wake.notify_one();
        }
    }

    /// Keeps at most `most` free slots; none while the server drains.
    pub(in crate::runs) fn claim_slots(&self, most: usize) -> ClaimedSlots<'_> {
        let mut active = self.inner.active.lock();
        let (free, most_of_one) = if self.shared.drain.is_cancelled() {
            (0, None)
        } else {
            self.free(&active)
        };
        let count = free.min(most);
        active.claim(count);
        drop(active);
        ClaimedSlots {
            service: self,
            count,
            most_of_one,
        }
    }

    /// How many slots are free, and from how many on a principal gets none of them.
    fn free(&self, active: &ActiveRuns) -> (usize, Option<usize>) {
        let (all, taken) = (self.inner.options.slots, active.taken());
        if taken < all {
            (all - taken, None)
        } else {
            let beyond = self.beyond();
            ((all + beyond).saturating_sub(taken), Some(beyond))
        }
    }

    /// How many slots a run with this request takes.
    pub(in crate::runs) fn slots_of(&self, request: &Value) -> usize {
        self.request_slots().of(request.memory())
    }

    /// How many slots runs take: a request is in memory as long as its run is executed, and those of all runs
    /// together may take half of the memory for states. None takes more than an eighth of all slots.
    pub(in crate::runs) fn request_slots(&self) -> RequestSlots {
        let options = &self.inner.options;
        let of_slot = options.state_memory / 2 / options.slots.max(1);
        RequestSlots {
            bytes: of_slot.max(LEAST),
            most: (options.slots / 8).max(1),
        }
    }

    /// How many slots there are besides, for principals whose runs take fewer than that.
    pub(super) fn beyond(&self) -> usize {
        self.inner.options.slots / 8
    }
}
