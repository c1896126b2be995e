//! The stream of one run: encodes its events into frames and retains those for its readers.

mod ending;
mod fed;
mod logged;
mod usage;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    buffer::Buffer,
    encode::{Encoder, Origin},
    frame::text,
    memory::{Counted, Memory},
    mode::{Mode, Modes, filter},
    options::{Limits, Options},
    readers::Readers,
    subscription::{Since, Subscription},
    thread::{End, Feed, Passed},
};
use crate::{
    engine::{Barrier, Event, Kind, Sink},
    extract::RunConfig,
    id::{CheckpointId, RunId, ThreadId},
    value::Value,
};

use self::logged::Logging;
pub use self::{ending::LastFrames, logged::RunOwner};

/// Bytes that may be in memory without need before the next attempt to drop old frames.
const SLACK: usize = 256 << 10;

/// The stream of one run. Ends only with [`close`](Publisher::close).
pub struct Publisher {
    own: Weak<Self>,
    run: RunId,
    thread: ThreadId,
    resumable: bool,
    /// The thread goes with the run, and the stream is left to the principal.
    is_temporary: bool,
    principal: Option<Arc<str>>,
    graph_name: Arc<str>,
    limits: Limits,
    /// Kinds of events that are encoded, of the root graph and of graphs inside it, as bits.
    encoded: [u8; 2],
    /// Messages are sent as far as they have grown, so that no piece may be missed.
    grows: bool,
    state: Mutex<State>,
    started: OnceLock<()>,
    /// What those who watch the thread are told of the run, once this process has begun to execute it.
    begun: OnceLock<Arc<Passed>>,
    /// How the run ended.
    end: OnceLock<End>,
    readers: AtomicUsize,
    closed: AtomicBool,
    notify: Notify,
    /// The feed of its thread, once that is watched.
    feed: OnceLock<Arc<Feed>>,
}

struct State {
    encoder: Encoder,
    buffer: Buffer,
    readers: Readers,
    /// Size at which old frames are dropped.
    trim_at: usize,
    /// Its bytes, in what all streams share; `None` until it is in a hub.
    counted: Option<Counted>,
    /// What is known of its log; `None` for a stream that has none.
    logging: Option<Logging>,
}

impl State {
    /// Counts what is in memory, and returns where.
    fn count(&mut self) -> Option<Arc<Memory>> {
        let size = self.buffer.size();
        let counted = self.counted.as_mut()?;
        counted.follow(size);
        Some(counted.memory().clone())
    }
}

/// Appends the `error` event: class and message of a failure.
fn push_failure(buffer: &mut Buffer, class: &str, message: &str) {
    buffer.push(Modes::ALWAYS, "error", "", |out| {
        out.extend_from_slice(b"{\"error\":");
        text(out, class);
        out.extend_from_slice(b",\"message\":");
        text(out, message);
        out.push(b'}');
    });
}

/// What a reader finds in the stream.
pub(super) enum Found {
    /// Frames, and the number of the next one.
    Frames(Bytes, u64),
    /// Frames that are no longer there: first and last number.
    Gap(u64, u64),
    /// No frames yet.
    Nothing,
    /// The end of the stream.
    End,
    /// The reader fell too far behind.
    Lagged,
    /// Another process executes the run: its frames are in the log.
    Moved,
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
        let inside = if options.subgraphs {
            kinds(modes)
        } else if modes.has(Mode::Events) {
            // Callback events tell of all graphs, wherever they run.
            bit(Kind::Callbacks)
        } else {
            0
        };
        let shown = if options.temporary {
            !bit(Kind::Checkpoints)
        } else {
            u8::MAX
        };
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            run: options.run,
            thread: options.thread,
            resumable: options.resumable,
            is_temporary: options.temporary,
            principal: options.principal,
            graph_name: options.graph_name,
            limits: options.limits,
            encoded: [kinds(modes) & shown, inside & shown],
            grows: encoder.grows(),
            state: Mutex::new(State {
                encoder,
                buffer: Buffer::new(first, options.resumable),
                readers: Readers::default(),
                trim_at: SLACK,
                counted: None,
                logging: None,
            }),
            started: OnceLock::new(),
            begun: OnceLock::new(),
            end: OnceLock::new(),
            readers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            notify: Notify::new(),
            feed: OnceLock::new(),
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

