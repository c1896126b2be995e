//! Events of runs that are not stored: whoever watches the thread meanwhile gets them, and nobody later.

use futures::TryFutureExt;

use super::ThreadEvents;
use crate::{id::RunId, runs, stream::protocol::RunEvents};

impl ThreadEvents {
    /// Emits that those runs work which do at this moment, and whose beginning the reader has missed; once. Nothing is
    /// emitted when the call is dropped before it returns.
    pub(super) async fn show_running(&mut self) {
        let running = self.service.runs.passing_runs(self.thread);
        let mut begun = vec![];
        for run in running {
            if !self.runs.contains_key(&run) {
                begun.push(RunEvents::new(self.facts(run).await));
            }
        }
        self.pass(self.position).await;
        for mut events in begun {
            events.begin(&mut self.out);
            self.last = Some(events.run());
            self.runs.insert(events.run(), events);
        }
    }

    /// Whether the events of a run are stored, and so in the log; true of one that is not there any more.
    pub(super) async fn is_stored(&self, run: RunId) -> bool {
        let service = &self.service.shared;
        let read = || {
            let of = service.of_request(self.thread, run, |_, kwargs| kwargs.resumable);
            of.map_err(runs::Error::from)
        };
        self.read(run, read).await.unwrap_or(true)
    }
}
