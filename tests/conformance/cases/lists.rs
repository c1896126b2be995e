//! Several checkpoints, newest first.

use backstitch::{
    checkpoint::{List, Page, PageScope, Slot, Source},
    id::{AssistantId, CheckpointId, RunId},
    value,
    value::Value,
};

use super::backend::*;

pub async fn checkpoints_are_listed_newest_first(b: &Backend) {
    let slot = b.slot().await;
    let other = b.slot().await;
    b.line(&other, None, 2).await;
    let mut ids = b.line(&slot, None, 3).await;
    let (open, fork) = fork(&slot, Some((ids[0], 0)));
    let mut commit = superstep(&fork, Some(ids[0]), 1);
    commit.open = Some(open);
    ids.push(commit.checkpoint.id);
    b.commit(commit).await;
    for (root, ns) in [(ids[1], "z"), (ids[0], "a")] {
        let commit = substep(&slot, ns, root, None);
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    ids.extend(b.line(&slot, Some(ids[2]), 1).await);
    ids.reverse();
    assert!(ids.is_sorted_by(|a, b| a > b));
    assert_eq!(b.list(list_all(&slot)).await, ids);
    let elsewhere = List {
        thread: unknown(),
        ..list_all(&slot)
    };
    assert!(b.list(elsewhere).await.is_empty());
}

pub async fn a_list_is_cut_by_namespace_limit_age_and_id(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 5).await;
    let commit = substep(&slot, "sub", ids[4], None);
    let sub = commit.checkpoint.id;
    b.commit(commit).await;
    let root = List {
        ns: Some("".into()),
        ..list_all(&slot)
    };
    let newest: Vec<CheckpointId> = ids.iter().rev().copied().collect();
    assert_eq!(b.list(root.clone()).await, newest);
    let of_sub = List {
        ns: Some("sub".into()),
        ..list_all(&slot)
    };
    assert_eq!(b.list(of_sub).await, [sub]);
    let none = List {
        ns: Some("no".into()),
        ..list_all(&slot)
    };
    assert!(b.list(none).await.is_empty());
    for limit in [0, 1, 3] {
        let some = List {
            limit,
            ..root.clone()
        };
        assert_eq!(b.list(some).await, newest[..limit]);
    }
    let page = List {
        before: Some(ids[3]),
        limit: 2,
        ..root.clone()
    };
    assert_eq!(b.list(page).await, [ids[2], ids[1]]);
    let all = List {
        before: Some(sub),
        ..list_all(&slot)
    };
    assert_eq!(b.list(all).await, newest);
    for ns in [None, Some("".into())] {
        let one = List {
            ns,
            id: Some(ids[2]),
            ..list_all(&slot)
        };
        assert_eq!(b.list(one.clone()).await, [ids[2]]);
        let older = List {
            before: Some(ids[2]),
            ..one.clone()
        };
        assert!(b.list(older).await.is_empty());
        let nowhere = List {
            id: Some(unknown()),
            ..one
        };
        assert!(b.list(nowhere).await.is_empty());
    }
}

struct Filtered<'a> {
    b: &'a Backend,
    slot: Slot,
    ids: Vec<CheckpointId>,
}

impl Filtered<'_> {
    /// Indices of the checkpoints that match, oldest first.
    async fn matching(&self, filter: Value) -> Vec<usize> {
        let list = List {
            metadata: Some(map(filter)),
            ..list_all(&self.slot)
        };
        let found = self.b.list(list).await;
        let mut places: Vec<usize> = found
            .iter()
            .map(|id| self.ids.iter().position(|known| known == id).unwrap())
            .collect();
        places.reverse();
        assert!(places.is_sorted(), "newest first");
        places
    }
}

