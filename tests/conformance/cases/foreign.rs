//! Ids of one tree in the look-ups of another: each is looked up together with the tree or the thread, so there it
//! names nothing.

use std::fmt::Debug;

use backstitch::{
    checkpoint::{At, BlobRow, Error, List, NodeRow, PageScope, Query, Slot, Version},
    id::{BranchId, CheckpointId, NodeId, RunId, ThreadId, TreeId},
    runs::Undo,
    tree::{
        Outcome, event,
        projection::{ChannelKey, ChannelLimits},
        store::{rows::NewEvent, tx::SharedInside},
    },
    value::Value,
};

use super::{backend::*, lifecycle::copy, sessions::*};

/// Namespace of a graph inside. Every tree has it, and the channel too.
const INSIDE: &str = "inside:1";
const CHANNEL: &str = "m";

/// The ids of a tree that has something of every kind.
#[derive(Clone)]
struct Ids {
    tree: TreeId,
    thread: ThreadId,
    branch: BranchId,
    base: CheckpointId,
    head: CheckpointId,
    first: NodeId,
    last: NodeId,
    message: &'static str,
    tag: &'static str,
    version: Version,
    open: RunId,
    ended: RunId,
}

impl Ids {
    /// Ids that nothing has.
    fn of_nothing() -> Self {
        Self {
            tree: unknown(),
            thread: unknown(),
            branch: unknown(),
            base: CheckpointId::mint(0, None),
            head: CheckpointId::mint(1, None),
            first: unknown(),
            last: unknown(),
            message: "message of nobody",
            tag: "tag-of-nobody",
            version: version_after(0),
            open: unknown(),
            ended: unknown(),
        }
    }

    /// A tree with two checkpoints and messages, a graph inside, pending writes, a tag, a fork, an ended run and an
    /// open one.
    async fn of_new(b: &Backend, message: &'static str, tag_name: &'static str) -> Self {
        let thread = b.thread().await;
        let (ended, slot) = b.start(new_run(thread)).await;
        let version = version_after(0);
        let first = added(message, None, 1);
        let last = NodeRow {
            seq: 1,
            ..added(message, Some(first.id), 2)
        };
        let mut commit = superstep(&slot, None, 0);
        let base = commit.checkpoint.id;
        commit.checkpoint.last_node = Some(first.id);
        commit.nodes = vec![first.clone()];
        b.commit(commit).await;
        b.commit(substep(&slot, INSIDE, base, None)).await;
        let mut commit = superstep(&slot, Some(base), 1);
        let head = commit.checkpoint.id;
        commit.checkpoint.last_node = Some(last.id);
        commit.checkpoint.blob_versions = blob_versions(&[(CHANNEL, version)]);
        commit.blobs = vec![blob(CHANNEL, version, None, b"value")];
        commit.nodes = vec![last.clone()];
        b.commit(commit).await;
        let slot = b.trees.slot(thread).await.unwrap().unwrap();
        let writes = vec![control(head, 1, INTERRUPT, b"question")];
        b.saver.flush(flush(&slot, writes)).await.unwrap();
        b.finish(ended.id, slot).await;
        let mut tx = begin(b, slot.tree).await;
        let set = tag(tag_name, head, 1);
        tx.put_tag(slot.tree, thread, set).await.unwrap();
        let created = NewEvent {
            kind: event::BRANCH_CREATED,
            branch: Some(slot.branch),
            ..NewEvent::default()
        };
        tx.append(slot.tree, thread, vec![created]).await.unwrap();
        add_fork(&mut *tx, &slot, Some((base, 0))).await;
        tx.commit().await.unwrap();
        let (open, _) = b.start(new_run(thread)).await;
        Self {
            tree: slot.tree,
            thread,
            branch: slot.branch,
            base,
            head,
            first: first.id,
            last: last.id,
            message,
            tag: tag_name,
            version,
            open: open.id,
            ended: ended.id,
        }
    }
}

