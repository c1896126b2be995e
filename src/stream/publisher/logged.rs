//! Streams that have a log: their frames are shown once they are stored, and so is what they tell of.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::Arc,
};

use super::{Publisher, State, push_failure};
use crate::{
    engine::Barrier,
    id::TreeId,
    stream::{
        buffer::{Buffer, Sealed},
        frame::plain,
        log::{LogWriter, NewChunk},
        mode::Modes,
    },
};

/// Bytes of stored frames that stay in memory, so that readers that keep up read no storage.
const RECENT: usize = 1 << 20;
/// Sizes of stored frames are counted in steps of so many bytes.
const STEP: usize = 1 << 20;

/// The right to write the log of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOwner {
    /// The tree of its thread.
    pub tree: TreeId,
    /// The epoch under which it is executed.
    pub epoch: i64,
}

/// What is known of the log of a run.
pub(super) struct Logging {
    pub(super) writer: Arc<LogWriter>,
    /// `None` while this process does not execute the run.
    pub(super) owner: Option<RunOwner>,
    /// It waits for the writer.
    is_queued: bool,
    /// Another process executes the run.
    pub is_fenced: bool,
    /// The end of the run was appended.
    pub is_ended: bool,
    /// The last frames are on their way with the final row: nothing may follow them.
    pub is_ending: bool,
    /// Number of the first frame of the attempt that this process executes.
    first: u64,
    /// Number of the next frame for the writer.
    pub(super) next: u64,
    /// Number of the frame behind the last one that is stored.
    pub(super) logged: u64,
    /// Barriers that are not passed, by their number: the number of the first frame behind each. Both grow.
    pub(super) barriers: BTreeMap<u64, u64>,
    /// How many there were.
    barrier_count: u64,
    /// Chunks that are on their way to the log.
    pub(super) on_way: usize,
    /// What is stored, oldest first: the last frame of each part, and its bytes.
    parts: VecDeque<(u64, usize)>,
    stored: usize,
}

impl State {
    /// Number of the frame behind the last one that is shown.
    pub(super) fn end(&self) -> u64 {
        match &self.logging {
            Some(logging) => logging.visible(),
            None => self.buffer.next(),
        }
    }

    /// Whether frames may be appended. Those of a run that has a log come from the process that
    /// executes it.
    pub(super) fn writes(&self) -> bool {
        let logging = self.logging.as_ref();
        logging.is_none_or(|logging| logging.owner.is_some() && !logging.is_fenced)
    }

    /// Whether the stream goes on.
    pub(super) fn takes_frames(&self) -> bool {
        let logging = self.logging.as_ref();
        let has_end = logging.is_some_and(|logging| logging.is_ending || logging.is_ended);
        self.writes() && !has_end
    }

    /// The writer, if it is to be notified of new frames.
    pub(super) fn queue(&mut self) -> Option<Arc<LogWriter>> {
        let logging = self.logging.as_mut()?;
        let is_new = !logging.is_queued && self.buffer.next() > logging.next;
        logging.is_queued |= is_new;
        is_new.then(|| logging.writer.clone())
    }

    /// Shows what was appended last without storing it.
    pub(super) fn show_unlogged(&mut self) {
        if let Some(logging) = &mut self.logging {
            logging.next = self.buffer.next();
            logging.logged = logging.next;
        }
    }

    /// Drops frames from memory that are stored, and beyond `most` bytes others too.
    pub(super) fn shrink(&mut self, most: usize) {
        let Some(logging) = &mut self.logging else {
            return;
        };
        self.buffer.shrink_to(RECENT.min(most), logging.visible());
        self.buffer.shrink_to(most, u64::MAX);
        let first = self.buffer.first();
        logging.next = logging.next.max(first);
        logging.logged = logging.logged.max(first);
    }
}

impl Publisher {
    /// Stores its frames from now on, before they are shown.
    pub(in crate::stream) fn log_to(&self, writer: &Arc<LogWriter>) {
        let mut state = self.state.lock();
        let next = state.buffer.next();
        state.logging.get_or_insert_with(|| Logging {
            writer: writer.clone(),
            owner: None,
            is_queued: false,
            is_fenced: false,
            is_ended: false,
            is_ending: false,
            first: next,
            next,
            logged: next,
            barriers: BTreeMap::new(),
            barrier_count: 0,
            on_way: 0,
            parts: VecDeque::new(),
            stored: 0,
        });
    }

    /// Whether its frames are stored before they are shown.
    pub fn is_logged(&self) -> bool {
        self.state.lock().logging.is_some()
    }

    /// Whether its readers find the newest frames here, and not in the log.
    pub fn is_local(&self) -> bool {
        self.state.lock().writes() || self.is_closed()
    }