    /// Which attempt of the run it shows.
    pub fn attempt(&self) -> i32 {
        self.state.lock().encoder.attempt()
    }

    /// Whether frames carry ids and are retained for readers who come back.
    pub fn resumable(&self) -> bool {
        self.resumable
    }

    /// Whether its run goes with its thread, and the stream stays.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// Whether a client may read it when its thread is gone: the one who created its run.
    pub fn is_left_to(&self, principal: Option<&Arc<str>>) -> bool {
        self.is_temporary && self.principal.as_ref() == principal
    }

    /// Sets the branch that the `metadata` event names, to be called before that is sent.
    pub fn name_branch(&self, name: Arc<str>) {
        self.state.lock().encoder.name_branch(name);
    }

    /// Begins another attempt of the run, after one in another process: its frames are numbered
    /// from `after` on if there are none yet.
    pub fn begin_attempt(&self, attempt: i32, after: u64) {
        let mut state = self.state.lock();
        state.encoder.set_attempt(attempt);
        if state.logging.is_some() {
            self.begin_logged(&mut state, after + 1);
        } else if self.started.get().is_some() {
            let state = &mut *state;
            let from = state.buffer.next();
            state.encoder.start(&mut state.buffer);
            self.feed_from(from, &state.buffer);
        } else {
            state.buffer = Buffer::new(after + 1, self.resumable);
            state.readers.advance_all(after + 1);
        }
        drop(state);
        self.notify.notify_waiters();
    }

    /// Sends the `metadata` event once. Every other event does so before it is sent.
    pub fn start(&self) {
        self.change(|_| {});
    }

    /// Sends the `error` event of a run that has ended: class and message, as LangGraph names them. Its log, if it
    /// has one, is complete: what the failure of a run was whose thread goes with it is stored with its end.
    pub fn error(&self, class: &str, message: &str) {
        self.change(|state| {
            push_failure(&mut state.buffer, class, message);
            state.show_unlogged();
        });
    }

    /// Sends values that a run has left which another process executed.
    pub fn values(&self, values: &Value) {
        if self.encoded[0] & bit(Kind::Values) == 0 {
            return;
        }
        self.change(|state| {
            state.buffer.push(Mode::Values.into(), "values", "", |out| {
                values.write_json(out)
            });
        });
    }

