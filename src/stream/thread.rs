//! The feed of a thread: the frames of all its runs and the edits of its state, in one order, for
//! those who watch the thread.
//!
//! Publishers append to it while somebody watches. Each entry has a position, which is its id in
//! the streams of the thread.

mod passed;
mod position;
mod subscription;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::{
    passed::{End, Passed},
    position::{Position, SinceThread},
    subscription::{ThreadSubscription, Watched},
};
use super::{
    frame,
    log::{LogChunk, LogFrames},
    memory::{Counted, Holder, Memory, Usage},
    mode::Modes,
    readers::Readers,
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    time,
};

/// How far a watcher may fall behind, in bytes.
const LAG: usize = 16 << 20;
/// Bytes of the runs that can be resumed that are retained for watchers who come back.
const RETAINED: usize = 4 << 20;
/// Bytes that an entry takes besides its own.
const OVERHEAD: usize = 96;
/// A watcher gets about this many bytes at once.
const BATCH: usize = 64 << 10;

/// What an entry of a thread's feed is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A frame of a run, and its number in that run.
    Run(RunId, u64),
    /// The end of a run.
    End(RunId),
    /// An edit of the state.
    Edit,
}

/// An entry of a thread's feed.
#[derive(Clone, Debug)]
pub struct ThreadFrame {
    /// Its position.
    pub position: Position,
    /// What it is about.
    pub subject: Subject,
    /// It is the first frame of a run, or its end.
    pub is_lifecycle: bool,
    /// Of an entry of a run that is not replayed: what else there is to know.
    pub passed: Option<Arc<Passed>>,
    /// Name and data of the event as they are sent, without an id: see [`event`](Self::event).
    body: Bytes,
}

impl ThreadFrame {
    /// A frame of a run that is in the log: `from` is the number of a frame and its position.
    fn logged(run: RunId, number: u64, from: (u64, u64), modes: Modes, frame: &[u8]) -> Self {
        let (first, position) = from;
        let is_end = modes.meets(Modes::END);
        Self {
            position: Position::numbered(position + (number - first)),
            subject: if is_end {
                Subject::End(run)
            } else {
                Subject::Run(run, number)
            },
            is_lifecycle: is_end || modes.meets(Modes::METADATA),
            passed: None,
            body: Bytes::copy_from_slice(frame::body(frame)),
        }
    }

    /// The frames of a chunk of the log after a position.
    ///
    /// # Errors
    /// The stored bytes are none that this program wrote.
    pub fn of_chunk(chunk: LogChunk, after: u64) -> Result<Vec<Self>, Error> {
        let wrong = |_| Error::Corrupt("a number in the stream log".into());
        let first = u64::try_from(chunk.first).map_err(wrong)?;
        let position = u64::try_from(chunk.position).map_err(wrong)?;
        let run = chunk.run;
        let mut all = vec![];
        LogFrames::decode(chunk.first, chunk.frames)?.each(|number, modes, frame| {
            if position + (number - first) > after {
                all.push(Self::logged(run, number, (first, position), modes, frame));
            }
        });
        Ok(all)
    }

    /// The name of the event, its namespace, whose parts have a bar between them, and its data.
    pub fn event(&self) -> (&str, &str, &[u8]) {
        frame::parts(&self.body)
    }

    /// Appends the frame as it is sent, with its position as its id.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
        frame::close(out, Some(self.position));
    }

    fn size(&self) -> usize {
        self.body.len() + OVERHEAD
    }
}

/// The feed of one thread in this process.
pub struct Feed {
    thread: ThreadId,
    watchers: AtomicUsize,
    state: Mutex<State>,
    notify: Notify,
}

struct State {
    entries: VecDeque<ThreadFrame>,
    /// Entries that were dropped from the front so far.
    dropped: u64,
    /// The last of those that could have been replayed.
    last_dropped: Option<Position>,
    bytes: usize,
    last: Position,
    /// Counts entries that cannot be replayed. It begins with the time, so that no other feed of the
    /// thread has counted them.
    passed: u64,
    /// With the numbers of entries.
    watchers: Readers,
    counted: Counted,
}

/// What a watcher finds.
enum Found {
    Frames(Vec<ThreadFrame>),
    Nothing,
    Lagged,
}

