//! The stream of a run that can be resumed, for one reader, whichever process executes the run: from
//! the log, and from this process's memory as long as that has what comes next.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use crate::{
    checkpoint,
    runs::{Error, Run, RunResult, Service, Status, request::Target, shared::hints::ChangeWatch},
    stream::{
        FrameSource, Mode, Next, Publisher, Since, Subscription, cut_off, gap,
        log::{ATTEMPT_FRAMES, LogChunk, LogFrames},
    },
};

/// How often the log is read while another process executes the run and gives no hint of what it does: at
/// first, and when nothing comes.
const FIRST_POLL: Duration = Duration::from_millis(50);
const LAST_POLL: Duration = Duration::from_millis(500);

/// The stream of a run for one reader.
pub(super) struct LoggedStream {
    service: Service,
    run: Target,
    /// The modes of the client; empty for everything.
    modes: Vec<Mode>,
    /// The client that pays for what it has not read.
    payer: Arc<str>,
    /// Number of the last frame that the reader has.
    last: u64,
    /// Up to this frame the log is read, before what is in memory.
    backlog: u64,
    /// What this process has of the run.
    local: Option<Subscription>,
    /// Which publisher that is of.
    publisher: Option<Arc<Publisher>>,
    /// The reader has got the failure of the run.
    has_failure: bool,
    pause: Duration,
    /// What another process does that executes the run.
    changes: ChangeWatch,
    has_ended: bool,
}

/// What the log has next for a reader.
enum Logged {
    /// Frames, which may all be of other modes.
    Frames(Bytes),
    /// Nothing more yet.
    Nothing,
}

