//! What a stream has in memory, and how it makes room for others.

use super::{Publisher, SLACK, State};
use crate::stream::memory::{Holder, Usage};

impl Publisher {
    /// Bytes in memory.
    pub(in crate::stream) fn size(&self) -> usize {
        self.state.lock().buffer.size()
    }

    /// Drops what nobody will read. Readers that are too far behind are cut off, of a stream that can be resumed the
    /// oldest frames go.
    pub(super) fn trim(&self, state: &mut State) {
        if state.logging.is_some() {
            state.shrink(self.limits.retained);
        } else if self.resumable {
            state.buffer.shrink_to(self.limits.retained, u64::MAX);
        } else {
            let (lag, buffer) = (self.limits.lag as u64, &state.buffer);
            state
                .readers
                .cut_off(None, |next| buffer.behind(next) > lag);
            state.drop_read();
        }
        state.trim_at = state.buffer.size() + SLACK;
    }
}

impl State {
    /// Drops the frames that all readers have read.
    fn drop_read(&mut self) {
        let end = self.buffer.next();
        let slowest = self.readers.slowest();
        self.buffer
            .drop_before(slowest.map_or(end, |next| next.min(end)));
    }
}

impl Holder for Publisher {
    fn usage(&self) -> Usage {
        let state = self.state.lock();
        Usage {
            bytes: state.buffer.size(),
            payer: state.readers.payer(state.end()),
        }
    }

    /// The slowest readers of this client are cut off, of a stream that can be resumed the older half of the frames is
    /// dropped.
    fn shed(&self, payer: &str) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let half = state.buffer.size() / 2;
        if state.logging.is_some() {
            state.shrink(half);
        } else if self.resumable {
            state.buffer.shrink_to(half, u64::MAX);
        } else {
            let (half, buffer) = (half as u64, &state.buffer);
            let end = buffer.next();
            state.readers.cut_off(Some(payer), |next| {
                next < end && buffer.behind(next) >= half
            });
            state.drop_read();
        }
        state.trim_at = state.buffer.size() + SLACK;
        state.count();
        self.notify.notify_waiters();
    }

    fn warn(&self, size: usize) {
        tracing::warn!(run = %self.run, size, "a stream lost frames: too much is unread");
    }
}
