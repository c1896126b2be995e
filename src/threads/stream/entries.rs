//! What happens on a thread, for one watcher: from the log, and then as it comes.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    checkpoint,
    id::{RunId, ThreadId},
    runs::{self, request::Target, shared::hints::ChangeWatch},
    stream::{
        Position, Publisher, SinceThread, Subject, ThreadFrame, ThreadSubscription, Watched, log,
    },
    threads::Service,
};

/// How often the log is read for what other processes wrote, while they give no hint of it.
const POLL: Duration = Duration::from_millis(500);

/// The entries of a thread for one watcher, in the order of their positions.
///
/// Those that can be replayed are numbered without a gap as they are stored. So an entry of this
/// process that follows the last one is shown at once; before any other the log is read. What a run of this process shows
/// before it is stored waits, and with it what comes after it.
pub(in crate::threads) struct ThreadEntries {
    service: Service,
    thread: ThreadId,
    frames: ThreadSubscription,
    /// Those that wait, of this process or the log: at most what was read at once.
    waiting: Vec<ThreadFrame>,
    /// What the next entry waits for: a frame of a run.
    barrier: Option<(Arc<Publisher>, u64)>,
    /// The position that the watcher has; `None` until it is known where it begins.
    last: Option<u64>,
    /// Where it comes back from, if it does.
    resumed: Option<Position>,
    /// There is more in the log than the watcher has.
    is_behind: bool,
    /// What other processes write.
    changes: ChangeWatch,
}

impl ThreadEntries {
    pub fn new(
        service: &Service,
        thread: ThreadId,
        since: SinceThread,
        frames: ThreadSubscription,
    ) -> Self {
        let resumed = match since {
            SinceThread::Live => None,
            SinceThread::After(position) => Some(position),
        };
        Self {
            service: service.clone(),
            thread,
            last: resumed.map_or_else(|| Some(frames.first()), |position| Some(position.number())),
            frames,
            waiting: vec![],
            barrier: None,
            resumed,
            is_behind: resumed.is_some(),
            changes: service.shared.hints.watch(thread),
        }
    }

    /// Waits until there is something to read, and leaves it there.
    pub async fn ready(&self) {
        match &self.barrier {
            Some((publisher, number)) => publisher.passes(*number).await,
            None if !self.waiting.is_empty() => {}
            None => self.frames.ready().await,
        }
    }

    /// What comes next. Nothing is lost when the call is dropped before it returns.
    pub async fn next(&mut self) -> Watched {
        loop {
            if let Some((publisher, number)) = &self.barrier {
                publisher.passes(*number).await;
                self.barrier = None;
            }
            if let Some(found) = self.replay().await {
                return found;
            }
            if self.barrier.is_some() {
                continue;
            }
            if !self.waiting.is_empty() {
                let waiting = mem::take(&mut self.waiting);
                let shown = self.take(waiting);
                if !shown.is_empty() {
                    return Watched::Frames(shown);
                }
                continue;
            }
            let is_shared = self.service.shared.parts.log.is_shared();
            tokio::select! {
                biased;
                next = self.frames.next() => {
                    let Watched::Frames(frames) = next else {
                        return next;
                    };
                    let shown = self.take(frames);
                    if !shown.is_empty() {
                        return Watched::Frames(shown);
                    }
                }
                () = self.changes.wait_patiently(POLL), if is_shared => self.is_behind = true,
            }
        }
    }

    /// What the log has for the watcher at this moment; `None` when the watcher has all of it that may be shown.
    /// Nothing is lost when the call is dropped before it returns.
    pub async fn replay(&mut self) -> Option<Watched> {
        while self.is_behind && self.barrier.is_none() {
            match self.read_log().await {
                Ok(Some(found)) => return Some(found),
                // The next one may wait, and others behind what was read.
                Ok(None) => self.is_behind &= self.barrier.is_some(),
                Err(error) => {
                    tracing::warn!(%error, thread = %self.thread, "the log of a thread could not be read");
                    sleep(POLL).await;
                }
            }
        }
        None
    }

    /// The next entries of the log; `None` when the watcher has all of them, or the next one waits.
    async fn read_log(&mut self) -> Result<Option<Watched>, checkpoint::Error> {
        let (mut all, mut is_full) = match self.stored().await? {
            Stored::Gap(gap) => return Ok(Some(gap)),
            Stored::Entries(all, is_full) => (all, is_full),
        };
        let mut open = self.open(&all);
        if self.publishers().are_superseded(&all) {
            // An attempt has begun, maybe while they were read; by now the log knows what is left of the one before.
            self.barrier = None;
            (all, is_full) = match self.stored().await? {
                Stored::Gap(gap) => return Ok(Some(gap)),
                Stored::Entries(all, is_full) => (all, is_full),
            };
            open = self.open(&all);
        }
        // Of those that waited here it has what is stored.
        self.waiting.retain(|frame| !frame.position.is_logged());
        let mut blocked = all.split_off(open);
        if !blocked.is_empty() {
            blocked.append(&mut self.waiting);
            self.waiting = blocked;
            // What is stored from now on comes of this process, or with a hint.
            self.is_behind = is_full;
        }
        self.last = all
            .last()
            .map(|frame| frame.position.number())
            .or(self.last);
        Ok((!all.is_empty()).then_some(Watched::Frames(all)))
    }

