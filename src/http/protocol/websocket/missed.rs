//! What a subscription has missed that is added to a connection later. Its client is sent these events before others,
//! one after the other, so that a long thread is never in memory as a whole.

use std::collections::VecDeque;

use super::subscribed::Subscribed;
use crate::{
    stream::protocol::Event,
    threads::protocol::{Next, ThreadEvents},
    value::Value,
};

/// Bytes of events that a connection keeps while they are counted. Most subscriptions are added early, and the thread
/// need not be read a second time for them.
pub const BUFFERED: usize = 64 << 10;

/// The events that one subscription has missed.
pub struct Missed {
    /// The number of the subscription.
    pub number: usize,
    /// The id of the command that is replied to once they are counted.
    command: Option<Value>,
    count: u64,
    /// The first ones.
    buffered: VecDeque<Event>,
    /// Bytes of others that may be buffered; `None` once one was not.
    room: Option<usize>,
    reading: Reading,
    /// The number of the last event that was delivered.
    pub delivered: u64,
}

/// What is found of missed events.
pub enum Found {
    /// How many there are, for the reply to the command with this id.
    Counted(Value, u64),
    /// The next one.
    Event(Event),
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
    /// What a subscription has missed up to the event with the number `last`, which is counted first, for the reply to
    /// `command`.
    pub fn new(number: usize, command: Value, last: u64) -> Self {
        Self {
            number,
            command: Some(command),
            count: 0,
            buffered: VecDeque::new(),
            room: Some(0),
            reading: Reading::to(last),
            delivered: 0,
        }
    }

    /// Of what is counted, events with so many bytes may be buffered.
    pub fn may_buffer(&mut self, bytes: usize) {
        if self.is_counting() && self.count == 0 {
            self.room = Some(bytes);
        }
    }

    /// It was not counted yet.
    pub fn is_counting(&self) -> bool {
        self.command.is_some()
    }

    /// Bytes of the events that are buffered.
    pub fn buffered(&self) -> usize {
        self.buffered.iter().map(|event| event.data.len()).sum()
    }

    /// What comes next; nothing after the last event. Nothing is lost when the call is dropped before it returns.
    pub async fn next(
        &mut self,
        subscriptions: &[Subscribed],
        reader: impl Fn() -> ThreadEvents,
    ) -> Option<Found> {
        if self.is_counting() {
            while let Some(event) = self.reading.next(&reader).await {
                if self.is_of(subscriptions, &event) {
                    self.buffer(event);
                }
            }
            self.reading = Reading {
                after: self.buffered.back().map_or(0, |event| event.seq),
                ..Reading::to(self.reading.last)
            };
        }
        if let Some(command) = self.command.take() {
            return Some(Found::Counted(command, self.count));
        }
        let event = match self.buffered.pop_front() {
            Some(event) => event,
            None if self.room.is_some() => return None,
            None => loop {
                let event = self.reading.next(&reader).await?;
                if self.is_of(subscriptions, &event) {
                    break event;
                }
            },
        };
        self.delivered = event.seq;
        Some(Found::Event(event))
    }

    /// Another subscription has ended before all that it had missed was delivered: what both wanted, this one misses
    /// now.
    pub fn begin_anew(&mut self) {
        self.count = 0;
        self.buffered.clear();
        self.reading = Reading::to(self.reading.last);
        self.room = if self.is_counting() { Some(0) } else { None };
    }

    fn is_of(&self, subscriptions: &[Subscribed], event: &Event) -> bool {
        let (before, own) = subscriptions.split_at(self.number);
        let is_wanted = own.first().is_some_and(|own| own.wants(event));
        is_wanted && !event.is_passing && !before.iter().any(|one| one.has_had(event))
    }

    fn buffer(&mut self, event: Event) {
        self.count += 1;
        self.room = self
            .room
            .and_then(|room| room.checked_sub(event.data.len()));
        if self.room.is_some() {
            self.buffered.push_back(event);
        }
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
