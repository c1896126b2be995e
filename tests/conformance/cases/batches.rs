//! What is read of several threads at once.

use backstitch::{
    checkpoint::Slot,
    id::{CheckpointId, ThreadId, TreeId},
    tree::{
        NewThread, event,
        projection::{ChannelKey, ChannelLimits, ChannelRows, OneChannel},
        store::rows::NewEvent,
    },
    value,
    value::Value,
};

use super::{backend::*, sessions::*};

pub async fn threads_are_read_at_once_with_their_graphs(b: &Backend) {
    let mut ids = vec![];
    for metadata in [
        value!({"graph_id": "g\u{0}raph", "large": "x"}),
        value!({"large": "x"}),
        value!({"graph_id": {"a": [1]}}),
    ] {
        let new = NewThread {
            metadata: map(metadata),
            ..new_thread(ThreadId::mint())
        };
        ids.push(new.id);
        b.trees.create_thread(new).await.unwrap().unwrap();
    }
    let gone = b.slot().await.thread;
    b.trees.delete_thread(gone).await.unwrap();
    let mut rows = reader(b).await;
    assert!(rows.thread_rows(vec![]).await.unwrap().is_empty());
    let wanted = [ids.clone(), vec![unknown(), gone]].concat();
    let found = rows.thread_rows(wanted).await.unwrap();
    assert_eq!(found.len(), 4);
    for row in &found {
        let alone = rows.thread_row(row.id).await.unwrap().unwrap();
        let graph = row.metadata.get("graph_id").cloned().unwrap_or_default();
        let stored = alone.metadata.get("graph_id").cloned();
        assert_eq!(graph, stored.unwrap_or_default());
        assert!(row.metadata.get("large").is_none());
        let mut with_all = row.clone();
        with_all.metadata = alone.metadata.clone();
        assert_eq!(format!("{with_all:?}"), format!("{alone:?}"));
    }
    let is_there = |id: &ThreadId| found.iter().any(|row| row.id == *id);
    assert!(ids.iter().all(is_there) && is_there(&gone));
}

fn created(slot: &Slot, name: &str) -> NewEvent {
    NewEvent {
        kind: event::BRANCH_CREATED,
        branch: Some(slot.branch),
        payload: map(value!({"name": name})),
        ..NewEvent::default()
    }
}

pub async fn events_of_several_threads_are_read_within_limits(b: &Backend) {
    let mut slots = vec![];
    for _ in 0..3 {
        let slot = b.slot().await;
        let mut tx = begin(b, slot.tree).await;
        let log = (0..6).map(|_| created(&slot, &"n".repeat(100))).collect();
        tx.append(slot.tree, slot.thread, log).await.unwrap();
        tx.commit().await.unwrap();
        // A row of two events.
        let (run, of_run) = b.start(new_run(slot.thread)).await;
        b.finish(run.id, of_run).await;
        slots.push(slot);
    }
    let mut rows = reader(b).await;
    let after = |numbers: [i64; 3]| -> Vec<(TreeId, ThreadId, i64)> {
        let each = slots.iter().zip(numbers);
        each.map(|(slot, number)| (slot.tree, slot.thread, number))
            .collect()
    };
    for (numbers, limit) in [([0, 2, 5], 4), ([0, 7, 99], 100), ([6, 7, 8], 1)] {
        let mut wanted = after(numbers);
        wanted.push((unknown(), unknown(), 0));
        wanted.push((slots[0].tree, slots[1].thread, 0));
        // The last one names a thread by another tree: the one before has its events.
        wanted.rotate_right(1);
        let found = rows.events_of_threads(wanted, limit, u64::MAX);
        let found = found.await.unwrap();
        for (tree, thread, number) in after(numbers) {
            let alone = rows.events(tree, thread, number, limit).await.unwrap();
            let own = found.iter().filter(|event| event.thread == thread);
            let own: Vec<_> = own.map(|event| format!("{event:?}")).collect();
            let alone: Vec<_> = alone.iter().map(|event| format!("{event:?}")).collect();
            assert_eq!(own, alone, "{numbers:?} {limit}");
        }
    }
    // Large payloads end the events of their own thread, and of no other. The first event has none.
    let weights = rows.event_weights(slots[0].tree, slots[0].thread, 0, 9);
    let weights: Vec<u64> = weights.await.unwrap().iter().map(|(_, w)| *w).collect();
    let third: u64 = weights[..3].iter().sum();
    for (most, count) in [(0, 0), (1, 2), (third, 3), (third + 1, 4)] {
        let found = rows.events_of_threads(after([0, 0, 0]), 9, most);
        let found = found.await.unwrap();
        for slot in &slots {
            let own = found.iter().filter(|event| event.thread == slot.thread);
            let numbers: Vec<i64> = own.map(|event| event.number).collect();
            let wanted: Vec<i64> = (1..=count).collect();
            assert_eq!(numbers, wanted, "{most} of {weights:?}");
        }
    }
    let none = rows.events_of_threads(vec![], 9, 9).await.unwrap();
    assert!(none.is_empty());
}

