//! One checkpoint with all it needs.

use std::sync::Arc;

use backstitch::{
    checkpoint::{At, BlobRow, Blobs, Commit, Page, PageScope, Query, Version, WriteRow},
    id::CheckpointId,
    tree::usage::{Amount, Usage},
    value::Value,
};

use super::backend::*;

pub async fn what_does_not_exist_is_not_found(b: &Backend) {
    let slot = b.slot().await;
    for at in [
        At::ActiveHead,
        At::Newest,
        At::Head(slot.branch),
        At::Head(unknown()),
    ] {
        assert!(b.load(&slot, "", at).await.is_none(), "empty branch");
    }
    let id = b.line(&slot, None, 1).await[0];
    let other = b.slot().await;
    assert!(b.by_id(&slot, unknown()).await.is_none());
    assert!(b.by_id(&other, id).await.is_none(), "another tree's");
    assert!(b.load(&slot, "ns", At::Id(id)).await.is_none());
    assert!(b.load(&slot, "ns", At::Newest).await.is_none());
    let at = At::Subgraph {
        start: id,
        branch: slot.branch,
        before: None,
    };
    assert!(b.load(&slot, "ns", at).await.is_none());
    let elsewhere = Query {
        thread: unknown(),
        ..query(&slot, "", At::ActiveHead)
    };
    assert!(b.saver.load(elsewhere).await.unwrap().is_none());
}

pub async fn a_checkpoint_is_found_by_id_head_activity_and_age(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 3).await;
    // Active is the fork, newest is what main gets after it.
    let (open, fork) = fork(&slot, Some((ids[0], 0)));
    let mut commit = superstep(&fork, Some(ids[0]), 1);
    commit.open = Some(open);
    let forked = commit.checkpoint.id;
    b.commit(commit).await;
    let newest = b.line(&slot, Some(ids[2]), 1).await[0];
    let sub = substep(&slot, "sub", newest, None);
    let sub_id = sub.checkpoint.id;
    b.commit(sub).await;

    let found = async |ns: &str, at| b.load(&slot, ns, at).await.map(|stored| stored.row.id);
    assert_eq!(found("", At::Id(ids[1])).await, Some(ids[1]));
    assert_eq!(found("", At::Head(slot.branch)).await, Some(newest));
    assert_eq!(found("", At::Head(fork.branch)).await, Some(forked));
    assert_eq!(found("", At::ActiveHead).await, Some(forked));
    assert_eq!(found("", At::Newest).await, Some(newest));
    assert_eq!(found("sub", At::Newest).await, Some(sub_id));
}

pub async fn without_values_there_are_writes_but_no_blobs(b: &Backend) {
    let slot = b.slot().await;
    let version = version_after(0);
    let mut commit = superstep(&slot, None, 0);
    let id = commit.checkpoint.id;
    commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
    commit.blobs = vec![blob("c", version, None, b"x")];
    b.commit(commit).await;
    let writes = vec![result(id, 1, b"out")];
    b.saver.flush(flush(&slot, writes)).await.unwrap();
    let lean = Query {
        values: false,
        ..query(&slot, "", At::Id(id))
    };
    let stored = b.saver.load(lean).await.unwrap().unwrap();
    assert!(stored.blobs.is_empty());
    assert_eq!(stored.writes.len(), 1);
}

fn keys(blobs: &[BlobRow]) -> Vec<(String, String)> {
    let mut keys: Vec<_> = blobs
        .iter()
        .map(|blob| (blob.channel.to_string(), blob.version.to_string()))
        .collect();
    keys.sort();
    keys
}

fn version(counter: u64) -> Version {
    Version {
        counter,
        salt: 0xab,
    }
}

fn key(channel: &str, counter: u64) -> (String, String) {
    (channel.to_owned(), version(counter).to_string())
}

