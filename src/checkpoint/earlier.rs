//! What was pending of a task before a run wrote to it, where the run found its checkpoint. It is stored beside what the
//! run writes, so that the run can be rolled back: the interrupts that were open are open again, and nothing that the run
//! has answered counts.

use std::sync::Arc;

use super::{Pending, codec};
use crate::{
    id::{RunId, TaskId},
    value::Value,
};

/// The control channel under which it is stored.
pub const CHANNEL: &str = "__earlier__";
/// Its index.
pub const IDX: i32 = -8;

/// Bytes of what the runs before have found that are stored once more at the most.
const MOST: usize = 64 << 10;
/// Levels of nesting around it in a row.
const LEVELS: usize = 2;

/// What is stored of the pending writes that a run has found of one task: a list of runs with what each of them has found,
/// the last run first. `None` where it could not be read again.
pub fn image(run: RunId, found: &[Pending]) -> Option<Value> {
    let (images, found): (Vec<&Pending>, Vec<_>) =
        found.iter().partition(|write| &*write.channel == CHANNEL);
    let before = images.first().map(|write| &write.value);
    if before.is_some_and(|before| is_of(before, run)) {
        // An attempt of this run before has stored it.
        return before.cloned();
    }
    let entry = |write: &Pending| {
        Value::list(vec![
            Value::Int(write.idx.into()),
            Value::Str(write.channel.clone()),
            write.value.clone(),
        ])
    };
    let mut runs = vec![Value::list(vec![
        run.to_string().into(),
        Value::list(found.into_iter().map(entry).collect()),
    ])];
    let mut bytes = 0;
    for before in before.and_then(Value::as_list).unwrap_or_default() {
        bytes += before.rough_size();
        if bytes > MOST {
            break;
        }
        runs.push(before.clone());
    }
    let image = Value::list(runs);
    (!image.is_deeper_than(codec::MAX_DEPTH - LEVELS)).then_some(image)
}

/// Whether this run has written it.
pub fn is_of(image: &Value, run: RunId) -> bool {
    let last = image.as_list().and_then(|runs| runs.first()?.as_list());
    let writer = last.and_then(|parts| parts.first()?.as_str());
    writer.is_some_and(|writer| writer == run.to_string())
}

/// The pending writes of a task that its last run has found; those that cannot be read are left out.
pub fn writes(image: &Value, task: TaskId, path: &Arc<str>) -> Vec<Pending> {
    let runs = image.as_list().unwrap_or_default();
    let Some((last, before)) = runs.split_first() else {
        return vec![];
    };
    let entries = last.as_list().and_then(|parts| parts.get(1)?.as_list());
    let row = |idx, channel: &str, value| Pending {
        task,
        path: path.clone(),
        idx,
        channel: channel.into(),
        value,
    };
    let write = |entry: &Value| {
        let fields = entry.as_list()?;
        let idx = i32::try_from(fields.first()?.as_i64()?).ok()?;
        Some(row(idx, fields.get(1)?.as_str()?, fields.get(2)?.clone()))
    };
    let entries = entries.unwrap_or_default().iter().filter_map(write);
    let before = (!before.is_empty()).then(|| row(IDX, CHANNEL, Value::list(before.to_vec())));
    entries.chain(before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn pending(idx: i32, channel: &str, value: Value) -> Pending {
        Pending {
            task: TaskId::NULL,
            path: "p".into(),
            idx,
            channel: channel.into(),
            value,
        }
    }

    fn restored(image: &Value) -> Vec<Pending> {
        writes(image, TaskId::NULL, &"p".into())
    }

    #[test]
    fn what_a_run_found_is_read_as_it_was() {
        let run = RunId::mint();
        let found = [
            pending(-3, "__interrupt__", value!([1])),
            pending(0, "seen", value!("x")),
        ];
        let image = image(run, &found).unwrap();
        assert_eq!(restored(&image), found);
        assert!(is_of(&image, run));
        assert!(!is_of(&image, RunId::mint()));
        assert_eq!(restored(&value!({})), []);
    }

    #[test]
    fn what_runs_before_found_is_restored_one_after_the_other() {
        let runs = [(); 3].map(|()| RunId::mint());
        let mut rows = vec![pending(-3, "__interrupt__", value!("first"))];
        let mut states = vec![];
        for (run, answer) in runs.iter().zip(["a", "b", "c"]) {
            states.push(rows.clone());
            let image = image(*run, &rows).unwrap();
            // A further attempt of the run finds what the first one has written.
            rows = vec![pending(-4, "__resume__", value!([answer]))];
            rows.push(pending(IDX, CHANNEL, image.clone()));
            assert_eq!(super::image(*run, &rows), Some(image));
        }
        while let Some(state) = states.pop() {
            let image = &rows.iter().find(|row| row.idx == IDX).unwrap().value;
            assert!(is_of(image, runs[states.len()]));
            rows = restored(image);
            assert_eq!(rows, state);
        }
    }

    #[test]
    fn however_many_runs_wrote_to_a_task_what_they_found_is_no_deeper_and_little() {
        let mut rows = vec![pending(-3, "__interrupt__", value!("x".repeat(1000)))];
        for _ in 0..200 {
            let image = image(RunId::mint(), &rows).unwrap();
            assert!(!image.is_deeper_than(4));
            assert!(image.rough_size() < MOST + 5_000);
            rows.truncate(1);
            rows.push(pending(IDX, CHANNEL, image));
        }
        let mut deep = Value::Null;
        for _ in 0..codec::MAX_DEPTH {
            deep = Value::list(vec![deep]);
        }
        let rows = [pending(-3, "__interrupt__", deep)];
        assert_eq!(image(RunId::mint(), &rows), None);
    }
}