    /// What the log has behind the last entry, and whether it may have more. Nothing of it is shown yet.
    async fn stored(&mut self) -> Result<Stored, checkpoint::Error> {
        let last = self.last.unwrap_or(0);
        let after = i64::try_from(last).unwrap_or(i64::MAX);
        let log = &self.service.shared.parts.log;
        let chunks = log.chunks_of_thread(self.thread, after).await?;
        if let Some(first) = chunks.first() {
            let first = u64::try_from(first.position).unwrap_or(0);
            if let Some(resumed) = self.resumed.take()
                && resumed != Position::START
                && resumed.number() == last
                && first > last.saturating_add(1)
            {
                let gone = Position::numbered(first - 1);
                return Ok(Stored::Gap(Watched::Gap(resumed, gone)));
            }
        }
        let is_full = log::is_full(&chunks);
        let mut all = vec![];
        for chunk in chunks {
            all.extend(ThreadFrame::of_chunk(chunk, last)?);
        }
        Ok(Stored::Entries(all, is_full))
    }

    /// Those of these entries that come next. Before the one that does not follow the last, the log is read, which has it
    /// and those of what is stored that come behind it.
    fn take(&mut self, mut frames: Vec<ThreadFrame>) -> Vec<ThreadFrame> {
        let waiting = frames.split_off(self.open(&frames));
        let mut publishers = self.publishers();
        let (mut shown, mut last, mut is_behind) = (vec![], self.last.unwrap_or(0), false);
        let mut frames = frames.into_iter();
        for mut frame in frames.by_ref() {
            let number = frame.position.number();
            if !frame.position.is_logged() {
                frame.position = frame.position.not_before(last);
                shown.push(frame);
            } else if number > last.saturating_add(1) || publishers.are_superseded([&frame]) {
                is_behind = number > last;
            } else if number > last {
                last = number;
                shown.push(frame);
            }
            if is_behind {
                break;
            }
        }
        self.last = Some(last);
        self.waiting = frames.chain(waiting).collect();
        if is_behind {
            self.waiting.retain(|frame| !frame.position.is_logged());
            (self.is_behind, self.barrier) = (true, None);
        }
        shown
    }

    fn publishers(&self) -> Publishers {
        Publishers {
            service: self.service.runs.clone(),
            thread: self.thread,
            found: HashMap::new(),
        }
    }

    /// How many of these entries wait for no barrier, nor for one that does. Keeps what the next one waits for.
    fn open(&mut self, frames: &[ThreadFrame]) -> usize {
        let mut publishers = self.publishers();
        let mut firsts = HashMap::new();
        for (count, frame) in frames.iter().enumerate() {
            let Subject::Run(run, number) = frame.subject else {
                continue;
            };
            let Some(publisher) = publishers.of(run) else {
                continue;
            };
            let first = firsts.entry(run);
            let first = first.or_insert_with(|| publisher.first_behind_barrier());
            if first.is_some_and(|first| number >= first) {
                self.barrier = Some((publisher.clone(), number));
                return count;
            }
        }
        frames.len()
    }
}

/// What was read of the log.
enum Stored {
    /// What the watcher has last is followed by entries that are no longer there.
    Gap(Watched),
    /// Entries, and whether there may be more.
    Entries(Vec<ThreadFrame>, bool),
}

/// The streams of this process of which entries are, each looked up once.
struct Publishers {
    service: runs::Service,
    thread: ThreadId,
    found: HashMap<RunId, Option<Arc<Publisher>>>,
}

impl Publishers {
    fn of(&mut self, run: RunId) -> Option<&Arc<Publisher>> {
        let thread = self.thread;
        let found = self.found.entry(run);
        let found = found.or_insert_with(|| self.service.publisher(Target { thread, run }));
        found.as_ref()
    }

    /// Whether another attempt of the run of one of these entries has begun: the log knows what is left of the one before.
    fn are_superseded<'a>(&mut self, frames: impl IntoIterator<Item = &'a ThreadFrame>) -> bool {
        frames.into_iter().any(|frame| match frame.subject {
            Subject::Run(run, number) if frame.position.is_logged() => {
                let publisher = self.of(run);
                publisher.is_some_and(|publisher| !publisher.is_current(number))
            }
            _ => false,
        })
    }
}
