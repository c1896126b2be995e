//! What one WebSocket has subscribed to, and the commands that come on it.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use uuid::Uuid;

use super::{
    End, TRY_LATER,
    missed::{BUFFERED, Found, Missed},
    subscribed::Subscribed,
    text_of,
};
use crate::{
    budget::Reservation,
    http::{
        protocol::{
            commands::carry_out,
            message::{self, Code, Command, Fault, NoCommand},
            start::Starter,
            subscription::Subscription,
        },
        server::{
            Call, Error,
            request_body::{self, Limits},
            slots::AnotherSlot,
        },
    },
    id::ThreadId,
    stream::protocol::{Channels, Event},
    threads::{
        self,
        protocol::{Next, ThreadEvents},
    },
    value::{Map, Value},
};

/// Most subscriptions of one connection: each event is compared with all of them.
const SUBSCRIPTIONS: usize = 100;

/// Most of them that count while some have missed events: those that have ended are still compared with these.
const COMPARED: usize = 2 * SUBSCRIPTIONS;

/// How long after a new subscription the end of a run waits. Clients subscribe to several things one right after the other,
/// and take nothing more of a run once they have its end: what the next subscription has missed is to come before that.
const SUBSCRIBES: Duration = Duration::from_millis(50);

/// What a message from the client is.
pub enum Incoming {
    /// One with this reply.
    Replied(Message),
    /// A command to carry out, and the memory that it takes.
    Command(Command, Reservation),
}

/// What comes to a connection.
pub enum Coming {
    /// The reply to a command.
    Reply(Message),
    /// An event that a subscription has missed.
    Missed(Event),
    /// What comes for all subscriptions.
    Next(Next),
}

/// One connection.
pub struct Session {
    thread: ThreadId,
    threads: threads::Service,
    starter: Starter,
    limits: Limits,
    subscriptions: Vec<Subscribed>,
    /// What is delivered first, of those subscriptions that came later, in their order.
    missed: Vec<Missed>,
    /// The events, once there is a subscription.
    events: Option<ThreadEvents>,
    withdrawn: BoxFuture<'static, ()>,
    /// The last event that was delivered.
    delivered: u64,
}

impl Session {
    pub fn new(call: &Call, thread: ThreadId) -> Self {
        Self {
            thread,
            threads: call.threads(),
            starter: Starter::new(call, thread),
            limits: call.limits(),
            subscriptions: vec![],
            missed: vec![],
            events: None,
            withdrawn: std::future::pending().boxed(),
            delivered: 0,
        }
    }