/// What a look-up found, as text.
type Found = Vec<(&'static str, String)>;

fn text(found: Result<impl Debug, Error>) -> String {
    format!("{:?}", found.unwrap())
}

/// Every look-up of rows by ids, in a tree that the ids need not belong to.
async fn looked_up(b: &Backend, own: &Ids, ids: &Ids) -> Found {
    let mut found = of_the_tree(b, own.tree, own.thread, ids).await;
    found.extend(of_checkpoints(b, own, ids).await);
    found.extend(of_runs(b, own.tree, own.thread, ids).await);
    found
}

async fn of_the_tree(b: &Backend, tree: TreeId, own: ThreadId, ids: &Ids) -> Found {
    let mut rows = reader(b).await;
    let (thread, branch, head, last) = (ids.thread, ids.branch, ids.head, ids.last);
    let nodes = vec![ids.first, last];
    macro_rules! each {
        ($($name:ident($($argument:expr),*))*) => {
            vec![$((
                concat!(stringify!($name), "(", stringify!($($argument),*), ")"),
                text(rows.$name(tree, $($argument),*).await),
            )),*]
        };
    }
    let messages = vec![(tree, ids.message.into())];
    let of_trees = text(rows.nodes_of_trees(messages).await);
    let after = vec![(tree, thread, 0)];
    let of_threads = text(rows.events_of_threads(after, 99, u64::MAX).await);
    let mut found = each! {
        point(head)
        path(head, 9)
        visible(own, head)
        visible(thread, head)
        on_path(head, ids.base)
        is_interrupted(branch, head)
        node(last)
        nodes(nodes.clone())
        paths_to(vec![last], 9)
        nodes_of(vec![ids.message.into()])
        chain(last, 9)
        segment(last, 0, 9)
        children(Some(ids.first))
        followers(nodes)
        forks(thread, 9)
        branches(thread)
        branch(branch)
        ends(vec![thread])
        tags(thread)
        tag(thread, ids.tag.into())
        tag(own, ids.tag.into())
        events(thread, 0, 99)
        event_weights(thread, 0, 99)
        naming_events(vec![branch])
        open_runs(thread)
        own_points(thread, -1, 9)
        inherited_points(head, -1, 9)
        own_nodes(thread, 0, 9)
    };
    found.extend([
        ("nodes of trees", of_trees),
        ("events of threads", of_threads),
    ]);
    found
}

async fn of_checkpoints(b: &Backend, own: &Ids, ids: &Ids) -> Found {
    let slot = |thread| Slot {
        tree: own.tree,
        thread,
        branch: own.branch,
        epoch: 0,
        head: None,
        head_depth: -1,
    };
    let query = |ns, thread, at| query(&slot(thread), ns, at);
    let inside = At::Subgraph {
        start: ids.base,
        branch: ids.branch,
        before: None,
    };
    let load = async |query: Query| text(b.saver.load(query).await);
    let scope = PageScope {
        most: u64::MAX,
        metadata: true,
    };
    let of_thread = list_all(&slot(ids.thread));
    let just_one = List {
        id: Some(ids.head),
        ..list_all(&slot(own.thread))
    };
    let in_root = List {
        ns: Some("".into()),
        ..of_thread.clone()
    };
    let version = (CHANNEL.into(), ids.version);
    let heads = vec![ids.head];
    let blobs = b.blobs(&slot(own.thread), "", vec![version]).await;
    let blobs: Vec<BlobRow> = blobs;
    let with_thread = b
        .trees
        .thread_with_checkpoint(own.thread, None, Some(ids.head));
    let with_thread = with_thread.await.unwrap();
    let waits = b
        .trees
        .pending_interrupts(own.tree, ids.branch, ids.head, 9999);
    let key = ChannelKey {
        tree: own.tree,
        checkpoint: ids.head,
        channel: CHANNEL.into(),
    };
    let any = ChannelLimits {
        each: u64::MAX,
        all: u64::MAX,
    };
    let channels = text(b.projections.channels(vec![key], any).await);
    vec![
        ("channels", channels),
        (
            "load by id",
            load(query("", own.thread, At::Id(ids.head))).await,
        ),
        (
            "load the head of a branch",
            load(query("", own.thread, At::Head(ids.branch))).await,
        ),
        (
            "load the active head",
            load(query("", ids.thread, At::ActiveHead)).await,
        ),
        (
            "load the newest",
            load(query("", ids.thread, At::Newest)).await,
        ),
        ("load inside", load(query(INSIDE, own.thread, inside)).await),
        ("list a thread", text(b.saver.list(of_thread).await)),
        ("list one", text(b.saver.list(just_one).await)),
        (
            "a page of a thread",
            text(b.saver.page(in_root, scope).await),
        ),
        (
            "a page by ids",
            text(b.saver.page_of(own.tree, "".into(), heads, scope).await),
        ),
        ("blobs", format!("{blobs:?}")),
        (
            "a checkpoint with its thread",
            format!("{:?}", with_thread.and_then(|found| found.checkpoint)),
        ),
        ("what tasks wait for", text(waits.await)),
        ("usage", text(b.trees.usage(own.tree, ids.thread).await)),
    ]
}

async fn of_runs(b: &Backend, tree: TreeId, own: ThreadId, ids: &Ids) -> Found {
    vec![
        ("run", text(b.runs.run(own, ids.open).await)),
        ("run_weight", text(b.runs.run_weight(own, ids.open).await)),
        (
            "run_without_request",
            text(b.runs.run_without_request(own, ids.open).await),
        ),
        ("is_open", text(b.runs.is_open(own, vec![ids.open]).await)),
        ("ended_run", text(b.runs.ended_run(tree, ids.ended).await)),
    ]
}

pub async fn ids_of_another_tree_are_found_by_no_look_up(b: &Backend) {
    let hers = Ids::of_new(b, "message of hers", "tag-of-hers").await;
    let own = Ids::of_new(b, "message of his", "tag-of-his").await;
    let there = looked_up(b, &hers, &hers).await;
    let foreign = looked_up(b, &own, &hers).await;
    let nowhere = looked_up(b, &own, &Ids::of_nothing()).await;
    assert!(there.len() > 40);
    let mut leaks = vec![];
    for ((there, foreign), nowhere) in there.iter().zip(&foreign).zip(&nowhere) {
        assert_ne!(there, nowhere, "it is found where it is");
        if foreign != nowhere {
            leaks.push(foreign.0);
        }
    }
    assert!(leaks.is_empty(), "rows of another tree: {leaks:#?}");
}

pub async fn ids_of_another_tree_are_changed_by_no_transaction(b: &Backend) {
    let hers = Ids::of_new(b, "message of hers", "tag-of-hers").await;
    let own = Ids::of_new(b, "message of his", "tag-of-his").await;
    let mut before = looked_up(b, &hers, &hers).await;
    let mut changed = vec![];
    let (tree, thread) = (own.tree, own.thread);
    macro_rules! each {
        ($($name:ident($($argument:expr),*))*) => {
            $(
                let mut tx = b.runs.begin(tree).await.unwrap();
                // What is refused changes nothing either.
                if tx.$name($($argument),*).await.is_ok() {
                    tx.commit().await.unwrap();
                }
                let last = std::mem::replace(&mut before, looked_up(b, &hers, &hers).await);
                if last != before {
                    changed.push(concat!(stringify!($name), "(", stringify!($($argument),*), ")"));
                }
            )*
        };
    }
    let undo = Undo {
        thread,
        run: hers.open,
        ended: true,
        error: None,
    };
    let shared = SharedInside {
        source: own.branch,
        creation: own.head,
    };
    each! {
        rename_branch(tree, hers.branch, "renamed".into())
        set_outcome(tree, hers.branch, Outcome::Interrupted)
        delete_branch(tree, hers.branch)
        copy_writes(tree, hers.head, hers.branch, own.branch)
        share_inside(tree, hers.branch, shared)
        put_tag(tree, hers.thread, tag(hers.tag, own.head, 1))
        delete_tag(tree, thread, hers.tag.into())
        delete_tag(tree, hers.thread, hers.tag.into())
        cancel_runs(thread, vec![hers.open])
        end_run(thread, hers.open, Value::Null)
        remove_run(undo)
    }
    assert!(changed.is_empty(), "rows of another tree: {changed:#?}");
    let copied = b
        .trees
        .pending_interrupts(tree, own.branch, hers.head, 9999);
    assert_eq!(copied.await.unwrap().weight, 0, "writes of another tree");
    let mut tx = begin(b, tree).await;
    let locked = tx.lock_branch(tree, hers.branch).await.unwrap();
    assert!(locked.is_none(), "{locked:?}");
}

/// A superstep of a run after the head of a slot that names the last message there, with a graph inside; its slot.
async fn superstep_after(b: &Backend, slot: &Slot, last: NodeId) -> Slot {
    let mut commit = superstep(slot, slot.head, 2);
    let id = commit.checkpoint.id;
    commit.checkpoint.last_node = Some(last);
    b.commit(commit).await;
    let slot = b.trees.slot(slot.thread).await.unwrap().unwrap();
    b.commit(substep(&slot, INSIDE, id, None)).await;
    slot
}

/// A copy has the ids of its original for checkpoints, branches and messages, so that its tree alone says which are meant.
pub async fn what_is_done_to_a_copy_leaves_the_rows_of_its_original(b: &Backend) {
    let hers = Ids::of_new(b, "message of hers", "tag-of-hers").await;
    b.cancel(hers.thread, None).await;
    let mut slot = copy(b, hers.thread).await;
    let (tree, thread) = (slot.tree, slot.thread);
    let mut original = b.trees.slot(hers.thread).await.unwrap().unwrap();
    assert_eq!((slot.branch, slot.head), (original.branch, original.head));
    // As many writers as the original had: the epoch does not tell them apart.
    while slot.epoch < original.epoch {
        slot = b.trees.take_slot(thread).await.unwrap().unwrap();
    }
    original.tree = tree;
    original.thread = thread;
    assert_eq!(format!("{slot:?}"), format!("{original:?}"));
    let rows = async || {
        (
            looked_up(b, &hers, &hers).await,
            b.probe.rows(hers.tree).await,
        )
    };
    let mut before = rows().await;
    let mut changed = vec![];
    macro_rules! unchanged {
        ($what:literal) => {
            let last = std::mem::replace(&mut before, rows().await);
            if last != before {
                changed.push($what);
            }
        };
    }
    let outcome = b.trees.record_outcome(slot, Outcome::Interrupted, None);
    outcome.await.unwrap();
    unchanged!("an outcome");
    superstep_after(b, &slot, hers.last).await;
    unchanged!("a superstep");
    let (run, slot) = b.start(new_run(thread)).await;
    let slot = superstep_after(b, &slot, hers.last).await;
    b.finish(run.id, slot).await;
    unchanged!("the end of a run");
    let undo = |run| Undo {
        thread,
        run,
        ended: true,
        error: Some(Undo::lost()),
    };
    let remove = async |run| {
        let mut tx = b.runs.begin(tree).await.unwrap();
        assert!(tx.remove_run(undo(run)).await.unwrap().is_some());
        tx.commit().await.unwrap();
    };
    remove(run.id).await;
    unchanged!("the removal of a run");
    let (run, _) = b.start(new_run(thread)).await;
    remove(run.id).await;
    unchanged!("the removal of an open run");
    let (run, _) = b.start(new_run(thread)).await;
    let mut tx = b.runs.begin(tree).await.unwrap();
    let error = Undo::lost();
    assert!(tx.end_run(thread, run.id, error).await.unwrap());
    tx.commit().await.unwrap();
    unchanged!("the cancellation of a run");
    let spare = copy(b, thread).await;
    unchanged!("another copy");
    b.trees.prune_thread(thread).await.unwrap();
    unchanged!("pruning");
    let mut tx = begin(b, tree).await;
    let at = b.trees.slot(thread).await.unwrap().unwrap();
    let fork = add_fork(&mut *tx, &at, at.head.map(|head| (head, at.head_depth))).await;
    tx.commit().await.unwrap();
    assert!(b.trees.delete_thread(thread).await.unwrap());
    unchanged!("the deletion of a thread that was forked");
    assert!(b.trees.delete_thread(fork.thread).await.unwrap());
    unchanged!("the deletion of a fork");
    b.trees.delete_tree(spare.thread).await.unwrap();
    unchanged!("the deletion of a tree");
    assert!(
        changed.is_empty(),
        "the original was changed by {changed:#?}"
    );
}
