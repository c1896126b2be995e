//! Who watches what: streams end soon after their client's access to the thread was withdrawn, by
//! whichever process.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    checkpoint::Error,
    id::ThreadId,
    tree::{self, members::Access},
};

/// How often the levels of those who watch are read. Changes of this process are seen at once.
const POLL: Duration = Duration::from_secs(2);
/// Watchers whose levels are read at once.
const BATCH: usize = 500;

type Key = (ThreadId, Arc<str>);

/// The streams of a principal on a thread that were opened since the last time at which access was
/// withdrawn.
struct Watched {
    withdrawn: Arc<CancellationToken>,
    streams: usize,
}

/// Principals with open streams, by thread.
#[derive(Default)]
pub struct Withdrawals {
    watched: Mutex<HashMap<Key, Watched>>,
    /// A level was changed in this process.
    changed: Notify,
}

/// An open stream. Its client's access is watched until this is dropped.
pub struct AccessWatch {
    withdrawals: Arc<Withdrawals>,
    key: Key,
    withdrawn: Arc<CancellationToken>,
}

impl AccessWatch {
    /// Waits until the client may not read the thread any more.
    pub async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }
}

impl Drop for AccessWatch {
    fn drop(&mut self) {
        let mut watched = self.withdrawals.watched.lock();
        // Streams of a later time at which there was access have an entry of their own.
        if let Entry::Occupied(mut entry) = watched.entry(self.key.clone())
            && Arc::ptr_eq(&entry.get().withdrawn, &self.withdrawn)
        {
            entry.get_mut().streams -= 1;
            if entry.get().streams == 0 {
                entry.remove();
            }
        }
    }
}

impl Withdrawals {
    /// Watches a client's access to a thread; `None` when everything is allowed.
    pub fn watch(self: &Arc<Self>, access: &Access, thread: ThreadId) -> Option<AccessWatch> {
        let key = (thread, access.principal()?.clone());
        let mut watched = self.watched.lock();
        let entry = watched.entry(key.clone()).or_insert_with(|| Watched {
            withdrawn: Arc::default(),
            streams: 0,
        });
        entry.streams += 1;
        Some(AccessWatch {
            withdrawals: self.clone(),
            key,
            withdrawn: entry.withdrawn.clone(),
        })
    }

    /// Reads the levels of those who watch now: one of them may have changed.
    pub fn notify(&self) {
        self.changed.notify_one();
    }

    /// Ends the streams of those whose access is withdrawn, as long as the server runs.
    pub async fn run(self: Arc<Self>, tree: Arc<dyn tree::Store>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            let keys: Vec<Key> = self.watched.lock().keys().cloned().collect();
            for batch in keys.chunks(BATCH) {
                if let Err(error) = self.end_withdrawn(&*tree, batch).await {
                    tracing::warn!(%error, "the levels of clients with open streams could not be read");
                }
            }
        }
    }

    async fn end_withdrawn(&self, tree: &dyn tree::Store, batch: &[Key]) -> Result<(), Error> {
        let (threads, principals) = batch.iter().cloned().unzip();
        for at in tree.withdrawn(threads, principals).await? {
            let Some(key) = batch.get(at) else { continue };
            // Whoever gets access again opens streams that are not withdrawn.
            if let Some(watched) = self.watched.lock().remove(key) {
                tracing::info!(thread = %key.0, principal = %key.1, "access was withdrawn from open streams");
                watched.withdrawn.cancel();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::members::Level;

    #[test]
    fn who_has_access_again_has_open_streams_whatever_became_of_the_old_ones() {
        let withdrawals = Arc::new(Withdrawals::default());
        let thread = ThreadId::mint();
        let access = Access::of("bob".into(), "request".into(), Level::Reader);
        let watch = || withdrawals.watch(&access, thread).unwrap();
        let withdraw = || {
            let watched = withdrawals.watched.lock().remove(&(thread, "bob".into()));
            watched.unwrap().withdrawn.cancel();
        };
        let [first, unread] = [watch(), watch()];
        withdraw();
        assert!(first.withdrawn.is_cancelled() && unread.withdrawn.is_cancelled());
        let second = watch();
        assert!(!second.withdrawn.is_cancelled());
        drop(unread);
        let third = watch();
        withdraw();
        assert!(second.withdrawn.is_cancelled() && third.withdrawn.is_cancelled());
        drop((first, second, third));
        assert!(withdrawals.watched.lock().is_empty());
    }
}
