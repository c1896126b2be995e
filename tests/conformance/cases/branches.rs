//! Branches come into being with the first durable write on them.

use backstitch::{
    checkpoint::{At, Error, Slot},
    id::CheckpointId,
    tree::Outcome,
};

use super::backend::*;

/// Commits the first checkpoint of a new active branch.
async fn open_branch(
    b: &Backend,
    source: &Slot,
    base: (CheckpointId, i32),
) -> (Slot, CheckpointId) {
    let (open, slot) = fork(source, Some(base));
    let mut commit = superstep(&slot, Some(base.0), 1);
    commit.open = Some(open);
    let id = commit.checkpoint.id;
    assert_eq!(b.commit(commit).await, base.1 + 1);
    (slot, id)
}

pub async fn a_new_branch_comes_with_its_first_commit(b: &Backend) {
    let main = b.slot().await;
    let ids = b.line(&main, None, 3).await;
    let (slot, id) = open_branch(b, &main, (ids[0], 0)).await;
    assert_eq!(b.probe.branch_names(main.thread).await, ["main", "main-v2"]);
    let active = b.trees.slot(main.thread).await.unwrap().unwrap();
    assert_eq!((active.branch, active.epoch), (slot.branch, main.epoch));
    assert_eq!((active.head, active.head_depth), (Some(id), 1));
    let row = b.by_id(&main, id).await.unwrap().row;
    assert_eq!((row.parent, row.branch), (Some(ids[0]), slot.branch));
    // Both branches go on.
    b.line(&slot, Some(id), 1).await;
    b.line(&main, Some(ids[2]), 1).await;

    // From nothing: the first checkpoint of the branch is a root.
    let (open, empty) = fork(&main, None);
    let mut commit = superstep(&empty, None, -1);
    commit.open = Some(open);
    assert_eq!(b.commit(commit).await, 0);
}

pub async fn automatic_names_never_collide(b: &Backend) {
    let main = b.slot().await;
    let base = (b.line(&main, None, 1).await[0], 0);
    open_branch(b, &main, base).await;
    let (third, _) = open_branch(b, &main, base).await;
    open_branch(b, &third, base).await;
    open_branch(b, &main, base).await;
    open_branch(b, &third, base).await;
    let mut names = b.probe.branch_names(main.thread).await;
    names.sort();
    assert_eq!(
        names,
        [
            "main",
            "main-v2",
            "main-v3",
            "main-v3-v2",
            "main-v3-v3",
            "main-v4"
        ]
    );
}

pub async fn a_branch_can_open_with_a_flush_and_stay_inactive(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let (mut open, slot) = fork(&main, Some((base, 0)));
    open.activate = false;
    open.origin = "btw";
    let mut first = flush(&slot, vec![result(base, 1, b"x")]);
    first.open = Some(open);
    b.saver.flush(first).await.unwrap();
    let active = b.trees.slot(main.thread).await.unwrap().unwrap();
    assert_eq!(active.branch, main.branch);
    let head = b.load(&slot, "", At::Head(slot.branch)).await.unwrap();
    assert_eq!(head.row.id, base);
    assert_eq!(head.writes[0].branch, slot.branch);
    b.line(&slot, Some(base), 1).await;
}

pub async fn opening_needs_the_source_to_be_held(b: &Backend) {
    let old = b.slot().await;
    let base = b.line(&old, None, 1).await[0];
    b.trees.take_slot(old.thread).await.unwrap().unwrap();
    let before = b.rows(&old).await;
    let (open, slot) = fork(&old, Some((base, 0)));
    let mut commit = superstep(&slot, Some(base), 1);
    commit.open = Some(open.clone());
    assert!(matches!(b.try_commit(commit).await, Err(Error::Fenced)));
    let mut late = flush(&slot, vec![result(base, 1, b"x")]);
    late.open = Some(open);
    assert!(matches!(b.saver.flush(late).await, Err(Error::Fenced)));
    assert_eq!(b.rows(&old).await, before);

    // A refused commit takes its branch along.
    let held = b.trees.slot(old.thread).await.unwrap().unwrap();
    let (open, slot) = fork(&held, Some((base, 0)));
    let mut commit = superstep(&slot, Some(unknown()), 1);
    commit.open = Some(open);
    assert!(matches!(b.try_commit(commit).await, Err(Error::Fenced)));
    assert_eq!(b.rows(&old).await, before);
}

pub async fn an_open_sent_again_is_skipped(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let (open, slot) = fork(&main, Some((base, 0)));
    let mut first = flush(&slot, vec![result(base, 1, b"x")]);
    first.open = Some(open.clone());
    b.saver.flush(first.clone()).await.unwrap();
    b.saver.flush(first).await.unwrap();
    let mut commit = superstep(&slot, Some(base), 1);
    commit.open = Some(open);
    assert_eq!(b.commit(commit.clone()).await, 1);
    assert_eq!(b.commit(commit).await, 1);
    assert_eq!(b.probe.branch_names(main.thread).await, ["main", "main-v2"]);
    assert_eq!(b.rows(&main).await["checkpoints"], 2);
    assert_eq!(b.rows(&main).await["checkpoint_writes"], 1);
}

