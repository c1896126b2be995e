//! What checkpoints, values and pending writes weigh before they are read: both storages say the same.

use std::sync::Arc;

use backstitch::{
    checkpoint::{Blobs, List, Page, PageScope, Slot, Version, WriteRow},
    id::{CheckpointId, RunId},
    tree::{
        load::AT_ONCE,
        projection::{ChannelKey, ChannelLimits, ChannelRows},
    },
    value,
    value::Value,
};

use super::backend::*;

fn version(counter: u64) -> Version {
    Version {
        counter,
        salt: 0xab,
    }
}

fn tagged(tag: &str, row: WriteRow) -> WriteRow {
    WriteRow {
        tag: tag.into(),
        ..row
    }
}

pub async fn blobs_weigh_a_multiple_of_their_bytes_by_every_kind_of_tag(b: &Backend) {
    let slot = b.slot().await;
    let all = [
        ("b", 300),
        ("b7", 2_100),
        ("b40", 12_000),
        ("json12", 3_600),
        ("results9", 2_700),
        ("b100", 300),
        ("jsonb2", 300),
        ("msgpack", 300),
    ];
    let mut commit = superstep(&slot, None, 0);
    for (tag, _) in all {
        let mut one = blob(tag, version(1), None, &[1; 300]);
        one.tag = tag.into();
        commit.blobs.push(one);
    }
    b.commit(commit).await;
    for (tag, weight) in all {
        let wanted = vec![(Arc::from(tag), version(1))];
        let found = b.saver.blobs(slot.tree, "".into(), wanted, 0).await;
        let Blobs::Weight(found) = found.unwrap() else {
            panic!("{tag} is read");
        };
        assert_eq!(found, weight, "{tag}");
    }
}

/// What checkpoints weigh, or `None` where all of them are read.
async fn weights(b: &Backend, slot: &Slot, ids: &[CheckpointId], most: u64) -> Option<Vec<u64>> {
    let scope = PageScope {
        most,
        metadata: false,
    };
    let page = b.saver.page_of(slot.tree, "".into(), ids.to_vec(), scope);
    match page.await.unwrap() {
        Page::Rows(rows) => {
            assert_eq!(rows.rows.len(), ids.len());
            None
        }
        Page::Sizes(sizes) => Some(sizes.iter().map(|size| size.weight).collect()),
    }
}

