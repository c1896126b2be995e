//! The events of the event-streaming protocol on a thread, in one order: those of all runs that can be replayed, from
//! the first one on, and those of other runs as they come.

mod attempts;
mod expired;
mod numbers;
mod passing;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, TryFutureExt};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    Result, Service,
    stream::{WAIT, entries::ThreadEntries},
};
use crate::{
    id::{RunId, ThreadId},
    runs::{self, Status, request::Assistant, shared::AccessWatch},
    stream::{
        End, Position, Subject, ThreadFrame, Watched,
        protocol::{Channels, Event, Output, Recorded, RunEvents, RunFacts},
    },
    value::Value,
};

/// Pauses between attempts to read the row of a run.
const PAUSE: Duration = Duration::from_millis(500);

/// What a reader of the events gets next.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// What had happened before was delivered; once.
    Replayed,
    /// The reader fell too far behind, and gets nothing more.
    Lagged,
    /// The thread did not come, or is not the client's.
    Nothing,
}

/// The events of a thread, for one reader.
pub struct ThreadEvents {
    service: Service,
    thread: ThreadId,
    /// Readers begin with the first run: what they have of it already, they know by its ids.
    frames: ThreadEntries,
    /// Frames that were not converted yet.
    pending: VecDeque<ThreadFrame>,
    runs: HashMap<RunId, RunEvents>,
    /// The run of the last event.
    last: Option<RunId>,
    /// Its end was converted.
    has_last_ended: bool,
    out: Output,
    /// Told the watch of the client's access, once the thread is there; `None` after that.
    shown: Option<oneshot::Sender<Option<AccessWatch>>>,
    /// When the reader began to wait for the thread.
    begun: Instant,
    /// No end of a run is shown before this moment.
    ends_at: Instant,
    /// It is there or it is not: nobody waits for it.
    is_past: bool,
    has_ended: bool,
    /// What had happened before was delivered.
    is_replayed: bool,
    /// What is left of an expired log was looked up.
    is_head_shown: bool,
    /// It was looked up which runs work whose events are not stored.
    is_running_shown: bool,
    /// Runs that are shown once more where they still work: a subscription has come since they began.
    repeated: Vec<RunId>,
    /// The position before the first one of the log, once it is known.
    start: Option<u64>,
    /// The position of the last frame of the log that was converted; 0 before the first.
    position: u64,
    /// The number of the last event that the client has from before.
    known: u64,
}

impl Service {
    /// The events of a thread from its first run on, of these channels, and what tells that the
    /// client's access was withdrawn.
    ///
    /// A thread need not exist yet: clients watch before their first command creates it. The
    /// client's right is checked the moment the thread exists. Of a thread of somebody else nothing
    /// is shown, as if it did not exist.
    pub fn protocol_events(
        &self,
        thread: ThreadId,
        channels: Channels,
    ) -> (
        ThreadEvents,
        impl Future<Output = ()> + Send + 'static + use<>,
    ) {
        let (shown, access) = oneshot::channel();
        let events = ThreadEvents {
            service: self.clone(),
            thread,
            frames: self.entries(thread, Position::START),
            pending: VecDeque::new(),
            runs: HashMap::new(),
            last: None,
            has_last_ended: false,
            out: Output {
                wanted: channels,
                ..Output::default()
            },
            shown: Some(shown),
            begun: Instant::now(),
            ends_at: Instant::now(),
            is_past: false,
            has_ended: false,
            is_replayed: false,
            is_head_shown: false,
            is_running_shown: false,
            repeated: vec![],
            start: None,
            position: 0,
            known: 0,
        };
        let withdrawn = async move {
            match access.await {
                Ok(Some(access)) => access.withdrawn().await,
                _ => std::future::pending().await,
            }
        };
        (events, withdrawn)
    }
}

impl Service {
    /// The same for a reader of what has happened: it ends at once where there is no thread (any more).
    pub fn past_events(&self, thread: ThreadId, channels: Channels) -> ThreadEvents {
        let (mut events, _) = self.protocol_events(thread, channels);
        events.is_past = true;
        events
    }
}

