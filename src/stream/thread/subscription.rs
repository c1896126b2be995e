//! One watcher of a thread.

use std::{pin::pin, sync::Arc};

use super::{Feed, Found, Position, ThreadFrame};

/// What a watcher of a thread gets next.
#[derive(Debug)]
pub enum Watched {
    /// Entries, in order.
    Frames(Vec<ThreadFrame>),
    /// Entries after the first position, up to the second, are no longer there.
    Gap(Position, Position),
    /// The watcher fell too far behind, and gets nothing more.
    Lagged,
}

/// One watcher. Dropping it ends that.
pub struct ThreadSubscription {
    feed: Arc<Feed>,
    id: u64,
    /// Number of the first entry that came after the watch began.
    live: u64,
    /// The last position before those.
    first: u64,
    gap: Option<(Position, Position)>,
}

impl ThreadSubscription {
    pub(super) fn new(
        feed: Arc<Feed>,
        id: u64,
        (live, first): (u64, u64),
        gap: Option<(Position, Position)>,
    ) -> Self {
        Self {
            feed,
            id,
            live,
            first,
            gap,
        }
    }

    /// The same watcher, for whom this client pays for what it has not read.
    #[must_use]
    pub fn paid_by(self, payer: &Arc<str>) -> Self {
        self.feed.charge(self.id, payer);
        self
    }

    /// The position in the log of the thread at which the watch began.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// What came since the last call, at most about 64 KiB, once there is something. Nothing is lost
    /// when the call is dropped before it returns.
    pub async fn next(&mut self) -> Watched {
        if let Some((after, last)) = self.gap.take() {
            return Watched::Gap(after, last);
        }
        loop {
            let mut notified = pin!(self.feed.notify().notified());
            // Listens before it reads, so that what comes in between is not missed.
            notified.as_mut().enable();
            match self.feed.read(self.id, self.live) {
                Found::Frames(frames) => return Watched::Frames(frames),
                Found::Lagged => return Watched::Lagged,
                Found::Nothing => notified.await,
            }
        }
    }

    /// Waits until there is something to read, and leaves it there.
    pub async fn ready(&self) {
        loop {
            let mut notified = pin!(self.feed.notify().notified());
            notified.as_mut().enable();
            if self.gap.is_some() || self.feed.is_ready(self.id) {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for ThreadSubscription {
    fn drop(&mut self) {
        self.feed.leave(self.id);
    }
}