    /// What comes next; nothing does without a subscription. `None` when the client may not read the
    /// thread any more.
    pub async fn next(&mut self) -> Option<Coming> {
        while !self.missed.is_empty() {
            // Commands are replied to before what was missed is delivered.
            let counting = self.missed.iter().position(Missed::is_counting);
            let at = counting.unwrap_or(0);
            if counting.is_some() {
                let buffered: usize = self.missed.iter().map(Missed::buffered).sum();
                self.missed[at].may_buffer(BUFFERED.saturating_sub(buffered));
            }
            let subscriptions = &self.subscriptions;
            let missed = &mut self.missed[at];
            let own = &subscriptions[missed.number];
            let reader = || {
                let channels = own.subscription.filter.channels.clone();
                self.threads.past_events(self.thread, channels)
            };
            let found = tokio::select! {
                biased;
                () = &mut self.withdrawn => return None,
                found = missed.next(subscriptions, reader) => found,
            };
            match found {
                Some(Found::Counted(command, count)) => {
                    let reply = subscribed(own, count);
                    let reply = message::success(&command, reply, self.delivered);
                    return Some(Coming::Reply(text_message(&reply)));
                }
                Some(Found::Event(event)) => {
                    self.delivered = self.delivered.max(event.seq);
                    return Some(Coming::Missed(event));
                }
                None => drop(self.missed.remove(at)),
            }
            self.forget_ended();
        }
        let Some(events) = &mut self.events else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            () = &mut self.withdrawn => None,
            next = events.next() => Some(Coming::Next(next)),
        }
    }

    /// Nothing that was missed is compared with subscriptions that have ended any more.
    fn forget_ended(&mut self) {
        if self.missed.is_empty() {
            self.subscriptions.retain(|one| one.ended.is_none());
        }
    }

    /// Whether a subscription admits an event, which then counts as delivered.
    pub fn admit(&mut self, event: &Event) -> bool {
        let is_admitted = self.subscriptions.iter().any(|one| one.admits(event));
        if is_admitted {
            self.delivered = self.delivered.max(event.seq);
        }
        is_admitted
    }

    /// Lets those subscriptions begin with the first event that name one which the thread never had:
    /// their client was elsewhere before.
    pub async fn begin_anew_where_ahead(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        let mut ahead = vec![];
        for (number, one) in self.subscriptions.iter().enumerate() {
            if events.is_ahead(one.subscription.since).await {
                ahead.push(number);
            }
        }
        if ahead.is_empty() {
            return;
        }
        let passed = events.seq();
        for (number, one) in self.subscriptions.iter_mut().enumerate() {
            if ahead.contains(&number) {
                (one.subscription.since, one.begun) = (0, 0);
            } else {
                one.begun = passed.max(one.begun);
            }
        }
        events.restart();
        events.knows(passed);
    }

    /// Reads a message.
    pub async fn read(&mut self, text: &[u8]) -> Result<Incoming, End> {
        let parsed = match request_body::received(text, &self.limits) {
            Ok(body) => request_body::parse(body, self.limits.clone()).await,
            Err(error) => Err(error),
        };
        let (body, memory) = match parsed {
            Ok(parsed) => parsed,
            Err(error) if error.status.as_u16() == 413 => {
                return Err(End::Close(
                    CloseCode::Size,
                    "The message has too many values",
                ));
            }
            Err(error) if error.status.is_server_error() => {
                return Err(End::Close(
                    CloseCode::from(TRY_LATER),
                    "There is no memory for the message now",
                ));
            }
            Err(_) => {
                let reply = NoCommand::not_json().reply();
                return Ok(Incoming::Replied(text_message(&reply)));
            }
        };
        Ok(match Command::read(&body) {
            Ok(command) => Incoming::Command(command, memory),
            Err(none) => Incoming::Replied(text_message(&none.reply())),
        })
    }

    /// Carries out a command, in a slot if it [takes one](takes_slot). Returns what is to be sent: events that came before,
    /// and the reply, if that does not come later.
    pub async fn carry_out(
        &mut self,
        command: &Command,
        slot: Option<Result<AnotherSlot, Error>>,
    ) -> Vec<Message> {
        let mut out = vec![];
        if command.method.starts_with("subscription.") {
            // What has come so far is for those that are there, whatever is added or ends now.
            let events = self.events.as_mut().map(ThreadEvents::converted);
            for event in events.unwrap_or_default() {
                if self.admit(&event) {
                    out.push(text_of(&event));
                }
            }
        }
        let carried_out = match (&*command.method, slot) {
            (_, Some(Err(error))) => Err(Fault::of_http(&error)),
            ("subscription.subscribe", _) => match self.subscribe(command).await {
                Ok(Some(result)) => Ok(result),
                Ok(None) => return out,
                Err(fault) => Err(fault),
            },
            ("subscription.unsubscribe", _) => self.unsubscribe(&command.params),
            // Nothing is stored of a connection: the client subscribes, and names what it has.
            ("subscription.reconnect", _) => Ok(Map::from([("restored", false.into())])),
            ("agent.getTree", _) => self.tree(),
            _ => Box::pin(carry_out(&self.starter, command)).await,
        };
        let reply = match carried_out {
            Ok(result) => message::success(&command.id, result, self.delivered),
            Err(fault) => message::failure(&command.id, &fault, Some(self.delivered)),
        };
        out.push(text_message(&reply));
        out
    }

    /// The reply comes later where missed events are to be counted.
    async fn subscribe(&mut self, command: &Command) -> Result<Option<Map>, Fault> {
        let mut subscription = Subscription::read(&command.params).map_err(Fault::argument)?;
        let open = self.subscriptions.iter().filter(|one| one.ended.is_none());
        if open.count() >= SUBSCRIPTIONS || self.subscriptions.len() >= COMPARED {
            let message = format!(
                "a connection has at most {SUBSCRIPTIONS} subscriptions, and twice as many with those that \
                 ended while events of the past are sent"
            );
            return Err(Fault::new(Code::InvalidArgument, message));
        }
        let id: Arc<str> = Uuid::new_v4().to_string().into();
        let channels = subscription.filter.channels.clone();
        let Some(events) = &mut self.events else {
            let (mut events, withdrawn) = self.threads.protocol_events(self.thread, channels);
            self.withdrawn = withdrawn.boxed();
            events.knows(subscription.since);
            events.end_no_run_for(SUBSCRIBES);
            self.events = Some(events);
            let own = Subscribed::new(id, subscription, 0);
            let reply = subscribed(&own, 0);
            self.subscriptions.push(own);
            return Ok(Some(reply));
        };
        if events.is_ahead(subscription.since).await {
            subscription.since = 0;
        }
        events.knows(subscription.since);
        // What the other subscriptions have passed over.
        let passed = events.seq();
        let has_missed = passed > subscription.since;
        let own = Subscribed::new(id, subscription, passed);
        let reply = (!has_missed).then(|| subscribed(&own, 0));
        if has_missed {
            let number = self.subscriptions.len();
            let missed = Missed::new(number, command.id.clone(), passed);
            self.missed.push(missed);
        }
        self.subscriptions.push(own);
        self.want_all();
        if let Some(events) = &mut self.events {
            events.repeat_running();
            events.end_no_run_for(SUBSCRIBES);
        }
        Ok(reply)
    }

    /// From now on the events have the channels of all subscriptions.
    fn want_all(&mut self) {
        if let Some(events) = &mut self.events {
            let open = self.subscriptions.iter().filter(|one| one.ended.is_none());
            let all = open.fold(Channels::default(), |all, one| {
                all.and(&one.subscription.filter.channels)
            });
            events.want(all);
        }
    }

    fn unsubscribe(&mut self, params: &Value) -> Result<Map, Fault> {
        let id = params.get("subscription_id").and_then(Value::as_str);
        let id = id.ok_or_else(|| {
            let message = "subscription.unsubscribe requires a subscription_id.";
            Fault::new(Code::InvalidArgument, message)
        })?;
        let open = |one: &Subscribed| *one.id == *id && one.ended.is_none();
        let Some(number) = self.subscriptions.iter().position(open) else {
            let shown: String = id.chars().take(80).collect();
            let message = format!("Unknown subscription: {shown}");
            return Err(Fault::new(Code::NoSuchSubscription, message));
        };
        // All that has come was delivered.
        let mut ended = u64::MAX;
        let missed = self.missed.iter().position(|one| one.number == number);
        if let Some(missed) = missed {
            ended = self.missed.remove(missed).delivered;
            for later in &mut self.missed[missed..] {
                later.begin_anew();
            }
        }
        self.subscriptions[number].ended = Some(ended);
        self.forget_ended();
        self.want_all();
        Ok(Map::new())
    }

    fn tree(&self) -> Result<Map, Fault> {
        let tree = self.events.as_ref().and_then(ThreadEvents::tree);
        match tree {
            Some(tree) => Ok(Map::from([("tree", tree)])),
            None => {
                let message = "No active run is bound to this thread.";
                Err(Fault::new(Code::NoSuchRun, message))
            }
        }
    }
}

/// Whether a command is worked on as a request is. What is about subscriptions is a part of streaming them.
pub fn takes_slot(command: &Command) -> bool {
    matches!(&*command.method, "run.start" | "input.respond")
}

/// The result of a command that has subscribed.
fn subscribed(own: &Subscribed, missed: u64) -> Map {
    let missed = i64::try_from(missed).unwrap_or(i64::MAX);
    Map::from([
        ("subscription_id", Value::Str(own.id.clone())),
        ("replayed_events", missed.into()),
    ])
}

fn text_message(reply: &Value) -> Message {
    Message::text(reply.to_json())
}
