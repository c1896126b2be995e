//! Threads are deleted with and without their relatives, copied and pruned.

use std::collections::BTreeMap;

use backstitch::{
    checkpoint::{At, Commit, Error, Slot, Stored, Version, WriteRow},
    id::{CheckpointId, NodeId, RunId, ThreadId},
    internals::{encode, references},
    runs::{NewRun, Status, Strategy},
    tree::{Copied, NewCopy, event, store::rows::NewEvent},
    value,
};

use super::{backend::*, sessions::*};

fn version(counter: u64) -> Version {
    format!("{counter}.abcdef").parse().unwrap()
}

/// A superstep that appends a value to the channel `m` as a delta, and adds a message.
fn turn(
    slot: &Slot,
    parent: Option<CheckpointId>,
    last: Option<NodeId>,
    (n, base): (u64, u64),
) -> Commit {
    let mut commit = superstep(slot, parent, n as i64);
    commit.checkpoint.blob_versions = blob_versions(&[("m", version(n))]);
    let base = (base > 0).then(|| version(base));
    commit.blobs = vec![blob("m", version(n), base, format!("v{n}").as_bytes())];
    let node = added(&format!("M{n}"), last, 1);
    commit.checkpoint.last_node = Some(node.id);
    commit.nodes = vec![node];
    commit
}

/// Commits turns of one run, all at once, and answers their checkpoints with the last message of each. Each brings the
/// result of the task that ran from the one before, which so stands in its row.
async fn turns(
    b: &Backend,
    slot: &Slot,
    (from, mut base): (Option<(CheckpointId, NodeId)>, u64),
    numbers: std::ops::RangeInclusive<u64>,
) -> Vec<(CheckpointId, NodeId)> {
    let run = Some(RunId::mint());
    let mut last = from;
    let (mut made, mut commits) = (Vec::new(), Vec::new());
    for n in numbers {
        let mut commit = turn(
            slot,
            last.map(|(id, ..)| id),
            last.map(|(_, node)| node),
            (n, base),
        );
        base = n;
        commit.checkpoint.run = run;
        if let Some((parent, ..)) = last {
            commit.writes = vec![points_to(parent, n)];
        }
        let node = &commit.nodes[0];
        let now = (commit.checkpoint.id, node.id);
        commits.push(commit);
        last = Some(now);
        made.push(now);
    }
    for stored in b.saver.commit(commits).await {
        stored.unwrap();
    }
    made
}

/// The result of a task that points to the value it became.
fn points_to(at: CheckpointId, n: u64) -> WriteRow {
    let list = value!([[0, "m", null, (version(n).to_string())]]);
    result(at, u128::from(n), &encode(&list))
}

fn log(count: usize) -> Vec<NewEvent> {
    let tag = NewEvent {
        kind: event::TAG_SET,
        message_id: Some("M1".into()),
        ..NewEvent::default()
    };
    vec![tag; count]
}

/// What a thread shows: every checkpoint on its path with values and writes, and its messages.
async fn shown(b: &Backend, slot: &Slot) -> String {
    let mut rows = reader(b).await;
    let head = b.trees.slot(slot.thread).await.unwrap().unwrap();
    let path = rows.path(slot.tree, head.head.unwrap(), 100).await.unwrap();
    let mut text = String::new();
    for point in &path {
        let stored = b.by_id(slot, point.id).await.unwrap();
        text += &format!(
            "{:?} {:?} {:?}\n",
            stored.row,
            values(&stored),
            stored.writes
        );
        for write in stored.writes.iter().filter(|write| write.idx == 0) {
            for (channel, version) in references(&write.tag, &write.bytes) {
                let wanted = vec![(channel, version)];
                let found = b.blobs(slot, "", wanted).await;
                text += &format!("{found:?}\n");
            }
        }
    }
    if let Some(last) = path[0].last_node {
        text += &format!("{:?}", rows.chain(slot.tree, last, 100).await.unwrap());
    }
    text
}

fn values(stored: &Stored) -> BTreeMap<String, String> {
    stored
        .blobs
        .iter()
        .map(|blob| {
            (
                format!("{} {}", blob.channel, blob.version),
                format!("{blob:?}"),
            )
        })
        .collect()
}

