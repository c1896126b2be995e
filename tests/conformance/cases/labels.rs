//! Checkpoints that are looked up by labels: a filter finds those that it finds when all are read.

use backstitch::{
    checkpoint::{List, Page, PageScope, SizedCheckpoint, Slot},
    id::CheckpointId,
    tree::{Copied, NewCopy},
    value,
    value::Value,
};

use super::backend::*;

/// What databases write in different ways.
const ODD: &str = "\u{0}\u{1a}a\"\\'ä\u{7}\u{1f600}=";

/// Metadata of checkpoints, oldest first.
fn metadata() -> Vec<Value> {
    // Texts and names that differ behind the end of their label.
    let long = |number: usize| format!("{}{number}", "x".repeat(150));
    let foreign = |number: usize| format!("{}{number}", "é".repeat(150));
    let fields = |count: usize| {
        let field = |number| {
            (
                format!("k{number}").into(),
                Value::str(format!("v{number}")),
            )
        };
        Value::map((0..count).map(field).collect())
    };
    let named = |names: [String; 2]| {
        let named = names.map(|name| (name.into(), Value::str("x")));
        Value::map(named.into_iter().collect())
    };
    vec![
        value!({"tier": "gold"}),
        value!({"tier": "gold", "n": 1, "deep": {"tier": "gold"}, "all": ["gold"], "flag": true}),
        value!({"tier": 7, "deep": {"tier": "gold"}, "all": ["gold"]}),
        value!({"tier": null, "n": "1"}),
        value!({"long": (long(1)), "tier": "gold"}),
        value!({"long": (long(2)), "tier": "silver"}),
        value!({"foreign": (foreign(1))}),
        value!({"foreign": (foreign(2)), "tier": "gold"}),
        named([long(1), long(2)]),
        named([foreign(1), foreign(2)]),
        fields(8),
        fields(9),
        fields(12),
        value!({"": "x", "empty": "", "tier": ""}),
        value!({"a": "b=c", "a=b": "c"}),
        value!({"a": "b=c"}),
        value!({"a=b": "c"}),
        value!({"ünïcode": "straße 😀", "tier": "gold"}),
        value!({"odd": ODD}),
        value!({(ODD): "x", "tier": "gold"}),
        value!({"quo\"ted": "x", "back\\slash": "x", "new\nline": "x"}),
        value!({"quoted": "\"x\"", "tier": "\"gold\""}),
        value!({"graph_id": "chat", "assistant_id": "a", "user_id": "ann", "cron_id": "c", "checkpoint_id": "i", "created_by": "x"}),
        value!({"graph_id": "chat", "assistant_id": "a", "user_id": "ann", "cron_id": "c", "checkpoint_id": "i", "created_by": "x",
                "run_attempt": 2, "tier": "gold"}),
        value!({"user_id": "ann"}),
        value!({"user_id": "ann", "tier": "gold"}),
        value!({"user_id": "ann", "deep": {"tier": "gold"}}),
        value!({"user_id": "ann\",\"tier\":\"gold"}),
        value!({"user_id": "a\\", "tier": "gold"}),
        value!({"user_id": 5, "tier": "gold"}),
        value!({"cron_id": "c", "user_id": "ann"}),
        value!({"cron_id": "c", "user_id": "ann", "tier": "gold"}),
        value!({"tier": "gold", "user_id": "ann"}),
        value!({}),
    ]
}

