//! What a subscription has missed that is added to a connection later. Its client is sent these events before others,
//! one after the other, so that a long thread is never in memory as a whole.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    http::protocol::subscription::Subscription,
    stream::protocol::Event,
    threads::protocol::{Next, ThreadEvents},
};

/// Bytes of events that are kept while all are counted. Most subscriptions are added early, and the thread need not be
/// read a second time for them.
const KEPT: usize = 64 << 10;

/// The events that one subscription has missed.
pub struct Missed {
    /// The subscription.
    pub id: Arc<str>,
    /// How many there are.
    pub count: u64,
    /// The first ones.
    kept: VecDeque<Event>,
    /// There are others.
    has_rest: bool,
    reading: Reading,
}

/// How far the events of a thread were read.
#[derive(Default)]
struct Reading {
    /// Begins with the first event of the thread.
    reader: Option<ThreadEvents>,
    /// The number of the last event that was read.
    after: u64,
    /// The number of the last event to read: the others of the connection have come so far.
    last: u64,
}

impl Missed {
    /// Counts what a subscription has missed up to the event with the number `last`.
    pub async fn count(
        id: Arc<str>,
        last: u64,
        reader: impl Fn() -> ThreadEvents,
        is_missed: impl Fn(&Event) -> bool,
    ) -> Self {
        let (mut count, mut kept, mut left) = (0, VecDeque::<Event>::new(), Some(KEPT));
        let mut reading = Reading::to(last);
        while let Some(event) = reading.next(&reader).await {
            if is_missed(&event) {
                count += 1;
                left = left.and_then(|left| left.checked_sub(event.data.len()));
                if left.is_some() {
                    kept.push_back(event);
                }
            }
        }
        let after = kept.back().map_or(0, |event| event.seq);
        Self {
            id,
            count,
            kept,
            has_rest: left.is_none(),
            reading: Reading {
                after,
                ..Reading::to(last)
            },
        }
    }

    /// The next event; none after the last. Nothing is lost when the call is dropped before it returns.
    pub async fn next(
        &mut self,
        reader: impl Fn() -> ThreadEvents,
        is_missed: impl Fn(&Event) -> bool,
    ) -> Option<Event> {
        if let Some(event) = self.kept.pop_front() {
            return Some(event);
        }
        if !self.has_rest {
            return None;
        }
        while let Some(event) = self.reading.next(&reader).await {
            if is_missed(&event) {
                return Some(event);
            }
        }
        None
    }
}

impl Reading {
    fn to(last: u64) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    async fn next(&mut self, reader: impl Fn() -> ThreadEvents) -> Option<Event> {
        loop {
            match self.reader.get_or_insert_with(&reader).next().await {
                Next::Event(event) if event.seq > self.last => return None,
                Next::Event(event) if event.seq > self.after => {
                    self.after = event.seq;
                    return Some(event);
                }
                Next::Event(_) => {}
                // By now the log has what was lost here.
                Next::Lagged => self.reader = None,
                Next::Replayed | Next::Nothing => return None,
            }
        }
    }
}

/// Whether an event of the past is one that a subscription wants, and that no other one of its connection was sent:
/// neither those before it nor later ones, but for those that are `behind` themselves.
pub fn is_missed(
    id: &str,
    subscriptions: &[(Arc<str>, Subscription)],
    behind: &[Missed],
    event: &Event,
) -> bool {
    let wants = |one: &Subscription| event.seq > one.since && one.filter.admits(event);
    let is_behind = |id: &str| behind.iter().any(|one| *one.id == *id);
    let mut is_wanted = false;
    for (other, subscription) in subscriptions {
        if wants(subscription) {
            if **other == *id {
                is_wanted = true;
            } else if !is_behind(other) {
                return false;
            }
        }
    }
    is_wanted && !event.is_passing
}
