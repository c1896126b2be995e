//! What is done to a whole thread: it is copied, listed, summed, pruned, deleted and rolled back. The costs are those of the thread,
//! whatever else there is: of one that is the same in trees of any size, and of one that is as large as its tree.

use uuid::Uuid;

use super::{requests::Tree, rooms::Rooms};
use crate::{
    checkpoint::{Flush, List, PageScope, Saver, WriteRow},
    id::{CheckpointId, TaskId, ThreadId, TreeId},
    runs::{self, Undo},
    tree::{
        self, Copied, NewCopy,
        projection::{ChannelKey, ChannelLimits, ChannelRows},
    },
};

pub(super) fn thread_of(text: &str) -> ThreadId {
    ThreadId(text.parse().unwrap())
}

/// A copy of a thread, which belongs to somebody.
pub(super) async fn copy<S: Rooms>(store: &S, from: ThreadId, owner: &str) -> ThreadId {
    let new = NewCopy {
        id: ThreadId::mint(),
        owner: owner.to_owned(),
        reader: None,
        limit: usize::MAX,
        events: vec![],
    };
    match store.copy_thread(from, new).await.unwrap() {
        Copied::Done(copy) => copy.id,
        other => panic!("{other:?}"),
    }
}

/// What is done to the threads that are the same in every tree.
pub(super) async fn on_short<S: Rooms>(store: &S, tree: &Tree) {
    let [first, second] = [&tree.short[0], &tree.short[1]].map(|text| thread_of(text));
    on_thread(store, first).await;
    assert!(store.delete_thread(second).await.unwrap());
}

/// What is done to the threads that are as large as their tree.
pub(super) async fn on_long<S: Rooms>(store: &S, tree: &Tree) {
    on_thread(store, thread_of(&tree.thread)).await;
    let long = thread_of(&tree.long);
    on_copies(store, long).await;
    assert!(store.delete_thread(long).await.unwrap());
}

async fn on_thread<S: Rooms>(store: &S, thread: ThreadId) {
    read(store, thread).await;
    on_copies(store, thread).await;
    let newest = store.runs(thread, None, 1, 0).await.unwrap();
    let undo = Undo {
        thread,
        run: newest[0].id,
        ended: true,
        error: None,
    };
    let mut tx = runs::Store::begin(store, newest[0].tree).await.unwrap();
    assert!(tx.remove_run(undo).await.unwrap().is_some());
    tx.commit().await.unwrap();
    assert!(store.prune_thread(thread).await.unwrap().unwrap() > 0);
}

/// Copies a thread, and prunes and deletes copies: trees of their own.
async fn on_copies<S: Rooms>(store: &S, thread: ThreadId) {
    let pruned = copy(store, thread, "ann").await;
    assert!(store.prune_thread(pruned).await.unwrap().unwrap() > 0);
    store.delete_tree(pruned).await.unwrap();
    let whole = copy(store, thread, "ann").await;
    interrupts(store, whole).await;
    assert_eq!(store.delete_tree(whole).await.unwrap(), [whole]);
}

/// Stores a question of a task at the head of a thread, and reads it.
async fn interrupts<S: Rooms>(store: &S, thread: ThreadId) {
    let slot = store.take_slot(thread).await.unwrap().unwrap();
    let head = slot.head.unwrap();
    let question = WriteRow {
        ns: "".into(),
        checkpoint: head,
        branch: slot.branch,
        task: TaskId(Uuid::from_u128(1)),
        idx: -3,
        path: "~__pregel_pull, ask".into(),
        channel: Some("__interrupt__".into()),
        tag: "bincode".into(),
        bytes: b"question".to_vec(),
        upsert: true,
    };
    let flush = Flush {
        slot,
        open: None,
        writes: vec![question],
    };
    store.flush(flush).await.unwrap();
    let found = store.pending_interrupts(slot.tree, slot.branch, head, 1 << 20);
    assert_eq!(found.await.unwrap().rows.unwrap().len(), 1);
}

/// Reads a state with its values, what is stored, and the beginning of the path from its end.
async fn read<S: Rooms>(store: &S, thread: ThreadId) {
    let mut read = tree::Store::reader(store).await.unwrap();
    let row = read.thread_row(thread).await.unwrap().unwrap();
    let tree = row.tree;
    let active = row.active_branch.unwrap();
    let branch = read.branch(tree, active).await.unwrap().unwrap();
    let head = branch.head.unwrap();
    let path = read.path(tree, head, usize::MAX).await.unwrap();
    let (newest, first) = (&path[0], path.last().unwrap().id);
    assert!(read.on_path(tree, head, first).await.unwrap());
    let points = read.inherited_points(tree, head, -1, 5).await.unwrap();
    assert_eq!(points.len(), 5);
    let end = newest.last_node.unwrap();
    assert_eq!(read.segment(tree, end, 0, 5).await.unwrap().len(), 5);
    drop(read);
    store.usage(tree, thread).await.unwrap();
    states(store, tree, thread, head).await;
}

async fn states<S: Rooms>(store: &S, tree: TreeId, thread: ThreadId, head: CheckpointId) {
    let list = |ns: Option<&str>| List {
        tree,
        thread,
        ns: ns.map(Into::into),
        before: None,
        id: None,
        metadata: None,
        limit: 3,
    };
    let scope = PageScope {
        most: 1 << 30,
        metadata: true,
    };
    for ns in [Some(""), None] {
        assert_eq!(Saver::list(store, list(ns)).await.unwrap().len(), 3);
    }
    store.page(list(Some("")), scope).await.unwrap();
    let one = store.page_of(tree, "".into(), vec![head], scope);
    one.await.unwrap();
    let key = ChannelKey {
        tree,
        checkpoint: head,
        channel: "messages".into(),
    };
    let any = ChannelLimits {
        each: 1 << 30,
        all: 1 << 30,
    };
    let found = store.channels(vec![key], any).await.unwrap();
    assert!(matches!(found[..], [ChannelRows::Read(_)]), "{found:?}");
}
