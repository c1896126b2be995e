//! What one WebSocket has subscribed to, and the commands that come on it.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use uuid::Uuid;

use super::{
    End, TRY_LATER,
    missed::{Missed, is_missed},
};
use crate::{
    http::{
        protocol::{
            commands::carry_out,
            message::{self, Code, Command, Fault, NoCommand},
            start::Starter,
            subscription::Subscription,
        },
        server::{
            Call,
            request_body::{self, Limits},
            slots::Slot,
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

/// What comes to a connection.
pub enum Coming {
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
    /// That of the request for the connection, which each command takes anew.
    slot: Arc<Slot>,
    subscriptions: Vec<(Arc<str>, Subscription)>,
    /// What is sent first, of those subscriptions that came later.
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
            slot: call.slot.clone(),
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
        let Some(events) = &mut self.events else {
            return std::future::pending().await;
        };
        while let Some((first, behind)) = self.missed.split_first_mut() {
            let subscriptions = &self.subscriptions;
            let id = first.id.clone();
            let is_missed = |event: &Event| is_missed(&id, subscriptions, behind, event);
            let subscription = subscriptions.iter().find(|(own, _)| *own == id);
            let channels = subscription.map(|(_, one)| &one.filter.channels);
            let reader = || {
                let channels = channels.cloned().unwrap_or_default();
                self.threads.protocol_events(self.thread, channels).0
            };
            let event = tokio::select! {
                biased;
                () = &mut self.withdrawn => return None,
                event = first.next(reader, is_missed) => event,
            };
            if let Some(event) = event {
                self.delivered = self.delivered.max(event.seq);
                return Some(Coming::Missed(event));
            }
            self.missed.remove(0);
        }
        tokio::select! {
            biased;
            () = &mut self.withdrawn => None,
            next = events.next() => Some(Coming::Next(next)),
        }
    }

    /// Whether a subscription admits an event, which then counts as delivered.
    pub fn admit(&mut self, event: &Event) -> bool {
        let mut subscriptions = self.subscriptions.iter();
        let is_admitted = subscriptions.any(|(_, one)| {
            (event.seq > one.since || event.is_passing) && one.filter.admits(event)
        });
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
        for (number, (_, one)) in self.subscriptions.iter().enumerate() {
            if events.is_ahead(one.since).await {
                ahead.push(number);
            }
        }
        if ahead.is_empty() {
            return;
        }
        let passed = events.seq();
        for (number, (_, one)) in self.subscriptions.iter_mut().enumerate() {
            one.since = if ahead.contains(&number) {
                0
            } else {
                one.since.max(passed)
            };
        }
        events.restart();
        events.knows(passed);
    }

    /// Carries out a command as a request of its own, and returns the reply.
    pub async fn carry_out(&mut self, text: &[u8]) -> Result<Message, End> {
        let parsed = match request_body::received(text, &self.limits) {
            Ok(body) => request_body::parse(body, self.limits.clone()).await,
            Err(error) => Err(error),
        };
        let (body, _memory) = match parsed {
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
            Err(_) => return Ok(text_message(&NoCommand::not_json().reply())),
        };
        let command = match Command::read(&body) {
            Ok(command) => command,
            Err(none) => return Ok(text_message(&none.reply())),
        };
        let slot = self.slot.clone();
        let work = Box::pin(async {
            match &*command.method {
                "subscription.subscribe" => self.subscribe(&command.params).await,
                "subscription.unsubscribe" => self.unsubscribe(&command.params),
                // Nothing is stored of a connection: the client subscribes, and names what it has.
                "subscription.reconnect" => Ok(Map::from([("restored", false.into())])),
                "agent.getTree" => self.tree(),
                _ => carry_out(&self.starter, &command).await,
            }
        });
        let carried_out = match slot.take_anew(work).await {
            Ok(carried_out) => carried_out,
            Err(error) => Err(Fault::of_http(&error)),
        };
        let reply = match carried_out {
            Ok(result) => message::success(&command.id, result, self.delivered),
            Err(fault) => message::failure(&command.id, &fault, Some(self.delivered)),
        };
        Ok(text_message(&reply))
    }

    async fn subscribe(&mut self, params: &Value) -> Result<Map, Fault> {
        let mut subscription = Subscription::read(params).map_err(Fault::argument)?;
        if self.subscriptions.len() >= SUBSCRIPTIONS {
            let message = format!("a connection has at most {SUBSCRIPTIONS} subscriptions");
            return Err(Fault::new(Code::InvalidArgument, message));
        }
        let id: Arc<str> = Uuid::new_v4().to_string().into();
        let channels = subscription.filter.channels.clone();
        let mut replayed = 0;
        if let Some(events) = &mut self.events {
            if events.is_ahead(subscription.since).await {
                subscription.since = 0;
            }
            events.knows(subscription.since);
            // What the other subscriptions have passed over.
            let passed = events.seq();
            let others = self.subscriptions.iter();
            let all = others.fold(channels.clone(), |all, (_, one)| {
                all.and(&one.filter.channels)
            });
            events.want(all);
            events.repeat_running();
            self.subscriptions.push((id.clone(), subscription));
            if passed > 0 {
                let (threads, subscriptions) = (&self.threads, &self.subscriptions);
                let reader = || threads.protocol_events(self.thread, channels.clone()).0;
                let is_missed = |event: &Event| is_missed(&id, subscriptions, &[], event);
                let missed = Missed::count(id.clone(), passed, reader, is_missed).await;
                replayed = missed.count;
                self.missed.push(missed);
            }
        } else {
            let (mut events, withdrawn) = self.threads.protocol_events(self.thread, channels);
            self.withdrawn = withdrawn.boxed();
            events.knows(subscription.since);
            self.events = Some(events);
            self.subscriptions.push((id.clone(), subscription));
        }
        let replayed = i64::try_from(replayed).unwrap_or(i64::MAX);
        Ok(Map::from([
            ("subscription_id", Value::Str(id)),
            ("replayed_events", replayed.into()),
        ]))
    }

    fn unsubscribe(&mut self, params: &Value) -> Result<Map, Fault> {
        let id = params.get("subscription_id").and_then(Value::as_str);
        let id = id.ok_or_else(|| {
            let message = "subscription.unsubscribe requires a subscription_id.";
            Fault::new(Code::InvalidArgument, message)
        })?;
        let before = self.subscriptions.len();
        self.subscriptions.retain(|(own, _)| **own != *id);
        self.missed.retain(|missed| *missed.id != *id);
        if self.subscriptions.len() == before {
            let shown: String = id.chars().take(80).collect();
            let message = format!("Unknown subscription: {shown}");
            return Err(Fault::new(Code::NoSuchSubscription, message));
        }
        if let Some(events) = &mut self.events {
            let all = self.subscriptions.iter();
            let all = all.fold(Channels::default(), |all, (_, one)| {
                all.and(&one.filter.channels)
            });
            events.want(all);
        }
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

fn text_message(reply: &Value) -> Message {
    Message::text(reply.to_json())
}
