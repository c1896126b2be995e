//! Supersteps are written whole, once, and only by the writer that holds the branch.

use std::sync::Arc;

use backstitch::{
    checkpoint::{At, Error, EventRow, NodeRow, Source, WriteRow},
    id::{CheckpointId, NodeId, RunId},
    value,
    value::{Map, Value},
};

use super::backend::*;

pub async fn a_checkpoint_comes_back_with_every_field(b: &Backend) {
    let slot = b.slot().await;
    let first = superstep(&slot, None, -1);
    let parent = first.checkpoint.id;
    b.commit(first).await;

    let version = version_after(41);
    let mut commit = superstep(&slot, Some(parent), 7);
    let row = &mut commit.checkpoint;
    row.run = Some(RunId::mint());
    row.source = Source::Fork;
    row.last_node = Some(NodeId::mint());
    row.event_number = 12;
    row.envelope = (0..=255).collect();
    row.blob_versions = value!({"text": (version.to_string()), "n": "3.000001"}).to_json();
    row.metadata = value!({"parents": {}, "user": "ü", "deep": [1, {"a": null}]}).to_json();
    let sent = row.clone();
    let bytes: Vec<u8> = (0..=255).collect();
    commit.blobs = vec![blob("text", version, None, &bytes)];
    commit.writes = vec![
        WriteRow {
            path: "~__pregel_pull, x".into(),
            ..result(parent, 9, &bytes)
        },
        control(parent, 9, (-5, "__step__"), b"memo"),
    ];
    assert_eq!(b.commit(commit).await, 1);

    let stored = b.by_id(&slot, sent.id).await.unwrap();
    let row = stored.row;
    assert_eq!(&*row.ns, "");
    assert_eq!(
        (row.id, row.parent, row.root),
        (sent.id, Some(parent), None)
    );
    assert_eq!((row.depth, row.step), (1, 7));
    assert_eq!((row.thread, row.branch), (slot.thread, slot.branch));
    assert_eq!(row.run, sent.run);
    assert_eq!(row.source, Source::Fork);
    assert_eq!(row.last_node, sent.last_node);
    assert_eq!(row.event_number, 12);
    assert_eq!(row.envelope, sent.envelope);
    assert_eq!(json(&row.blob_versions), json(&sent.blob_versions));
    assert_eq!(json(&row.metadata), json(&sent.metadata));
    assert_eq!(row.created_at, sent.created_at);
    let [text] = stored.blobs.try_into().unwrap();
    assert_eq!((&*text.ns, &*text.channel), ("", "text"));
    assert_eq!(
        (text.version, text.base, text.chain_bytes),
        (version, None, 0)
    );
    assert_eq!((&*text.tag, text.bytes), ("bincode", bytes.clone()));
    assert!(stored.writes.is_empty(), "writes belong to the parent");

    let writes = b.by_id(&slot, parent).await.unwrap().writes;
    let [memo, output] = writes.try_into().unwrap();
    assert_eq!((&*output.ns, output.checkpoint), ("", parent));
    assert_eq!(output.branch, slot.branch);
    assert_eq!((output.task, output.idx), (task(9), 0));
    assert_eq!(&*output.path, "~__pregel_pull, x");
    assert_eq!(output.channel, None);
    assert_eq!((&*output.tag, output.bytes), ("bincode", bytes));
    assert_eq!(
        (memo.task, memo.idx, memo.bytes),
        (task(9), -5, b"memo".to_vec())
    );
    assert_eq!(memo.channel.as_deref(), Some("__step__"));
}

fn json(text: &str) -> Value {
    Value::from_json_slice(text.as_bytes()).unwrap()
}

