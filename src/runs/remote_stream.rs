//! Joining the stream of a run, also of one that another process executes or that waits for one: its
//! events are not here, but its end is, and so are all of its events once this process takes it over.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Error, RunResult, Service,
    request::{Join, Target},
};
use crate::stream::{FrameSource, Mode, Since, Subscription};

/// How often the row of the run is read.
const POLL: Duration = Duration::from_millis(500);

/// The stream of a run that this process does not execute.
struct RemoteStream {
    service: Service,
    run: Target,
    /// The modes of the client; empty for everything.
    modes: Vec<Mode>,
    state: State,
}

enum State {
    Waiting,
    Local(Subscription),
    Ended,
}

impl RemoteStream {
    fn new(service: Service, run: Target, modes: Vec<Mode>) -> Self {
        Self {
            service,
            run,
            modes,
            state: State::Waiting,
        }
    }
}

#[async_trait]
impl FrameSource for RemoteStream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.state {
                State::Local(frames) => return frames.next().await,
                State::Ended => return None,
                State::Waiting => {}
            }
            if let Some(publisher) = self.service.publisher(self.run.run) {
                // Whatever its client received before was of another attempt.
                self.state = State::Local(publisher.subscribe(Since::Start, &self.modes));
                continue;
            }
            match self.service.find_run(self.run.thread, self.run.run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    let result = self.service.result_of_row(&row).await;
                    self.state = State::Ended;
                    return Some(result.to_frames(row.id, row.attempt, &self.modes));
                }
                Ok(None) => {
                    self.state = State::Ended;
                    return None;
                }
                Ok(Some(_)) => {}
                Err(error) => tracing::warn!(%error, "a run could not be read"),
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Service {
    /// The stream of a run that exists, and whether it has ended. One that was not found is an
    /// error event.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn join_stream(
        &self,
        run: Target,
        join: Join,
    ) -> Result<(Box<dyn FrameSource>, bool), Error> {
        if let Some(publisher) = self.publisher(run.run) {
            // What was never retained cannot be replayed.
            let since = if publisher.resumable() {
                Since::last_event_id(join.last_event_id.as_deref())
            } else {
                Since::Live
            };
            return Ok((Box::new(publisher.subscribe(since, &join.modes)), false));
        }
        match self.find_run(run.thread, run.run).await? {
            Some(row) if row.status.is_final() => Ok((Box::new(None), true)),
            Some(_) => {
                let frames = RemoteStream::new(self.clone(), run, join.modes);
                Ok((Box::new(frames), false))
            }
            None => Ok((
                Box::new(Some(RunResult::not_found().to_error_frame())),
                true,
            )),
        }
    }
}
