//! Rows of a thread's log: an event each, or two about one run that follow each other in one transaction.
//! Such a row has the number of the second one; the first one has the number before.

use std::{collections::HashMap, sync::Arc};

use super::{
    CHECKPOINT_CREATED, EncodedEvent, RUN_ENQUEUED, RUN_FINISHED, RUN_STARTED, codes::event_code,
    decode, encode, id,
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    time::Timestamp,
    tree::store::rows::{NewEvent, ThreadEvent},
    value::Map,
};

/// `RunEnqueued` and `RunStarted`: a run that did not wait.
const STARTED_AT_ONCE: i16 = event_code!(ENQUEUED_AND_STARTED);
/// `CheckpointCreated` and `RunFinished`: a run that left a checkpoint.
const LEFT_CHECKPOINT: i16 = event_code!(CREATED_AND_FINISHED);

/// A row to append.
#[derive(Debug)]
pub struct NewRow<'a> {
    /// The position of its last event among those that are appended, from 1.
    pub position: i64,
    /// The number of its type.
    pub code: i16,
    /// The run.
    pub run: Option<RunId>,
    /// What is left of the payload; `None` when nothing is.
    pub payload: Option<Map>,
    /// The branch.
    pub branch: Option<BranchId>,
    /// The checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The message.
    pub message_id: Option<&'a Arc<str>>,
}

/// The rows of new events.
///
/// # Errors
/// There is no such type.
pub fn rows(events: &[NewEvent]) -> Result<Vec<NewRow<'_>>, Error> {
    let mut rows: Vec<NewRow<'_>> = Vec::with_capacity(events.len());
    for (position, event) in (1..).zip(events) {
        let stored = encode(event.kind, &event.payload)?;
        let mut row = NewRow {
            position,
            code: stored.code,
            run: stored.run,
            payload: stored.facts,
            branch: event.branch,
            checkpoint: event.checkpoint,
            message_id: event.message_id.as_ref(),
        };
        if let Some(code) = rows.last().and_then(|first| first.code_with(&row)) {
            row.code = code;
            rows.pop();
        }
        rows.push(row);
    }
    Ok(rows)
}

impl NewRow<'_> {
    /// The number of the type of both, if one row can have this event and the next.
    fn code_with(&self, next: &Self) -> Option<i16> {
        let is_plain = self.payload.is_none() && self.message_id.is_none();
        if !is_plain || self.branch != next.branch || self.checkpoint != next.checkpoint {
            return None;
        }
        match (self.code, next.code) {
            (event_code!(RUN_ENQUEUED), event_code!(RUN_STARTED)) if self.run == next.run => {
                Some(STARTED_AT_ONCE)
            }
            (event_code!(CHECKPOINT_CREATED), event_code!(RUN_FINISHED)) if self.run.is_none() => {
                Some(LEFT_CHECKPOINT)
            }
            _ => None,
        }
    }
}

/// A row that was read.
#[derive(Debug)]
pub struct LogRow {
    /// The thread whose log it is in.
    pub thread: ThreadId,
    /// The number of its last event.
    pub number: i64,
    /// The number of its type.
    pub code: i16,
    /// The run.
    pub run: Option<RunId>,
    /// The payload that was stored with it.
    pub payload: Option<Map>,
    /// What was recorded when rows beside it went.
    pub facts: Option<Map>,
    /// The branch.
    pub branch: Option<BranchId>,
    /// The checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The message.
    pub message_id: Option<Arc<str>>,
    /// When it was appended.
    pub created_at: Timestamp,
}

impl LogRow {
    /// Its events, in order.
    ///
    /// # Errors
    /// The number is not one of a type.
    pub fn events(mut self) -> Result<impl Iterator<Item = ThreadEvent>, Error> {
        let facts = self.facts.take();
        let (first, kind) = match self.code {
            STARTED_AT_ONCE => {
                let first = self.event(RUN_ENQUEUED, self.number - 1, self.run, facts)?;
                (Some(first), RUN_STARTED)
            }
            LEFT_CHECKPOINT => {
                let first = self.event(CHECKPOINT_CREATED, self.number - 1, None, facts)?;
                (Some(first), RUN_FINISHED)
            }
            code => {
                if let Some(facts) = facts {
                    self.payload.get_or_insert_with(Map::new).extend(facts);
                }
                (None, super::kind(code)?)
            }
        };
        let payload = self.payload.take();
        let last = self.event(kind, self.number, self.run, payload)?;
        Ok(first.into_iter().chain([last]))
    }

    fn event(
        &self,
        kind: &str,
        number: i64,
        run: Option<RunId>,
        facts: Option<Map>,
    ) -> Result<ThreadEvent, Error> {
        let code = super::code(kind)?;
        let (kind, payload) = decode(EncodedEvent { code, run, facts })?;
        Ok(ThreadEvent {
            id: id(self.thread, number),
            thread: self.thread,
            number,
            kind: kind.into(),
            payload,
            branch: self.branch,
            checkpoint: self.checkpoint,
            message_id: self.message_id.clone(),
            created_at: self.created_at,
        })
    }
}

/// The events of rows that end after a number, at most `limit`: the first row may begin at that number.
///
/// # Errors
/// The number of a row is not one of a type.
pub fn events_after(
    rows: Vec<LogRow>,
    number: i64,
    limit: usize,
) -> Result<Vec<ThreadEvent>, Error> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.extend(row.events()?);
    }
    found.retain(|event| event.number > number);
    found.truncate(limit);
    Ok(found)
}