/// Writes and reads a value whose every name is `name`.
async fn round_trip_of_names(b: &Backend, name: &str) {
    let slot = b.slot().await;
    let root = b.line(&slot, None, 1).await[0];
    let version = version_after(0);
    let mut commit = substep(&slot, name, root, None);
    let id = commit.checkpoint.id;
    commit.checkpoint.blob_versions = blob_versions(&[(name, version)]);
    commit.checkpoint.metadata = Value::map(value::Map::from([(name, Value::str(name))])).to_json();
    let metadata = commit.checkpoint.metadata.clone();
    let mut value = blob(name, version, None, name.as_bytes());
    value.ns = name.into();
    commit.blobs = vec![value];
    b.commit(commit).await;
    let mut write = result(id, 1, name.as_bytes());
    (write.ns, write.path) = (name.into(), name.into());
    b.saver.flush(flush(&slot, vec![write])).await.unwrap();

    let stored = b.load(&slot, name, At::Id(id)).await.unwrap();
    assert_eq!(&*stored.row.ns, name);
    assert_eq!(json(&stored.row.metadata), json(&metadata));
    assert_eq!(stored.blobs.len(), 1);
    assert_eq!(&*stored.blobs[0].channel, name);
    assert_eq!(stored.blobs[0].bytes, name.as_bytes());
    assert_eq!(stored.writes.len(), 1);
    assert_eq!(&*stored.writes[0].path, name);
    let wanted = vec![(Arc::from(name), version)];
    let found = b.blobs(&slot, name, wanted).await;
    assert_eq!(found.len(), 1);
}

pub async fn odd_unicode_in_names_survives(b: &Backend) {
    for name in [
        "a'b\"c\\d`e",
        "line\nbreak\ttab",
        "é ≠ e\u{301}",
        "👩‍👩‍👧 \u{10ffff} \u{feff}",
        "%_?$1:name;--",
        " ",
    ] {
        round_trip_of_names(b, name).await;
    }
}

pub async fn nul_in_names_survives(b: &Backend) {
    round_trip_of_names(b, "a\0b").await;
    round_trip_of_names(b, "a\0").await;
}

pub async fn depth_counts_along_the_branch(b: &Backend) {
    let slot = b.slot().await;
    let mut parent = None;
    for depth in 0..3 {
        let mut commit = superstep(&slot, parent, 0);
        // Not what the writer believes, but what the branch says.
        commit.checkpoint.depth = 99;
        parent = Some(commit.checkpoint.id);
        assert_eq!(b.commit(commit).await, depth);
    }
    let now = b.trees.slot(slot.thread).await.unwrap().unwrap();
    assert_eq!(
        (now.head, now.head_depth, now.epoch),
        (parent, 2, slot.epoch)
    );
    let head = b.load(&slot, "", At::ActiveHead).await.unwrap();
    assert_eq!(head.row.depth, 2);
}

pub async fn a_stale_head_is_refused_and_writes_nothing(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 2).await;
    let before = b.rows(&slot).await;
    for parent in [None, Some(ids[0]), Some(unknown())] {
        let mut commit = superstep(&slot, parent, 1);
        commit.blobs = vec![blob("c", version_after(1), None, b"x")];
        commit.writes = vec![result(ids[0], 1, b"x")];
        commit.events = vec![event("MessageAdded")];
        let refused = b.try_commit(commit).await;
        assert!(
            matches!(refused, Err(Error::Fenced)),
            "{parent:?}: {refused:?}"
        );
    }
    assert_eq!(b.rows(&slot).await, before);
    assert_eq!(
        b.trees.slot(slot.thread).await.unwrap().unwrap().head,
        Some(ids[1])
    );
}

pub async fn a_stale_epoch_is_refused_and_writes_nothing(b: &Backend) {
    let old = b.slot().await;
    let head = b.line(&old, None, 1).await[0];
    let new = b.trees.take_slot(old.thread).await.unwrap().unwrap();
    assert!(new.epoch > old.epoch);
    let before = b.rows(&old).await;
    let mut commit = superstep(&old, Some(head), 1);
    commit.blobs = vec![blob("c", version_after(1), None, b"x")];
    commit.writes = vec![result(head, 1, b"x")];
    assert!(matches!(b.try_commit(commit).await, Err(Error::Fenced)));
    let commit = substep(&old, "sub", head, None);
    assert!(matches!(b.try_commit(commit).await, Err(Error::Fenced)));
    let late = flush(&old, vec![result(head, 1, b"x")]);
    assert!(matches!(b.saver.flush(late).await, Err(Error::Fenced)));
    assert_eq!(b.rows(&old).await, before);
    b.line(&new, Some(head), 1).await;
}

