//! One reader of a run's stream.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;

use super::{
    frame,
    mode::Modes,
    publisher::{Found, Publisher},
};

/// The frame at which a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// With the first frame that is retained.
    Start,
    /// With the next frame.
    Live,
    /// After the frame of this number.
    After(u64),
}

impl Since {
    /// Parses a `Last-Event-ID` header: `-`, `-1` and `0` mean the start, a number the frame after
    /// it. Any other text, and no header, means from now on.
    pub fn last_event_id(header: Option<&str>) -> Self {
        match header.map(str::trim) {
            Some("-" | "-1" | "0") => Self::Start,
            Some(id) => id.parse().map_or(Self::Live, Self::After),
            None => Self::Live,
        }
    }
}

/// What a reader gets next.
pub enum Next {
    /// Whole frames, and the number of the one after them.
    Frames(Bytes, u64),
    /// Frames that are no longer in memory: first and last number.
    Gap(u64, u64),
    /// The reader fell too far behind.
    Lagged,
    /// The end of the stream.
    End,
    /// Another process executes the run.
    Moved,
}

/// One reader. Dropping it leaves the stream.
pub struct Subscription {
    publisher: Arc<Publisher>,
    id: u64,
    filter: Option<Modes>,
    ended: bool,
}

impl Subscription {
    pub(super) fn new(publisher: Arc<Publisher>, id: u64, filter: Option<Modes>) -> Self {
        Self {
            publisher,
            id,
            filter,
            ended: false,
        }
    }

    /// The whole frames that came since the last call, at most about 64 KiB. `None` once the
    /// stream has ended and all of it was read.
    ///
    /// No frame is lost when the call is dropped before it returns. A reader that fell too far
    /// behind gets an `error` event and the end; one that comes back for dropped frames gets a
    /// `gap` event with the first and the last number of those.
    pub async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        match self.read().await {
            Next::Frames(bytes, _) => Some(bytes),
            Next::Gap(first, last) => Some(gap(first, Some(last))),
            Next::Lagged => {
                self.ended = true;
                Some(cut_off())
            }
            Next::End | Next::Moved => {
                self.ended = true;
                None
            }
        }
    }

    /// Lets a client pay for what it has not read: nobody does before.
    pub fn paid_by(&self, payer: &Arc<str>) {
        self.publisher.charge(self.id, payer);
    }

    /// Goes on with a frame that it has not reached yet.
    pub fn skip_to(&self, number: u64) {
        self.publisher.skip_to(self.id, number);
    }

    /// What [`next`](Self::next) makes frames of.
    pub async fn read(&mut self) -> Next {
        let mut found = self.publisher.read(self.id, self.filter);
        while matches!(found, Found::Nothing) {
            let publisher = &*self.publisher;
            let mut notified = pin!(publisher.notify().notified());
            // Listens before it reads, so that frames that come in between are not missed.
            notified.as_mut().enable();
            found = publisher.read(self.id, self.filter);
            if matches!(found, Found::Nothing) {
                notified.await;
                found = publisher.read(self.id, self.filter);
            }
        }
        match found {
            Found::Frames(bytes, next) => Next::Frames(bytes, next),
            Found::Gap(first, last) => Next::Gap(first, last),
            Found::Lagged => Next::Lagged,
            Found::Moved => Next::Moved,
            Found::Nothing | Found::End => Next::End,
        }
    }
}

/// For frames that are no longer there: the numbers of the first and of the last of them, if that is known.
pub fn gap(first: u64, last: Option<u64>) -> Bytes {
    let last = last.map_or("null".into(), |last| last.to_string());
    notice("gap", &format!("{{\"first\":{first},\"last\":{last}}}"))
}

/// For a reader that fell too far behind.
pub fn cut_off() -> Bytes {
    let data = "{\"error\":\"SlowReader\",\"message\":\"The stream was read too \
                slowly and has been cut off; the run goes on. Ask for a resumable \
                stream to be able to come back.\"}";
    notice("error", data)
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.publisher.leave(self.id);
    }
}

/// A frame for one reader only, which has no number.
fn notice(event: &str, data: &str) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 32);
    frame::write_frame(&mut out, event, data.as_bytes(), None);
    out.into()
}
