//! The stream of a run that another process executes, or that waits for one: its events are not
//! here, but its end is, and so are all of its events once this process takes it up.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    runs::{Run, Service, request::Target},
    stream::{FrameSource, Mode, Since, Subscription, write_frame},
    value::{Map, Value},
};

/// How often the row of the run is read.
const POLL: Duration = Duration::from_millis(500);

/// See the module's text.
pub struct Elsewhere {
    service: Service,
    run: Target,
    /// What the client wants to see; empty for everything.
    modes: Vec<Mode>,
    state: State,
}

enum State {
    Waits,
    Here(Subscription),
    Ended,
}

impl Elsewhere {
    pub fn new(service: Service, run: Target, modes: Vec<Mode>) -> Self {
        let state = State::Waits;
        Self {
            service,
            run,
            modes,
            state,
        }
    }

    /// What is left to tell of a run that has ended: that it did, and with what.
    async fn end_of(&self, row: &Run) -> Bytes {
        let mut out = vec![];
        let about = Map::from([
            ("run_id", row.id.to_string().into()),
            ("attempt", i64::from(row.attempt).into()),
        ]);
        let mut push = |event: &str, data: &Value| {
            write_frame(&mut out, event, data.to_json().as_bytes(), None);
        };
        push("metadata", &Value::map(about));
        if let Some(error) = &row.error {
            push("error", error);
        } else if self.modes.is_empty() || self.modes.contains(&Mode::Values) {
            match self.service.shown_of(row.thread).await {
                Ok((values, _)) => push("values", &values),
                Err(error) => tracing::warn!(%error, "the values of a run could not be read"),
            }
        }
        out.into()
    }
}

#[async_trait]
impl FrameSource for Elsewhere {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.state {
                State::Here(frames) => return frames.next().await,
                State::Ended => return None,
                State::Waits => {}
            }
            if let Some(publisher) = self.service.stream(self.run.run) {
                // Whatever its client saw before was of another attempt.
                self.state = State::Here(publisher.subscribe(Since::Start, &self.modes));
                continue;
            }
            match self.service.find_run(self.run.thread, self.run.run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    let end = self.end_of(&row).await;
                    self.state = State::Ended;
                    return Some(end);
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
