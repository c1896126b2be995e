//! The memory that all streams of a process share: frames that readers have not read, and frames
//! that are retained for readers who come back.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::contention::shares::Percent;

/// What has frames in memory that are counted.
pub(super) trait Holder: Send + Sync {
    /// What is in memory, and for whom.
    fn usage(&self) -> Usage;
    /// Makes room for others, as far as that costs this client something.
    fn shed(&self, payer: &str);
    /// Logs that it has to.
    fn warn(&self, size: usize);
}

/// What a stream has in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub bytes: usize,
    /// The client of its slowest reader: without that nothing of it would be there. Nobody, if nobody reads it.
    pub payer: Arc<str>,
}

/// Bytes by which a stream may grow or shrink before that is counted.
const STEP: usize = 16 << 10;
/// A connection is always handed as much: heartbeats, and most of what comes while its client reads.
const SMALL: usize = 2 << 10;

/// Counts the bytes of all streams. Beyond the limit the client loses frames whose streams have the most: their slowest
/// readers are cut off. A client that has no more than its share loses nothing as long as another has more.
pub struct Memory {
    limit: usize,
    /// The most that one client may have while others have something.
    share: usize,
    used: AtomicUsize,
    /// Streams, some of which may be gone.
    streams: Mutex<Vec<Weak<dyn Holder>>>,
    /// One caller at a time makes room.
    making_room: Mutex<()>,
    in_flight: Mutex<Untaken>,
}

/// What clients were sent and have not taken.
#[derive(Default)]
struct Untaken {
    bytes: usize,
    of: HashMap<Arc<str>, usize>,
}

impl Untaken {
    /// Adds what a client is sent, unless all have `most` and it has its part of that already: all of it, while others
    /// have nothing, but no more than a `share`.
    fn add(&mut self, payer: &Arc<str>, bytes: usize, most: usize, share: usize) -> bool {
        let clients = self.of.len().max(1);
        let own = self.of.entry(payer.clone()).or_default();
        let part = share.min(most / clients);
        let is_over = self.bytes + bytes > most && *own > 0 && *own + bytes > part;
        if is_over && bytes > SMALL {
            return false;
        }
        *own += bytes;
        self.bytes += bytes;
        true
    }

    fn remove(&mut self, payer: &Arc<str>, bytes: usize) {
        self.bytes -= bytes;
        if let Some(own) = self.of.get_mut(payer) {
            *own -= bytes;
            if *own == 0 {
                self.of.remove(payer);
            }
        }
    }
}

/// All streams of one client, the smallest first.
#[derive(Default)]
struct OfClient {
    bytes: usize,
    streams: Vec<(usize, Arc<dyn Holder>)>,
}

impl OfClient {
    fn add(&mut self, bytes: usize, stream: Arc<dyn Holder>) {
        self.bytes += bytes;
        let at = self.streams.partition_point(|(other, _)| *other < bytes);
        self.streams.insert(at, (bytes, stream));
    }
}

impl Memory {
    /// Memory of so many bytes, of which each client has this share.
    pub fn with_share(limit: usize, share: Percent) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share: share.of(limit),
            used: AtomicUsize::new(0),
            streams: Mutex::default(),
            making_room: Mutex::default(),
            in_flight: Mutex::default(),
        })
    }

    /// Memory of so many bytes, of which each client has half.
    #[cfg(test)]
    pub fn new(limit: usize) -> Arc<Self> {
        Self::with_share(limit, Percent::default())
    }

    /// All of it, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How much of it is in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Frames that are handed to a connection of a client, until they are dropped. All that clients have not taken is half
    /// of the memory at the most, since no room can be made of it: `None` for one that has its part of that and asks
    /// for more.
    pub fn in_flight(self: &Arc<Self>, payer: &Arc<str>, bytes: usize) -> Option<InFlight> {
        let most = self.limit / 2;
        if !self.in_flight.lock().add(payer, bytes, most, self.share) {
            return None;
        }
        let mut counted = Counted::of(self.clone());
        counted.set(bytes);
        self.make_room();
        Some(InFlight {
            counted,
            payer: payer.clone(),
        })
    }

    pub(super) fn add(&self, stream: Weak<dyn Holder>) {
        let mut streams = self.streams.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(stream);
    }

    /// Lets the streams with the most bytes, of the client with the most, lose some: until a quarter of all is free, or only
    /// clients are left that have no more than their share.
    pub(super) fn make_room(&self) {
        if self.used.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        let Some(_alone) = self.making_room.try_lock() else {
            return;
        };
        let mut clients = self.clients();
        loop {
            let used = self.used.load(Ordering::Relaxed);
            let with_streams = clients
                .iter_mut()
                .filter(|(_, client)| !client.streams.is_empty());
            let Some((payer, client)) = with_streams.max_by_key(|(_, client)| client.bytes) else {
                return;
            };
            let has_too_much = client.bytes > self.share;
            if used <= self.limit && (!has_too_much || used <= self.limit / 4 * 3) {
                return;
            }
            let payer = payer.clone();
            let Some((bytes, stream)) = client.streams.pop() else {
                return;
            };
            client.bytes -= bytes;
            stream.warn(bytes);
            stream.shed(&payer);
            // What is left may be what other clients have not read.
            let left = stream.usage();
            if left.bytes >= STEP && (left.bytes < bytes || left.payer != payer) {
                let client = clients.entry(left.payer).or_default();
                client.add(left.bytes, stream);
            }
        }
    }

    /// What each client has.
    fn clients(&self) -> HashMap<Arc<str>, OfClient> {
        let mut clients: HashMap<Arc<str>, OfClient> = HashMap::new();
        for (payer, bytes) in &self.in_flight.lock().of {
            clients.entry(payer.clone()).or_default().bytes = *bytes;
        }
        let streams: Vec<_> = {
            let streams = self.streams.lock();
            streams.iter().filter_map(Weak::upgrade).collect()
        };
        for stream in streams {
            let usage = stream.usage();
            if usage.bytes >= STEP {
                let client = clients.entry(usage.payer).or_default();
                client.bytes += usage.bytes;
                client.streams.push((usage.bytes, stream));
            }
        }
        for client in clients.values_mut() {
            client.streams.sort_unstable_by_key(|(bytes, _)| *bytes);
        }
        clients
    }
}

/// Frames that a connection has not taken yet, until this is dropped.
pub struct InFlight {
    counted: Counted,
    payer: Arc<str>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = self.counted.memory.in_flight.lock();
        in_flight.remove(&self.payer, self.counted.bytes);
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
