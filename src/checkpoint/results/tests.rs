//! Tests of results that share a row.

use super::*;
use crate::{
    checkpoint::{codec::Format, frame},
    id::{BranchId, CheckpointId},
    value,
};

fn result(task: u128, path: &str, format: Format) -> WriteRow {
    let list = Value::list(vec![Value::Null; 200]);
    let value = value!([[0, "log", list], [1, "log", null, "7.00000a"]]);
    let (tag, bytes) = codec::encode_weighed(&value, format);
    let tag = match format {
        Format::Bincode => "b5".into(),
        Format::Json => tag,
    };
    WriteRow {
        ns: "".into(),
        checkpoint: CheckpointId(Uuid::nil()),
        branch: BranchId(Uuid::nil()),
        task: TaskId(Uuid::from_u128(task)),
        idx: 0,
        path: path.into(),
        channel: None,
        tag,
        bytes,
        upsert: false,
    }
}

fn told(rows: &[WriteRow]) -> Vec<(u128, &str, i32, &str, &[u8])> {
    let mut told = vec![];
    for row in rows {
        let task = row.task.0.as_u128();
        told.push((task, &*row.path, row.idx, &*row.tag, &*row.bytes));
    }
    told
}

#[test]
fn results_come_back_one_by_one_in_the_order_of_their_paths() {
    let paths = ["~__pregel_pull, b", "~__pregel_pull, a", "~>", ""];
    let rows: Vec<_> = (1..)
        .zip(paths)
        .map(|(task, path)| result(task, path, Format::Bincode))
        .collect();
    let joined = join(&rows).unwrap();
    assert!(joined.weight() >= rows.iter().map(WriteRow::weight).sum());
    let named = frame::references(&joined.tag, &joined.bytes);
    assert_eq!(named.len(), 4);
    assert_eq!(named[0].1.to_string(), "7.00000a");
    let step = WriteRow {
        idx: -5,
        ..result(2, paths[1], Format::Bincode)
    };
    let mut expected = [rows, vec![step.clone()]].concat();
    expected.sort_by(|a, b| (&a.path, a.task, a.idx).cmp(&(&b.path, b.task, b.idx)));
    let back = split_all(vec![step, joined]).unwrap();
    assert_eq!(told(&back), told(&expected));
}

#[test]
fn a_result_in_a_row_of_its_own_counts() {
    let rows = [1, 2].map(|task| result(task, "~", Format::Bincode));
    let joined = join(&rows).unwrap();
    let own = result(2, "~", Format::Json);
    let back = split_all(vec![joined, own.clone()]).unwrap();
    assert_eq!(told(&back), told(&[rows[0].clone(), own]));
}

#[test]
fn readable_results_and_large_ones_stay_rows() {
    let readable = [Format::Bincode, Format::Json].map(|format| result(1, "~", format));
    assert!(join(&readable).is_none());
    let of = |rows: usize, bytes: usize| {
        let row = WriteRow {
            bytes: vec![0; bytes],
            ..result(1, "~", Format::Bincode)
        };
        join(&vec![row; rows]).is_some()
    };
    assert!(of(2, EACH) && !of(2, EACH + 1));
    assert!(of(MOST / 16, 16) && !of(MOST / 16 + 1, 16));
    assert!(!of(0, 0));
}

#[test]
fn damaged_results_are_an_error_and_name_nothing() {
    let rows = [1, 2].map(|task| result(task, "~", Format::Bincode));
    let joined = join(&rows).unwrap();
    for bytes in [
        vec![],
        vec![9],
        joined.bytes[..9].to_vec(),
        codec::encode(&value!([[1]])),
    ] {
        assert!(frame::references(&joined.tag, &bytes).is_empty());
        let damaged = WriteRow {
            bytes,
            ..joined.clone()
        };
        assert!(matches!(split_all(vec![damaged]), Err(Error::Corrupt(_))));
    }
}