impl Feed {
    /// An empty feed.
    pub(super) fn new(thread: ThreadId, last: u64, memory: &Arc<Memory>) -> Arc<Self> {
        let feed = Arc::new(Self {
            thread,
            watchers: AtomicUsize::new(0),
            state: Mutex::new(State {
                entries: VecDeque::new(),
                dropped: 0,
                last_dropped: None,
                bytes: 0,
                last: Position::numbered(last),
                passed: u64::try_from(time::Timestamp::now().0).unwrap_or(0),
                watchers: Readers::default(),
                counted: Counted::of(memory.clone()),
            }),
            notify: Notify::new(),
        });
        memory.add(Arc::downgrade(&feed) as _);
        feed
    }

    /// Whether somebody watches the thread.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// Appends an edit of the thread's state: the data of its event, one line of JSON.
    pub fn push_edit(&self, data: &[u8]) {
        let mut body = vec![];
        frame::open(&mut body, "state_update", "");
        body.extend_from_slice(data);
        self.push(false, None, |push| {
            push(Subject::Edit, false, body.into());
        });
        let memory = self.state.lock().counted.memory().clone();
        memory.make_room();
    }

    /// Appends the end of a run; `passed` if it is not replayed.
    pub(super) fn push_end(&self, run: RunId, passed: Option<Arc<Passed>>) {
        let mut body = vec![];
        frame::open(&mut body, "metadata", "");
        body.extend_from_slice(b"{\"status\":\"run_done\",\"run_id\":");
        frame::plain(&mut body, run);
        body.push(b'}');
        self.push(passed.is_none(), passed, |push| {
            push(Subject::End(run), true, body.into());
        });
    }

    /// Appends frames of a run, under the lock of its publisher; only those of runs that can be resumed are for watchers who come
    /// later, too, and `passed` is what there is to know of others.
    pub(super) fn push_frames(
        &self,
        run: RunId,
        passed: Option<Arc<Passed>>,
        each: impl FnOnce(&mut dyn FnMut(u64, Modes, &[u8])),
    ) {
        self.push(passed.is_none(), passed, |push| {
            each(&mut |number, modes, frame| {
                let body = Bytes::copy_from_slice(frame::body(frame));
                push(
                    Subject::Run(run, number),
                    modes.meets(Modes::METADATA),
                    body,
                );
            });
        });
    }

    /// Appends frames of a run that are in the log, under the lock of its publisher: `from` is the
    /// number of the first one and its position.
    pub(super) fn push_logged(
        &self,
        run: RunId,
        from: (u64, u64),
        each: impl FnOnce(&mut dyn FnMut(u64, Modes, &[u8])),
    ) {
        let mut state = self.state.lock();
        let state_now = &mut *state;
        each(&mut |number, modes, frame| {
            let frame = ThreadFrame::logged(run, number, from, modes, frame);
            state_now.last = state_now.last.max(frame.position);
            state_now.bytes += frame.size();
            state_now.entries.push_back(frame);
        });
        state.trim();
        state.count();
        drop(state);
        self.notify.notify_waiters();
    }

    fn push(
        &self,
        is_replayed: bool,
        passed: Option<Arc<Passed>>,
        each: impl FnOnce(&mut dyn FnMut(Subject, bool, Bytes)),
    ) {
        let mut state = self.state.lock();
        let state_now = &mut *state;
        each(&mut |subject, is_lifecycle, body| {
            if is_replayed {
                state_now.last = Position::numbered(state_now.last.number() + 1);
            } else {
                state_now.passed += 1;
                state_now.last = state_now.last.passing(state_now.passed);
            }
            let frame = ThreadFrame {
                position: state_now.last,
                subject,
                is_lifecycle,
                passed: passed.clone(),
                body,
            };
            state_now.bytes += frame.size();
            state_now.entries.push_back(frame);
        });
        state.trim();
        state.count();
        drop(state);
        self.notify.notify_waiters();
    }