pub async fn of_eight_writers_on_one_head_one_wins(b: &Backend) {
    let slot = b.slot().await;
    let mut head = b.line(&slot, None, 1).await[0];
    for _ in 0..10 {
        let writers = (0..8u8).map(|writer| {
            let version = version_after(5);
            let mut commit = superstep(&slot, Some(head), 1);
            commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
            commit.blobs = vec![blob("c", version, None, &[writer])];
            commit.writes = vec![result(head, u128::from(writer), &[writer])];
            let id = commit.checkpoint.id;
            let saver = Arc::clone(&b.saver);
            tokio::spawn(async move { (writer, id, saver.commit(vec![commit]).await) })
        });
        let mut winners = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            let (writer, id, mut results) = writer.await.unwrap();
            match results.pop().unwrap() {
                Ok(_) => winners.push((writer, id)),
                Err(error) => assert!(matches!(error, Error::Fenced), "{error}"),
            }
        }
        let [(winner, id)] = winners.try_into().unwrap();
        let writes = b.by_id(&slot, head).await.unwrap().writes;
        assert_eq!(shape(&writes), [(task(winner.into()), 0, vec![winner])]);
        let stored = b.by_id(&slot, id).await.unwrap();
        assert_eq!(stored.blobs[0].bytes, [winner]);
        head = id;
    }
    assert_eq!(b.rows(&slot).await["checkpoints"], 11);
    assert_eq!(b.rows(&slot).await["checkpoint_blobs"], 10);
}

pub async fn a_commit_sent_again_is_answered_and_not_repeated(b: &Backend) {
    let slot = b.slot().await;
    let root = b.line(&slot, None, 1).await[0];
    let mut commit = superstep(&slot, Some(root), 1);
    commit.blobs = vec![blob("c", version_after(1), None, b"x")];
    commit.events = vec![event("MessageAdded")];
    let sub = substep(&slot, "sub", root, None);
    for commit in [commit, sub] {
        let depth = b.commit(commit.clone()).await;
        let once = b.rows(&slot).await;
        assert_eq!(b.commit(commit).await, depth);
        assert_eq!(b.rows(&slot).await, once);
    }
}

pub async fn commits_of_one_call_keep_their_order_and_fail_alone(b: &Backend) {
    let slot = b.slot().await;
    let other = b.slot().await;
    let mut commits = Vec::new();
    let mut parent = None;
    for step in 0..40 {
        let commit = superstep(&slot, parent, step);
        parent = Some(commit.checkpoint.id);
        commits.push(commit);
        if step == 20 {
            commits.push(superstep(&slot, Some(unknown()), step));
            commits.push(superstep(&other, None, step));
        }
    }
    let results = b.saver.commit(commits).await;
    assert_eq!(results.len(), 42);
    let depths: Vec<Option<i32>> = results.iter().map(|r| r.as_ref().ok().copied()).collect();
    let mut expected: Vec<Option<i32>> = (0..=20).map(Some).collect();
    expected.extend([None, Some(0)]);
    expected.extend((21..40).map(Some));
    assert_eq!(depths, expected);
    assert!(matches!(results[21], Err(Error::Fenced)));
    assert_eq!(b.rows(&slot).await["checkpoints"], 40);
    assert_eq!(b.rows(&other).await["checkpoints"], 1);
    assert!(b.saver.commit(Vec::new()).await.is_empty());
}

pub async fn what_follows_a_commit_that_cannot_be_stored_fails_with_it(b: &Backend) {
    let (slot, other) = (b.slot().await, b.slot().await);
    let mut first = superstep(&slot, None, 0);
    first.checkpoint.run = Some(unknown());
    let id = first.checkpoint.id;
    let mut twice = superstep(&slot, Some(id), 1);
    twice.checkpoint.run = first.checkpoint.run;
    twice.writes = vec![result(id, 1, b"of what is not stored")];
    twice.blobs = vec![blob("c", version_after(1), None, b"x"); 2];
    let next = superstep(&slot, Some(twice.checkpoint.id), 2);
    let inside = substep(&slot, "sub", twice.checkpoint.id, None);
    let elsewhere = superstep(&other, None, 0);
    let all = vec![first, twice, next, inside, elsewhere];
    let results = b.saver.commit(all).await;
    let stored: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, false, false, true], "{results:?}");
    assert_eq!(b.rows(&slot).await["checkpoints"], 1);
    assert_eq!(b.by_id(&slot, id).await.unwrap().writes.len(), 0);
    assert_eq!(b.rows(&other).await["checkpoints"], 1);
}

