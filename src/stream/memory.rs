//! The memory that all streams of a process share: frames that readers have not read, and frames
//! that are retained for readers who come back.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

/// What has frames in memory that are counted.
pub(super) trait Holder: Send + Sync {
    /// Bytes in memory.
    fn size(&self) -> usize;
    /// Makes room for others.
    fn shed(&self);
    /// Logs that it has to.
    fn warn(&self, size: usize);
}

/// Bytes by which a stream may grow or shrink before that is counted.
const STEP: usize = 16 << 10;

/// Counts the bytes of all streams. Beyond the limit those streams lose frames that have the most:
/// their slowest readers are cut off.
pub struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// Streams, some of which may be gone.
    streams: Mutex<Vec<Weak<dyn Holder>>>,
    /// One caller at a time makes room.
    making_room: Mutex<()>,
}

impl Memory {
    /// Memory of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            streams: Mutex::default(),
            making_room: Mutex::default(),
        })
    }

    /// All of it, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How much of it is in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Frames that were handed to a connection, until they are dropped.
    pub fn in_flight(self: &Arc<Self>, bytes: usize) -> Counted {
        let mut counted = Counted::of(self.clone());
        counted.set(bytes);
        self.make_room();
        counted
    }

    pub(super) fn add(&self, stream: Weak<dyn Holder>) {
        let mut streams = self.streams.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(stream);
    }

    /// Lets the streams with the most bytes lose some, until a quarter of all is free.
    pub(super) fn make_room(&self) {
        if self.used.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        let Some(_alone) = self.making_room.try_lock() else {
            return;
        };
        let streams: Vec<_> = {
            let streams = self.streams.lock();
            streams.iter().filter_map(Weak::upgrade).collect()
        };
        let mut streams: Vec<_> = streams
            .into_iter()
            .map(|stream| (stream.size(), stream))
            .collect();
        streams.sort_unstable_by_key(|(size, _)| *size);
        let enough = self.limit / 4 * 3;
        while self.used.load(Ordering::Relaxed) > enough
            && let Some((size, stream)) = streams.pop()
        {
            if size > 0 {
                stream.warn(size);
                stream.shed();
            }
        }
    }
}

/// Bytes that are counted, until this is dropped.
pub struct Counted {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Counted {
    pub(super) fn of(memory: Arc<Memory>) -> Self {
        Self { memory, bytes: 0 }
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Counts a size that has changed by so much that it matters.
    pub(super) fn follow(&mut self, bytes: usize) {
        if bytes.abs_diff(self.bytes) >= STEP {
            self.set(bytes);
        }
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let used = &self.memory.used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}
