//! Tests of frames: envelopes, blobs, deltas and pending writes as rows.

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    checkpoint::{Pending, Source, Stored},
    id::{BranchId, CheckpointId, ThreadId, task_id},
    time::Timestamp,
    value::{Map, Value},
};

pub(in crate::checkpoint) fn checkpoint(values: &[(&str, Value, u64)]) -> Checkpoint {
    let version = |counter| Version { counter, salt: 7 };
    Checkpoint {
        id: CheckpointId::mint(0, []),
        parent: None,
        step: 0,
        source: Source::Loop,
        created_at: Timestamp(1),
        values: values
            .iter()
            .map(|(name, value, _)| (Arc::from(*name), value.clone()))
            .collect(),
        versions: values
            .iter()
            .map(|(name, _, counter)| (Arc::from(*name), version(*counter)))
            .collect(),
        consumed_versions: BTreeMap::new(),
        updated: None,
        metadata: Map::new(),
        run: None,
        thread: ThreadId::mint(),
        branch: BranchId::mint(),
        depth: 0,
        root: None,
        last_node: None,
        event_number: 0,
        run_supersteps: 0,
        task: None,
    }
}

fn stored(encoded: &Encoded, blobs: Vec<BlobRow>) -> Stored {
    Stored {
        row: encoded.row.clone(),
        blobs,
        writes: vec![],
    }
}

fn list(items: usize) -> Value {
    Value::list((0..items).map(|i| format!("item {i}").into()).collect())
}

#[test]
fn every_value_comes_back_as_it_was_and_only_those_that_can_grow_are_blobs() {
    let grows = [("list", list(2)), ("bytes", Value::Bytes(b"b"[..].into()))];
    let plain = [
        ("nul", Value::from("a\0b")),
        ("nan", Value::Float(f64::NAN)),
        ("inf", Value::Float(f64::INFINITY)),
        ("minus_zero", Value::Float(-0.0)),
        ("big", Value::Float(1e22)),
        ("huge", Value::Uint(u64::MAX)),
        ("int", Value::Int(-3)),
        ("float", Value::Float(2.0)),
        ("text", Value::from("ü\u{1F600}\"\\")),
        ("none", Value::Null),
        ("yes", Value::Bool(true)),
    ];
    let all: Vec<(&str, Value, u64)> = grows
        .iter()
        .chain(&plain)
        .map(|(name, value)| (*name, value.clone(), 1))
        .collect();
    let encoded = Frame::default().encode(
        &"".into(),
        &checkpoint(&all),
        |_| Shape::Plain,
        Format::Bincode,
    );
    assert_eq!(encoded.blobs.len(), grows.len());
    let versions = versions_of(&encoded.row.blob_versions).unwrap();
    let named: Vec<&str> = versions.keys().map(|name| &**name).collect();
    assert_eq!(named, ["bytes", "list"]);
    let back = decode(&stored(&encoded, encoded.blobs.clone())).unwrap();
    for (name, value, _) in &all {
        let found = &back.checkpoint.values[*name];
        let same = match (value, found) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        assert!(same, "{name}: {value:?} became {found:?}");
    }
}

#[test]
fn a_growing_list_costs_what_it_gains_and_resolves_through_its_chain() {
    let mut frame = Frame::default();
    let (mut blobs, mut bytes, mut last) = (vec![], 0, None);
    let turns = 300;
    for turn in 1..=turns {
        let state = checkpoint(&[("log", list(turn), turn as u64)]);
        let encoded = frame.encode(&"".into(), &state, |_| Shape::Append, Format::Bincode);
        bytes += encoded
            .blobs
            .iter()
            .map(|row| row.bytes.len())
            .sum::<usize>();
        blobs.extend(encoded.blobs.clone());
        last = Some(encoded);
    }
    let whole = codec::encode(&list(turns)).len();
    assert!(bytes < 3 * whole, "{bytes} bytes for {whole}");
    let back = decode(&stored(&last.unwrap(), blobs)).unwrap();
    assert_eq!(back.checkpoint.values["log"], list(turns));
}