/// T with a line and a dead end, F forked in its middle, G in the middle of F.
pub async fn family(b: &Backend) -> [Slot; 3] {
    let t = b.slot().await;
    let line = turns(b, &t, (None, 0), 1..=4).await;
    let (open, side) = fork(&t, Some((line[1].0, 1)));
    let mut commit = turn(&side, Some(line[1].0), Some(line[1].1), (50, 2));
    commit.open = Some(open);
    b.commit(commit).await;
    let mut tx = begin(b, t.tree).await;
    tx.append(t.tree, t.thread, log(6)).await.unwrap();
    let f = add_fork(&mut *tx, &t, Some((line[2].0, 2))).await;
    tx.put_tag(t.tree, t.thread, tag("t", line[3].0, 3))
        .await
        .unwrap();
    // After the fork's point.
    tx.append(t.tree, t.thread, log(2)).await.unwrap();
    tx.commit().await.unwrap();
    let own = turns(b, &f, (Some(line[2]), 3), 60..=63).await;
    let sub = substep(&f, "sub", own[1].0, None);
    b.commit(sub).await;
    let mut tx = begin(b, t.tree).await;
    tx.append(t.tree, f.thread, log(3)).await.unwrap();
    let g = add_fork(&mut *tx, &f, Some((own[1].0, 4))).await;
    tx.append(t.tree, f.thread, log(1)).await.unwrap();
    tx.commit().await.unwrap();
    turns(b, &g, (Some(own[1]), 61), 70..=71).await;
    [t, f, g]
}

pub async fn what_a_fork_inherits_survives_the_deletion_of_its_ancestors(b: &Backend) {
    let [t, f, g] = family(b).await;
    let events = |thread| b.probe.events(thread);
    let logged = events(f.thread).await.len();
    let (of_t, of_g) = (shown(b, &t).await, shown(b, &g).await);
    b.queue(backstitch::runs::NewRun {
        claim: None,
        ..new_run(f.thread)
    })
    .await;
    b.tables.check(false).await;
    let paths = b.tables.paths().await;
    assert!(b.trees.delete_thread(f.thread).await.unwrap());
    b.tables.check(false).await;
    let mut left = paths;
    left.retain(|(thread, _), _| *thread != f.thread.0.simple().to_string());
    assert_eq!(b.tables.paths().await, left);
    assert_eq!(shown(b, &t).await, of_t);
    assert_eq!(shown(b, &g).await, of_g);
    assert!(b.trees.thread(f.thread).await.unwrap().is_none());
    assert!(b.runs.runs(f.thread, None, 9, 0).await.unwrap().is_empty());
    let mut rows = reader(b).await;
    let tombstone = rows.thread_row(f.thread).await.unwrap().unwrap();
    assert!(tombstone.deleted_at.is_some());
    assert_eq!(tombstone.parent, Some(t.thread));
    // What came before G's point is a coordinate of G; the two after it and the run's are not.
    assert!(events(f.thread).await.len() < logged);
    let point = rows.thread_row(g.thread).await.unwrap().unwrap();
    let kept = events(f.thread).await;
    assert_eq!(kept.last().unwrap().0, point.fork_event_number);

    assert!(b.trees.delete_thread(t.thread).await.unwrap());
    b.tables.check(false).await;
    assert_eq!(shown(b, &g).await, of_g);
    // The path of G's base and G's own.
    assert_eq!(b.rows(&t).await["checkpoints"], 3 + 2 + 2 + 1);
    assert!(!b.trees.delete_thread(t.thread).await.unwrap());
    let again = b.trees.create_thread(new_thread(t.thread)).await.unwrap();
    assert!(again.is_none(), "its rows are needed");

    assert!(b.trees.delete_thread(g.thread).await.unwrap());
    for slot in [t, f, g] {
        let row = rows.thread_row(slot.thread).await.unwrap().unwrap();
        assert!(row.deleted_at.is_some() && row.parent.is_none());
        assert!(events(slot.thread).await.is_empty());
    }
    let left = b.rows(&t).await;
    assert_eq!(left, BTreeMap::from([("threads".to_owned(), 1)]));
}

