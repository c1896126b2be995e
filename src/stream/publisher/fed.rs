//! The frames of a stream in the feed of its thread.

use std::sync::{Arc, atomic::Ordering};

use super::Publisher;
use crate::stream::{buffer::Buffer, thread::Feed};

impl Publisher {
    /// Appends its frames to the feed of its thread from now on; of a stream that can be resumed,
    /// those before, too.
    pub(in crate::stream) fn attach(&self, feed: &Arc<Feed>) {
        let state = self.state.lock();
        let is_logged = state.logging.is_some();
        if self.feed.set(feed.clone()).is_err() || !self.resumable || is_logged {
            return;
        }
        self.feed_from(0, &state.buffer);
        if self.is_closed() {
            feed.push_end(self.run, true);
        }
    }

    /// Appends its end to the feed of its thread.
    pub(in crate::stream) fn end_in_feed(&self) {
        let state = self.state.lock();
        let is_logged = state.logging.as_ref().is_some_and(|log| log.is_ended);
        if let Some(feed) = self.feed.get()
            && !is_logged
        {
            feed.push_end(self.run, self.resumable && state.logging.is_none());
        }
    }

    /// Whether it has sent anything.
    pub(in crate::stream) fn has_started(&self) -> bool {
        self.started.get().is_some()
    }

    /// Appends the frames from number `from` on to the feed of its thread.
    pub(super) fn feed_from(&self, from: u64, buffer: &Buffer) {
        if let Some(feed) = self.feed.get()
            && buffer.next() > from
            && (self.resumable || feed.is_watched())
        {
            feed.push_frames(self.run, self.resumable, |pass| {
                buffer.each(from, u64::MAX, pass);
            });
        }
    }

    /// Whether somebody reads it or watches its thread.
    pub(super) fn is_read(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
            || self.feed.get().is_some_and(|feed| feed.is_watched())
    }
}