/// Commits a checkpoint for each of the values as its metadata.
async fn commit_all(b: &Backend, slot: &Slot, all: &[Value]) -> Vec<CheckpointId> {
    let mut ids: Vec<CheckpointId> = Vec::new();
    for metadata in all {
        let mut commit = superstep(slot, ids.last().copied(), 0);
        commit.checkpoint.metadata = metadata.to_json();
        ids.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    ids
}

/// Filters by each field of the values, by pairs of fields and by whole values.
fn filters(all: &[Value]) -> Vec<Value> {
    let one = |(key, value): (&std::sync::Arc<str>, &Value)| {
        Value::map([(key.clone(), value.clone())].into_iter().collect())
    };
    let fields: Vec<Value> = (all.iter())
        .flat_map(|value| value.as_map().unwrap().iter().map(one))
        .collect();
    let gold = |field: &Value| {
        let mut map = map(field.clone());
        map.insert("tier", Value::str("gold"));
        Value::map(map)
    };
    let pairs: Vec<Value> = fields.iter().map(gold).collect();
    let others = [value!({"tier": "none"}), value!({"tier": {}, "n": 1})];
    let filters = all.iter().chain(&fields).chain(&pairs).chain(&others);
    filters.cloned().collect()
}

fn root(list: &List) -> List {
    List {
        ns: Some("".into()),
        ..list.clone()
    }
}

async fn page(b: &Backend, list: &List) -> Vec<CheckpointId> {
    let scope = PageScope {
        most: 0,
        metadata: false,
    };
    match b.saver.page(root(list), scope).await.unwrap() {
        Page::Sizes(sizes) => sizes.iter().map(|size: &SizedCheckpoint| size.id).collect(),
        Page::Rows(rows) => rows.rows.iter().map(|(row, _)| row.id).collect(),
    }
}

/// Checks pages of every filter, whole and cut; how many checkpoints they found. A list of all namespaces reads all.
async fn compare(b: &Backend, slot: &Slot, all: &[Value]) -> usize {
    let mut found = 0;
    for filter in filters(all) {
        let whole = List {
            metadata: Some(map(filter.clone())),
            ..list_all(slot)
        };
        let ids = b.list(whole.clone()).await;
        let middle = ids.get(ids.len() / 2).copied();
        let mut lists = vec![whole.clone()];
        for (before, id, limit) in [(middle, None, 1000), (None, middle, 1000), (None, None, 2)] {
            lists.push(List {
                before,
                id,
                limit,
                ..whole.clone()
            });
        }
        for list in lists {
            let expected = b.list(list.clone()).await;
            assert_eq!(b.list(root(&list)).await, expected, "{filter}");
            assert_eq!(page(b, &list).await, expected, "{filter}");
            found += expected.len();
        }
    }
    found
}

pub async fn a_filter_by_labels_finds_what_is_found_without_them(b: &Backend) {
    let slot = b.slot().await;
    let other = b.slot().await;
    let all = metadata();
    let ids = commit_all(b, &slot, &all).await;
    commit_all(b, &other, &all).await;
    let mut inside = substep(&slot, "sub", ids[0], None);
    inside.checkpoint.metadata = all[1].to_json();
    b.commit(inside).await;
    let of_root = List {
        ns: Some("".into()),
        metadata: Some(map(value!({"tier": "gold"}))),
        ..list_all(&slot)
    };
    let gold = |at: &usize| all[*at].as_map().unwrap().get("tier") == Some(&Value::str("gold"));
    let expected: Vec<_> = (0..all.len())
        .rev()
        .filter(gold)
        .map(|at| ids[at])
        .collect();
    assert!(expected.len() > 10, "{}", expected.len());
    assert_eq!(b.list(of_root).await, expected);
    b.tables.check(false).await;
    // A copy has labels of its own, in which nothing is inside of another graph.
    let copy = NewCopy {
        id: unknown(),
        owner: "ann".into(),
        reader: None,
        limit: 5000,
        events: vec![],
    };
    let Copied::Done(copy) = b.trees.copy_thread(other.thread, copy).await.unwrap() else {
        panic!("it was not copied");
    };
    let copied = b.trees.slot(copy.id).await.unwrap().unwrap();
    b.tables.check(false).await;
    let found = compare(b, &other, &all).await;
    assert!(found > 500, "{found}");
    assert_eq!(compare(b, &copied, &all).await, found);
}

pub async fn labels_go_with_their_checkpoints(b: &Backend) {
    let slot = b.slot().await;
    let mut all = metadata();
    let ids = commit_all(b, &slot, &all).await;
    let labels = b.rows(&slot).await["checkpoint_labels"];
    assert!(labels > 40, "{labels}");
    // All but the last one are on no branch that stays.
    let (open, fork) = fork(&slot, Some((ids[1], 1)));
    let mut commit = superstep(&fork, Some(ids[1]), 2);
    commit.open = Some(open);
    commit.checkpoint.metadata = all[0].to_json();
    b.commit(commit).await;
    all.truncate(2);
    let removed = b.trees.prune_thread(slot.thread).await.unwrap();
    assert!(removed.unwrap() > 0, "{removed:?}");
    b.tables.check(true).await;
    assert!(b.rows(&slot).await["checkpoint_labels"] < labels);
    compare(b, &slot, &all).await;
    b.trees.delete_tree(slot.thread).await.unwrap();
    assert_eq!(b.rows(&slot).await.get("checkpoint_labels"), None);
}
