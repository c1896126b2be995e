//! The result of a stateless run that has gone with its thread, as the log of its stream shows it.

use bytes::Bytes;

use super::RunResult;
use crate::{
    checkpoint,
    id::RunId,
    runs::{Service, Status, request::Target},
    stream::log::{CHUNK_FRAMES, LogFrames},
    value::Value,
};

/// How many parts of the log are read for the last values, from its end on. They are among the last
/// frames of a run that shows its values.
const PARTS: usize = 16;
/// What the values of a run have that waits for an answer.
const INTERRUPT: &str = "__interrupt__";

impl Service {
    /// The result of a run that has gone with its thread and left its log: its failure, or the last
    /// values of its stream. Without values in its stream it is an empty object. `None` when nothing is left of it.
    ///
    /// # Errors
    /// The storage failed.
    pub(in crate::runs) async fn result_of_log(
        &self,
        run: Target,
    ) -> Result<Option<RunResult>, checkpoint::Error> {
        let log = &self.shared.parts.log;
        let ended = log.ended_run(run.run).await?;
        let Some(ended) = ended.filter(|ended| ended.thread == run.thread) else {
            return Ok(None);
        };
        if let Some(error) = ended.error {
            return Ok(Some(RunResult {
                error: Some(error),
                ..RunResult::empty(Status::Error)
            }));
        }
        if let Some(values) = ended.result {
            return Ok(Some(RunResult {
                values: values.into(),
                ..RunResult::empty(Status::Success)
            }));
        }
        let mut last = log.end_of_run(run.run).await?;
        for _ in 0..PARTS {
            let after = (last - CHUNK_FRAMES).max(0);
            let found = self.last_values(run.run, after, last).await?;
            if let Some(values) = merged(&found)? {
                return Ok(Some(RunResult {
                    values: values.into(),
                    ..RunResult::empty(Status::Success)
                }));
            }
            if after == 0 {
                break;
            }
            last = after;
        }
        Ok(Some(RunResult::empty(Status::Success)))
    }

    /// The last values of a run between two frames: those of one event, or of several that each show
    /// an interrupt.
    async fn last_values(
        &self,
        run: RunId,
        mut after: i64,
        last: i64,
    ) -> Result<Vec<Bytes>, checkpoint::Error> {
        let mut found: Vec<Bytes> = vec![];
        let mut is_interrupted = false;
        while after < last {
            let chunks = self.shared.parts.log.chunks_of_run(run, after).await?;
            let Some(end) = chunks.last().map(|chunk| chunk.last) else {
                break;
            };
            for chunk in chunks.into_iter().filter(|chunk| chunk.first <= last) {
                for values in LogFrames::decode(chunk.first, chunk.frames)?.root_values() {
                    let has_interrupt = contains(&values, INTERRUPT.as_bytes());
                    if !(has_interrupt && is_interrupted) {
                        found.clear();
                    }
                    is_interrupted = has_interrupt;
                    found.push(values);
                }
            }
            after = end;
        }
        Ok(found)
    }
}

/// The body for those who wait: the values, or of several interrupts these alone.
fn merged(found: &[Bytes]) -> Result<Option<Value>, checkpoint::Error> {
    let mut interrupts = vec![];
    let mut last = None;
    for values in found.iter().rev() {
        let values = Value::from_json_slice(values)
            .map_err(|error| checkpoint::Error::Corrupt(format!("values of a stream: {error}")))?;
        let open = values.get(INTERRUPT).and_then(Value::as_list);
        let open = open.map(<[Value]>::to_vec);
        last.get_or_insert(values);
        match open {
            Some(open) => interrupts.insert(0, open),
            None => break,
        }
    }
    if interrupts.len() < 2 {
        return Ok(last);
    }
    let only = [(INTERRUPT.into(), Value::list(interrupts.concat()))];
    Ok(Some(Value::map(only.into_iter().collect())))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