pub async fn a_resumed_checkpoint_takes_its_pending_writes_along(b: &Backend) {
    let main = b.slot().await;
    let ids = b.line(&main, None, 2).await;
    let base = ids[1];
    let sub = substep(&main, "sub", base, None);
    let sub_id = sub.checkpoint.id;
    b.commit(sub).await;
    let mut in_sub = control(sub_id, 7, INTERRUPT, b"in sub");
    in_sub.ns = "sub".into();
    let mut failed_in_sub = control(sub_id, 8, ERROR, b"no");
    failed_in_sub.ns = "sub".into();
    let writes = vec![
        result(base, 1, b"finished"),
        control(base, 2, INTERRUPT, b"question"),
        control(base, 2, (-5, "__step__"), b"memo"),
        control(base, 3, ERROR, b"failed"),
        result(ids[0], 4, b"elsewhere"),
        in_sub,
        failed_in_sub,
    ];
    b.saver.flush(flush(&main, writes)).await.unwrap();
    let (mut open, slot) = fork(&main, Some((base, 1)));
    open.copy_writes = true;
    let mut answer = flush(&slot, vec![control(base, 2, RESUME, b"answer")]);
    answer.open = Some(open);
    b.saver.flush(answer).await.unwrap();

    let own = async |ns: &str, id, branch| {
        let mut stored = b.load(&main, ns, At::Id(id)).await.unwrap();
        stored.writes.retain(|write| write.branch == branch);
        shape(&stored.writes)
    };
    assert_eq!(
        own("", base, slot.branch).await,
        [
            (task(1), 0, b"finished".to_vec()),
            (task(2), -5, b"memo".to_vec()),
            (task(2), -4, b"answer".to_vec()),
            (task(2), -3, b"question".to_vec()),
        ]
    );
    assert_eq!(
        own("sub", sub_id, slot.branch).await,
        [(task(7), -3, b"in sub".to_vec())]
    );
    assert!(own("", ids[0], slot.branch).await.is_empty());
    // The source keeps its own, without the answer.
    assert_eq!(own("", base, main.branch).await.len(), 4);
    assert_eq!(own("sub", sub_id, main.branch).await.len(), 2);
}

pub async fn copies_see_subgraph_rows_older_than_they_are(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let old = substep(&main, "sub", base, None);
    let old_id = old.checkpoint.id;
    b.commit(old).await;
    let (mut copy, copied) = fork(&main, Some((base, 0)));
    copy.copy_writes = true;
    let (bare, without) = fork(&main, Some((base, 0)));
    for (open, slot) in [(copy, copied), (bare, without)] {
        let mut first = flush(&slot, Vec::new());
        first.open = Some(open);
        b.saver.flush(first).await.unwrap();
    }
    let find = async |branch| {
        let at = At::Subgraph {
            start: base,
            branch,
            before: None,
        };
        b.load(&main, "sub", at).await.map(|stored| stored.row.id)
    };
    assert_eq!(find(main.branch).await, Some(old_id));
    assert_eq!(find(copied.branch).await, Some(old_id));
    assert_eq!(find(without.branch).await, None);
    // What either does afterwards is its own.
    let mut later = Vec::new();
    for slot in [main, copied] {
        let commit = substep(&slot, "sub", base, Some(old_id));
        later.push(commit.checkpoint.id);
        b.commit(commit).await;
    }
    assert_eq!(find(main.branch).await, Some(later[0]));
    assert_eq!(find(copied.branch).await, Some(later[1]));
    assert_eq!(find(without.branch).await, None);
}

/// One copy of another of the checkpoint that asked, after each has answered.
pub async fn copies_of_copies_see_the_state_that_asked(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let asked = substep(&main, "sub", base, None);
    let asked_id = asked.checkpoint.id;
    b.commit(asked).await;
    let mut question = control(asked_id, 7, INTERRUPT, b"in sub");
    question.ns = "sub".into();
    let root = control(base, 7, INTERRUPT, b"in sub");
    b.saver
        .flush(flush(&main, vec![question, root]))
        .await
        .unwrap();
    let find = async |branch| {
        let at = At::Subgraph {
            start: base,
            branch,
            before: None,
        };
        b.load(&main, "sub", at).await.map(|stored| stored.row.id)
    };
    let mut source = main;
    for _ in 0..3 {
        let (mut copy, slot) = fork(&source, Some((base, 0)));
        copy.copy_writes = true;
        let mut first = flush(&slot, vec![]);
        first.open = Some(copy);
        b.saver.flush(first).await.unwrap();
        assert_eq!(find(slot.branch).await, Some(asked_id));
        // It answers, and asks something else.
        let answered = substep(&slot, "sub", base, Some(asked_id));
        let answered_id = answered.checkpoint.id;
        b.commit(answered).await;
        let mut other = control(answered_id, 8, INTERRUPT, b"another");
        other.ns = "sub".into();
        b.saver.flush(flush(&slot, vec![other])).await.unwrap();
        assert_eq!(find(slot.branch).await, Some(answered_id));
        source = slot;
    }
}

pub async fn a_run_moves_to_the_branch_it_opens(b: &Backend) {
    let thread = b.thread().await;
    let writer = b.trees.take_slot(thread).await.unwrap().unwrap();
    let base = b.line(&writer, None, 2).await[0];
    let (run, source) = b.start(new_run(thread)).await;
    let (mut open, mut slot) = fork(&source, Some((base, 0)));
    open.run = Some(run.id);
    let mut commit = superstep(&slot, Some(base), 1);
    commit.open = Some(open);
    slot.head = Some(commit.checkpoint.id);
    b.commit(commit).await;
    assert_eq!(b.run(&run).await.branch, Some(slot.branch));
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert!(state.busy, "the new active branch is the run's");
    b.finish(run.id, slot).await;
    assert_eq!(b.run(&run).await.last_checkpoint, slot.head);
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.busy, state.outcome), (false, Outcome::Idle));
    assert_eq!(state.active_branch, slot.branch);
}
