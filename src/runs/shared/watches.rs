//! Who in this process waits for changes of a thread.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::id::ThreadId;

/// The threads that somebody watches.
#[derive(Default)]
pub struct ThreadWatches(Mutex<HashMap<ThreadId, watch::Sender<()>>>);

impl ThreadWatches {
    /// Wakes those who watch a thread.
    pub fn wake(&self, thread: ThreadId) {
        if let Some(sender) = self.0.lock().get(&thread) {
            sender.send_replace(());
        }
    }

    /// Wakes everybody.
    pub fn wake_all(&self) {
        for sender in self.0.lock().values() {
            sender.send_replace(());
        }
    }

    /// Watches a thread from now on.
    pub fn watch(self: &Arc<Self>, thread: ThreadId) -> ThreadWatch {
        let mut watched = self.0.lock();
        let sender = watched
            .entry(thread)
            .or_insert_with(|| watch::Sender::new(()));
        ThreadWatch {
            watches: self.clone(),
            thread,
            receiver: Some(sender.subscribe()),
        }
    }
}

/// Waits for changes of one thread.
pub struct ThreadWatch {
    watches: Arc<ThreadWatches>,
    thread: ThreadId,
    receiver: Option<watch::Receiver<()>>,
}

impl ThreadWatch {
    /// Returns when the thread has changed since the last call, or since the watch began.
    pub async fn changed(&mut self) {
        if let Some(receiver) = &mut self.receiver
            && receiver.changed().await.is_err()
        {
            // Nobody can notify any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        let mut watched = self.watches.0.lock();
        self.receiver = None;
        if watched
            .get(&self.thread)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            watched.remove(&self.thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_nobody_watches_any_more_is_forgotten() {
        let (watches, thread) = (Arc::<ThreadWatches>::default(), ThreadId::mint());
        let (one, mut two) = (watches.watch(thread), watches.watch(thread));
        drop(one);
        watches.wake(thread);
        assert_eq!(two.changed().now_or_never(), Some(()));
        watches.wake_all();
        assert_eq!(two.changed().now_or_never(), Some(()));
        drop(two);
        assert!(watches.0.lock().is_empty());
    }
}
