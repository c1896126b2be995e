//! Who in this process waits for events of a thread, and which threads have new ones.
//!
//! A notification is only a reason to read: the events themselves are in the storage. So
//! superfluous notifications do no harm, and what other processes write is found by polling each
//! second, or sooner by their [hints](super::hints).

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    hints::Hints,
    watches::{ThreadWatch, ThreadWatches},
};
use crate::{
    checkpoint::{
        Blobs, Commit, Error, Flush, List, Page, PageScope, Query, Saver, Stored, Version,
        codec::Format,
    },
    id::{CheckpointId, ThreadId, TreeId},
};

/// Passes on that a thread may have new events.
#[derive(Default)]
pub struct EventNotifier {
    watched: Arc<ThreadWatches>,
    changed: Mutex<HashSet<ThreadId>>,
    wake: Notify,
    /// The other processes.
    hints: Arc<Hints>,
}

impl EventNotifier {
    /// Passes it on to other processes too.
    pub fn new(hints: Arc<Hints>) -> Self {
        Self {
            hints,
            ..Self::default()
        }
    }

    /// Wakes those who wait for events of a thread: it may have new ones.
    pub fn notify(&self, thread: ThreadId) {
        self.watched.wake(thread);
        self.changed.lock().insert(thread);
        self.wake.notify_one();
        self.hints.publish(thread);
    }

    /// Wakes those of this process who wait for events that another one may have written: on one
    /// thread, or on any.
    pub(in crate::runs) fn notify_here(&self, thread: Option<ThreadId>) {
        match thread {
            Some(thread) => self.watched.wake(thread),
            None => self.watched.wake_all(),
        }
    }

    /// Watches a thread from now on.
    pub fn watch(&self, thread: ThreadId) -> ThreadWatch {
        self.watched.watch(thread)
    }

    /// The threads that were notified since the last call, once there are some.
    pub(crate) async fn changed_threads(&self) -> HashSet<ThreadId> {
        loop {
            let woken = self.wake.notified();
            let changed = std::mem::take(&mut *self.changed.lock());
            if !changed.is_empty() {
                return changed;
            }
            woken.await;
        }
    }
}

/// A saver that notifies of the events it has committed.
pub(super) struct NotifyingSaver {
    pub saver: Arc<dyn Saver>,
    pub notifier: Arc<EventNotifier>,
}

#[async_trait]
impl Saver for NotifyingSaver {
    fn format(&self) -> Format {
        self.saver.format()
    }

    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.saver.load(query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.saver.list(list).await
    }

    async fn page(&self, list: List, scope: PageScope) -> Result<Page, Error> {
        self.saver.page(list, scope).await
    }

    async fn page_of(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        ids: Vec<CheckpointId>,
        scope: PageScope,
    ) -> Result<Page, Error> {
        self.saver.page_of(tree, ns, ids, scope).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let threads: Vec<Option<ThreadId>> = commits
            .iter()
            .map(|commit| {
                let has_events = !commit.events.is_empty() || commit.open.is_some();
                has_events.then_some(commit.slot.thread)
            })
            .collect();
        let results = self.saver.commit(commits).await;
        for (thread, result) in threads.iter().zip(&results) {
            if let (Some(thread), Ok(_)) = (thread, result) {
                self.notifier.notify(*thread);
            }
        }
        results
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.saver.flush(flush).await
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
        most: u64,
    ) -> Result<Blobs, Error> {
        self.saver.blobs(tree, ns, wanted, most).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn notifications_between_two_waits_are_not_missed_and_count_once() {
        let (notifier, thread) = (Arc::new(EventNotifier::default()), ThreadId::mint());
        notifier.notify(thread);
        let mut watch = notifier.watch(thread);
        assert_eq!(watch.changed().now_or_never(), None);
        notifier.notify(thread);
        notifier.notify(thread);
        notifier.notify(ThreadId::mint());
        assert_eq!(watch.changed().now_or_never(), Some(()));
        assert_eq!(watch.changed().now_or_never(), None);
    }

    #[tokio::test]
    async fn changed_threads_are_returned_once() {
        let (notifier, thread) = (Arc::new(EventNotifier::default()), ThreadId::mint());
        assert_eq!(notifier.changed_threads().now_or_never(), None);
        notifier.notify(thread);
        notifier.notify(thread);
        let changed = notifier.changed_threads().now_or_never();
        assert_eq!(changed, Some(HashSet::from([thread])));
        assert_eq!(notifier.changed_threads().now_or_never(), None);
    }
}