/// [`events_after`] for rows of several threads, those of a thread one after the other: of each at most `limit` events
/// after its number.
///
/// # Errors
/// The number of a row is not one of a type.
pub fn events_of_each(
    rows: Vec<LogRow>,
    after: &[(TreeId, ThreadId, i64)],
    limit: usize,
) -> Result<Vec<ThreadEvent>, Error> {
    let numbers: HashMap<ThreadId, i64> = after
        .iter()
        .map(|(_, thread, number)| (*thread, *number))
        .collect();
    let mut by_thread: Vec<(ThreadId, Vec<LogRow>)> = vec![];
    for row in rows {
        match by_thread.last_mut() {
            Some((thread, rows)) if *thread == row.thread => rows.push(row),
            _ => by_thread.push((row.thread, vec![row])),
        }
    }
    let mut found = vec![];
    for (thread, rows) in by_thread {
        let number = numbers.get(&thread).copied().unwrap_or(0);
        found.extend(events_after(rows, number, limit)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::event::{MESSAGE_ADDED, about_run, end_of_run};

    fn new(kind: &'static str, payload: Map, checkpoint: Option<CheckpointId>) -> NewEvent {
        NewEvent {
            kind,
            payload,
            branch: None,
            checkpoint,
            message_id: None,
        }
    }

    fn written(events: &[NewEvent], facts: Option<&Map>) -> Vec<LogRow> {
        let rows = rows(events).unwrap().into_iter();
        rows.map(|row| LogRow {
            thread: ThreadId::mint(),
            number: 10 + row.position,
            code: row.code,
            run: row.run,
            payload: row.payload,
            facts: facts.cloned(),
            branch: row.branch,
            checkpoint: row.checkpoint,
            message_id: row.message_id.cloned(),
            created_at: Timestamp(5),
        })
        .collect()
    }

    #[test]
    fn events_of_a_run_that_follow_each_other_share_a_row_and_come_back_as_they_were() {
        let run = RunId::mint();
        let left: CheckpointId = "1f1e52d3-b51d-655d-8000-078d7d9aa83f".parse().unwrap();
        for status in ["success", "interrupted"] {
            let told = [
                new(RUN_ENQUEUED, about_run(run), None),
                new(RUN_STARTED, about_run(run), None),
                new(MESSAGE_ADDED, Map::new(), Some(left)),
                new(CHECKPOINT_CREATED, Map::new(), Some(left)),
                new(RUN_FINISHED, end_of_run(run, status), Some(left)),
            ];
            let rows = written(&told, None);
            let numbers: Vec<_> = rows.iter().map(|row| (row.number, row.code)).collect();
            let single = event_code!(MESSAGE_ADDED);
            assert_eq!(
                numbers,
                [(12, STARTED_AT_ONCE), (13, single), (15, LEFT_CHECKPOINT)]
            );
            let back = events_after(rows, 10, 9).unwrap();
            for ((event, told), number) in back.iter().zip(&told).zip(11..) {
                assert_eq!((event.number, &*event.kind), (number, told.kind));
                assert_eq!(
                    (&event.payload, event.checkpoint),
                    (&told.payload, told.checkpoint)
                );
            }
            assert_eq!(back.len(), told.len());
        }
    }

    #[test]
    fn a_page_may_begin_and_end_within_a_row() {
        let run = RunId::mint();
        let told = [
            new(RUN_ENQUEUED, about_run(run), None),
            new(RUN_STARTED, about_run(run), None),
        ];
        let numbers = |after, limit| -> Vec<i64> {
            let found = events_after(written(&told, None), after, limit).unwrap();
            found.iter().map(|event| event.number).collect()
        };
        assert_eq!(numbers(11, 5), [12]);
        assert_eq!(numbers(10, 1), [11]);
        assert_eq!(numbers(12, 5), [] as [i64; 0]);
    }

    #[test]
    fn events_of_two_runs_or_of_two_checkpoints_have_rows_of_their_own() {
        let left: CheckpointId = "1f1e52d3-b51d-655d-8000-078d7d9aa83f".parse().unwrap();
        let other = [
            new(RUN_ENQUEUED, about_run(RunId::mint()), None),
            new(RUN_STARTED, about_run(RunId::mint()), None),
            new(CHECKPOINT_CREATED, Map::new(), Some(left)),
            new(RUN_FINISHED, end_of_run(RunId::mint(), "success"), None),
        ];
        assert_eq!(rows(&other).unwrap().len(), other.len());
    }

    #[test]
    fn facts_belong_to_the_checkpoint_and_not_to_the_end_of_its_run() {
        let left: CheckpointId = "1f1e52d3-b51d-655d-8000-078d7d9aa83f".parse().unwrap();
        let told = [
            new(CHECKPOINT_CREATED, Map::new(), Some(left)),
            new(RUN_FINISHED, end_of_run(RunId::mint(), "error"), Some(left)),
        ];
        let facts = Map::from([("step", 3.into())]);
        let back = events_after(written(&told, Some(&facts)), 10, 2).unwrap();
        assert_eq!(
            (&back[0].payload, &back[1].payload),
            (&facts, &told[1].payload)
        );
    }
}
