//! What happens on a thread, for one watcher: from the log, and then as it comes.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    checkpoint,
    id::{RunId, ThreadId},
    runs::{request::Target, shared::hints::ChangeWatch},
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
            if !self.waiting.is_empty() {
                let waiting = mem::take(&mut self.waiting);
                let shown = self.take(waiting);
                if !shown.is_empty() {
                    return Watched::Frames(shown);
                }
                continue;
            }
            if let Some(found) = self.replay().await {
                return found;
            }
            if self.barrier.is_some() {
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
        while self.is_behind && self.waiting.is_empty() {
            match self.read_log().await {
                Ok(Some(found)) => return Some(found),
                Ok(None) if !self.waiting.is_empty() => {}
                Ok(None) => self.is_behind = false,
                Err(error) => {
                    tracing::warn!(%error, thread = %self.thread, "the log of a thread could not be read");
                    sleep(POLL).await;
                }
            }
        }
        None
    }

    /// The next entries of the log; `None` when the watcher has all of them.
    async fn read_log(&mut self) -> Result<Option<Watched>, checkpoint::Error> {
        let last = self.last.unwrap_or(0);
        let after = i64::try_from(last).unwrap_or(i64::MAX);
        let log = &self.service.shared.parts.log;
        let chunks = log.chunks_of_thread(self.thread, after).await?;
        let Some(first) = chunks.first() else {
            return Ok(None);
        };
        let first = u64::try_from(first.position).unwrap_or(0);
        if let Some(resumed) = self.resumed.take()
            && resumed != Position::START
            && first > last.saturating_add(1)
        {
            let gone = Position::numbered(first - 1);
            return Ok(Some(Watched::Gap(resumed, gone)));
        }
        let mut all = vec![];
        let is_full = log::is_full(&chunks);
        for chunk in chunks {
            all.extend(ThreadFrame::of_chunk(chunk, last)?);
        }
        self.waiting = all.split_off(self.open(&all));
        if !self.waiting.is_empty() {
            // What is stored from now on comes of this process, or with a hint.
            self.is_behind = is_full;
        }
        self.last = all
            .last()
            .map(|frame| frame.position.number())
            .or(self.last);
        Ok((!all.is_empty()).then_some(Watched::Frames(all)))
    }

    /// Those of the entries of this process that come next. Of what other processes wrote before the
    /// rest, the log is to be read first, and the rest with it.
    fn take(&mut self, frames: Vec<ThreadFrame>) -> Vec<ThreadFrame> {
        let open = self.open(&frames);
        let mut frames = frames.into_iter();
        let mut shown = vec![];
        for mut frame in frames.by_ref().take(open) {
            let last = self.last.unwrap_or(0);
            let number = frame.position.number();
            if !frame.position.is_logged() {
                frame.position = frame.position.not_before(last);
                shown.push(frame);
            } else if number > last.saturating_add(1) || self.is_superseded(&frame) {
                self.is_behind = true;
            } else if number > last {
                self.last = Some(number);
                shown.push(frame);
            }
        }
        self.waiting = frames.collect();
        shown
    }

    /// Whether another attempt of its run has begun meanwhile: the log has what is left of the one before.
    fn is_superseded(&self, frame: &ThreadFrame) -> bool {
        let Subject::Run(run, number) = frame.subject else {
            return false;
        };
        self.publisher(run)
            .is_some_and(|publisher| !publisher.is_current(number))
    }

    fn publisher(&self, run: RunId) -> Option<Arc<Publisher>> {
        let thread = self.thread;
        self.service.runs.publisher(Target { thread, run })
    }

    /// How many of these entries wait for no barrier, nor for one that does. Keeps what the next one waits for.
    fn open(&mut self, frames: &[ThreadFrame]) -> usize {
        let mut runs = HashMap::new();
        for (count, frame) in frames.iter().enumerate() {
            let Subject::Run(run, number) = frame.subject else {
                continue;
            };
            let first = runs.entry(run).or_insert_with(|| {
                let publisher = self.publisher(run)?;
                let first = publisher.first_behind_barrier()?;
                Some((publisher, first))
            });
            if let Some((publisher, first)) = first
                && number >= *first
            {
                self.barrier = Some((publisher.clone(), number));
                return count;
            }
        }
        frames.len()
    }
}
