//! A subscription of a connection, and which events its client was sent for it.

use std::sync::Arc;

use crate::{http::protocol::subscription::Subscription, stream::protocol::Event};

/// One subscription.
pub struct Subscribed {
    pub id: Arc<str>,
    pub subscription: Subscription,
    /// The others had come so far when it was added: what it wants of before, it has missed.
    pub begun: u64,
    /// It has ended, and what it wanted was delivered up to this event. Those that were added after it and have missed
    /// something are still compared with it.
    pub ended: Option<u64>,
}

impl Subscribed {
    pub fn new(id: Arc<str>, subscription: Subscription, begun: u64) -> Self {
        Self {
            id,
            subscription,
            begun,
            ended: None,
        }
    }

    /// Whether it admits an event that comes now.
    pub fn admits(&self, event: &Event) -> bool {
        let is_new = event.seq > self.subscription.since.max(self.begun) || event.is_passing;
        self.ended.is_none() && is_new && self.subscription.filter.admits(event)
    }

    /// Whether it wants an event of the past.
    pub fn wants(&self, event: &Event) -> bool {
        event.seq > self.subscription.since && self.subscription.filter.admits(event)
    }

    /// Whether an event of the past was delivered for it, or will be before those of subscriptions that were added later.
    pub fn has_had(&self, event: &Event) -> bool {
        self.ended.is_none_or(|last| event.seq <= last) && self.wants(event)
    }
}
