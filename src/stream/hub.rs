//! The streams of this process, by run.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    log::LogWriter,
    memory::Memory,
    publisher::Publisher,
    thread::{Feed, SinceThread, ThreadSubscription},
};
use crate::id::{RunId, ThreadId};

/// How long, and up to how many bytes, finished streams are retained.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// How long a finished stream that can be resumed is retained.
    pub time: Duration,
    /// Bytes of all retained streams; the oldest are dropped first.
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

/// The streams of this process. A finished stream that cannot be resumed is dropped at once.
pub struct Hub {
    retention: Retention,
    memory: Arc<Memory>,
    /// Writes the frames of runs that can be resumed.
    log: Option<Arc<LogWriter>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: HashMap<RunId, Entry>,
    /// The runs of each thread, in the order in which they were added.
    threads: HashMap<ThreadId, Vec<RunId>>,
    /// The feeds of threads that are watched, or were while streams of theirs are here.
    feeds: HashMap<ThreadId, Weak<Feed>>,
    /// Finished streams, the oldest first. Streams that were replaced or removed since are skipped.
    finished: VecDeque<Finished>,
    /// Bytes of the finished streams.
    retained_bytes: usize,
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

impl Hub {
    /// An empty hub.
    pub fn new(retention: Retention, memory: Arc<Memory>) -> Self {
        Self {
            retention,
            memory,
            log: None,
            state: Mutex::default(),
        }
    }

    /// The same with a log of the streams that can be resumed.
    #[must_use]
    pub fn with_log(self, log: Arc<LogWriter>) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

    /// Writes the log.
    pub fn log(&self) -> Option<&Arc<LogWriter>> {
        self.log.as_ref()
    }

    /// The memory of all streams.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Adds the stream of a new run, before the run starts; false, and nothing else, if there is one of it that has not
    /// ended.
    pub fn insert(&self, publisher: &Arc<Publisher>) -> bool {
        let mut state = self.state.lock();
        self.sweep_locked(&mut state);
        let found = state.runs.get(&publisher.run());
        let is_new = found.is_none_or(|entry| entry.finished.is_some());
        if is_new {
            state.forget(publisher.run());
            self.add(&mut state, publisher.clone());
        }
        is_new
    }

    /// Adds the stream of an attempt, before it starts; a stream of the same run is replaced, which goes on in the log.
    pub fn replace(&self, publisher: Arc<Publisher>) {
        let mut state = self.state.lock();
        if let Some(earlier) = state.forget(publisher.run()) {
            earlier.publisher.fence();
        }
        self.add(&mut state, publisher);
    }

    fn add(&self, state: &mut State, publisher: Arc<Publisher>) {
        publisher.count_in(&self.memory);
        if let Some(log) = self.log.as_ref().filter(|_| publisher.resumable()) {
            publisher.log_to(log);
        }
        let runs = state.threads.entry(publisher.thread()).or_default();
        runs.push(publisher.run());
        if let Some(feed) = state.feed(publisher.thread()) {
            publisher.attach(&feed);
        }
        let entry = Entry {
            publisher: publisher.clone(),
            finished: None,
        };
        state.runs.insert(publisher.run(), entry);
        self.sweep_locked(state);
    }

    /// The stream of a run, if it is here.
    pub fn get(&self, run: RunId) -> Option<Arc<Publisher>> {
        let state = self.state.lock();
        let entry = state.runs.get(&run)?;
        let expired = |at: Instant| at.elapsed() >= self.retention.time;
        (!entry.finished.is_some_and(expired)).then(|| entry.publisher.clone())
    }

    /// Closes a stream that will get no more frames. One that can be resumed is retained for a while.
    pub fn finish(&self, publisher: &Arc<Publisher>) {
        publisher.close();
        let mut state = self.state.lock();
        let Some(entry) = state.runs.get_mut(&publisher.run()) else {
            return;
        };
        // The stream of another attempt may have replaced this one.
        if !Arc::ptr_eq(&entry.publisher, publisher) {
            return;
        }
        publisher.end_in_feed();
        if publisher.resumable() {
            let (at, size) = (Instant::now(), publisher.size());
            entry.finished = Some(at);
            state.retained_bytes += size;
            state.finished.push_back(Finished {
                at,
                size,
                publisher: publisher.clone(),
            });
        } else {
            state.forget(publisher.run());
        }
        self.sweep_locked(&mut state);
    }