pub async fn a_tombstone_loses_what_only_its_last_fork_needed(b: &Backend) {
    let [t, f, g] = family(b).await;
    let before = shown(b, &g).await;
    b.trees.delete_thread(t.thread).await.unwrap();
    assert_eq!(shown(b, &g).await, before);
    let inherited = b.probe.events(t.thread).await.len();
    assert!(inherited > 0, "coordinates of the forks");
    b.trees.delete_thread(g.thread).await.unwrap();
    // F lives and needs three checkpoints of T.
    assert_eq!(b.rows(&t).await["checkpoints"], 3 + 4 + 1);
    let blank = {
        let mut tx = begin(b, t.tree).await;
        let blank = add_fork(&mut *tx, &f, None).await;
        tx.commit().await.unwrap();
        blank
    };
    b.trees.delete_thread(f.thread).await.unwrap();
    b.tables.check(false).await;
    let rows = b.rows(&t).await;
    assert!(!rows.contains_key("checkpoints"), "{rows:?}");
    assert!(!rows.contains_key("checkpoint_blobs"));
    assert!(!rows.contains_key("checkpoint_writes"));
    assert!(!rows.contains_key("message_nodes"));
    assert!(b.trees.thread(blank.thread).await.unwrap().is_some());
}

pub async fn a_tree_is_deleted_with_all_its_threads(b: &Backend) {
    let [t, f, g] = family(b).await;
    let other = b.slot().await;
    let kept = b.line(&other, None, 1).await[0];
    let (_, held) = b.start(new_run(g.thread)).await;
    b.trees.delete_thread(f.thread).await.unwrap();
    let deleted = b.trees.delete_tree(g.thread).await.unwrap();
    assert_eq!(deleted, [t.thread, g.thread]);
    let late = b.try_commit(superstep(&held, held.head, 9)).await;
    assert!(matches!(late, Err(Error::Fenced)));
    let mut rows = reader(b).await;
    for slot in [t, f, g] {
        assert!(b.trees.thread(slot.thread).await.unwrap().is_none());
        let row = rows.thread_row(slot.thread).await.unwrap().unwrap();
        assert!(row.deleted_at.is_some() && row.metadata.is_empty());
        assert!(b.probe.events(slot.thread).await.is_empty());
    }
    let left = b.rows(&t).await;
    assert_eq!(left, BTreeMap::from([("threads".to_owned(), 1)]));
    assert!(b.trees.delete_tree(t.thread).await.unwrap().is_empty());
    assert!(b.trees.delete_tree(unknown()).await.unwrap().is_empty());
    assert!(b.by_id(&other, kept).await.is_some());
    // Ids of tombstones without content can be used again, also by a run.
    let again = b.trees.create_thread(new_thread(f.thread)).await.unwrap();
    assert_eq!(again.unwrap().head, None);
    let mut run = new_run(g.thread);
    run.create_thread = Some(new_thread(g.thread));
    b.start(run).await;
}

fn new_copy() -> NewCopy {
    NewCopy {
        id: ThreadId::mint(),
        owner: "somebody".into(),
        reader: None,
        limit: 5000,
        events: vec![NewEvent {
            kind: event::THREAD_CREATED,
            ..NewEvent::default()
        }],
    }
}

/// A copy of a thread for somebody else.
pub async fn copy(b: &Backend, from: ThreadId) -> Slot {
    let copied = b.trees.copy_thread(from, new_copy()).await.unwrap();
    let Copied::Done(thread) = copied else {
        panic!("not copied: {copied:?}");
    };
    b.trees.slot(thread.id).await.unwrap().unwrap()
}