    /// Whether this process executes the run, or did so until its end.
    pub fn is_owned(&self) -> bool {
        let state = self.state.lock();
        state.logging.is_some() && state.writes()
    }

    /// Number of the last frame that is shown.
    pub fn last(&self) -> u64 {
        self.state.lock().end().saturating_sub(1)
    }

    /// Takes the right to write its log, for an attempt of this process.
    pub fn own(&self, owner: RunOwner) {
        self.take_up();
        if let Some(logging) = &mut self.state.lock().logging {
            logging.owner = Some(owner);
            logging.is_fenced = false;
        }
    }

    /// Begins an attempt whose first frame has this number. Readers find those before in the log.
    pub(super) fn begin_logged(&self, state: &mut State, first: u64) {
        let Some(logging) = &mut state.logging else {
            return;
        };
        logging.first = first;
        logging.next = first;
        logging.logged = first;
        logging.barriers.clear();
        state.buffer = Buffer::new(first, true);
        if self.has_started() {
            state.encoder.start(&mut state.buffer);
        }
    }

    /// The frames that the writer does not have yet, in chunks.
    pub(in crate::stream) fn take_unlogged(&self) -> Vec<NewChunk> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(logging) = &mut state.logging else {
            return vec![];
        };
        logging.is_queued = false;
        let Some(owner) = logging.owner.filter(|_| !logging.is_fenced) else {
            return vec![];
        };
        let sealed = state.buffer.seal_from(logging.next);
        logging.next = state.buffer.next();
        logging.on_way += sealed.len();
        let chunks = sealed.into_iter().map(|sealed| NewChunk {
            // What comes once the run has ended is nobody else's.
            epoch: (!logging.is_ended).then_some(owner.epoch),
            ..self.chunk(owner, sealed)
        });
        chunks.collect()
    }

    /// A chunk that is stored with the end of the run or behind it.
    pub(super) fn chunk(&self, owner: RunOwner, sealed: Sealed) -> NewChunk {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        NewChunk {
            tree: owner.tree,
            thread: self.thread,
            run: self.run,
            epoch: None,
            first: number(sealed.first),
            last: number(sealed.last),
            checkpoint: sealed.checkpoint,
            frames: sealed.frames,
            temporary: self.is_temporary,
            principal: self.principal.clone(),
        }
    }

    /// Shows frames that are stored, at a position in the log of the thread. Returns the frame before
    /// which the log of the run is to be removed, if it has too much.
    pub(in crate::stream) fn logged(&self, chunk: &NewChunk, position: Option<i64>) -> Option<i64> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let logging = state.logging.as_mut()?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let (first, last) = (number(chunk.first), number(chunk.last));
        if let Some(feed) = self.feed.get().filter(|feed| feed.is_watched())
            && let Some(position) = position
        {
            let position = number(position);
            feed.push_logged(self.run, (first, position), |pass| {
                state.buffer.each(first, last + 1, pass);
            });
        }
        // What an earlier attempt wrote is no longer in memory.
        if first >= state.buffer.first() {
            logging.logged = logging.logged.max(last + 1);
        }
        let trim = logging.count(last, chunk.frames.len());
        self.shrink(state);
        self.notify.notify_waiters();
        trim
    }

    /// Drops from memory what was shown, and counts what is left.
    fn shrink(&self, state: &mut State) {
        state.shrink(self.limits.retained);
        state.trim_at = state.buffer.size() + super::SLACK;
        state.count();
    }

    /// A chunk is written, or will not be: it is no longer on its way.
    pub(in crate::stream) fn arrived(&self) {
        if let Some(logging) = &mut self.state.lock().logging {
            logging.on_way = logging.on_way.saturating_sub(1);
        }
        self.notify.notify_waiters();
    }

    /// Learns that a chunk was refused: if it is one of this attempt, another process executes the run or has ended it.
    pub(in crate::stream) fn refused(&self, chunk: &NewChunk) {
        let mut state = self.state.lock();
        // Of a run that has ended, the writer has everything anew.
        let Some(logging) = state.logging.as_mut().filter(|logging| !logging.is_ended) else {
            return;
        };
        let is_own = logging.owner.map(|owner| owner.epoch) == chunk.epoch;
        let first = u64::try_from(chunk.first).unwrap_or(0);
        let mut writer = None;
        if !is_own && first >= logging.logged {
            // It was taken while this attempt began.
            logging.next = first;
            writer = state.queue();
        }
        drop(state);
        if is_own {
            self.fence();
        } else if let Some(writer) = writer {
            writer.push(self.own.upgrade());
        }
    }

    /// Learns that another process executes the run; what was to be stored with its end is not.
    pub fn fence(&self) {
        if let Some(logging) = &mut self.state.lock().logging {
            logging.is_fenced = true;
            logging.is_ending = false;
        }
        self.notify.notify_waiters();
    }

    /// A point behind which frames are shown once the barrier is dropped; `None` without a log.
    pub(super) fn add_barrier(&self) -> Option<Barrier> {
        if !self.resumable {
            return None;
        }
        let mut state = self.state.lock();
        let next = state.buffer.next();
        let logging = state.logging.as_mut()?;
        logging.barrier_count += 1;
        let number = logging.barrier_count;
        logging.barriers.insert(number, next);
        let own = self.own.clone();
        Some(Barrier::new(move || {
            if let Some(publisher) = own.upgrade() {
                publisher.pass(number);
            }
        }))
    }

    /// The number of its first frame that those who watch the thread are not shown yet, since it waits for a barrier here.
    pub fn first_behind_barrier(&self) -> Option<u64> {
        let state = self.state.lock();
        let logging = state.logging.as_ref().filter(|log| !log.is_fenced);
        logging.and_then(Logging::first_behind_barrier)
    }

    /// Whether the frame with this number is of the attempt that this process executes, or executed last. What is in the log
    /// of others may have been left out there since.
    pub fn is_current(&self, number: u64) -> bool {
        let state = self.state.lock();
        let logging = state.logging.as_ref();
        logging.is_none_or(|log| !log.is_fenced && number >= log.first)
    }

    /// Waits until the frame with this number waits for no barrier.
    pub async fn passes(&self, number: u64) {
        loop {
            let mut notified = pin!(self.notify.notified());
            notified.as_mut().enable();
            if self
                .first_behind_barrier()
                .is_none_or(|first| number < first)
            {
                return;
            }
            notified.await;
        }
    }

    /// Removes a barrier, and lets readers have what is behind it.
    fn pass(&self, barrier: u64) {
        let mut state = self.state.lock();
        let Some(logging) = &mut state.logging else {
            return;
        };
        logging.barriers.remove(&barrier);
        self.shrink(&mut state);
        drop(state);
        self.notify.notify_waiters();
    }

    /// Waits until its frames are in the log, or another process executes the run.
    pub async fn flushed(&self) {
        loop {
            let mut notified = pin!(self.notify.notified());
            notified.as_mut().enable();
            {
                let state = self.state.lock();
                let Some(logging) = &state.logging else {
                    return;
                };
                if logging.logged >= state.buffer.next() || !state.writes() {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Appends how a run ended that this process executed, after its final row: class and message of its failure, if
    /// it failed, and the end, for those who watch the thread. False if it has no log, nobody will read it there, or
    /// the end is there.
    pub fn log_end(&self, failure: Option<(&str, &str)>) -> bool {
        let is_permanent = !self.is_temporary;
        let mut state = self.state.lock();
        match &mut state.logging {
            Some(logging) if is_permanent && logging.owner.is_some() && !logging.is_ended => {
                logging.is_ended = true;
                // Somebody ended the run here, and nobody else executes it.
                if std::mem::take(&mut logging.is_fenced) {
                    logging.next = logging.logged;
                }
            }
            _ => return false,
        }
        self.append(state, |state| self.push_end(&mut state.buffer, failure));
        true
    }

    /// Appends how a run ended, in a chunk of its own.
    pub(super) fn push_end(&self, buffer: &mut Buffer, failure: Option<(&str, &str)>) {
        buffer.reach(None);
        if let Some((class, message)) = failure {
            push_failure(buffer, class, message);
        }
        buffer.push(Modes::END, "metadata", "", |out| {
            out.extend_from_slice(b"{\"status\":\"run_done\",\"run_id\":");
            plain(out, self.run);
            out.push(b'}');
        });
    }
}

impl Logging {
    /// Number of the next frame to be shown.
    pub(super) fn visible(&self) -> u64 {
        let first = self.first_behind_barrier();
        first.map_or(self.logged, |first| self.logged.min(first))
    }

    /// Number of the first frame that waits for a barrier. Behind the end of the run none does: what was to be stored is, or
    /// never will be.
    fn first_behind_barrier(&self) -> Option<u64> {
        let first = self.barriers.values().next().copied();
        first.filter(|_| !self.is_ended)
    }

    /// Counts what was stored; the frame before which the log is to be removed, if it has too much.
    fn count(&mut self, last: u64, bytes: usize) -> Option<i64> {
        self.stored += bytes;
        match self.parts.back_mut() {
            Some((end, size)) if *size < STEP => {
                *end = last;
                *size += bytes;
            }
            _ => self.parts.push_back((last, bytes)),
        }
        let mut before = None;
        while self.stored > self.writer.most()
            && self.parts.len() > 1
            && let Some((end, size)) = self.parts.pop_front()
        {
            self.stored -= size;
            before = i64::try_from(end + 1).ok();
        }
        before
    }
}