    /// Closes and drops a stream, if it is that of its run here.
    pub fn remove(&self, publisher: &Arc<Publisher>) {
        let run = publisher.run();
        let mut state = self.state.lock();
        let is_current = |entry: &Entry| Arc::ptr_eq(&entry.publisher, publisher);
        if !state.runs.get(&run).is_some_and(is_current) {
            return;
        }
        let Some(entry) = state.forget(run) else {
            return;
        };
        entry.publisher.close();
        if entry.publisher.has_started() {
            entry.publisher.end_in_feed();
        }
        let is_stream = |other: &Finished| Arc::ptr_eq(&other.publisher, &entry.publisher);
        if let Some(at) = state.finished.iter().position(is_stream)
            && let Some(finished) = state.finished.remove(at)
        {
            state.retained_bytes -= finished.size;
        }
    }

    /// Removes the stream of a run that has not begun, unless somebody else than the caller and `owners` shares it, such
    /// as its readers; whether it was removed.
    pub fn remove_unread(&self, publisher: &Arc<Publisher>, owners: usize) -> bool {
        let mut state = self.state.lock();
        let entry = state.runs.get(&publisher.run());
        let is_here = entry.is_some_and(|entry| Arc::ptr_eq(&entry.publisher, publisher));
        // Whoever begins to read gets it out of this state: the one here and the caller's are two more.
        let is_unread = Arc::strong_count(publisher) <= owners + 2;
        // Who watches the thread is to be shown the end.
        let feed = state.feed(publisher.thread());
        let is_watched = feed.is_some_and(|feed| feed.is_watched());
        let is_removed = is_here && is_unread && !is_watched && !publisher.has_started();
        if is_removed {
            state.forget(publisher.run());
        }
        is_removed
    }

    /// Drops finished streams beyond the retention. Adding and finishing a stream do so too, so
    /// that this matters only for a process that falls idle.
    pub fn sweep(&self) {
        self.sweep_locked(&mut self.state.lock());
    }

    fn sweep_locked(&self, state: &mut State) {
        while let Some(oldest) = state.finished.front() {
            let expired = oldest.at.elapsed() >= self.retention.time;
            if !expired && state.retained_bytes <= self.retention.bytes {
                break;
            }
            let Some(Finished {
                size, publisher, ..
            }) = state.finished.pop_front()
            else {
                break;
            };
            state.retained_bytes -= size;
            let run = publisher.run();
            let is_current = |entry: &Entry| Arc::ptr_eq(&entry.publisher, &publisher);
            if state.runs.get(&run).is_some_and(is_current) {
                state.forget(run);
            }
        }
    }

    /// Watches a thread: the frames of all its runs in this process, and the edits of its state.
    /// A feed that begins now begins behind position `last` of the thread's log.
    pub fn watch(&self, thread: ThreadId, since: SinceThread, last: u64) -> ThreadSubscription {
        let mut state = self.state.lock();
        if let Some(feed) = state.feed(thread) {
            return feed.subscribe(since, last);
        }
        state.feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Feed::new(thread, last, &self.memory);
        state.feeds.insert(thread, Arc::downgrade(&feed));
        for run in state.threads.get(&thread).into_iter().flatten() {
            if let Some(entry) = state.runs.get(run) {
                entry.publisher.attach(&feed);
            }
        }
        feed.subscribe(since, last)
    }

    /// The runs of a thread that this process executes and whose frames nobody gets who comes later, in the order in
    /// which they were added, each with the name of its graph.
    pub fn passing(&self, thread: ThreadId) -> Vec<(RunId, Arc<str>)> {
        let state = self.state.lock();
        let runs = state.threads.get(&thread).into_iter().flatten();
        let entries = runs.filter_map(|run| state.runs.get(run));
        let publishers = entries.map(|entry| &entry.publisher);
        publishers
            .filter(|publisher| {
                publisher.has_begun() && !publisher.resumable() && !publisher.is_closed()
            })
            .map(|publisher| (publisher.run(), publisher.graph_name().clone()))
            .collect()
    }

    /// The feed of a thread, if somebody watches it.
    pub fn watched(&self, thread: ThreadId) -> Option<Arc<Feed>> {
        let feed = self.state.lock().feed(thread);
        feed.filter(|feed| feed.is_watched())
    }
}

impl State {
    /// The feed of a thread, if there is one.
    fn feed(&self, thread: ThreadId) -> Option<Arc<Feed>> {
        self.feeds.get(&thread).and_then(Weak::upgrade)
    }

    /// Removes a run.
    fn forget(&mut self, run: RunId) -> Option<Entry> {
        let entry = self.runs.remove(&run)?;
        let thread = entry.publisher.thread();
        if let Some(runs) = self.threads.get_mut(&thread) {
            if let Some(at) = runs.iter().position(|other| *other == run) {
                runs.remove(at);
            }
            if runs.is_empty() {
                self.threads.remove(&thread);
            }
        }
        Some(entry)
    }
}
