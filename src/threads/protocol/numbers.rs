//! Numbers of events, which follow from the positions of their frames in the log of the thread: they
//! stay the same when the oldest frames are gone.

use super::{PAUSE, ThreadEvents};
use crate::{checkpoint, stream::Position};

/// Numbers that the events of one frame have to themselves. One with more takes some of the next ones,
/// which then begin behind those.
const OF_FRAME: u64 = 1024;

impl ThreadEvents {
    /// Goes on with the numbers of a frame.
    pub(super) async fn number(&mut self, position: Position) {
        if !position.is_logged() {
            return;
        }
        let before = self.before(position.number().saturating_sub(1)).await;
        self.out.seq = self.out.seq.max(before);
    }

    /// The last number that may have been given out up to a position.
    pub(super) async fn before(&mut self, position: u64) -> u64 {
        let start = match self.start {
            Some(start) => start,
            None => self.read_start().await,
        };
        self.start = Some(start);
        position.saturating_sub(start).saturating_mul(OF_FRAME)
    }

    /// Whether a number is greater than any that the log of the thread has given out, so that it is none of
    /// its numbers. Those of frames that were lost with their process count.
    pub async fn is_ahead(&mut self, number: u64) -> bool {
        if number <= self.out.seq {
            return false;
        }
        let last = loop {
            let log = &self.service.shared.parts.log;
            match log.thread_position(self.thread).await {
                Ok(last) => break u64::try_from(last).unwrap_or(0),
                Err(error) => self.pause_after(&error).await,
            }
        };
        last == 0 || number > self.before(last).await
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