pub async fn a_copy_has_all_its_thread_sees_and_stands_alone(b: &Backend) {
    let [t, f, g] = family(b).await;
    let patched = b.trees.patch_thread(f.thread, map(value!({"a": 1}))).await;
    let patched = patched.unwrap().unwrap();
    let tx_tag = {
        let head = b.trees.slot(f.thread).await.unwrap().unwrap();
        let mut tx = begin(b, t.tree).await;
        let named = tag("here", head.head.unwrap(), head.head_depth);
        tx.put_tag(t.tree, f.thread, named.clone()).await.unwrap();
        tx.commit().await.unwrap();
        named
    };
    let before = shown(b, &f).await;
    let slot = copy(b, f.thread).await;
    assert_eq!(slot.tree.0, slot.thread.0);
    let mut rows = reader(b).await;
    let row = rows.thread_row(slot.thread).await.unwrap().unwrap();
    assert_eq!((row.parent, row.fork_checkpoint), (None, None));
    assert_eq!(row.metadata, patched.metadata);
    assert_eq!((row.fork_level, row.last_event_number), (0, 1));
    let events = b.probe.events(slot.thread).await;
    assert_eq!(events, [(1, "ThreadCreated".to_owned())]);
    let tags = rows.tags(slot.tree, slot.thread).await.unwrap();
    assert_eq!((tags.len(), tags[0].checkpoint), (1, tx_tag.checkpoint));
    let branches = rows.branches(slot.tree, slot.thread).await.unwrap();
    assert_eq!((branches.len(), &*branches[0].name), (1, "main"));
    // Three of T, four of its own, one of the graph inside.
    assert_eq!(b.rows(&slot).await["checkpoints"], 3 + 4 + 1);
    let head = rows.point(slot.tree, slot.head.unwrap()).await.unwrap();
    let chain = rows
        .chain(slot.tree, head.unwrap().last_node.unwrap(), 100)
        .await
        .unwrap();
    assert_eq!(chain.len(), 7);
    assert!(chain.iter().all(|node| node.thread == slot.thread));

    // What another fork did at a checkpoint it shares is not the thread's.
    assert!(before.contains(&g.branch.to_string()));
    // Values and results are there, and stay when all relatives of the original go.
    let own = shown(b, &slot).await;
    for n in [1, 2, 3, 60, 61, 62, 63] {
        let bytes = format!("{:?}", format!("v{n}").as_bytes());
        assert!(before.contains(&bytes) && own.contains(&bytes), "v{n}");
    }
    assert!(!own.contains(&g.branch.to_string()));
    b.trees.delete_tree(g.thread).await.unwrap();
    assert_eq!(shown(b, &slot).await, own);
    // It is a thread to write to.
    let taken = b.trees.take_slot(slot.thread).await.unwrap().unwrap();
    b.line(&taken, slot.head, 1).await;
    b.tables.check(false).await;
    assert!(b.trees.delete_thread(slot.thread).await.unwrap());
}

pub async fn a_copy_is_refused_when_it_cannot_be_made(b: &Backend) {
    let slot = b.slot().await;
    b.line(&slot, None, 3).await;
    let before = b.rows(&slot).await;
    let try_copy = async |from, new| b.trees.copy_thread(from, new).await.unwrap();
    let missing = try_copy(unknown(), new_copy()).await;
    assert!(matches!(missing, Copied::Missing));
    let mut taken = new_copy();
    taken.id = slot.thread;
    assert!(matches!(try_copy(slot.thread, taken).await, Copied::Taken));
    let mut small = new_copy();
    small.limit = 2;
    let id = small.id;
    assert!(matches!(
        try_copy(slot.thread, small).await,
        Copied::TooLarge
    ));
    assert!(b.trees.thread(id).await.unwrap().is_none());
    assert_eq!(b.rows(&slot).await, before);
}

pub async fn pruning_keeps_what_somebody_stands_on(b: &Backend) {
    let slot = b.slot().await;
    let line = turns(b, &slot, (None, 0), 1..=7).await;
    let at = |n: usize| line[n - 1].0;
    let mut tx = begin(b, slot.tree).await;
    tx.put_tag(slot.tree, slot.thread, tag("t", at(2), 1))
        .await
        .unwrap();
    let side = new_branch(&slot, "side", Some((at(3), 2)));
    tx.insert_branch(side).await.unwrap();
    let forked = add_fork(&mut *tx, &slot, Some((at(5), 4))).await;
    tx.commit().await.unwrap();
    let own = turns(b, &forked, (Some(line[4]), 5), 60..=61).await;
    let question = vec![control(at(4), 9, INTERRUPT, b"q")];
    b.saver.flush(flush(&slot, question)).await.unwrap();
    let value = |stored: Stored| values(&stored);
    let mut before = Vec::new();
    for id in [at(2), at(3), at(4), at(5), at(7), own[1].0] {
        before.push((id, value(b.by_id(&slot, id).await.unwrap())));
    }
    let nodes = b.rows(&slot).await["message_nodes"];

    let removed = b.trees.prune_thread(slot.thread).await.unwrap();
    assert_eq!(removed, Some(2), "the first and the sixth");
    let mut rows = reader(b).await;
    for gone in [at(1), at(6)] {
        assert!(rows.point(slot.tree, gone).await.unwrap().is_none());
    }
    let path = rows.path(slot.tree, at(7), 100).await.unwrap();
    let path: Vec<_> = path.iter().map(|point| (point.id, point.depth)).collect();
    assert_eq!(
        path,
        [(at(7), 6), (at(5), 4), (at(4), 3), (at(3), 2), (at(2), 1)]
    );
    assert!(rows.visible(slot.tree, forked.thread, at(2)).await.unwrap());
    for (id, values) in before {
        assert_eq!(value(b.by_id(&slot, id).await.unwrap()), values);
    }
    assert_eq!(b.rows(&slot).await["message_nodes"], nodes);
    let chain = rows.chain(slot.tree, line[6].1, 100).await.unwrap();
    assert_eq!(chain.len(), 7);
    // Once more changes nothing; writers go on.
    let removed = b.trees.prune_thread(slot.thread).await.unwrap();
    assert_eq!(removed, Some(0));
    b.line(&slot, Some(at(7)), 1).await;
    b.tables.check(true).await;
    assert_eq!(b.trees.prune_thread(unknown()).await.unwrap(), None);
}