pub async fn checkpoints_weigh_what_their_rows_values_and_writes_do(b: &Backend) {
    let slot = b.slot().await;
    let mut ids: Vec<CheckpointId> = vec![];
    let tiny = value!({"t": Value::list(vec![Value::Null; 1000])});
    // All name one version, which has a row in two of them.
    for counter in 1..=6 {
        let mut commit = superstep(&slot, ids.last().copied(), counter);
        let counter = counter as u64;
        commit.checkpoint.blob_versions = blob_versions(&[("m", version(counter))]);
        let tagged_blob = |tag: &str, base, bytes: &[u8]| {
            let mut one = blob("m", version(counter), base, bytes);
            one.tag = tag.into();
            vec![one]
        };
        match counter {
            2 => commit.blobs = tagged_blob("b40", None, &[1; 300]),
            3 => commit.blobs = tagged_blob("json20", Some(version(2)), &[2; 200]),
            4 => commit.checkpoint.metadata = tiny.to_json(),
            6 => commit.checkpoint.envelope = vec![1; 5_009],
            _ => {}
        }
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    let pending = vec![
        tagged("b40", result(ids[4], 1, &[3; 300])),
        tagged("json20", control(ids[4], 1, RESUME, &[4; 200])),
    ];
    b.saver.flush(flush(&slot, pending)).await.unwrap();
    let found = weights(b, &slot, &ids, 0).await.unwrap();
    // An envelope of 9 bytes, metadata of 2, and the versions: as text 16 bytes, and a few more as `jsonb`.
    assert!((49..80).contains(&found[0]), "{}", found[0]);
    let more: Vec<u64> = found.iter().map(|weight| weight - found[0]).collect();
    // 300 * 40; 200 * 20 more for what builds on that; 12 for each of the 5005 bytes that metadata of a thousand tiny
    // items has more than `{}`; both writes as the values before; 5000 more bytes of the envelope.
    assert_eq!(more, [0, 12_000, 16_000, 60_060, 16_000, 5_000]);
    // Each alone is read if it weighs no more, and two that share a value if they weigh no more without it.
    let alone = (0..6).map(|at| (vec![ids[at]], found[at]));
    let both = (vec![ids[1], ids[2]], found[1] + found[2] - 12_000);
    for (ids, weight) in alone.chain([both]) {
        assert_eq!(weights(b, &slot, &ids, weight).await, None, "{weight}");
        let less = weights(b, &slot, &ids, weight - 1).await;
        assert!(less.is_some(), "{weight}");
    }
    let list = List {
        ns: Some("".into()),
        ..list_all(&slot)
    };
    let scope = PageScope {
        most: 0,
        metadata: false,
    };
    let Page::Sizes(sizes) = b.saver.page(list, scope).await.unwrap() else {
        panic!("nothing weighs so little");
    };
    assert!(sizes.iter().rev().map(|size| size.weight).eq(found));
}

pub async fn a_result_in_the_row_of_its_checkpoint_weighs_as_one_of_its_own(b: &Backend) {
    let slot = b.slot().await;
    let mut first = superstep(&slot, None, 0);
    let mut second = superstep(&slot, Some(first.checkpoint.id), 1);
    let run = Some(RunId::mint());
    (first.checkpoint.run, second.checkpoint.run) = (run, run);
    let ids = [first.checkpoint.id, second.checkpoint.id];
    second.writes = vec![tagged("b40", result(ids[0], 1, &[5; 300]))];
    for stored in b.saver.commit(vec![first, second]).await {
        stored.unwrap();
    }
    assert!(!b.rows(&slot).await.contains_key("checkpoint_writes"));
    let found = weights(b, &slot, &ids, 0).await.unwrap();
    assert_eq!(found[0] - found[1], 12_000);
}

pub async fn channels_weigh_what_their_chains_do(b: &Backend) {
    let slot = b.slot().await;
    let mut first = superstep(&slot, None, 0);
    first.blobs = vec![blob("m", version(1), None, &[1; 300])];
    first.blobs[0].tag = "b40".into();
    let mut second = superstep(&slot, Some(first.checkpoint.id), 1);
    second.blobs = vec![blob("m", version(2), Some(version(1)), &[2; 200])];
    second.blobs[0].tag = "json20".into();
    second.checkpoint.blob_versions = blob_versions(&[("m", version(2))]);
    let key = ChannelKey {
        tree: slot.tree,
        checkpoint: second.checkpoint.id,
        channel: "m".into(),
    };
    b.commit(first).await;
    b.commit(second).await;
    // 300 * 40 + 200 * 20, and an envelope of 9 bytes.
    let weight = 16_009;
    for (each, all, is_read) in [
        (weight, weight, true),
        (weight - 1, u64::MAX, false),
        (u64::MAX, weight - 1, false),
    ] {
        let most = ChannelLimits { each, all };
        let found = b.projections.channels(vec![key.clone()], most).await;
        match &found.unwrap()[..] {
            [ChannelRows::Read(channel)] => assert!(is_read && channel.blobs.len() == 2),
            [ChannelRows::Weight(found)] => assert_eq!((*found, is_read), (weight, false)),
            other => panic!("{other:?}"),
        }
    }
}

pub async fn interrupts_weigh_a_multiple_of_their_bytes(b: &Backend) {
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let rows = vec![
        tagged("b40", control(base, 1, INTERRUPT, &[1; 300])),
        tagged("json25", control(base, 2, INTERRUPT, &[2; 200])),
        tagged("results3", result(base, 3, &[3; 100])),
        tagged("b40", result(base, 4, &[4; 5_000])),
    ];
    b.saver.flush(flush(&slot, rows)).await.unwrap();
    let pending = b.trees.pending_interrupts(slot.tree, slot.branch, base, 0);
    let pending = pending.await.unwrap();
    // The bytes of the last one are not read. Each row weighs 384 besides.
    assert_eq!(pending.weight, 12_000 + 5_000 + 300 + 4 * 384);
    assert!(pending.rows.is_none());
}

pub async fn a_checkpoint_beside_its_thread_has_no_more_pending_than_is_read_at_once(b: &Backend) {
    assert_eq!(AT_ONCE, 786_432);
    let slot = b.slot().await;
    let base = b.line(&slot, None, 1).await[0];
    let is_read = async || {
        let found = b.trees.thread_with_checkpoint(slot.thread, None, None);
        found.await.unwrap().unwrap().checkpoint.is_some()
    };
    // 19,660 * 40 + 32.
    let as_much = vec![
        tagged("b40", result(base, 1, &[1; 19_660])),
        control(base, 1, RESUME, &[2; 32]),
    ];
    b.saver.flush(flush(&slot, as_much)).await.unwrap();
    assert!(is_read().await);
    let one_more = vec![control(base, 2, RESUME, b"x")];
    b.saver.flush(flush(&slot, one_more)).await.unwrap();
    assert!(!is_read().await);
}
