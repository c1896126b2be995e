//! Events of runs that are not stored: whoever watches the thread meanwhile gets them, and nobody later.

use std::sync::Arc;

use super::ThreadEvents;
use crate::{
    id::RunId,
    stream::{
        End, Passed,
        protocol::{RunEvents, RunFacts},
    },
};

impl ThreadEvents {
    /// Emits that those runs work which do at this moment: whoever came since they began has missed it. Where others have
    /// come besides, it is emitted also of those that are known, with the id that it had. Nothing is emitted when the
    /// call is dropped before it returns.
    pub(super) async fn show_running(&mut self) {
        let running = self.service.runs.passing_runs(self.thread);
        if running.is_empty() {
            return;
        }
        // There may be no frame left of a log that has come this far.
        let last = self.log_position().await;
        self.pass(last.max(self.position)).await;
        let repeated = std::mem::take(&mut self.repeated);
        for (run, graph) in running {
            let has_ended = self.last == Some(run) && self.has_last_ended;
            if has_ended || (self.runs.contains_key(&run) && !repeated.contains(&run)) {
                continue;
            }
            self.turn_to(run);
            let events = self.runs.entry(run);
            let events = events.or_insert_with(|| RunEvents::new(facts_of(run, graph)));
            events.show_beginning(&mut self.out);
        }
    }

    /// What is known of the run of the first pending frame, if that is not replayed.
    pub(super) fn passed(&self) -> Option<&Arc<Passed>> {
        self.pending.front()?.passed.as_ref()
    }

    /// Whether the first pending frame is one of a run that has not begun here, and tells only why: it waited and was
    /// ended, or another process executes it. What it left are values.
    pub(super) fn is_frame_to_skip(&self) -> bool {
        let Some(frame) = self.pending.front() else {
            return false;
        };
        let passed = frame.passed.as_ref();
        passed.is_some_and(|passed| !passed.has_begun) && frame.event().0 != "values"
    }

    /// Whether the first pending frame is the end of a run that is not to be shown: the log has it, or the run may never
    /// have begun.
    pub(super) fn is_end_to_skip(&self) -> bool {
        self.passed().is_some_and(|passed| {
            let is_cancelled = matches!(passed.end, None | Some(End::Cancelled));
            passed.is_stored || (!passed.has_begun && is_cancelled)
        })
    }
}

/// The facts of a run whose frames are not replayed: commands of the protocol start no such runs.
pub(super) fn facts_of(run: RunId, graph: Arc<str>) -> RunFacts {
    RunFacts {
        run,
        graph,
        is_protocol: false,
    }
}