/// `list` grows by a delta per step from 1 to 3, is whole again at 4; `text` is whole, `n` is
/// a name without a row.
async fn chains(b: &Backend) -> (backstitch::checkpoint::Slot, Vec<CheckpointId>) {
    let slot = b.slot().await;
    let mut ids: Vec<CheckpointId> = Vec::new();
    for counter in 1..=5 {
        let mut commit = superstep(&slot, ids.last().copied(), counter);
        let counter = counter as u64;
        let mut versions = vec![("list", version(counter)), ("n", version(counter))];
        let base = (counter != 1 && counter != 4).then(|| version(counter - 1));
        commit.blobs = vec![blob("list", version(counter), base, &[counter as u8])];
        versions.push(("text", version(2)));
        if counter == 2 {
            commit.blobs.push(blob("text", version(2), None, b"text"));
        }
        commit.checkpoint.blob_versions = blob_versions(&versions);
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    (slot, ids)
}

pub async fn every_version_comes_with_its_chain_of_deltas(b: &Backend) {
    let (slot, ids) = chains(b).await;
    let loaded = async |id| b.by_id(&slot, id).await.unwrap().blobs;
    assert_eq!(
        keys(&loaded(ids[0]).await),
        [key("list", 1), key("text", 2)]
    );
    let third = loaded(ids[2]).await;
    assert_eq!(
        keys(&third),
        [
            key("list", 1),
            key("list", 2),
            key("list", 3),
            key("text", 2)
        ]
    );
    for (counter, base) in [(3, Some(2)), (2, Some(1)), (1, None)] {
        let row = third
            .iter()
            .find(|row| &*row.channel == "list" && row.version == version(counter))
            .unwrap();
        assert_eq!(row.base, base.map(version));
        assert_eq!(row.bytes, [counter as u8]);
        assert_eq!(row.chain_bytes, i32::from(base.is_some()));
    }
    assert_eq!(
        keys(&loaded(ids[4]).await),
        [key("list", 4), key("list", 5), key("text", 2)]
    );
}

pub async fn blobs_are_found_by_version(b: &Backend) {
    let (slot, _) = chains(b).await;
    let find = async |wanted: &[(&str, u64)]| {
        let wanted = wanted
            .iter()
            .map(|&(channel, counter)| (Arc::from(channel), version(counter)))
            .collect();
        keys(&b.blobs(&slot, "", wanted).await)
    };
    assert_eq!(find(&[("text", 2)]).await, [key("text", 2)]);
    // What a delta builds on is no part of it.
    assert_eq!(find(&[("list", 2)]).await, [key("list", 2)]);
    assert_eq!(
        find(&[("list", 2), ("list", 3), ("text", 2)]).await,
        [key("list", 2), key("list", 3), key("text", 2)]
    );
    assert!(find(&[("text", 9), ("nothing", 1)]).await.is_empty());
    assert!(find(&[]).await.is_empty());
}

pub async fn blobs_above_a_weight_are_measured_and_not_read(b: &Backend) {
    let slot = b.slot().await;
    let mut commit = superstep(&slot, None, 1);
    let mut heavy = blob("heavy", version(1), None, &[1; 300]);
    heavy.tag = "b40".into();
    commit.blobs = vec![heavy, blob("light", version(1), None, &[2; 5])];
    b.commit(commit).await;
    let wanted: Vec<_> = ["heavy", "light", "missing"]
        .map(|channel| (Arc::from(channel), version(1)))
        .into();
    for (most, is_read) in [(12_004, false), (12_005, true), (0, false)] {
        let found = b.saver.blobs(slot.tree, "".into(), wanted.clone(), most);
        match found.await.unwrap() {
            Blobs::Rows(rows) => {
                assert!(is_read, "{most}");
                assert_eq!(keys(&rows), [key("heavy", 1), key("light", 1)]);
            }
            Blobs::Weight(weight) => assert_eq!((weight, is_read), (12_005, false)),
        }
    }
}

pub async fn writes_are_ordered_by_path_task_and_index(b: &Backend) {
    let slot = b.slot().await;
    let id = b.line(&slot, None, 1).await[0];
    let (open, fork) = fork(&slot, Some((id, 0)));
    let on = |path: &str, write: WriteRow| WriteRow {
        path: path.into(),
        ..write
    };
    let mut of_fork = flush(&fork, vec![on("b", result(id, 1, b"6"))]);
    of_fork.open = Some(open);
    b.saver.flush(of_fork).await.unwrap();
    let writes = vec![
        on("c", result(id, 0, b"7")),
        on("a", result(id, 3, b"5")),
        on("a", result(id, 2, b"3")),
        on("a", control(id, 3, INTERRUPT, b"4")),
        on("", result(id, 9, b"1")),
        on("a", control(id, 2, RESUME, b"2")),
    ];
    b.saver.flush(flush(&slot, writes)).await.unwrap();
    let writes = b.by_id(&slot, id).await.unwrap().writes;
    let order: Vec<&[u8]> = writes.iter().map(|write| &*write.bytes).collect();
    assert_eq!(order, [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]);
    assert_eq!(writes[5].branch, fork.branch);
    assert!(writes.iter().filter(|w| w.branch == slot.branch).count() == 6);
}

pub async fn subgraph_state_is_looked_up_along_the_path(b: &Backend) {
    let slot = b.slot().await;
    // Long enough that the walk takes more than one step.
    let ids = b.line(&slot, None, 300).await;
    let mut subs = Vec::new();
    for root in [ids[0], ids[0], ids[299]] {
        let commit = substep(&slot, "sub", root, subs.last().copied());
        subs.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    b.commit(substep(&slot, "another", ids[299], None)).await;
    let (open, fork) = fork(&slot, Some((ids[298], 298)));
    let mut commit = superstep(&fork, Some(ids[298]), 1);
    commit.open = Some(open);
    let forked = commit.checkpoint.id;
    b.commit(commit).await;

    let find = async |start, branch, before| {
        let at = At::Subgraph {
            start,
            branch,
            before,
        };
        b.load(&slot, "sub", at).await.map(|stored| stored.row.id)
    };
    let (main, other) = (slot.branch, fork.branch);
    assert_eq!(find(ids[299], main, None).await, Some(subs[2]));
    assert_eq!(find(ids[299], main, Some(subs[2])).await, Some(subs[1]));
    assert_eq!(find(ids[299], main, Some(subs[1])).await, Some(subs[0]));
    assert_eq!(find(ids[299], main, Some(subs[0])).await, None);
    assert_eq!(find(ids[298], main, None).await, Some(subs[1]));
    // The fork's path does not hold main's last step, but what lies below.
    assert_eq!(find(forked, other, None).await, Some(subs[1]));
    // Rows of a sibling below a shared checkpoint do not count.
    assert_eq!(find(ids[299], other, None).await, Some(subs[1]));
}

pub async fn what_is_stored_of_a_thread_is_summed(b: &Backend) {
    let usage = async |slot: &backstitch::checkpoint::Slot| {
        b.trees.usage(slot.tree, slot.thread).await.unwrap()
    };
    let empty = b.slot().await;
    assert_eq!(usage(&empty).await, Usage::default());
    let (slot, ids) = chains(b).await;
    let amount = |rows, bytes| Amount { rows, bytes };
    let before = usage(&slot).await;
    assert_eq!((before.checkpoints.rows, before.writes), (5, amount(0, 0)));
    assert!(before.checkpoints.bytes > 5 * 20, "{before:?}");
    let channels = [("list".into(), amount(5, 5)), ("text".into(), amount(1, 4))];
    assert_eq!(before.channels, channels.into());
    assert_eq!(before.values(), amount(6, 9));
    // A subgraph's rows count too, and so does what a chain of deltas is built on though nobody names it.
    let newest = ids[4];
    let mut commit = substep(&slot, "sub", newest, None);
    let of_sub = |row: BlobRow| BlobRow {
        ns: "sub".into(),
        ..row
    };
    commit.blobs = vec![
        of_sub(blob("list", version(1), None, b"abc")),
        of_sub(blob("list", version(2), Some(version(1)), b"d")),
    ];
    commit.checkpoint.blob_versions = blob_versions(&[("list", version(2))]);
    commit.writes = vec![result(newest, 1, b"12"), result(newest, 2, b"345")];
    b.commit(commit).await;
    let after = usage(&slot).await;
    assert_eq!((after.checkpoints.rows, after.writes), (6, amount(2, 5)));
    assert_eq!(after.channels["list"], amount(7, 9));
    assert_eq!(after.channels["text"], amount(1, 4));
    assert_eq!(usage(&empty).await, Usage::default());
    let elsewhere = b.trees.usage(slot.tree, unknown()).await.unwrap();
    assert_eq!(elsewhere, Usage::default());
}

pub async fn a_page_has_everything_of_the_checkpoints_that_are_there(b: &Backend) {
    let (slot, ids) = chains(b).await;
    let pending = vec![
        result(ids[0], 1, b"one"),
        result(ids[0], 2, b"two"),
        result(ids[3], 1, b"of another"),
        control(ids[4], 1, INTERRUPT, b"waits"),
    ];
    b.saver.flush(flush(&slot, pending)).await.unwrap();
    let read = async |ids: Vec<CheckpointId>, most| {
        let scope = PageScope {
            most,
            metadata: false,
        };
        let page = b.saver.page_of(slot.tree, "".into(), ids, scope);
        page.await.unwrap()
    };
    // The first one is not there, nor is one between.
    let wanted = vec![unknown(), ids[4], unknown(), ids[2], ids[0]];
    let Page::Rows(page) = read(wanted.clone(), 1 << 20).await else {
        panic!("it is small");
    };
    let found = page.rows.iter().map(|(row, _)| row.id);
    assert!(found.eq([ids[4], ids[2], ids[0]]));
    for (row, writes) in &page.rows {
        let alone = b.by_id(&slot, row.id).await.unwrap();
        let texts = |writes: &[WriteRow]| {
            let text = |write: &WriteRow| (write.checkpoint, write.task, write.bytes.clone());
            writes.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(writes), texts(&alone.writes));
        assert!(
            keys(&alone.blobs)
                .iter()
                .all(|key| keys(&page.blobs).contains(key))
        );
    }
    assert_eq!(page.rows[2].1.len(), 2);
    let Page::Sizes(sizes) = read(wanted, 0).await else {
        panic!("nothing is small enough");
    };
    for size in &sizes {
        let Page::Sizes(alone) = read(vec![size.id], 0).await else {
            panic!("nothing is small enough");
        };
        assert_eq!((alone[0].id, alone[0].weight), (size.id, size.weight));
    }
    assert_eq!(sizes.len(), 3);
}

pub async fn an_envelope_in_json_comes_back_as_it_was(b: &Backend) {
    let slot = b.slot().await;
    let text = br#"{"channel_values":{"text":"nul \u0000, \u001a0, \\u0000","big":1e22}}"#;
    let envelope = |envelope: &[u8]| Value::from_json_slice(envelope).unwrap();
    let mut commits = vec![];
    for step in 0..2 {
        let parent = commits.last().map(|last: &Commit| last.checkpoint.id);
        let mut commit = superstep(&slot, parent, step);
        commit.checkpoint.envelope = text.to_vec();
        commits.push(commit);
    }
    // One alone, and two in one statement.
    let other = b.slot().await;
    let mut alone = superstep(&other, None, 0);
    alone.checkpoint.envelope = text.to_vec();
    b.commit(alone.clone()).await;
    for result in b.saver.commit(commits.clone()).await {
        result.unwrap();
    }
    let of_slot = commits.iter().map(|commit| (&slot, commit));
    for (slot, commit) in of_slot.chain([(&other, &alone)]) {
        let stored = b.by_id(slot, commit.checkpoint.id).await.unwrap();
        assert_eq!(envelope(&stored.row.envelope), envelope(text));
    }
}