    /// Ends the stream: readers get the frames that they have not read, and then the end.
    pub fn close(&self) {
        if let Some(logging) = &mut self.state.lock().logging {
            logging.barriers.clear();
        }
        self.closed.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// Whether the stream has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A reader that begins at `from` and gets only events of `modes`; with no modes, all.
    ///
    /// A stream that cannot be resumed retains no frames to come back to: any number means from
    /// now on.
    pub fn subscribe(self: &Arc<Self>, from: Since, modes: &[Mode]) -> Subscription {
        let mut state = self.state.lock();
        let next = match from {
            Since::Start => 0,
            Since::After(last) if self.resumable => last.saturating_add(1),
            Since::After(_) | Since::Live => state.end(),
        };
        let id = state.readers.add(next.max(1));
        self.readers.fetch_add(1, Ordering::AcqRel);
        drop(state);
        Subscription::new(self.clone(), id, filter(modes))
    }

    /// Moves a reader to a frame that it has not reached yet.
    pub(super) fn skip_to(&self, reader: u64, number: u64) {
        self.state.lock().readers.advance(reader, number);
    }

    /// Lets a client pay for what a reader has not read.
    pub(super) fn charge(&self, reader: u64, payer: &Arc<str>) {
        self.state.lock().readers.pay(reader, payer);
    }

    pub(super) fn leave(&self, reader: u64) {
        let mut state = self.state.lock();
        state.readers.remove(reader);
        self.readers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notifies waiting readers of new frames and of the end.
    pub(super) fn notify(&self) -> &Notify {
        &self.notify
    }

    /// Reads the frames that are there for a reader, and moves the reader behind them.
    pub(super) fn read(&self, reader: u64, filter: Option<Modes>) -> Found {
        // Read before the frames, so that frames from before the end are found.
        let closed = self.is_closed();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(from) = state.readers.next(reader) else {
            return Found::Lagged;
        };
        let first = state.buffer.first();
        if from < first && self.resumable {
            state.readers.advance(reader, first);
            // Nothing of this run comes before its first frame, unless that is in the log.
            let is_elsewhere = state.buffer.dropped() || state.logging.is_some();
            if is_elsewhere && from.max(1) < first {
                return Found::Gap(from.max(1), first - 1);
            }
        }
        let end = match &state.logging {
            Some(logging) => logging.visible(),
            None => u64::MAX,
        };
        let filter = filter.unwrap_or(Modes::OF_RUN);
        let read = state.buffer.read(from.max(first), end, Some(filter));
        let next = read.next.max(from);
        state.readers.advance(reader, next);
        let is_fenced = state.logging.as_ref().is_some_and(|log| log.is_fenced);
        if !read.bytes.is_empty() {
            Found::Frames(read.bytes, next)
        } else if closed {
            Found::End
        } else if is_fenced {
            Found::Moved
        } else {
            Found::Nothing
        }
    }

    /// Appends frames and wakes readers.
    fn change(&self, change: impl FnOnce(&mut State)) {
        if self.is_closed() {
            return;
        }
        let state = self.state.lock();
        if !state.takes_frames() {
            return;
        }
        self.append(state, change);
    }

    /// [`change`](Self::change), whether or not the run has ended.
    fn append(&self, mut state: MutexGuard<'_, State>, change: impl FnOnce(&mut State)) {
        let from = state.buffer.next();
        if self.started.set(()).is_ok() {
            let state = &mut *state;
            state.encoder.start(&mut state.buffer);
        }
        change(&mut state);
        let writer = state.queue();
        if state.logging.is_none() {
            self.feed_from(from, &state.buffer);
        }
        if state.buffer.size() >= state.trim_at {
            self.trim(&mut state);
        }
        let memory = state.count();
        drop(state);
        if let Some(writer) = writer {
            writer.push(self.own.upgrade());
        }
        // Costs nothing while no reader waits.
        self.notify.notify_waiters();
        if let Some(memory) = memory {
            memory.make_room();
        }
    }

    /// Counts its bytes among those of all streams from now on.
    pub(super) fn count_in(self: &Arc<Self>, memory: &Arc<Memory>) {
        self.state.lock().counted = Some(Counted::of(memory.clone()));
        memory.add(Arc::downgrade(self) as _);
    }
}

impl Sink for Publisher {
    /// A stream that cannot be resumed encodes nothing while it has no reader.
    fn wants(&self, kind: Kind, ns: &str) -> bool {
        let encoded = self.encoded[usize::from(!ns.is_empty())] & bit(kind) != 0;
        encoded
            && !self.is_closed()
            && (self.resumable || self.is_read() || (self.grows && kind == Kind::Messages))
    }

    fn emit(&self, event: Event) {
        let unread = !self.resumable && !self.is_read();
        if unread {
            if self.grows {
                self.state.lock().encoder.miss(&event);
            }
            return;
        }
        self.change(|state| state.encoder.encode(&mut state.buffer, &event));
    }

    fn superstep(&self, checkpoint: Option<CheckpointId>) {
        let mut state = self.state.lock();
        if state.logging.is_some() {
            state.buffer.reach(checkpoint);
        }
    }

    fn barrier(&self) -> Option<Barrier> {
        self.add_barrier()
    }

    fn started(&self, config: &Arc<RunConfig>) {
        self.change(|state| state.encoder.config(config));
    }
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
        Kind::Callbacks,
    ];
    let needed = all.into_iter().filter(|kind| modes.needs(*kind));
    needed.fold(0, |bits, kind| bits | bit(kind))
}