pub async fn a_subgraph_row_keeps_its_depth_and_moves_no_head(b: &Backend) {
    let slot = b.slot().await;
    let head = b.line(&slot, None, 1).await[0];
    let mut commit = substep(&slot, "child:1", head, None);
    commit.checkpoint.depth = 4;
    let id = commit.checkpoint.id;
    assert_eq!(b.commit(commit).await, 4);
    let now = b.trees.slot(slot.thread).await.unwrap().unwrap();
    assert_eq!((now.head, now.head_depth), (Some(head), 0));
    let row = b.load(&slot, "child:1", At::Id(id)).await.unwrap().row;
    assert_eq!((row.depth, row.root), (4, Some(head)));
    assert!(
        b.by_id(&slot, id).await.is_none(),
        "not in the root namespace"
    );
}

pub async fn many_threads_commit_at_once(b: &Backend) {
    let mut lines = Vec::new();
    for _ in 0..32 {
        let slot = b.slot().await;
        let saver = Arc::clone(&b.saver);
        lines.push((
            slot,
            tokio::spawn(async move {
                let mut parent = None;
                for step in 0..10 {
                    let version = version_after(step);
                    let mut commit = superstep(&slot, parent, step as i64);
                    commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
                    commit.blobs = vec![blob("c", version, None, &[step as u8])];
                    parent = Some(commit.checkpoint.id);
                    let depth = saver.commit(vec![commit]).await.pop().unwrap().unwrap();
                    assert_eq!(depth, step as i32);
                    // What was answered is there for everybody.
                    let query = query(&slot, "", At::ActiveHead);
                    let head = saver.load(query).await.unwrap().unwrap();
                    assert_eq!(Some(head.row.id), parent);
                    assert_eq!(head.blobs[0].bytes, [step as u8]);
                }
            }),
        ));
    }
    for (slot, line) in lines {
        line.await.unwrap();
        assert_eq!(b.rows(&slot).await["checkpoints"], 10);
    }
}

fn event(kind: &'static str) -> EventRow {
    EventRow {
        kind,
        payload: Map::from([("fact", Value::Int(1))]),
        message_id: Some("m".into()),
    }
}

fn node(message: &str, seq: i32) -> NodeRow {
    NodeRow {
        seq,
        role: Some("user".into()),
        ..added(message, None, seq + 1)
    }
}

pub async fn events_are_numbered_without_a_gap_and_messages_know_theirs(b: &Backend) {
    let slot = b.slot().await;
    let mut commit = superstep(&slot, None, 0);
    let first = commit.checkpoint.id;
    commit.events = vec![event("UserMessageAdded"), event("MessageAdded")];
    commit.nodes = vec![
        NodeRow {
            event_offset: Some(1),
            ..node("a", 0)
        },
        NodeRow {
            event_offset: Some(2),
            ..node("b", 1)
        },
    ];
    b.commit(commit).await;
    // A commit that loses takes no number.
    let mut lost = superstep(&slot, None, 0);
    lost.events = vec![event("Lost")];
    assert!(b.try_commit(lost).await.is_err());
    let mut commit = superstep(&slot, Some(first), 1);
    let second = commit.checkpoint.id;
    commit.events = vec![event("LLMResponseGenerated")];
    commit.nodes = vec![
        NodeRow {
            event_offset: Some(1),
            ..node("c", 0)
        },
        // Queued earlier: its event exists.
        NodeRow {
            event_number: Some(1),
            ..node("d", 1)
        },
        node("e", 2),
    ];
    b.commit(commit).await;
    let commit = superstep(&slot, Some(second), 2);
    let third: CheckpointId = commit.checkpoint.id;
    b.commit(commit).await;

    let numbered = |number, kind: &str| (number, kind.to_owned());
    assert_eq!(
        b.probe.events(slot.thread).await,
        [
            numbered(1, "ThreadCreated"),
            numbered(2, "UserMessageAdded"),
            numbered(3, "MessageAdded"),
            numbered(4, "LLMResponseGenerated"),
        ]
    );
    let known: Vec<_> = b
        .probe
        .nodes(slot.tree)
        .await
        .into_iter()
        .map(|(id, event, depth, _)| (id, event, depth))
        .collect();
    let expected = [
        ("a", Some(2), 0),
        ("b", Some(3), 0),
        ("c", Some(4), 1),
        ("d", Some(1), 1),
        ("e", None, 1),
    ];
    assert_eq!(
        known,
        expected.map(|(id, event, depth)| (id.to_owned(), event, depth))
    );
    for (id, newest) in [(first, 3), (second, 4), (third, 4)] {
        let row = b.by_id(&slot, id).await.unwrap().row;
        assert_eq!(row.event_number, newest);
    }
}

