//! Who in this process waits for events of a thread, and which threads have new ones.
//!
//! Being told is only a reason to look: what there is to see is in the storage. So it does no
//! harm to tell too much, and what other processes write is found by looking each second.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    checkpoint::{BlobRow, Commit, Error, Flush, List, Query, Saver, Stored, Version},
    id::{ThreadId, TreeId},
};

/// Passes on that something happened.
#[derive(Default)]
pub struct News {
    watched: Mutex<HashMap<ThreadId, watch::Sender<()>>>,
    fresh: Mutex<HashSet<ThreadId>>,
    wake: Notify,
}

impl News {
    /// Something happened in a thread, maybe.
    pub fn tell(&self, thread: ThreadId) {
        if let Some(sender) = self.watched.lock().get(&thread) {
            sender.send_replace(());
        }
        self.fresh.lock().insert(thread);
        self.wake.notify_one();
    }

    /// Waits for news of a thread from now on.
    pub fn watch(self: &Arc<Self>, thread: ThreadId) -> Watch {
        let mut watched = self.watched.lock();
        let sender = watched
            .entry(thread)
            .or_insert_with(|| watch::Sender::new(()));
        Watch {
            news: self.clone(),
            thread,
            receiver: Some(sender.subscribe()),
        }
    }

    /// The threads with news since the last call, once there are some.
    pub(super) async fn fresh(&self) -> HashSet<ThreadId> {
        loop {
            let woken = self.wake.notified();
            let fresh = std::mem::take(&mut *self.fresh.lock());
            if !fresh.is_empty() {
                return fresh;
            }
            woken.await;
        }
    }
}

/// Waits for news of one thread.
pub struct Watch {
    news: Arc<News>,
    thread: ThreadId,
    receiver: Option<watch::Receiver<()>>,
}

impl Watch {
    /// Returns when there was news since the last call, or since the watch began.
    pub async fn changed(&mut self) {
        if let Some(receiver) = &mut self.receiver
            && receiver.changed().await.is_err()
        {
            // Nobody can tell any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.news.watched.lock();
        self.receiver = None;
        if watched
            .get(&self.thread)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            watched.remove(&self.thread);
        }
    }
}

/// A saver that tells of the events it has committed.
pub(super) struct Telling {
    pub saver: Arc<dyn Saver>,
    pub news: Arc<News>,
}

#[async_trait]
impl Saver for Telling {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.saver.load(query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.saver.list(list).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let told: Vec<Option<ThreadId>> = commits
            .iter()
            .map(|commit| {
                let tells = !commit.events.is_empty() || commit.open.is_some();
                tells.then_some(commit.slot.thread)
            })
            .collect();
        let results = self.saver.commit(commits).await;
        for (thread, result) in told.iter().zip(&results) {
            if let (Some(thread), Ok(_)) = (thread, result) {
                self.news.tell(*thread);
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
    ) -> Result<Vec<BlobRow>, Error> {
        self.saver.blobs(tree, ns, wanted).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn news_between_two_looks_is_not_missed_and_told_once() {
        let (news, thread) = (Arc::new(News::default()), ThreadId::mint());
        news.tell(thread);
        let mut watch = news.watch(thread);
        assert_eq!(watch.changed().now_or_never(), None);
        news.tell(thread);
        news.tell(thread);
        news.tell(ThreadId::mint());
        assert_eq!(watch.changed().now_or_never(), Some(()));
        assert_eq!(watch.changed().now_or_never(), None);
    }

    #[tokio::test]
    async fn a_thread_that_nobody_watches_any_more_is_forgotten() {
        let (news, thread) = (Arc::new(News::default()), ThreadId::mint());
        let (one, mut two) = (news.watch(thread), news.watch(thread));
        drop(one);
        news.tell(thread);
        assert_eq!(two.changed().now_or_never(), Some(()));
        drop(two);
        assert!(news.watched.lock().is_empty());
    }

    #[tokio::test]
    async fn fresh_threads_are_given_out_once() {
        let (news, thread) = (Arc::new(News::default()), ThreadId::mint());
        assert_eq!(news.fresh().now_or_never(), None);
        news.tell(thread);
        news.tell(thread);
        assert_eq!(news.fresh().now_or_never(), Some(HashSet::from([thread])));
        assert_eq!(news.fresh().now_or_never(), None);
    }
}
