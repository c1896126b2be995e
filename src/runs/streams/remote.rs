//! Joining the stream of a run, whichever process executes it.
//!
//! The events of a run that cannot be resumed are in the process that executes it alone; elsewhere
//! only its end is known. Those of a run that can be resumed are in the log: see
//! [`LoggedStream`](super::logged::LoggedStream).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::logged::LoggedStream;
use crate::{
    runs::{
        Error, RunHandle, RunResult, Service,
        request::{Join, Target},
        shared::hints::ChangeWatch,
    },
    stream::{FrameSource, Mode, Publisher, Since, Subscription},
    tree::members::Access,
};

/// How often the row of the run is read.
const POLL: Duration = Duration::from_millis(500);

/// The stream of a run that this process does not execute, and that cannot be resumed.
struct RemoteStream {
    service: Service,
    run: Target,
    /// The modes of the client; empty for everything.
    modes: Vec<Mode>,
    /// The client that pays for what it has not read.
    payer: Arc<str>,
    state: State,
    /// Which attempt of the run was executed when its row was read.
    attempt: i32,
    /// What another process does.
    changes: ChangeWatch,
}

enum State {
    /// For the run's end, or until this process takes it over.
    Waiting(oneshot::Receiver<RunHandle>),
    Local(Subscription),
    Ended,
}

impl RemoteStream {
    /// The frames of the run now that this process executes it: whatever its client received
    /// before was of another attempt.
    fn follow(&mut self, publisher: &Arc<Publisher>) {
        let frames = publisher.subscribe(Since::Start, &self.modes);
        frames.paid_by(&self.payer);
        self.state = State::Local(frames);
    }
}

#[async_trait]
impl FrameSource for RemoteStream {
    fn paid_by(&mut self, payer: &Arc<str>) {
        self.payer = payer.clone();
        if let State::Local(frames) = &self.state {
            frames.paid_by(payer);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let begun = match &mut self.state {
                State::Local(frames) => return frames.next().await,
                State::Ended => return None,
                State::Waiting(begun) => begun,
            };
            let pause = match self.service.find_row(self.run.thread, self.run.run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    let result = self.service.result_of_row(&row).await;
                    self.state = State::Ended;
                    return Some(result.to_frames(row.id, row.attempt, &self.modes));
                }
                Ok(Some(_)) => Some(POLL),
                // A temporary run leaves no row, but its result for those who wait.
                Ok(None) => match self.service.result_of_log(self.run).await {
                    Ok(Some(result)) => {
                        self.state = State::Ended;
                        let run = self.run.run;
                        return Some(result.to_frames(run, self.attempt, &self.modes));
                    }
                    Ok(None) => None,
                    Err(error) => {
                        tracing::warn!(%error, "what a run has left could not be read");
                        error.may_pass().then_some(POLL)
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a run could not be read");
                    Some(POLL)
                }
            };
            let has_ended = pause.is_none();
            tokio::select! {
                biased;
                Ok(handle) = &mut *begun, if !begun.is_terminated() => self.follow(&handle.publisher),
                () = async {}, if has_ended => self.state = State::Ended,
                () = self.changes.wait(POLL) => {}
            }
        }
    }
}

impl Service {
    /// The stream of a run that exists, and whether it has ended. One that was not found is an
    /// error event.
    ///
    /// # Errors
    /// No such thread, or none of the client's; or the storage failed.
    pub async fn join_stream(
        &self,
        access: &Access,
        run: Target,
        join: Join,
    ) -> Result<(Box<dyn FrameSource>, bool), Error> {
        self.authorize_stream(access, run).await?;
        // From here on no run that begins here is missed.
        let begun = self.awaited(run);
        let since = Since::last_event_id(join.last_event_id.as_deref());
        if let Some(publisher) = self.present_publisher(run).await? {
            let frames: Box<dyn FrameSource> = if publisher.resumable() {
                Box::new(LoggedStream::of(self, run, Some(&publisher), since, join.modes).await?)
            } else {
                // What was never retained cannot be replayed.
                Box::new(publisher.subscribe(Since::Live, &join.modes))
            };
            return Ok((frames, false));
        }
        let Some(row) = self.find_row(run.thread, run.run).await? else {
            if self.ended(access, run).await?.is_some() {
                if since == Since::Live {
                    return Ok((Box::new(None), true));
                }
                let frames = LoggedStream::of(self, run, None, since, join.modes).await?;
                return Ok((Box::new(frames), true));
            }
            let missing = RunResult::not_found().to_error_frame();
            return Ok((Box::new(Some(missing)), true));
        };
        let has_ended = row.status.is_final();
        if has_ended && since == Since::Live {
            return Ok((Box::new(None), true));
        }
        let is_logged = self
            .shared
            .of_request(run.thread, run.run, |_, kwargs| kwargs.resumable);
        if is_logged.await?.unwrap_or(false) {
            let frames = LoggedStream::of(self, run, None, since, join.modes).await?;
            return Ok((Box::new(frames), has_ended));
        }
        if has_ended {
            return Ok((Box::new(None), true));
        }
        self.await_end_of(&row).await;
        let frames = RemoteStream {
            attempt: row.attempt.max(1),
            service: self.clone(),
            run,
            modes: join.modes,
            payer: Arc::default(),
            state: State::Waiting(begun),
            changes: self.shared.hints.watch(run.thread),
        };
        Ok((Box::new(frames), false))
    }

    /// Whether the events of a run can be read in the log from the first one on, whichever process executes it.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn is_logged(&self, run: Target) -> Result<bool, Error> {
        if let Some(publisher) = self.publisher(run) {
            return Ok(publisher.resumable());
        }
        let of_row = self
            .shared
            .of_request(run.thread, run.run, |_, kwargs| kwargs.resumable);
        match of_row.await? {
            Some(is_resumable) => Ok(is_resumable),
            None => Ok(self.shared.parts.log.end_of_run(run.run).await? > 0),
        }
    }

    /// The stream of a run in this process. One that has ended stays in memory for a while, also when its
    /// run was deleted, or its log with the checkpoints of a pruned thread: then it is not to be shown.
    async fn present_publisher(&self, run: Target) -> Result<Option<Arc<Publisher>>, Error> {
        let Some(publisher) = self.publisher(run) else {
            return Ok(None);
        };
        let may_be_deleted = publisher.is_closed() && !publisher.is_temporary();
        let is_gone = may_be_deleted
            && (self.find_row(run.thread, run.run).await?.is_none()
                || publisher.is_logged()
                    && publisher.last() > 0
                    && self.shared.parts.log.end_of_run(run.run).await? == 0);
        Ok((!is_gone).then_some(publisher))
    }

    /// The stream of a run that is about to be created, from its first frame on.
    pub(in crate::runs) fn follow_from_start(
        &self,
        publisher: &Arc<Publisher>,
    ) -> Box<dyn FrameSource> {
        if publisher.is_logged() {
            Box::new(LoggedStream::from_start(self, publisher))
        } else {
            Box::new(publisher.subscribe(Since::Start, &[]))
        }
    }
}