pub async fn the_first_result_of_a_task_wins(b: &Backend) {
    let slot = b.slot().await;
    let head = b.line(&slot, None, 1).await[0];
    let early = vec![result(head, 1, b"early"), result(head, 2, b"two")];
    b.saver.flush(flush(&slot, early)).await.unwrap();
    let again = vec![result(head, 1, b"again"), result(head, 3, b"three")];
    b.saver.flush(flush(&slot, again)).await.unwrap();
    let mut commit = superstep(&slot, Some(head), 1);
    commit.writes = vec![result(head, 1, b"late"), result(head, 4, b"four")];
    b.commit(commit).await;
    let writes = b.by_id(&slot, head).await.unwrap().writes;
    assert_eq!(
        shape(&writes),
        [
            (task(1), 0, b"early".to_vec()),
            (task(2), 0, b"two".to_vec()),
            (task(3), 0, b"three".to_vec()),
            (task(4), 0, b"four".to_vec()),
        ]
    );
}

pub async fn rows_are_replaced_when_asked_and_kept_otherwise(b: &Backend) {
    let slot = b.slot().await;
    let head = b.line(&slot, None, 1).await[0];
    let first = vec![
        control(head, 1, RESUME, b"one"),
        control(head, 1, ERROR, b"one"),
        result(head, 1, b"one"),
    ];
    b.saver.flush(flush(&slot, first)).await.unwrap();
    let second = vec![
        control(head, 1, RESUME, b"two"),
        WriteRow {
            upsert: false,
            ..control(head, 1, ERROR, b"two")
        },
        result(head, 1, b"two"),
    ];
    b.saver.flush(flush(&slot, second)).await.unwrap();
    let writes = b.by_id(&slot, head).await.unwrap().writes;
    assert_eq!(
        shape(&writes),
        [
            (task(1), -4, b"two".to_vec()),
            (task(1), -1, b"one".to_vec()),
            (task(1), 0, b"one".to_vec()),
        ]
    );
}

pub async fn output_is_replaced_when_asked_in_a_flush_and_in_a_commit(b: &Backend) {
    let slot = b.slot().await;
    let head = b.line(&slot, None, 1).await[0];
    let whole = |bytes: &[u8]| WriteRow {
        upsert: true,
        ..result(head, 1, bytes)
    };
    for bytes in [b"one", b"two"] {
        let writes = vec![whole(bytes), result(head, 2, bytes)];
        b.saver.flush(flush(&slot, writes)).await.unwrap();
    }
    let writes = b.by_id(&slot, head).await.unwrap().writes;
    let of = |first: &[u8]| [(task(1), 0, first.to_vec()), (task(2), 0, b"one".to_vec())];
    assert_eq!(shape(&writes), of(b"two"));
    let mut commit = superstep(&slot, Some(head), 1);
    commit.writes = vec![whole(b"three"), result(head, 2, b"three")];
    b.commit(commit).await;
    let writes = b.by_id(&slot, head).await.unwrap().writes;
    assert_eq!(shape(&writes), of(b"three"));
}
