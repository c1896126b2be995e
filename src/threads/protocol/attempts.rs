//! The next attempt of a run whose process has died: its reader goes on as if it came now.
//!
//! What an event is called and says depends on the frames before it. Of those that the dead attempt
//! has shown, some are gone for whoever reads later. So that everybody gets the same events of the
//! next attempt, its first frame is converted after what the log still has, and nothing else.

use super::{PAUSE, ThreadEvents, recorded};
use crate::{
    checkpoint,
    id::RunId,
    stream::{
        Subject, ThreadFrame,
        protocol::{Output, RunEvents, RunFacts},
    },
};

impl ThreadEvents {
    /// Prepares for a frame that may be the first one of an attempt. Nothing is changed when the call
    /// is dropped before it returns.
    pub(super) async fn begin_attempt(&mut self, run: RunId, number: u64) {
        let events = self.runs.get(&run);
        if !events.is_some_and(|events| events.is_before_attempt_of(number)) {
            return;
        }
        let facts = self.facts(run).await;
        let left = loop {
            match self.left_before(&facts, number).await {
                Ok(left) => break left,
                // Without it the events would not be those of the next reader.
                Err(error) => {
                    tracing::warn!(%error, %run, "the log of a run could not be read for its events");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        if let Some(events) = self.runs.get_mut(&run) {
            events.replace_by(left);
        }
    }

    /// The events of a run after those frames that the log has before one.
    async fn left_before(
        &self,
        facts: &RunFacts,
        number: u64,
    ) -> Result<RunEvents, checkpoint::Error> {
        let mut events = RunEvents::new(facts.clone());
        // They were made already: what counts is what is remembered of them.
        let mut made = Output::default();
        let mut after = 0;
        loop {
            let log = &self.service.shared.parts.log;
            let chunks = log.chunks_of_run(facts.run, after).await?;
            let Some(last) = chunks.last() else {
                return Ok(events);
            };
            after = last.last;
            for chunk in chunks {
                for frame in ThreadFrame::of_chunk(chunk, 0)? {
                    let Subject::Run(_, found) = frame.subject else {
                        continue;
                    };
                    if found >= number {
                        return Ok(events);
                    }
                    events.push(&recorded(&frame, found), &mut made);
                    made.events.clear();
                }
            }
        }
    }
}