#[test]
fn rows_of_either_format_build_on_those_of_the_other() {
    let mut frame = Frame::default();
    let (mut blobs, mut last) = (vec![], None);
    for turn in 1..=60 {
        let (format, tag) = if turn / 10 % 2 == 1 {
            (Format::Json, "json")
        } else {
            (Format::Bincode, "b")
        };
        let note = Value::from("nul \0, \u{1a}");
        let mut state = checkpoint(&[("log", list(turn), turn as u64), ("note", note, 1)]);
        state.updated = Some(vec!["log".into()]);
        let encoded = frame.encode(&"".into(), &state, |_| Shape::Append, format);
        assert_eq!(&*encoded.blobs[0].tag, tag);
        assert_eq!(encoded.row.envelope.starts_with(b"{"), tag == "json");
        blobs.extend(encoded.blobs.clone());
        last = Some((state, encoded));
        let (state, encoded) = last.as_ref().unwrap();
        let back = decode(&stored(encoded, blobs.clone())).unwrap().checkpoint;
        assert_eq!(back.values, state.values);
        assert_eq!(back.versions, state.versions);
        assert_eq!(back.updated, state.updated);
    }
    let (_, encoded) = last.unwrap();
    assert!(encoded.blobs[0].base.is_some());
}

#[test]
fn an_envelope_that_json_would_change_stays_binary() {
    let made = checkpoint(&[("nan", Value::Float(f64::NAN), 1), ("log", list(2), 1)]);
    let encoded = Frame::default().encode(&"".into(), &made, |_| Shape::Plain, Format::Json);
    assert!(!encoded.row.envelope.starts_with(b"{"));
    assert_eq!(&*encoded.blobs[0].tag, "json");
    let back = decode(&stored(&encoded, encoded.blobs.clone())).unwrap();
    assert!(back.checkpoint.values["nan"].as_f64().unwrap().is_nan());
}

#[test]
fn only_channels_whose_version_moved_make_rows() {
    let mut frame = Frame::default();
    let first = checkpoint(&[("a", list(3), 1), ("b", list(3), 1)]);
    assert_eq!(
        frame
            .encode(&"".into(), &first, |_| Shape::Append, Format::Bincode)
            .blobs
            .len(),
        2
    );
    let second = checkpoint(&[("a", list(4), 2), ("b", list(3), 1)]);
    let rows = frame
        .encode(&"".into(), &second, |_| Shape::Append, Format::Bincode)
        .blobs;
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&*rows[0].channel, rows[0].base.map(|v| v.counter)),
        ("a", Some(1))
    );
}

#[test]
fn a_missing_link_of_a_chain_is_an_error_that_names_the_channel() {
    let mut frame = Frame::default();
    frame.encode(
        &"".into(),
        &checkpoint(&[("log", list(50), 1)]),
        |_| Shape::Append,
        Format::Bincode,
    );
    let encoded = frame.encode(
        &"".into(),
        &checkpoint(&[("log", list(51), 2)]),
        |_| Shape::Append,
        Format::Bincode,
    );
    let error = decode(&stored(&encoded, encoded.blobs.clone())).unwrap_err();
    assert!(error.to_string().contains("`log`"), "{error}");
}

#[test]
fn a_write_that_became_a_delta_is_stored_as_a_reference_to_it() {
    let mut frame = Frame::default();
    frame.encode(
        &"".into(),
        &checkpoint(&[("log", list(50), 1)]),
        |_| Shape::Append,
        Format::Bincode,
    );
    let encoded = frame.encode(
        &"".into(),
        &checkpoint(&[("log", list(51), 2)]),
        |_| Shape::Append,
        Format::Bincode,
    );
    let item = Value::list(vec!["item 50".into()]);
    let write = Pending {
        task: task_id(CheckpointId::mint(0, []), ["x"]),
        path: "~".into(),
        idx: 0,
        channel: "log".into(),
        value: item.clone(),
    };
    let at = CheckpointId::mint(0, []);
    let branch = BranchId::mint();
    let rows = encode_writes(
        &"".into(),
        at,
        branch,
        &[write],
        Some(&encoded.appended),
        Format::Bincode,
    );
    let mut with_writes = stored(&encoded, vec![]);
    with_writes.row.envelope = b"{}".into();
    with_writes.writes = rows;
    let back = decode(&with_writes).unwrap();
    let (position, version) = back.references[0];
    assert_eq!((position, version.counter), (0, 2));
    let found = Chains::new(&encoded.blobs).items("log", version).unwrap();
    assert_eq!(found, Some(item));
}

