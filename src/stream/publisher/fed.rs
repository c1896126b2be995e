//! The frames of a stream in the feed of its thread.

use std::sync::{Arc, atomic::Ordering};

use super::Publisher;
use crate::stream::{
    buffer::Buffer,
    thread::{End, Feed, Passed},
};

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
            feed.push_end(self.run, None);
        }
    }

    /// Appends its end to the feed of its thread.
    pub(in crate::stream) fn end_in_feed(&self) {
        let state = self.state.lock();
        let is_logged = state.logging.as_ref().is_some_and(|log| log.is_ended);
        if let Some(feed) = self.feed.get()
            && !is_logged
        {
            let is_replayed = self.resumable && state.logging.is_none();
            let passed = || Passed {
                end: self.end.get().cloned(),
                ..Passed::clone(&self.passed())
            };
            feed.push_end(self.run, (!is_replayed).then(|| Arc::new(passed())));
        }
    }

    /// Says how the run ended, before the stream is closed.
    pub fn ends_as(&self, end: End) {
        // The first end is the one that was stored.
        let _ = self.end.set(end);
    }

    /// This process begins to execute the run.
    pub(super) fn take_up(&self) {
        self.begun.get_or_init(|| self.facts(true));
    }

    /// What those who watch the thread are told of a run whose frames are not replayed.
    fn passed(&self) -> Arc<Passed> {
        let begun = self.begun.get().cloned();
        begun.unwrap_or_else(|| self.facts(false))
    }

    fn facts(&self, has_begun: bool) -> Arc<Passed> {
        Arc::new(Passed {
            graph: self.graph_name.clone(),
            has_begun,
            is_stored: self.resumable,
            end: None,
        })
    }

    /// Whether this process has begun to execute the run.
    pub(in crate::stream) fn has_begun(&self) -> bool {
        self.begun.get().is_some()
    }

    /// The name of its graph.
    pub(in crate::stream) fn graph_name(&self) -> &Arc<str> {
        &self.graph_name
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
            let passed = (!self.resumable).then(|| self.passed());
            feed.push_frames(self.run, passed, |pass| {
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