impl ThreadEvents {
    /// The next event. Nothing is lost when the call is dropped before it returns.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(event) = self.out.events.pop_front() {
                return Next::Event(event);
            }
            if self.has_ended {
                return Next::Nothing;
            }
            if self.shown.is_some() {
                let is_there = if self.is_past {
                    self.service.is_visible(self.thread).await
                } else {
                    // Who is asked again and again would wait for ever.
                    let is_late = self.begun.elapsed() >= WAIT;
                    !is_late && self.service.wait_for(self.thread, &self.frames).await
                };
                if !is_there {
                    self.has_ended = true;
                    continue;
                }
                let watch = &self.service;
                let watch = watch.runs.watch_access(&watch.access, self.thread);
                if let Some(shown) = self.shown.take() {
                    // Whoever does not wait for it does not want it.
                    let _ = shown.send(watch);
                }
            }
            while let Some(frame) = self.pending.front() {
                let subject = frame.subject;
                if matches!(subject, Subject::End(_)) && Instant::now() < self.ends_at {
                    sleep_until(self.ends_at).await;
                }
                self.convert(subject).await;
                // Its events are there now, or it has none.
                self.pending.pop_front();
                if !self.out.events.is_empty() {
                    break;
                }
            }
            if !self.out.events.is_empty() {
                continue;
            }
            if let Some(found) = self.frames.replay().await {
                self.take(found);
                continue;
            }
            let found = match self.frames.next().now_or_never() {
                Some(found) => found,
                None if !self.is_head_shown => {
                    // Once for each reader, and too large to be part of every one.
                    Box::pin(self.show_head()).await;
                    self.is_head_shown = true;
                    continue;
                }
                None if !self.is_replayed => {
                    self.is_replayed = true;
                    return Next::Replayed;
                }
                None if !self.is_running_shown => {
                    Box::pin(self.show_running()).await;
                    self.is_running_shown = true;
                    continue;
                }
                None => self.frames.next().await,
            };
            if matches!(found, Watched::Lagged) {
                return Next::Lagged;
            }
            self.take(found);
        }
    }

    /// Takes entries to convert.
    fn take(&mut self, found: Watched) {
        match found {
            Watched::Frames(frames) => self.pending.extend(frames),
            // Numbers follow from positions, so that those of the lost entries are left out.
            Watched::Gap(..) | Watched::Lagged => {}
        }
    }

    /// Takes the events that are converted and were not returned yet, so that [`seq`](Self::seq) is that of the last one.
    pub fn converted(&mut self) -> Vec<Event> {
        self.out.events.drain(..).collect()
    }

    /// The number of the last event, those of other channels included.
    pub fn seq(&self) -> u64 {
        self.out.seq
    }

    /// Begins with the first event once more.
    pub fn restart(&mut self) {
        self.frames = self.service.entries(self.thread, Position::START);
        self.pending.clear();
        self.runs.clear();
        self.last = None;
        self.has_last_ended = false;
        self.out.seq = 0;
        self.out.events.clear();
        self.is_replayed = false;
        self.is_head_shown = false;
        self.is_running_shown = false;
        self.repeated.clear();
        // The thread may have been deleted and made anew.
        self.start = None;
        self.position = 0;
        self.known = 0;
    }

    /// Lets the end of a run and what is behind it wait for this long from now on. It is converted after that, for the
    /// channels that are wanted by then.
    pub fn end_no_run_for(&mut self, time: Duration) {
        self.ends_at = Instant::now() + time;
    }

    /// Changes the channels of the events to come.
    pub fn want(&mut self, channels: Channels) {
        self.out.wanted = channels;
    }

    /// Shows once more which runs work whose events are not stored, for who begins to read with others.
    pub fn repeat_running(&mut self) {
        self.repeated = self.runs.keys().copied().collect();
        self.is_running_shown = false;
    }

    /// The graphs of the last run as a tree.
    pub fn tree(&self) -> Option<Value> {
        Some(self.runs.get(&self.last?)?.tree())
    }

    /// Converts the first pending frame.
    async fn convert(&mut self, subject: Subject) {
        if let Some(position) = self.pending.front().map(|frame| frame.position) {
            self.number(position).await;
        }
        match subject {
            Subject::Edit => {}
            Subject::Run(run, number) => {
                if !self.runs.contains_key(&run) {
                    if self.is_frame_to_skip() {
                        return;
                    }
                    let facts = self.facts_of_first(run).await;
                    self.runs.insert(run, RunEvents::new(facts));
                }
                self.begin_attempt(run, number).await;
                self.turn_to(run);
                let (Some(frame), Some(events)) = (self.pending.front(), self.runs.get_mut(&run))
                else {
                    return;
                };
                events.push(&recorded(frame, number), &mut self.out);
            }
            Subject::End(run) => {
                if self.last == Some(run) && self.has_last_ended {
                    return;
                }
                if !self.runs.contains_key(&run) {
                    if self.is_end_to_skip() {
                        return;
                    }
                    // Those before its end have expired, or were seen at another process.
                    let facts = self.facts_of_first(run).await;
                    self.runs.insert(run, RunEvents::new(facts));
                    self.turn_to(run);
                }
                let end = match self.passed().and_then(|passed| passed.end.clone()) {
                    Some(end) => end,
                    None => self.end_of(run).await,
                };
                if let Some(events) = self.runs.get_mut(&run) {
                    events.end(&end, &mut self.out);
                }
                // The tree of the last run can still be asked for.
                if self.last == Some(run) {
                    self.has_last_ended = true;
                } else {
                    self.runs.remove(&run);
                }
            }
        }
    }

    /// Goes on with the events of a run; those of the last one are forgotten if it has ended.
    fn turn_to(&mut self, run: RunId) {
        if self.last == Some(run) {
            return;
        }
        if let Some(last) = self.last.replace(run)
            && self.has_last_ended
        {
            self.runs.remove(&last);
        }
        self.has_last_ended = false;
    }

    /// The facts of the run of the first pending frame.
    async fn facts_of_first(&self, run: RunId) -> RunFacts {
        match self.passed() {
            Some(passed) => passing::facts_of(run, passed.graph.clone()),
            None => self.facts(run).await,
        }
    }

    async fn facts(&self, run: RunId) -> RunFacts {
        let facts = || {
            let of = self
                .service
                .shared
                .of_request(self.thread, run, |_, kwargs| {
                    let name = kwargs.configurable("graph_id").and_then(Value::as_str);
                    (name.map(Arc::from), kwargs.event_streaming)
                });
            of.map_err(runs::Error::from)
        };
        let (graph, is_protocol) = match self.read(run, facts).await {
            Some((graph, is_protocol)) => (graph, is_protocol),
            // Of a run that was undone nothing else is known.
            None => (None, true),
        };
        RunFacts {
            run,
            graph: graph.unwrap_or_default(),
            is_protocol,
        }
    }

    async fn end_of(&self, run: RunId) -> End {
        let row = || self.service.runs.find_row(self.thread, run);
        match self.read(run, row).await {
            Some(row) => match row.status {
                Status::Error | Status::Timeout => {
                    let message = row.failure().and_then(|failure| failure.get("message"));
                    End::Failed(message.and_then(Value::as_str).map(Arc::from))
                }
                Status::Interrupted => End::Cancelled,
                Status::Success | Status::Pending | Status::Running => End::Success,
            },
            // It was rolled back.
            None => End::Cancelled,
        }
    }

    /// What `read` finds of a run; `None` if it was deleted.
    async fn read<T, F: Future<Output = Result<Option<T>, runs::Error>>>(
        &self,
        run: RunId,
        read: impl Fn() -> F,
    ) -> Option<T> {
        loop {
            match read().await {
                Ok(found) => return found,
                // Without it the events would not be those of the next reader.
                Err(error) => {
                    tracing::warn!(%error, %run, "a run could not be read for its events");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// A frame as it is converted.
fn recorded(frame: &ThreadFrame, number: u64) -> Recorded<'_> {
    let (event, ns, data) = frame.event();
    Recorded {
        event,
        ns,
        data: str::from_utf8(data).unwrap_or_default(),
        number,
    }
}

impl Service {
    /// What executed the last run of a thread; `None` if nothing has run on it.
    ///
    /// # Errors
    /// No such thread, or none of the client's; 403 below the level; or the storage failed.
    pub async fn assistant_of(&self, id: ThreadId) -> Result<Option<Assistant>> {
        let metadata = self.row(id).await?.metadata;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let assistant = text("assistant_id").and_then(|id| id.parse().ok());
        Ok(match (assistant, text("graph_id")) {
            (Some(id), _) => Some(Assistant::Id(id)),
            (None, Some(graph)) => Some(Assistant::Graph(graph.into())),
            (None, None) => None,
        })
    }
}