pub async fn a_list_is_filtered_by_source_step_and_run(b: &Backend) {
    let slot = b.slot().await;
    let run = RunId::mint();
    let mut ids: Vec<CheckpointId> = Vec::new();
    let rows = [
        (Source::Input, -1, Some(run)),
        (Source::Loop, 0, Some(run)),
        (Source::Loop, 1, None),
        (Source::Update, 2, Some(RunId::mint())),
        (Source::Fork, 2, None),
    ];
    for (source, step, run) in rows {
        let mut commit = superstep(&slot, ids.last().copied(), step);
        commit.checkpoint.source = source;
        commit.checkpoint.run = run;
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    let f = Filtered { b, slot, ids };
    assert_eq!(f.matching(value!({})).await, [0, 1, 2, 3, 4]);
    assert_eq!(f.matching(value!({"source": "loop"})).await, [1, 2]);
    assert_eq!(f.matching(value!({"source": "input"})).await, [0]);
    assert_eq!(f.matching(value!({"step": 2})).await, [3, 4]);
    assert_eq!(f.matching(value!({"step": (-1)})).await, [0]);
    assert_eq!(f.matching(value!({"step": 2, "source": "fork"})).await, [4]);
    assert_eq!(
        f.matching(value!({"run_id": (run.to_string())})).await,
        [0, 1]
    );
    let both = value!({"run_id": (run.to_string()), "source": "loop"});
    assert_eq!(f.matching(both).await, [1]);
    for nothing in [
        value!({"source": "elsewhere"}),
        value!({"source": null}),
        value!({"step": 7}),
        value!({"step": "2"}),
        value!({"run_id": "no id"}),
        value!({"run_id": (RunId::mint().to_string())}),
        value!({"source": "loop", "step": 2}),
    ] {
        assert!(f.matching(nothing).await.is_empty());
    }
}

pub async fn a_list_is_filtered_by_containment_in_metadata(b: &Backend) {
    let slot = b.slot().await;
    let mut ids: Vec<CheckpointId> = Vec::new();
    for metadata in [
        value!({"user": "a", "score": 1, "tags": ["x", "y"], "deep": {"k": {"v": 1, "w": 2}}}),
        value!({"user": "b", "score": 1.5, "tags": [], "deep": {"k": {}}}),
        value!({"user": null, "flag": true, "it's": "o\"dd", "step": 99}),
        value!({}),
    ] {
        let mut commit = superstep(&slot, ids.last().copied(), 0);
        commit.checkpoint.metadata = metadata.to_json();
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    let f = Filtered { b, slot, ids };
    assert_eq!(f.matching(value!({"user": "a"})).await, [0]);
    assert_eq!(f.matching(value!({"user": null})).await, [2]);
    assert_eq!(f.matching(value!({"flag": true})).await, [2]);
    assert_eq!(f.matching(value!({"it's": "o\"dd"})).await, [2]);
    assert_eq!(f.matching(value!({"score": 1})).await, [0]);
    assert_eq!(f.matching(value!({"score": 1.0})).await, [0]);
    assert_eq!(f.matching(value!({"score": 1.5})).await, [1]);
    assert_eq!(f.matching(value!({"tags": ["y"]})).await, [0]);
    assert_eq!(f.matching(value!({"tags": []})).await, [0, 1]);
    assert_eq!(f.matching(value!({"deep": {"k": {"w": 2}}})).await, [0]);
    assert_eq!(f.matching(value!({"deep": {"k": {}}})).await, [0, 1]);
    assert_eq!(
        f.matching(value!({"user": "a", "source": "loop"})).await,
        [0]
    );
    for nothing in [
        value!({"user": "c"}),
        value!({"user": ["a"]}),
        value!({"user": "a", "score": 1.5}),
        value!({"deep": {"k": {"v": 2}}}),
        value!({"deep": {"v": 1}}),
        value!({"missing": null}),
        value!({"flag": 1}),
        value!({"step": 99}),
        value!({"user": "a", "source": "input"}),
    ] {
        assert!(f.matching(nothing.clone()).await.is_empty(), "{nothing}");
    }
}

/// Metadata that begins with a graph and an assistant, in every combination, beside other metadata.
pub async fn a_list_is_filtered_by_graph_and_assistant(b: &Backend) {
    let slot = b.slot().await;
    let own = AssistantId::of_graph("chat").to_string();
    let of_other = AssistantId::of_graph("other").to_string();
    let custom = AssistantId::mint().to_string();
    let own = own.as_str();
    let of_other = of_other.as_str();
    let custom = custom.as_str();
    let all = [
        value!({"graph_id": "chat", "assistant_id": own}),
        value!({"graph_id": "chat", "assistant_id": custom, "user": "a", "n": 1}),
        value!({"graph_id": "other", "assistant_id": of_other, "user": "a"}),
        value!({"user": "a", "graph_id": "chat", "assistant_id": own}),
        value!({"graph_id": "chat", "assistant_id": own, "graph": {"id": [1, "\u{1a}\0"]}}),
        value!({"graph_id": "odd \" \0 \u{1a}", "assistant_id": own}),
        value!({"graph_id": "chat"}),
        value!({"graph_id": "chat", "assistant_id": null}),
    ];
    let mut ids: Vec<CheckpointId> = Vec::new();
    for metadata in &all {
        let mut commit = superstep(&slot, ids.last().copied(), 0);
        commit.checkpoint.metadata = metadata.to_json();
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    let stored = b.saver.list(list_all(&slot)).await.unwrap();
    let shown = stored.iter().rev().map(|one| one.row.metadata.clone());
    let sent = all.iter().map(Value::to_json);
    assert_eq!(shown.collect::<Vec<_>>(), sent.collect::<Vec<_>>());
    let list = List {
        ns: Some("".into()),
        metadata: Some(map(value!({"assistant_id": own, "graph_id": "chat"}))),
        ..list_all(&slot)
    };
    let scope = PageScope {
        most: 0,
        metadata: true,
    };
    let Page::Sizes(sizes) = b.saver.page(list, scope).await.unwrap() else {
        panic!("a page of rows");
    };
    let shown = sizes.iter().map(|size| size.metadata.clone().unwrap());
    let sent = [4, 3, 0].map(|at: usize| all[at].to_json());
    assert_eq!(shown.collect::<Vec<_>>(), sent);
    let f = Filtered { b, slot, ids };
    let chat = value!({"graph_id": "chat"});
    assert_eq!(f.matching(chat).await, [0, 1, 3, 4, 6, 7]);
    let filter = value!({"assistant_id": own});
    assert_eq!(f.matching(filter).await, [0, 3, 4, 5]);
    let filter = value!({"assistant_id": own, "graph_id": "chat"});
    assert_eq!(f.matching(filter).await, [0, 3, 4]);
    assert_eq!(f.matching(value!({"assistant_id": custom})).await, [1]);
    assert_eq!(f.matching(value!({"assistant_id": of_other})).await, [2]);
    assert_eq!(f.matching(value!({"assistant_id": null})).await, [7]);
    // Newer ones of other graphs take no place of a page.
    let one = List {
        metadata: Some(map(value!({"assistant_id": of_other}))),
        limit: 1,
        ..list_all(&f.slot)
    };
    assert_eq!(b.list(one).await, [f.ids[2]]);
    assert_eq!(f.matching(value!({"user": "a"})).await, [1, 2, 3]);
    let filter = value!({"user": "a", "assistant_id": own});
    assert_eq!(f.matching(filter).await, [3]);
    let filter = value!({"n": 1.0, "graph_id": "chat"});
    assert_eq!(f.matching(filter).await, [1]);
    let filter = value!({"graph": {"id": ["\u{1a}\0"]}, "graph_id": "chat"});
    assert_eq!(f.matching(filter).await, [4]);
    assert_eq!(
        f.matching(value!({"graph_id": "odd \" \0 \u{1a}"})).await,
        [5]
    );
    for nothing in [
        value!({"graph_id": "other", "assistant_id": own}),
        value!({"assistant_id": ""}),
        value!({"assistant_id": {}}),
        value!({"graph_id": null}),
    ] {
        assert!(f.matching(nothing.clone()).await.is_empty(), "{nothing}");
    }
}

pub async fn listed_checkpoints_have_values_and_writes(b: &Backend) {
    let slot = b.slot().await;
    let versions = [version_after(0), version_after(1)];
    let mut first = superstep(&slot, None, 0);
    let id = first.checkpoint.id;
    first.checkpoint.blob_versions = blob_versions(&[("c", versions[0])]);
    first.blobs = vec![blob("c", versions[0], None, b"one")];
    b.commit(first).await;
    let mut second = superstep(&slot, Some(id), 1);
    second.checkpoint.blob_versions = blob_versions(&[("c", versions[1])]);
    second.blobs = vec![blob("c", versions[1], Some(versions[0]), b"two")];
    second.writes = vec![result(id, 1, b"out")];
    b.commit(second).await;
    let found = b.saver.list(list_all(&slot)).await.unwrap();
    let [newer, older] = found.try_into().unwrap();
    let bytes = |stored: &backstitch::checkpoint::Stored| {
        let mut bytes: Vec<_> = stored.blobs.iter().map(|blob| blob.bytes.clone()).collect();
        bytes.sort();
        bytes
    };
    assert_eq!(bytes(&older), [b"one"]);
    assert_eq!(bytes(&newer), [b"one", b"two"]);
    assert_eq!(shape(&older.writes), [(task(1), 0, b"out".to_vec())]);
    assert!(newer.writes.is_empty());
}