#[test]
fn metadata_loses_nul_and_nothing_else() {
    let mut state = checkpoint(&[]);
    state.metadata.insert("a\0b", "x\0y");
    state.metadata.insert("path", "C:\\u0000");
    let encoded = Frame::default().encode(&"".into(), &state, |_| Shape::Plain, Format::Bincode);
    assert_eq!(encoded.row.metadata, r#"{"ab":"xy","path":"C:\\u0000"}"#);
}

#[test]
fn what_follows_from_the_rest_is_left_out_and_comes_back() {
    let version = |counter| Version { counter, salt: 7 };
    let values = [
        ("a", Value::Int(1), 3),
        ("b", Value::Int(2), 2),
        ("c", list(1), 3),
    ];
    let names = |names: &[&str]| Some(names.iter().map(|name| Arc::from(*name)).collect());
    for (updated, told) in [
        (names(&["a", "c"]), false),
        (names(&["a"]), true),
        (names(&[]), true),
        (None, true),
    ] {
        let mut made = checkpoint(&values);
        made.versions.insert("gone".into(), version(3));
        made.consumed_versions
            .insert("__input__".into(), BTreeMap::new());
        made.consumed_versions
            .insert("n".into(), BTreeMap::from([("a".into(), version(2))]));
        made.updated = updated;
        let encoded = Frame::default().encode(&"".into(), &made, |_| Shape::Plain, Format::Bincode);
        let envelope = envelope::decode(&encoded.row.envelope).unwrap();
        assert_eq!(envelope.updated != Updated::Newest, told, "{envelope:?}");
        let blobs = encoded.blobs.clone();
        let back = decode(&stored(&encoded, blobs)).unwrap().checkpoint;
        assert_eq!(back.updated, made.updated);
        assert_eq!(back.values, made.values);
        assert_eq!(back.versions, made.versions);
        assert_eq!(back.consumed_versions, made.consumed_versions);
    }
    let empty = checkpoint(&[]);
    let encoded = Frame::default().encode(&"".into(), &empty, |_| Shape::Plain, Format::Bincode);
    assert_eq!(encoded.row.envelope.len(), 7);
    assert_eq!(encoded.row.blob_versions, "{}");
}

#[test]
fn the_json_of_earlier_versions_is_read_as_it_was_meant() {
    let mut encoded = Frame::default().encode(
        &"".into(),
        &checkpoint(&[]),
        |_| Shape::Plain,
        Format::Bincode,
    );
    encoded.row.envelope =
        br#"{"v":4,"channel_values":{"a":1},"channel_versions":{"a":"1.000007"}}"#.into();
    let back = decode(&stored(&encoded, vec![])).unwrap().checkpoint;
    assert_eq!(back.updated, None);
    assert_eq!(back.values["a"], Value::Int(1));
    encoded.row.envelope = br#"{"channel_values":{"a":1,"b":"x"},"channel_versions":{"a":"2.000007","b":"1.000001"},"versions_seen":{"n":{"b":"1.000001"}},"task":"00000000-0000-0000-0000-000000000007"}"#.into();
    let back = decode(&stored(&encoded, vec![])).unwrap().checkpoint;
    assert_eq!(back.updated, Some(vec!["a".into()]));
    assert_eq!(back.consumed_versions["n"]["b"].to_string(), "1.000001");
    assert_eq!(back.task.map(|task| task.0.as_u128()), Some(7));
    encoded.row.envelope = br#"{"channel_versions":{"a":"two"}}"#.into();
    let error = decode(&stored(&encoded, vec![])).unwrap_err().to_string();
    assert!(
        error.contains("envelope") && error.contains("two"),
        "{error}"
    );
}

#[test]
fn short_texts_are_in_the_envelope_and_long_ones_are_stored_once() {
    let (short, long) = ("s".repeat(4096), "l".repeat(4097));
    let made = checkpoint(&[
        ("a", Value::from(&*short), 1),
        ("b", Value::from(&*long), 2),
    ]);
    let mut frame = Frame::default();
    let encoded = frame.encode(&"".into(), &made, |_| Shape::Plain, Format::Bincode);
    let own = envelope::decode(&encoded.row.envelope).unwrap().values;
    assert_eq!(own, [("a".into(), Value::from(&*short))]);
    assert_eq!(encoded.blobs.len(), 1);
    let back = decode(&stored(&encoded, encoded.blobs.clone())).unwrap();
    assert_eq!(back.checkpoint.values, made.values);
    assert!(
        frame
            .encode(&"".into(), &made, |_| Shape::Plain, Format::Bincode)
            .blobs
            .is_empty()
    );
}