    /// A watcher that begins at `since`, when the log of the thread has reached position `last`. Before what comes from now on it gets only what can be
    /// replayed.
    pub(super) fn subscribe(self: &Arc<Self>, since: SinceThread, last: u64) -> ThreadSubscription {
        let mut state = self.state.lock();
        let end = state.dropped + state.entries.len() as u64;
        let (next, gap) = match since {
            SinceThread::Live => (end, None),
            SinceThread::After(position) => {
                let before = state
                    .entries
                    .partition_point(|frame| frame.position <= position);
                let gap = state.last_dropped.filter(|dropped| *dropped > position);
                let gap = gap.map(|dropped| (position, dropped));
                (state.dropped + before as u64, gap)
            }
        };
        let id = state.watchers.add(next);
        self.watchers.fetch_add(1, Ordering::AcqRel);
        let first = state.last.number().max(last);
        drop(state);
        ThreadSubscription::new(self.clone(), id, (end, first), gap)
    }

    fn leave(&self, watcher: u64) {
        let mut state = self.state.lock();
        state.watchers.remove(watcher);
        self.watchers.fetch_sub(1, Ordering::AcqRel);
        state.trim();
        state.count();
    }

    /// Lets a client pay for what a watcher has not read.
    fn charge(&self, watcher: u64, payer: &Arc<str>) {
        self.state.lock().watchers.pay(watcher, payer);
    }

    fn notify(&self) -> &Notify {
        &self.notify
    }

    /// Reads what is there for a watcher, and moves it behind that. Of the entries before number
    /// `live` only those are for it that can be replayed.
    fn read(&self, watcher: u64, live: u64) -> Found {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(mut next) = state.watchers.next(watcher) else {
            return Found::Lagged;
        };
        let (mut frames, mut bytes) = (vec![], 0);
        let skipped = usize::try_from(next.saturating_sub(state.dropped)).unwrap_or(usize::MAX);
        for frame in state.entries.iter().skip(skipped) {
            if bytes >= BATCH {
                break;
            }
            if next >= live || frame.position.is_logged() {
                bytes += frame.size();
                frames.push(frame.clone());
            }
            next += 1;
        }
        state.watchers.advance(watcher, next);
        if frames.is_empty() {
            Found::Nothing
        } else {
            Found::Frames(frames)
        }
    }

    /// Whether there is something to read for a watcher.
    fn is_ready(&self, watcher: u64) -> bool {
        let state = self.state.lock();
        let end = state.dropped + state.entries.len() as u64;
        let next = state.watchers.next(watcher);
        next.is_none_or(|next| next < end)
    }
}

impl State {
    /// Drops entries that all watchers have read, but not those that are retained for others, and
    /// cuts off watchers that are too far behind.
    fn trim(&mut self) {
        self.drop_front(RETAINED, LAG, None);
    }

    /// Drops entries from the front that nobody will read, and what is retained beyond `retained`
    /// bytes; watchers for whom more than `lag` bytes are left are cut off, those of one client or of all.
    fn drop_front(&mut self, retained: usize, lag: usize, of: Option<&str>) {
        while let Some(front) = self.entries.front() {
            let dropped = self.dropped;
            let is_unread = |slowest: Option<u64>| slowest.is_some_and(|next| next <= dropped);
            if is_unread(self.watchers.slowest()) {
                if self.bytes <= lag {
                    return;
                }
                self.watchers.cut_off(of, |next| next <= dropped);
                if is_unread(self.watchers.slowest()) {
                    return;
                }
            } else if front.position.is_logged() && self.bytes <= retained {
                return;
            }
            if front.position.is_logged() {
                self.last_dropped = Some(front.position);
            }
            self.bytes -= front.size();
            self.dropped += 1;
            self.entries.pop_front();
        }
    }

    /// Counts what is in memory.
    fn count(&mut self) {
        self.counted.follow(self.bytes);
    }
}

impl Holder for Feed {
    fn usage(&self) -> Usage {
        let state = self.state.lock();
        Usage {
            bytes: state.bytes,
            payer: state
                .watchers
                .payer(state.dropped + state.entries.len() as u64),
        }
    }

    /// Half of its bytes go, and watchers of this client who have not read those are cut off.
    fn shed(&self, payer: &str) {
        let mut state = self.state.lock();
        let half = state.bytes / 2;
        state.drop_front(half, half, Some(payer));
        state.count();
        drop(state);
        self.notify.notify_waiters();
    }

    fn warn(&self, size: usize) {
        tracing::warn!(thread = %self.thread, size, "the feed of a thread lost frames: too much is unread");
    }
}
