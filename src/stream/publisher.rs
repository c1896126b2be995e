//! Takes the events of one run and holds their frames for whoever reads.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    buffer::Buffer,
    encode::{Encoder, Origin},
    frame::text,
    mode::{Mode, Modes},
    subscription::{Since, Subscription},
};
use crate::{
    engine::{Event, Kind, Sink},
    extract::RunConfig,
    graph::Compiled,
    id::{RunId, ThreadId},
};

/// Memory one stream may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How far a reader of a stream that cannot be resumed may fall behind, in bytes.
    pub lag: usize,
    /// What a stream that can be resumed keeps, in bytes; the oldest frames go first.
    pub kept: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lag: 16 << 20,
            kept: 64 << 20,
        }
    }
}

/// What is kept without need before old frames are looked for, in bytes.
const SLACK: usize = 256 << 10;

/// What a publisher needs to know of its run.
pub struct Options {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its attempt, from 1.
    pub attempt: i32,
    /// What the request asked to see.
    pub modes: Vec<Mode>,
    /// The run's thread goes with it: nobody is told of its checkpoints.
    pub temporary: bool,
    /// Events of graphs inside the graph are shown.
    pub subgraphs: bool,
    /// Frames carry ids and are kept for readers who come back.
    pub resumable: bool,
    /// The graph: its message channels are shown with LangChain's fields.
    pub graph: Arc<Compiled>,
    /// Named in the `metadata` event; only for requests that used a branch.
    pub branch_in_metadata: Option<Arc<str>>,
    /// Number of the last frame of earlier attempts: numbers go on after it.
    pub after: u64,
    /// Frames are shown only once [`Publisher::release`] names them: for streams that are
    /// delivered after they were stored.
    pub held: bool,
    /// Memory the stream may take.
    pub limits: Limits,
}

impl Options {
    /// The first attempt of a run that shows nothing yet, delivered as it goes on.
    pub fn new(run: RunId, thread: ThreadId, graph: Arc<Compiled>) -> Self {
        Self {
            run,
            thread,
            attempt: 1,
            modes: vec![],
            temporary: false,
            subgraphs: false,
            resumable: false,
            graph,
            branch_in_metadata: None,
            after: 0,
            held: false,
            limits: Limits::default(),
        }
    }
}

/// The stream of one run. Ends only with [`close`](Publisher::close).
pub struct Publisher {
    run: RunId,
    thread: ThreadId,
    resumable: bool,
    limits: Limits,
    modes: Modes,
    /// Kinds wanted of the root graph, and of graphs inside it, as bits.
    wanted: [u8; 2],
    /// A message is sent as far as it has grown, so that no piece may be missed.
    grows: bool,
    state: Mutex<State>,
    started: OnceLock<()>,
    readers: AtomicUsize,
    closed: AtomicBool,
    news: Notify,
}

struct State {
    encoder: Encoder,
    buffer: Buffer,
    /// Frames before this number may be shown.
    released: u64,
    /// Next frame of each reader; `None` once it fell too far behind.
    readers: HashMap<u64, Option<u64>>,
    last_reader: u64,
    /// Size at which old frames are looked for.
    trim_at: usize,
}

/// Frames in the form in which they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of the first frame.
    pub first: u64,
    /// Number of the last frame.
    pub last: u64,
    /// The frames.
    pub frames: Bytes,
}

/// What a reader finds.
pub(super) enum Found {
    /// Frames.
    Frames(Bytes),
    /// Frames that are no longer there: first and last number.
    Gap(u64, u64),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
    /// It fell too far behind.
    Lagged,
}

