//! What a reader gets of a thread whose log has expired: the state that is left, and how its last run
//! ended.

use super::{Result, ThreadEvents};
use crate::{
    runs::request::Address,
    stream::protocol::{Ended, RunEvents},
    value::Value,
};

impl ThreadEvents {
    /// Emits the values of the head and one event of the last run's life, if the thread has a log of
    /// which nothing is left. Nothing is emitted when the call is dropped before it returns.
    pub(super) async fn show_head(&mut self) {
        if self.last.is_some() || self.out.seq > 0 {
            return;
        }
        match self.head().await {
            Ok(Some((last, ended, values))) => {
                let facts = self.facts(ended.run).await;
                self.out.seq = self.amid(last).await;
                self.out.passing = None;
                let mut events = RunEvents::new(facts);
                events.show_end(&ended, &values, &mut self.out);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, thread = %self.thread, "the state of a thread could not be read for its events");
            }
        }
    }

    /// The last position of the log, how the last run ended, and the values of the head as a JSON text;
    /// `None` while there is more to come, or never was a log.
    async fn head(&self) -> Result<Option<(u64, Ended, String)>> {
        let parts = &self.service.shared.parts;
        let last = parts.log.thread_position(self.thread).await?;
        if last == 0 {
            return Ok(None);
        }
        let newest = parts.runs.runs(self.thread, None, 1, 0).await?;
        let Some(run) = newest.first().filter(|run| run.status.is_final()) else {
            return Ok(None);
        };
        // The run may have begun and ended since the reader found nothing: its frames were stored before that.
        let stored = parts.log.chunks_of_thread(self.thread, 0).await?;
        if !stored.is_empty() {
            return Ok(None);
        }
        let head = Address::default();
        let state = self.service.state(self.thread, &head, false).await?;
        let next = state.get("next").and_then(Value::as_list);
        let ended = Ended {
            run: run.id,
            end: self.end_of(run.id).await,
            waits: next.is_some_and(|next| !next.is_empty()),
        };
        let values = state.get("values").cloned().unwrap_or_default();
        let last = u64::try_from(last).unwrap_or(0);
        Ok(Some((last, ended, values.to_json())))
    }
}
