//! Numbers of events, which follow from the positions of their frames in the log of the thread: they
//! stay the same when the oldest frames are gone, and whatever was shown between two of them that is not replayed.

use super::{PAUSE, ThreadEvents};
use crate::{checkpoint, stream::Position};

/// Numbers that the events of one frame have, and those behind it that are not replayed. As many come before the first
/// frame, for a thread whose runs were not stored until then. A program that reads JSON's numbers with 53 bits can count
/// eight billion frames so.
const OF_FRAME: u64 = 1 << 20;

impl ThreadEvents {
    /// Goes on with the numbers of a frame.
    pub(super) async fn number(&mut self, position: Position) {
        if position.is_logged() {
            let before = self.before(position.number().saturating_sub(1)).await;
            self.out.seq = self.out.seq.max(before);
            self.out.passing = None;
            self.position = position.number();
        } else {
            self.pass(position.number()).await;
        }
    }

    /// Goes on with the numbers of what is not replayed, behind a position, and behind the last event that the client
    /// has: that may have been none that is replayed either.
    pub(super) async fn pass(&mut self, position: u64) {
        let last = self.before(position).await;
        // One that is ahead of the thread is none of its numbers.
        if self.known <= last {
            self.out.seq = self.out.seq.max(self.known);
        }
        self.out.passing = Some(last);
    }

    /// The client has the events up to this number, if it is one of the thread.
    pub fn knows(&mut self, number: u64) {
        self.known = self.known.max(number);
    }

    /// The last number that may have been given out up to a position; 0 stands for the time before the first frame.
    pub(super) async fn before(&mut self, position: u64) -> u64 {
        let start = match self.start {
            _ if position == 0 => 0,
            Some(start) => start,
            None => self.read_start().await,
        };
        if start == 0 {
            // The log of the thread has not begun, also where something has a position of an earlier thread of this id.
            return OF_FRAME;
        }
        self.start = Some(start);
        let frames = position.saturating_sub(start);
        frames.saturating_add(1).saturating_mul(OF_FRAME)
    }

    /// A number for what is shown of a thread none of whose frames are left: behind theirs, with room for what is shown
    /// after it and not replayed.
    pub(super) async fn amid(&mut self, position: u64) -> u64 {
        self.before(position).await - OF_FRAME / 2
    }

    /// Whether a number is greater than any that the log of the thread has given out, so that it is none of
    /// its numbers. Those of frames that were lost with their process count.
    pub async fn is_ahead(&mut self, number: u64) -> bool {
        if number <= self.out.seq {
            return false;
        }
        let last = self.log_position().await;
        number > self.before(last).await
    }

    /// The last position of the log of the thread; 0 if there is none.
    pub(super) async fn log_position(&self) -> u64 {
        loop {
            let log = &self.service.shared.parts.log;
            match log.thread_position(self.thread).await {
                Ok(last) => return u64::try_from(last).unwrap_or(0),
                Err(error) => self.pause_after(&error).await,
            }
        }
    }

    /// The position before the first frame that the log of the thread ever had.
    async fn read_start(&self) -> u64 {
        loop {
            let log = &self.service.shared.parts.log;
            match log.thread_start(self.thread).await {
                Ok(start) => return u64::try_from(start).unwrap_or(0),
                // Without it the numbers would not be those of the next reader.
                Err(error) => self.pause_after(&error).await,
            }
        }
    }

    async fn pause_after(&self, error: &checkpoint::Error) {
        tracing::warn!(%error, thread = %self.thread, "the log of a thread could not be read");
        tokio::time::sleep(PAUSE).await;
    }
}
