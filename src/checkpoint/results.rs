//! The results of several tasks that ran from one checkpoint as one row: a list with the task of each, its path in
//! the form that is stored, its tag and its bytes.

use std::{collections::HashSet, sync::Arc};

use uuid::Uuid;

use super::{
    Error, WriteRow,
    codec::{self, RESULTS},
    paths,
};
use crate::{id::TaskId, value::Value};

/// More bytes stay rows of their own, and so do results that have more bytes than this each: to compress so much, and to
/// store it out of line, takes Postgres longer than the rows do.
const MOST: usize = 16 << 10;
const EACH: usize = 256;

/// The task that a row of several results names: no task has this id.
const SEVERAL: TaskId = TaskId(Uuid::max());

/// One row for several results at one checkpoint and on one branch; `None` where each is to have a row of its own: JSON
/// text, which somebody wants to read, and large ones.
pub fn join(rows: &[WriteRow]) -> Option<WriteRow> {
    let first = rows.first()?;
    let bytes: usize = rows.iter().map(|row| row.bytes.len()).sum();
    if bytes > MOST.min(EACH * rows.len()) || rows.iter().any(|row| codec::is_json(&row.tag)) {
        return None;
    }
    let one = |row: &WriteRow| {
        Value::list(vec![
            row.task.to_string().into(),
            paths::shortened(&row.path).into_owned().into(),
            Value::Str(row.tag.clone()),
            Value::Bytes(row.bytes.clone().into()),
        ])
    };
    let bytes = codec::encode(&Value::list(rows.iter().map(one).collect()));
    let weight = rows.iter().map(WriteRow::weight).sum();
    Some(WriteRow {
        task: SEVERAL,
        path: "".into(),
        tag: codec::tag_of_results(weight, bytes.len()),
        bytes,
        ..first.clone()
    })
}

/// Whether a row with this tag has several results.
pub fn is_joined(tag: &str) -> bool {
    tag.starts_with(RESULTS)
}

/// A result of a row of several.
pub struct OneResult {
    task: TaskId,
    path: Arc<str>,
    /// Codec of the bytes.
    pub tag: Arc<str>,
    /// The bytes of the result.
    pub bytes: Arc<[u8]>,
}

/// The results of a row of several, which has these bytes; the error is the reason.
pub fn split(bytes: &[u8]) -> Result<Vec<OneResult>, String> {
    let list = codec::decode(codec::BINCODE, bytes).map_err(|error| error.to_string())?;
    let one = |fields: &Value| match fields.as_list()? {
        [
            Value::Str(task),
            Value::Str(path),
            Value::Str(tag),
            Value::Bytes(bytes),
        ] => Some(OneResult {
            task: task.parse().ok()?,
            path: paths::whole(path).into(),
            tag: tag.clone(),
            bytes: bytes.clone(),
        }),
        _ => None,
    };
    let list = list.as_list().ok_or("it is not a list")?;
    let results = list
        .iter()
        .map(|fields| one(fields).ok_or_else(|| "an entry is damaged".to_owned()));
    results.collect()
}

/// The rows at a checkpoint, in their order, each with the result of one task. A result in a row of its own takes the
/// place of that task's in a row of several.
///
/// # Errors
/// A row that this version cannot read.
pub fn split_all(rows: Vec<WriteRow>) -> Result<Vec<WriteRow>, Error> {
    let (joined, mut rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| is_joined(&row.tag));
    if joined.is_empty() {
        return Ok(rows);
    }
    let key = |row: &WriteRow| (row.task, row.idx, row.branch);
    let own: HashSet<_> = rows.iter().map(key).collect();
    for row in &joined {
        let corrupt =
            |why| Error::Corrupt(format!("results at checkpoint {}: {why}", row.checkpoint));
        let results = split(&row.bytes).map_err(corrupt)?.into_iter();
        let results = results.map(|one| WriteRow {
            task: one.task,
            path: one.path,
            tag: one.tag,
            bytes: one.bytes.to_vec(),
            ns: row.ns.clone(),
            channel: None,
            ..*row
        });
        rows.extend(results.filter(|one| !own.contains(&key(one))));
    }
    rows.sort_by(|a, b| (&a.path, key(a)).cmp(&(&b.path, key(b))));
    Ok(rows)
}

#[cfg(test)]
mod tests;