impl LoggedStream {
    /// The stream of a run that exists.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn of(
        service: &Service,
        run: Target,
        publisher: Option<&Arc<Publisher>>,
        since: Since,
        modes: Vec<Mode>,
    ) -> Result<Self, Error> {
        let mut stream = Self {
            service: service.clone(),
            run,
            modes,
            payer: Arc::default(),
            last: 0,
            backlog: 0,
            local: None,
            publisher: None,
            has_failure: false,
            pause: FIRST_POLL,
            changes: service.shared.hints.watch(run.thread),
            has_ended: false,
        };
        stream.last = match (since, publisher) {
            (Since::Start, _) => 0,
            (Since::After(last), _) => last,
            (Since::Live, Some(publisher)) if publisher.is_local() => publisher.last(),
            (Since::Live, _) => {
                let end = service.shared.parts.log.end_of_run(run.run).await?;
                u64::try_from(end).unwrap_or(0)
            }
        };
        if let Some(publisher) = publisher {
            stream.follow(publisher);
        }
        Ok(stream)
    }

    /// The stream of a run that is about to be created.
    pub(super) fn from_start(service: &Service, publisher: &Arc<Publisher>) -> Self {
        let run = Target {
            thread: publisher.thread(),
            run: publisher.run(),
        };
        Self {
            service: service.clone(),
            run,
            modes: vec![],
            payer: Arc::default(),
            last: 0,
            backlog: 0,
            local: Some(publisher.subscribe(Since::Start, &[])),
            publisher: Some(publisher.clone()),
            has_failure: false,
            pause: FIRST_POLL,
            changes: service.shared.hints.watch(run.thread),
            has_ended: false,
        }
    }

    /// Reads what this process has of the run, behind what the reader has.
    fn follow(&mut self, publisher: &Arc<Publisher>) {
        let local = publisher.subscribe(Since::After(self.last), &self.modes);
        local.paid_by(&self.payer);
        self.local = Some(local);
        self.publisher = Some(publisher.clone());
    }

    /// The next frames of the log, up to number `upto`; the reader has them then.
    async fn read_log(&mut self, upto: u64) -> Result<Logged, checkpoint::Error> {
        let after = i64::try_from(self.last).unwrap_or(i64::MAX);
        let log = &self.service.shared.parts.log;
        let chunks = log.chunks_of_run(self.run.run, after).await?;
        let mut found = BytesMut::new();
        let mut is_empty = true;
        for chunk in chunks {
            if u64::try_from(chunk.first).is_ok_and(|first| first > upto) {
                break;
            }
            found.extend_from_slice(&self.show(chunk, upto)?);
            is_empty = false;
        }
        Ok(if is_empty {
            Logged::Nothing
        } else {
            Logged::Frames(found.freeze())
        })
    }

    /// The frames of a chunk that the reader does not have yet, and before them what is missing.
    fn show(&mut self, chunk: LogChunk, upto: u64) -> Result<Bytes, checkpoint::Error> {
        let number = |number| u64::try_from(number).unwrap_or(0);
        let (first, last) = (number(chunk.first), number(chunk.last));
        let frames = LogFrames::decode(chunk.first, chunk.frames)?;
        let mut out = BytesMut::new();
        let begins_attempt = first.saturating_sub(1).is_multiple_of(ATTEMPT_FRAMES);
        if first > self.last.saturating_add(1) && !begins_attempt {
            out.extend_from_slice(&gap(self.last.saturating_add(1), Some(first - 1)));
        }
        out.extend_from_slice(&frames.read(self.last, upto, &self.modes));
        self.has_failure |= frames.has_failure();
        self.has_ended |= frames.has_end();
        self.last = last.min(upto).max(self.last);
        Ok(out.freeze())
    }

    /// What is left for the reader of a run that has ended: frames of the log, or how it ended.
    async fn end(&mut self) -> Result<Option<Bytes>, Error> {
        if let Logged::Frames(frames) = self.read_log(u64::MAX).await? {
            return Ok(Some(frames));
        }
        let row = self.service.find_row(self.run.thread, self.run.run).await?;
        let end = self.service.shared.parts.log.end_of_run(self.run.run);
        let end = u64::try_from(end.await?).unwrap_or(0);
        // The failure of a run comes into its log with its row or behind it, perhaps since the log was read.
        if end > self.last
            && let Logged::Frames(frames) = self.read_log(u64::MAX).await?
        {
            return Ok(Some(frames));
        }
        let rest = match row.filter(|row| row.attempt > 0) {
            Some(row) => self.how_it_ended(&row, end).await?,
            None => self.how_it_failed(end).await?,
        };
        self.has_ended = true;
        Ok(rest)
    }

    /// How a run ended whose log does not show it.
    async fn how_it_ended(&self, row: &Run, end: u64) -> Result<Option<Bytes>, Error> {
        if end == 0 {
            // It was retained for long enough.
            let result = self.service.result_of_row(row).await;
            let mut out = BytesMut::from(&*gap(self.last.saturating_add(1), None));
            out.extend_from_slice(&result.to_frames(row.id, row.attempt, &self.modes));
            return Ok(Some(out.freeze()));
        }
        // Whoever ended it in the storage has written no frame.
        let is_shown = self.has_failure || row.failure().is_none();
        if is_shown || self.ends_with_failure(end).await? {
            return Ok(None);
        }
        let result = self.service.result_of_row(row).await;
        Ok(Some(result.to_error_frame()))
    }

    /// The failure of a run that has gone with its thread, if its log does not show it.
    async fn how_it_failed(&self, end: u64) -> Result<Option<Bytes>, Error> {
        let log = &self.service.shared.parts.log;
        let ended = log.ended_run(self.run.run).await?;
        let Some(error) = ended.and_then(|ended| ended.error) else {
            return Ok(None);
        };
        // Behind the log its process has shown the failure alone.
        let is_shown = self.has_failure || self.last > end;
        if is_shown || self.ends_with_failure(end).await? {
            return Ok(None);
        }
        let failed = RunResult {
            error: Some(error),
            ..RunResult::empty(Status::Error)
        };
        Ok(Some(failed.to_error_frame()))
    }

    /// Whether the last frames of the log have the failure of the run.
    async fn ends_with_failure(&self, end: u64) -> Result<bool, checkpoint::Error> {
        let after = i64::try_from(end.saturating_sub(2)).unwrap_or(0);
        let log = &self.service.shared.parts.log;
        for chunk in log.chunks_of_run(self.run.run, after).await? {
            if LogFrames::decode(chunk.first, chunk.frames)?.has_failure() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for frames of a run that this process does not execute, or until it does; `None` when
    /// the run has ended.
    async fn wait_elsewhere(&mut self) -> Result<Option<Bytes>, Error> {
        if let Logged::Frames(frames) = self.read_log(u64::MAX).await? {
            self.pause = FIRST_POLL;
            if let Some(local) = &self.local {
                local.skip_to(self.last.saturating_add(1));
            }
            return Ok(Some(frames));
        }
        let begun = self.service.awaited(self.run);
        // The log shows most ends.
        let is_hinted = self.service.shared.hints.is_connected();
        if self.pause == LAST_POLL || self.publisher.is_none() || is_hinted {
            let row = self.service.find_row(self.run.thread, self.run.run).await?;
            if row.is_none_or(|row| row.status.is_final()) {
                return self.end().await;
            }
        }
        let pause = self.pause;
        if let Some(local) = &mut self.local {
            tokio::select! {
                biased;
                next = local.read() => {
                    if matches!(next, Next::Moved) {
                        // The run goes on elsewhere, and what this process had of it may be followed anew at once.
                        self.changes.wait(pause).await;
                        self.pause = LAST_POLL.min(pause * 2);
                    }
                    return Ok(self.take(next));
                }
                () = self.changes.wait(pause) => {}
            }
        } else {
            tokio::select! {
                biased;
                Ok(handle) = begun => self.follow(&handle.publisher),
                () = self.changes.wait(pause) => {}
            }
        }
        self.pause = LAST_POLL.min(pause * 2);
        Ok(Some(Bytes::new()))
    }

    /// The frames up to number `upto`, which are no longer in memory.
    async fn read_backlog(&mut self, upto: u64) -> Result<Bytes, Error> {
        let missing = match self.read_log(upto).await? {
            Logged::Frames(frames) => return Ok(frames),
            // What an attempt does not use is no gap.
            Logged::Nothing if upto.is_multiple_of(ATTEMPT_FRAMES) => Bytes::new(),
            Logged::Nothing => gap(self.last.saturating_add(1), Some(upto)),
        };
        self.last = upto;
        Ok(missing)
    }

    /// What the reader gets of what this process has; `None` at the end.
    fn take(&mut self, next: Next) -> Option<Bytes> {
        match next {
            Next::Frames(frames, next) => {
                self.last = next - 1;
                return Some(frames);
            }
            Next::Gap(first, last) => {
                self.last = self.last.max(first - 1);
                self.backlog = last;
            }
            Next::Lagged => {
                self.has_ended = true;
                return Some(cut_off());
            }
            Next::End if self.publisher.as_ref().is_some_and(|one| one.is_owned()) => {
                self.has_ended = true;
                return None;
            }
            // The rest is in the log.
            Next::End | Next::Moved => {
                self.local = None;
                self.publisher = None;
            }
        }
        Some(Bytes::new())
    }

    /// The next frames, which may be empty; `None` at the end.
    async fn step(&mut self) -> Result<Option<Bytes>, Error> {
        if self.last < self.backlog {
            return self.read_backlog(self.backlog).await.map(Some);
        }
        let is_local = self.publisher.as_ref().is_some_and(|one| one.is_local());
        match &mut self.local {
            Some(local) if is_local => {
                let next = local.read().await;
                Ok(self.take(next))
            }
            _ => self.wait_elsewhere().await,
        }
    }
}

#[async_trait]
impl FrameSource for LoggedStream {
    fn paid_by(&mut self, payer: &Arc<str>) {
        self.payer = payer.clone();
        if let Some(local) = &self.local {
            local.paid_by(payer);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.has_ended {
                return None;
            }
            match self.step().await {
                Ok(Some(frames)) if frames.is_empty() => {}
                Ok(frames) => return frames,
                Err(error) => {
                    tracing::warn!(%error, run = %self.run.run, "the log of a run could not be read");
                    tokio::time::sleep(LAST_POLL).await;
                }
            }
        }
    }
}
