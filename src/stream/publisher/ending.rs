//! The last frames of a stream that has a log: they are stored with the final row of its run.

use std::pin::pin;

use super::Publisher;
use crate::stream::{buffer::Buffer, log::NewChunk};

/// The frames of a run that were not stored when it ended, and its end: what its log gets in the transaction of its final
/// row. Nothing for a run without a log.
///
/// [`Publisher::ended`] shows them once they are stored, and [`Publisher::go_on`] returns them to the stream.
#[derive(Debug, Default)]
pub struct LastFrames {
    /// What is to be stored. The end is in the last one.
    chunks: Vec<NewChunk>,
    /// Where the log has them, once they are stored; none if that is not known.
    positions: Vec<i64>,
    /// Class and message of the failure, for the end.
    failure: Option<(String, String)>,
}

impl LastFrames {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What is to be stored.
    pub fn chunks(&self) -> &[NewChunk] {
        &self.chunks
    }

    /// They are stored, each at its position in the log of the thread, or somewhere if there are no positions.
    pub fn stored_at(&mut self, positions: Vec<i64>) {
        self.positions = positions;
    }
}

impl Publisher {
    /// Bytes of frames that its log does not have and that the writer of the log has not taken.
    pub fn unlogged_bytes(&self) -> u64 {
        let state = self.state.lock();
        let next = state.logging.as_ref().map(|logging| logging.next);
        next.map_or(0, |next| state.buffer.behind(next))
    }

    /// Takes the frames that are not stored, as soon as none is on its way to the log, with the end of the run: class and
    /// message of its failure, if it failed. Nothing if another process executes the run.
    ///
    /// From here on nothing can be appended, until they are [stored](Self::ended) or [not](Self::go_on).
    pub async fn take_last(&self, failure: Option<(&str, &str)>) -> LastFrames {
        loop {
            let mut notified = pin!(self.notify.notified());
            notified.as_mut().enable();
            if let Some(last) = self.try_take_last(failure) {
                return last;
            }
            notified.await;
        }
    }

    /// `None` while frames are on their way.
    fn try_take_last(&self, failure: Option<(&str, &str)>) -> Option<LastFrames> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let writes = state.writes();
        let Some(logging) = state.logging.as_mut().filter(|_| writes) else {
            return Some(LastFrames::default());
        };
        let Some(owner) = logging.owner.filter(|_| !logging.is_ended) else {
            return Some(LastFrames::default());
        };
        if logging.on_way > 0 {
            return None;
        }
        // The first event of a run that has not begun.
        if self.started.set(()).is_ok() {
            state.encoder.start(&mut state.buffer);
        }
        let mut sealed = state.buffer.seal_from(logging.next);
        logging.next = state.buffer.next();
        logging.is_ending = true;
        // The stream itself gets the end once it is stored.
        let mut end = Buffer::new(logging.next, self.resumable);
        self.push_end(&mut end, failure);
        sealed.append(&mut end.seal_from(logging.next));
        let chunks = sealed.into_iter().map(|sealed| self.chunk(owner, sealed));
        Some(LastFrames {
            chunks: chunks.collect(),
            positions: vec![],
            failure: failure.map(|(class, message)| (class.to_owned(), message.to_owned())),
        })
    }

    /// Shows the last frames, which are stored now. False if it is not known where: the writer of the log appends those
    /// that are missing and shows all of them.
    pub fn ended(&self, last: LastFrames) -> bool {
        let is_known = last.positions.len() == last.chunks.len();
        let mut state = self.state.lock();
        let Some(logging) = state.logging.as_mut().filter(|_| !last.is_empty()) else {
            return true;
        };
        let writer = logging.writer.clone();
        logging.is_ending = false;
        logging.is_ended = true;
        if !is_known {
            logging.next = logging.logged;
        }
        let failure = last.failure.as_ref();
        let failure = failure.map(|(class, message)| (&**class, &**message));
        self.append(state, |state| {
            self.push_end(&mut state.buffer, failure);
            if is_known && let Some(logging) = &mut state.logging {
                logging.next = state.buffer.next();
            }
        });
        for (chunk, position) in last.chunks.iter().zip(last.positions) {
            if let Some(before) = writer.show(self, chunk, position) {
                let (writer, chunk) = (writer.clone(), chunk.clone());
                tokio::spawn(async move { writer.trim(&chunk, before).await });
            }
        }
        is_known
    }

    /// The last frames were not stored: the writer of the log gets them, and others may follow.
    pub fn go_on(&self) {
        let writer = {
            let mut state = self.state.lock();
            let Some(logging) = state.logging.as_mut().filter(|log| log.is_ending) else {
                return;
            };
            logging.is_ending = false;
            // Nothing is on its way.
            logging.next = logging.logged;
            state.queue()
        };
        if let Some(writer) = writer {
            writer.push(self.own.upgrade());
        }
    }
}