pub async fn nodes_of_messages_are_read_with_their_trees(b: &Backend) {
    let mut trees = vec![];
    for _ in 0..2 {
        let slot = b.slot().await;
        let first = added("in both", None, 1);
        let mut commit = superstep(&slot, None, 0);
        let base = commit.checkpoint.id;
        commit.nodes = vec![first.clone(), added("other", Some(first.id), 2)];
        commit.nodes[1].seq = 1;
        b.commit(commit).await;
        let mut commit = superstep(&slot, Some(base), 1);
        let mut edit = added("in both", Some(first.id), 0);
        edit.kind = "edit";
        commit.nodes = vec![edit];
        b.commit(commit).await;
        trees.push(slot.tree);
    }
    let mut rows = reader(b).await;
    let both: Vec<_> = trees.iter().map(|tree| (*tree, "in both".into())).collect();
    let elsewhere = (unknown(), "in both".into());
    let missing = (trees[0], "nowhere".into());
    let wanted = [both, vec![elsewhere, missing]].concat();
    let found = rows.nodes_of_trees(wanted).await.unwrap();
    assert_eq!(found.len(), 4);
    for tree in trees {
        let alone = rows.nodes_of(tree, vec!["in both".into()]).await.unwrap();
        let own = found.iter().filter(|(of, _)| *of == tree);
        let own: Vec<_> = own.map(|(_, node)| format!("{node:?}")).collect();
        let alone: Vec<_> = alone.iter().map(|node| format!("{node:?}")).collect();
        assert_eq!(own, alone);
    }
    assert!(rows.nodes_of_trees(vec![]).await.unwrap().is_empty());
}

/// A tree whose second checkpoint has in the channel `m` a delta on the value of the first one, of 300 bytes each.
async fn chain(b: &Backend) -> (TreeId, Vec<CheckpointId>) {
    let slot = b.slot().await;
    let mut ids: Vec<CheckpointId> = vec![];
    let mut base = None;
    for step in 0..2 {
        let version = version_after(step);
        let mut commit = superstep(&slot, ids.last().copied(), step as i64);
        commit.checkpoint.blob_versions = blob_versions(&[("m", version), ("n", version)]);
        commit.blobs = ["m", "n"]
            .map(|channel| blob(channel, version, base, &[step as u8; 300]))
            .into();
        base = Some(version);
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    (slot.tree, ids)
}

/// The bytes of each value, or what it weighs.
fn sizes(found: Vec<ChannelRows>) -> Vec<Value> {
    let size = |rows| match rows {
        ChannelRows::Missing => Value::Null,
        ChannelRows::Weight(weight) => Value::from(weight as i64),
        ChannelRows::Read(OneChannel { envelope, blobs }) => {
            assert_eq!(envelope, b"any bytes");
            assert!(blobs.iter().all(|blob| &*blob.channel == "m"));
            let mut bytes: Vec<_> = blobs.iter().map(|blob| (blob.base, &blob.bytes)).collect();
            bytes.sort_by_key(|(base, _)| base.is_some());
            let bytes = bytes
                .iter()
                .map(|(_, bytes)| Value::from(i64::from(bytes[0])));
            Value::list(bytes.collect::<Vec<_>>())
        }
    };
    found.into_iter().map(size).collect()
}

pub async fn channels_of_several_states_are_read_within_limits(b: &Backend) {
    let (one, of_one) = chain(b).await;
    let (other, of_other) = chain(b).await;
    let bare = b.slot().await;
    let without = b.line(&bare, None, 1).await[0];
    let key = |tree, checkpoint| ChannelKey {
        tree,
        checkpoint,
        channel: "m".into(),
    };
    let keys = vec![
        key(one, of_one[1]),
        key(one, of_other[0]),
        key(other, of_other[0]),
        key(bare.tree, without),
        key(unknown(), of_one[0]),
        key(other, of_other[1]),
    ];
    let read = async |each, all| {
        let most = ChannelLimits { each, all };
        sizes(b.projections.channels(keys.clone(), most).await.unwrap())
    };
    let (null, envelope) = (Value::Null, "any bytes".len() as u64);
    let (whole, first, none) = (value!([0, 1]), value!([0]), value!([]));
    let [of_two, of_first] = [600, 300].map(|bytes| Value::from((bytes + envelope) as i64));
    assert_eq!(
        read(u64::MAX, u64::MAX).await,
        [
            whole.clone(),
            null.clone(),
            first.clone(),
            none.clone(),
            null.clone(),
            whole.clone()
        ]
    );
    // Each may weigh so much.
    assert_eq!(
        read(600, u64::MAX).await,
        [
            of_two.clone(),
            null.clone(),
            first.clone(),
            none.clone(),
            null.clone(),
            of_two.clone()
        ]
    );
    // All may weigh so much: the first ones are read.
    let two = 600 + 300 + 2 * envelope;
    for (all, is_read) in [(two, true), (two - 1, false)] {
        let second = if is_read { &first } else { &of_first };
        let third = Value::from(envelope as i64);
        assert_eq!(
            read(u64::MAX, all).await,
            [
                whole.clone(),
                null.clone(),
                second.clone(),
                third,
                null.clone(),
                of_two.clone()
            ]
        );
    }
    let most = ChannelLimits { each: 1, all: 1 };
    assert!(
        b.projections
            .channels(vec![], most)
            .await
            .unwrap()
            .is_empty()
    );
}
