//! Where the events of a reader are put, and how they are numbered.

use std::collections::VecDeque;

use super::{event::Event, filter::Channels};

/// Where events are put. Those of channels that nobody wants are counted, and not made.
#[derive(Debug, Default)]
pub struct Output {
    /// The channels that are wanted.
    pub wanted: Channels,
    /// The number of the last event.
    pub seq: u64,
    /// The last number that there is for events of a frame that is not replayed; `None` while a frame is converted that is.
    pub passing: Option<u64>,
    /// Events that have not been taken yet.
    pub events: VecDeque<Event>,
}

impl Output {
    /// Goes on to the number of the next event. Those that are not replayed share the last number that there is for them
    /// where they are more: the next event that is replayed has its own.
    pub(super) fn count(&mut self) {
        self.seq = match self.passing {
            Some(last) if self.seq >= last => self.seq,
            _ => self.seq.saturating_add(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_replayed_share_the_last_number_that_there_is_for_them() {
        let mut out = Output {
            seq: 7,
            passing: Some(9),
            ..Output::default()
        };
        let mut next = || {
            out.count();
            out.seq
        };
        assert_eq!([next(), next(), next(), next()], [8, 9, 9, 9]);
        out.passing = None;
        out.count();
        assert_eq!(out.seq, 10);
    }
}