impl Publisher {
    /// The stream of a run that is about to start.
    pub fn new(options: Options) -> Arc<Self> {
        let modes: Modes = options.modes.iter().copied().collect();
        let origin = Origin {
            run: options.run,
            thread: options.thread,
            attempt: options.attempt,
            branch: options.branch_in_metadata,
            modes,
            subgraphs: options.subgraphs,
        };
        let encoder = Encoder::new(origin, &options.graph);
        let first = options.after + 1;
        let inside = match options.subgraphs {
            true => kinds(modes),
            // Callback events tell of all nodes, wherever they run.
            false if modes.has(Mode::Events) => bit(Kind::Tasks),
            false => 0,
        };
        let shown = match options.temporary {
            true => !bit(Kind::Checkpoints),
            false => u8::MAX,
        };
        Arc::new(Self {
            run: options.run,
            thread: options.thread,
            resumable: options.resumable,
            limits: options.limits,
            modes,
            wanted: [kinds(modes) & shown, inside & shown],
            grows: encoder.grows(),
            state: Mutex::new(State {
                encoder,
                buffer: Buffer::new(first, options.resumable),
                released: if options.held { first } else { u64::MAX },
                readers: HashMap::new(),
                last_reader: 0,
                trim_at: SLACK,
            }),
            started: OnceLock::new(),
            readers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            news: Notify::new(),
        })
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The run's thread.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Whether frames carry ids and are kept for readers who come back.
    pub fn resumable(&self) -> bool {
        self.resumable
    }

    /// What the request asked to see.
    pub fn modes(&self) -> Modes {
        self.modes
    }

    /// Names the branch that the `metadata` event tells of: to be called before it is sent.
    pub fn name_branch(&self, name: Arc<str>) {
        self.state.lock().encoder.name_branch(name);
    }

    /// Another attempt of the run begins, after one that was made elsewhere: its frames are numbered
    /// from `after` on if there are none yet.
    pub fn begin_again(&self, attempt: i32, after: u64) {
        let mut state = self.state.lock();
        state.encoder.set_attempt(attempt);
        if self.started.get().is_some() {
            let state = &mut *state;
            state.encoder.start(&mut state.buffer);
        } else {
            state.buffer = Buffer::new(after + 1, self.resumable);
            for next in state.readers.values_mut().flatten() {
                *next = (*next).max(after + 1);
            }
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Sends the `metadata` event, unless that has happened. Every other event does it too.
    pub fn start(&self) {
        self.change(|_| {});
    }

    /// Sends the `error` event: class and message, as LangGraph names them.
    pub fn error(&self, class: &str, message: &str) {
        self.change(|state| {
            state.buffer.push(Modes::ALWAYS, "error", "", |out| {
                out.extend_from_slice(b"{\"error\":");
                text(out, class);
                out.extend_from_slice(b",\"message\":");
                text(out, message);
                out.push(b'}');
            });
        });
    }

    /// Ends the stream: readers get what they have not seen and then the end. Frames that are
    /// still held are never shown.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    /// Whether the stream has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Number of the last frame; 0 before the first of all attempts.
    pub fn last(&self) -> u64 {
        self.state.lock().buffer.next() - 1
    }

    /// Shows frames up to this number, which are held until then.
    pub fn release(&self, last: u64) {
        let mut state = self.state.lock();
        state.released = state.released.max(last.saturating_add(1));
        drop(state);
        self.news.notify_waiters();
    }

    /// Frames after this number, held ones included, for whoever stores them: about 64 KiB.
    pub fn batch(&self, after: u64) -> Option<Batch> {
        let mut state = self.state.lock();
        let first = state.buffer.first().max(after + 1);
        let read = state.buffer.read(first, u64::MAX, None);
        (!read.bytes.is_empty()).then(|| Batch {
            first,
            last: read.next - 1,
            frames: read.bytes,
        })
    }

    /// Bytes held in memory.
    pub fn size(&self) -> usize {
        self.state.lock().buffer.size()
    }

    /// A reader that begins at `from` and sees only events of `modes`; with no modes, all.
    ///
    /// A stream that cannot be resumed has no past to come back to: any number means what
    /// comes from now on.
    pub fn subscribe(self: &Arc<Self>, from: Since, modes: &[Mode]) -> Subscription {
        let mut state = self.state.lock();
        let next = match from {
            Since::Start => 0,
            Since::After(last) if self.resumable => last.saturating_add(1),
            Since::After(_) | Since::Live => state.buffer.next().min(state.released),
        };
        state.last_reader += 1;
        let id = state.last_reader;
        state.readers.insert(id, Some(next.max(1)));
        self.readers.fetch_add(1, Ordering::AcqRel);
        drop(state);
        Subscription::new(self.clone(), id, filter(modes))
    }

    pub(super) fn leave(&self, reader: u64) {
        let mut state = self.state.lock();
        state.readers.remove(&reader);
        self.readers.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn news(&self) -> &Notify {
        &self.news
    }

    /// What is there for a reader, which moves on past it.
    pub(super) fn read(&self, reader: u64, filter: Option<Modes>) -> Found {
        // Asked before the frames: whatever came before the end is then seen.
        let closed = self.is_closed();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(Some(next)) = state.readers.get_mut(&reader) else {
            return Found::Lagged;
        };
        let first = state.buffer.first();
        if *next < first && self.resumable {
            let from = std::mem::replace(next, first);
            // Nothing of this run comes before its first frame.
            if state.buffer.dropped() && from.max(1) < first {
                return Found::Gap(from.max(1), first - 1);
            }
        }
        let read = state.buffer.read(*next, state.released, filter);
        *next = read.next.max(*next);
        match read.bytes.is_empty() {
            false => Found::Frames(read.bytes),
            true if closed => Found::End,
            true => Found::Nothing,
        }
    }

    /// Appends frames and wakes readers.
    fn change(&self, change: impl FnOnce(&mut State)) {
        if self.is_closed() {
            return;
        }
        let mut state = self.state.lock();
        if self.started.set(()).is_ok() {
            let state = &mut *state;
            state.encoder.start(&mut state.buffer);
        }
        change(&mut state);
        if state.buffer.size() >= state.trim_at {
            self.trim(&mut state);
        }
        drop(state);
        // Costs nothing while nobody waits.
        self.news.notify_waiters();
    }

    fn trim(&self, state: &mut State) {
        if self.resumable {
            state.buffer.shrink_to(self.limits.kept);
        } else {
            let mut oldest = state.buffer.next();
            for reader in state.readers.values_mut() {
                if let Some(next) = *reader {
                    if state.buffer.behind(next) > self.limits.lag as u64 {
                        *reader = None;
                    } else {
                        oldest = oldest.min(next);
                    }
                }
            }
            state.buffer.drop_before(oldest);
        }
        state.trim_at = state.buffer.size() + SLACK;
    }
}

impl Sink for Publisher {
    /// On a stream that is not kept, nothing is built while nobody reads.
    fn wants(&self, kind: Kind, ns: &str) -> bool {
        let wanted = self.wanted[usize::from(!ns.is_empty())] & bit(kind) != 0;
        wanted
            && !self.is_closed()
            && (self.resumable
                || self.readers.load(Ordering::Acquire) > 0
                || (self.grows && kind == Kind::Messages))
    }

    fn emit(&self, event: Event) {
        let unheard = !self.resumable && self.readers.load(Ordering::Acquire) == 0;
        if unheard {
            if self.grows {
                self.state.lock().encoder.miss(&event);
            }
            return;
        }
        self.change(|state| state.encoder.encode(&mut state.buffer, &event));
    }

    fn started(&self, config: &Arc<RunConfig>) {
        self.change(|state| state.encoder.config(config));
    }
}

/// What a reader sees who asks for certain modes: those, and how the run failed. Both forms of
/// messages count as one: a run has only one of them.
fn filter(modes: &[Mode]) -> Option<Modes> {
    if modes.is_empty() {
        return None;
    }
    let mut filter: Modes = modes.iter().copied().collect();
    let both: Modes = [Mode::Messages, Mode::MessagesTuple].into_iter().collect();
    if filter.meets(both) {
        filter = filter.and(both);
    }
    Some(filter.and(Modes::ALWAYS))
}

fn bit(kind: Kind) -> u8 {
    1 << kind as u8
}

fn kinds(modes: Modes) -> u8 {
    let all = [
        Kind::Values,
        Kind::Updates,
        Kind::Custom,
        Kind::Messages,
        Kind::Tasks,
        Kind::Checkpoints,
    ];
    let needed = all.into_iter().filter(|kind| modes.needs(*kind));
    needed.fold(0, |bits, kind| bits | bit(kind))
}
