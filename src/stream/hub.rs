//! The streams of this process, by run and by thread.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::broadcast, time::Instant};

use super::publisher::Publisher;
use crate::id::{RunId, ThreadId};

/// How long and how much of finished streams is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// How long a finished stream that can be resumed is kept.
    pub time: Duration,
    /// Bytes of finished streams kept in all; the oldest go first.
    pub bytes: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(600),
            bytes: 256 << 20,
        }
    }
}

/// Runs a watcher of a thread may be behind before it misses one.
const WATCHED: usize = 256;

/// The streams of this process. Ended streams that cannot be resumed are forgotten at once.
pub struct Hub {
    retention: Retention,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: HashMap<RunId, Entry>,
    threads: HashMap<ThreadId, broadcast::Sender<Arc<Publisher>>>,
    /// Finished streams, the oldest first. What was replaced or removed since is skipped.
    finished: VecDeque<Finished>,
    /// Bytes of the finished streams.
    held: usize,
}

struct Entry {
    publisher: Arc<Publisher>,
    finished: Option<Instant>,
}

struct Finished {
    at: Instant,
    size: usize,
    publisher: Arc<Publisher>,
}

/// The streams of a thread.
pub struct Watch {
    /// Those that go on now.
    pub current: Vec<Arc<Publisher>>,
    /// Those that start later. A watcher far behind misses the oldest.
    pub later: broadcast::Receiver<Arc<Publisher>>,
}

impl Hub {
    /// An empty hub.
    pub fn new(retention: Retention) -> Self {
        Self {
            retention,
            state: Mutex::default(),
        }
    }

    /// Adds a stream, before its run starts; a stream of the same run is replaced.
    pub fn insert(&self, publisher: Arc<Publisher>) {
        let mut state = self.state.lock();
        if let Some(watchers) = state.threads.get(&publisher.thread())
            && watchers.send(publisher.clone()).is_err()
        {
            state.threads.remove(&publisher.thread());
        }
        let entry = Entry {
            publisher: publisher.clone(),
            finished: None,
        };
        state.runs.insert(publisher.run(), entry);
        self.sweep_locked(&mut state);
    }

    /// The stream of a run, if it is here.
    pub fn get(&self, run: RunId) -> Option<Arc<Publisher>> {
        let state = self.state.lock();
        let entry = state.runs.get(&run)?;
        let expired = |at: Instant| at.elapsed() >= self.retention.time;
        (!entry.finished.is_some_and(expired)).then(|| entry.publisher.clone())
    }

    /// Closes a stream that will get nothing more. One that can be resumed is kept for a while.
    pub fn finish(&self, publisher: &Arc<Publisher>) {
        publisher.close();
        let mut state = self.state.lock();
        let Some(entry) = state.runs.get_mut(&publisher.run()) else {
            return;
        };
        // Another attempt may have taken its place.
        if !Arc::ptr_eq(&entry.publisher, publisher) {
            return;
        }
        if publisher.resumable() {
            let (at, size) = (Instant::now(), publisher.size());
            entry.finished = Some(at);
            state.held += size;
            state.finished.push_back(Finished {
                at,
                size,
                publisher: publisher.clone(),
            });
        } else {
            state.runs.remove(&publisher.run());
        }
        self.sweep_locked(&mut state);
    }

    /// Closes and forgets the stream of a run.
    pub fn remove(&self, run: RunId) {
        let mut state = self.state.lock();
        let Some(entry) = state.runs.remove(&run) else {
            return;
        };
        entry.publisher.close();
        let same = |other: &Finished| Arc::ptr_eq(&other.publisher, &entry.publisher);
        if let Some(at) = state.finished.iter().position(same)
            && let Some(finished) = state.finished.remove(at)
        {
            state.held -= finished.size;
        }
    }

    /// Forgets finished streams beyond the retention. New and finished streams do this too, so
    /// it matters only for a process that falls idle.
    pub fn sweep(&self) {
        self.sweep_locked(&mut self.state.lock());
    }

    /// All streams of a thread, present and to come.
    pub fn subscribe_thread(&self, thread: ThreadId) -> Watch {
        let mut state = self.state.lock();
        state
            .threads
            .retain(|_, watchers| watchers.receiver_count() > 0);
        let current = state.runs.values().filter(|entry| entry.finished.is_none());
        let current = current.map(|entry| &entry.publisher);
        let current = current.filter(|publisher| publisher.thread() == thread);
        let current = current.cloned().collect();
        let watchers = state.threads.entry(thread);
        let later = watchers
            .or_insert_with(|| broadcast::Sender::new(WATCHED))
            .subscribe();
        Watch { current, later }
    }

    fn sweep_locked(&self, state: &mut State) {
        while let Some(oldest) = state.finished.front() {
            let expired = oldest.at.elapsed() >= self.retention.time;
            if !expired && state.held <= self.retention.bytes {
                break;
            }
            let Some(Finished {
                size, publisher, ..
            }) = state.finished.pop_front()
            else {
                break;
            };
            state.held -= size;
            let run = publisher.run();
            let same = |entry: &Entry| Arc::ptr_eq(&entry.publisher, &publisher);
            if state.runs.get(&run).is_some_and(same) {
                state.runs.remove(&run);
            }
        }
    }
}