pub async fn pruning_keeps_the_state_of_graphs_inside(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 2).await;
    let lasting = substep(&slot, "sub", ids[1], None);
    let wanted = lasting.checkpoint.id;
    b.commit(lasting).await;
    b.commit(substep(&slot, "sub:1", ids[0], None)).await;
    let more = b.line(&slot, Some(ids[1]), 2).await;
    let removed = b.trees.prune_thread(slot.thread).await.unwrap();
    assert_eq!(removed, Some(2));
    let at = At::Subgraph {
        start: more[1],
        branch: slot.branch,
        before: None,
    };
    assert_eq!(b.load(&slot, "sub", at).await.unwrap().row.id, wanted);
    let left = b.rows(&slot).await;
    assert_eq!(left["checkpoints"], 3);
}

pub async fn a_branch_is_not_opened_where_nothing_is_any_more(b: &Backend) {
    let slot = b.slot().await;
    let ids = b.line(&slot, None, 3).await;
    let (open, off) = fork(&slot, Some((ids[0], 0)));
    b.trees.prune_thread(slot.thread).await.unwrap();
    let mut late = superstep(&off, Some(ids[0]), 1);
    late.open = Some(open);
    let refused = b.try_commit(late).await;
    assert!(matches!(refused, Err(Error::Pruned(base)) if base == ids[0]));
}

pub async fn a_run_does_not_start_where_nothing_is_any_more(b: &Backend) {
    for strategy in [Strategy::Enqueue, Strategy::Interrupt, Strategy::Rollback] {
        let slot = b.slot().await;
        let ids = b.line(&slot, None, 3).await;
        let at = |id| NewRun {
            address: Some(id),
            strategy,
            ..new_run(slot.thread)
        };
        let running = b.start(at(ids[2])).await.0;
        b.trees.prune_thread(slot.thread).await.unwrap();
        let refused = b.runs.create_run(at(ids[0])).await;
        assert!(
            matches!(refused, Err(Error::Pruned(id)) if id == ids[0]),
            "{refused:?}"
        );
        // Nothing was done to make room for it.
        assert_eq!(b.run(&running).await.status, Status::Running);
        let mut tx = b.runs.begin(slot.tree).await.unwrap();
        let refused = tx.create_run(at(ids[0])).await;
        assert!(matches!(refused, Err(Error::Pruned(_))), "{refused:?}");
    }
}

pub async fn an_undone_run_leaves_no_result_without_its_value(b: &Backend) {
    let thread = b.thread().await;
    let writer = b.trees.take_slot(thread).await.unwrap().unwrap();
    let base = turns(b, &writer, (None, 0), 1..=1).await[0];
    let (_, slot) = b.start(new_run(thread)).await;
    let sibling = vec![result(base.0, 9, b"of a sibling, before")];
    b.saver.flush(flush(&slot, sibling)).await.unwrap();
    let made = turns(b, &slot, (Some(base), 1), 2..=4).await;
    // The second of three is needed, with what its tasks did and the values of that.
    let mut tx = begin(b, slot.tree).await;
    tx.put_tag(slot.tree, thread, tag("t", made[1].0, 2))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    b.start(backstitch::runs::NewRun {
        strategy: backstitch::runs::Strategy::Rollback,
        ..new_run(thread)
    })
    .await;
    b.tables.check(true).await;
    let at_base = b.by_id(&slot, base.0).await.unwrap();
    let left: Vec<_> = at_base.writes.iter().map(|write| write.task).collect();
    assert_eq!(left, [task(9)], "the others are to run again");
    assert!(b.by_id(&slot, made[2].0).await.is_none());
    let kept = b.by_id(&slot, made[1].0).await.unwrap();
    assert_eq!(kept.writes.len(), 1);
    let wanted = (1..=4).map(|at| ("m".into(), version(at))).collect();
    let found = b.blobs(&slot, "", wanted).await;
    assert_eq!(found.len(), 4, "a value with its chain");
}
