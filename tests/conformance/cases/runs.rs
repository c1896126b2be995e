//! One run from its creation to its end.

use backstitch::{
    checkpoint::Error,
    id::{AssistantId, RunId, ThreadId},
    runs::{Created, CreatedBatch, Finish, NewRun, Run, Status, Strategy},
    tree::{NewThread, Outcome},
    value,
};

use super::backend::*;

fn same(a: &Run, b: &Run) {
    assert_eq!((a.id, a.tree, a.thread), (b.id, b.tree, b.thread));
    assert_eq!(
        (a.branch, a.assistant, a.status),
        (b.branch, b.assistant, b.status)
    );
    assert_eq!((&a.metadata, &a.kwargs), (&b.metadata, &b.kwargs));
    assert_eq!(
        (a.address, a.strategy, a.attempt),
        (b.address, b.strategy, b.attempt)
    );
    assert_eq!((a.temporary, &a.error), (b.temporary, &b.error));
    assert_eq!((a.last_checkpoint, a.run_at), (b.last_checkpoint, b.run_at));
    assert_eq!((a.created_at, a.updated_at), (b.created_at, b.updated_at));
}

pub async fn a_started_run_comes_back_with_every_field(b: &Backend) {
    let thread = b.thread().await;
    let writer = b.trees.take_slot(thread).await.unwrap().unwrap();
    let head = b.line(&writer, None, 1).await[0];
    let new = NewRun {
        metadata: map(value!({"k": [1, null], "ü\0": "x"})),
        kwargs: value!({"input": {"text": "nul \0, ü", "n": 1.0, "big": 9_007_199_254_740_993_i64}}),
        address: Some(head),
        strategy: Strategy::Reject,
        temporary: true,
        ..new_run(thread)
    };
    let (run, slot) = b.start(new.clone()).await;
    assert_eq!((run.id, run.tree, run.thread), (new.id, slot.tree, thread));
    assert_eq!(
        (run.branch, run.status),
        (Some(slot.branch), Status::Running)
    );
    assert_eq!(run.assistant, AssistantId::of_graph("agent"));
    assert_eq!((&run.metadata, &run.kwargs), (&new.metadata, &new.kwargs));
    assert_eq!((run.address, run.strategy), (new.address, Strategy::Reject));
    assert_eq!((run.attempt, run.temporary), (1, true));
    assert_eq!((run.last_checkpoint, &run.error), (None, &None));
    assert_eq!(run.run_at, run.created_at);
    assert_eq!(slot.branch, writer.branch);
    assert!(
        slot.epoch > writer.epoch,
        "the claim fences the previous writer"
    );
    assert_eq!((slot.head, slot.head_depth), (Some(head), 0));
    same(&b.run(&run).await, &run);
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert!(state.busy);
    assert_eq!(state.epoch, slot.epoch);
    b.line(&slot, Some(head), 1).await;
}

pub async fn a_run_without_a_worker_waits(b: &Backend) {
    let thread = b.thread().await;
    let run = b
        .queue(NewRun {
            claim: None,
            ..new_run(thread)
        })
        .await;
    assert_eq!(
        (run.status, run.branch, run.attempt),
        (Status::Pending, None, 0)
    );
    same(&b.run(&run).await, &run);
    assert!(b.trees.thread(thread).await.unwrap().unwrap().busy);
    assert_eq!(b.trees.slot(thread).await.unwrap().unwrap().epoch, 0);
}

pub async fn a_run_needs_a_thread_and_a_free_id(b: &Backend) {
    let thread = ThreadId::mint();
    let refused = b.runs.create_run(new_run(thread)).await.unwrap();
    assert!(matches!(refused, Created::NoThread), "{refused:?}");
    assert!(b.trees.thread(thread).await.unwrap().is_none());
    let new = NewRun {
        create_thread: Some(NewThread {
            metadata: map(value!({"from": "run"})),
            ..new_thread(thread)
        }),
        ..new_run(thread)
    };
    let (run, slot) = b.start(new.clone()).await;
    b.finish(run.id, slot).await;
    let again = b.runs.create_run(new.clone()).await.unwrap();
    assert!(matches!(again, Created::Exists), "{again:?}");
    // The thread is there now: used as it is.
    let next = NewRun {
        id: RunId::mint(),
        create_thread: Some(new_thread(thread)),
        ..new
    };
    b.start(next).await;
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!(state.metadata, map(value!({"from": "run"})));
    assert!(b.runs.run(unknown(), run.id).await.unwrap().is_none());
    assert!(b.runs.run(thread, unknown()).await.unwrap().is_none());
}

pub async fn a_run_brings_its_thread_metadata_and_config(b: &Backend) {
    let thread = b.thread().await;
    b.trees
        .patch_thread(thread, map(value!({"mine": 1, "graph_id": "old"})))
        .await
        .unwrap();
    let new = NewRun {
        thread_metadata: map(value!({"graph_id": "agent"})),
        thread_config: map(value!({"tags": ["a"]})),
        strategy: Strategy::Reject,
        ..new_run(thread)
    };
    b.start(new).await;
    let refused = NewRun {
        thread_metadata: map(value!({"graph_id": "refused"})),
        strategy: Strategy::Reject,
        ..new_run(thread)
    };
    let refused = b.runs.create_run(refused).await.unwrap();
    assert!(matches!(refused, Created::Busy));
    let queued = NewRun {
        thread_config: map(value!({"more": true})),
        ..new_run(thread)
    };
    b.queue(queued).await;
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!(
        state.metadata,
        map(value!({"mine": 1, "graph_id": "agent"}))
    );
    assert_eq!(state.config, map(value!({"tags": ["a"], "more": true})));
}

pub async fn a_run_ends_once(b: &Backend) {
    let thread = b.thread().await;
    let (run, mut slot) = b.start(new_run(thread)).await;
    slot.head = Some(b.line(&slot, None, 1).await[0]);
    let error = value!({"error": "E", "message": "m"});
    let end = Finish {
        status: Status::Error,
        outcome: Outcome::Error,
        error: Some(error.clone()),
        ..finish(run.id, slot)
    };
    b.runs.finish(end).await.unwrap();
    let ended = b.run(&run).await;
    assert_eq!(
        (ended.status, ended.last_checkpoint),
        (Status::Error, slot.head)
    );
    assert_eq!(ended.error.as_ref(), Some(&error));
    assert!(ended.updated_at > run.updated_at);
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.busy, state.outcome), (false, Outcome::Error));
    assert_eq!(state.error, Some(error));
    let again = b.runs.finish(finish(run.id, slot)).await;
    assert!(matches!(again, Err(Error::Fenced)), "{again:?}");
    assert_eq!(b.run(&run).await.status, Status::Error);
    assert_eq!(
        b.trees.thread(thread).await.unwrap().unwrap().outcome,
        Outcome::Error,
        "a refused end leaves the branch alone"
    );
    // The next run that ends well clears the error.
    let (run, slot) = b.start(new_run(thread)).await;
    b.finish(run.id, slot).await;
    let state = b.trees.thread(thread).await.unwrap().unwrap();
    assert_eq!((state.outcome, state.error), (Outcome::Idle, None));
}

pub async fn an_end_by_a_fenced_writer_is_refused(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    assert_eq!(b.cancel(thread, None).await, [run.id]);
    for delete_thread in [false, true] {
        let late = Finish {
            delete_thread,
            ..finish(run.id, slot)
        };
        let late = b.runs.finish(late).await;
        assert!(matches!(late, Err(Error::Fenced)), "{late:?}");
    }
    assert_eq!(b.run(&run).await.status, Status::Interrupted);
    assert!(b.trees.thread(thread).await.unwrap().is_some());
}

pub async fn a_temporary_thread_goes_with_its_run(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    b.line(&slot, None, 2).await;
    let end = Finish {
        delete_thread: true,
        ..finish(run.id, slot)
    };
    b.runs.finish(end).await.unwrap();
    assert!(b.rows(&slot).await.is_empty());
    assert!(b.runs.run(thread, run.id).await.unwrap().is_none());
}

pub async fn runs_are_listed_newest_first(b: &Backend) {
    let thread = b.thread().await;
    let elsewhere = b.thread().await;
    b.start(new_run(elsewhere)).await;
    let (first, slot) = b.start(new_run(thread)).await;
    b.finish(first.id, slot).await;
    let (second, _) = b.start(new_run(thread)).await;
    let third = b.queue(new_run(thread)).await;
    let fourth = b.queue(new_run(thread)).await;
    let list = async |status, limit, offset| -> Vec<RunId> {
        let runs = b.runs.runs(thread, status, limit, offset).await.unwrap();
        runs.iter().map(|run| run.id).collect()
    };
    let all = [fourth.id, third.id, second.id, first.id];
    assert_eq!(list(None, 10, 0).await, all);
    assert_eq!(list(None, 2, 1).await, all[1..3]);
    assert!(list(None, 10, 4).await.is_empty());
    assert!(list(None, 0, 0).await.is_empty());
    assert_eq!(list(Some(Status::Pending), 10, 0).await, all[..2]);
    assert_eq!(list(Some(Status::Pending), 1, 1).await, [third.id]);
    assert_eq!(list(Some(Status::Running), 10, 0).await, [second.id]);
    assert_eq!(list(Some(Status::Success), 10, 0).await, [first.id]);
    assert!(list(Some(Status::Timeout), 10, 0).await.is_empty());
}

pub async fn the_end_of_a_run_settles_its_last_message(b: &Backend) {
    let thread = b.thread().await;
    let (run, mut slot) = b.start(new_run(thread)).await;
    let row = added("m", None, 1);
    let node = row.id;
    let mut commit = superstep(&slot, None, 0);
    let first = commit.checkpoint.id;
    commit.checkpoint.run = Some(run.id);
    commit.checkpoint.last_node = Some(node);
    commit.nodes = vec![row];
    b.commit(commit).await;
    let mut commit = superstep(&slot, Some(first), 1);
    commit.checkpoint.last_node = Some(node);
    slot.head = Some(commit.checkpoint.id);
    b.commit(commit).await;
    assert_eq!(b.probe.nodes(slot.tree).await[0].3, None);
    b.finish(run.id, slot).await;
    assert_eq!(b.probe.nodes(slot.tree).await[0].3, slot.head);
    // A later run without messages of its own leaves it there.
    let (next, mut slot) = b.start(new_run(thread)).await;
    let settled = slot.head;
    let mut commit = superstep(&slot, settled, 2);
    commit.checkpoint.last_node = Some(node);
    slot.head = Some(commit.checkpoint.id);
    b.commit(commit).await;
    b.finish(next.id, slot).await;
    assert_eq!(b.probe.nodes(slot.tree).await[0].3, settled);
}

/// A run with a new thread of its own.
fn stateless() -> NewRun {
    let thread = ThreadId::mint();
    NewRun {
        create_thread: Some(new_thread(thread)),
        temporary: true,
        ..new_run(thread)
    }
}

pub async fn runs_created_together_are_all_there_or_none(b: &Backend) {
    let mut new: Vec<NewRun> = (0..60).map(|_| stateless()).collect();
    new[7].claim = None;
    let CreatedBatch::All(made) = b.runs.create_runs(new.clone()).await.unwrap() else {
        panic!("they were refused");
    };
    assert_eq!(made.len(), 60);
    for (at, (new, made)) in new.iter().zip(&made).enumerate() {
        let (run, starts) = match made {
            Created::Started(run, _) => (run, true),
            Created::Queued(run) => (run, false),
            other => panic!("{other:?}"),
        };
        assert_eq!((run.id, run.thread, starts), (new.id, new.thread, at != 7));
        same(&b.run(run).await, run);
    }
    // One whose id is taken: those before it and after it are not there.
    let mut again: Vec<NewRun> = (0..40).map(|_| stateless()).collect();
    again[33].id = new[0].id;
    match b.runs.create_runs(again.clone()).await.unwrap() {
        CreatedBatch::None(33, Created::Exists) => {}
        other => panic!("{other:?}"),
    }
    for new in again {
        assert!(b.trees.thread(new.thread).await.unwrap().is_none());
        assert!(b.runs.run(new.thread, new.id).await.unwrap().is_none());
    }
    match b.runs.create_runs(vec![]).await.unwrap() {
        CreatedBatch::All(none) => assert!(none.is_empty()),
        other => panic!("{other:?}"),
    }
}

pub async fn a_run_is_found_by_its_id_alone(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    assert_eq!(b.runs.thread_of_run(run.id).await.unwrap(), Some(thread));
    assert_eq!(b.runs.thread_of_run(RunId::mint()).await.unwrap(), None);
    let temporary = stateless();
    b.start(temporary.clone()).await;
    let found = b.runs.thread_of_run(temporary.id).await.unwrap();
    assert_eq!(found, Some(temporary.thread));
    b.finish(run.id, slot).await;
    assert_eq!(b.runs.thread_of_run(run.id).await.unwrap(), Some(thread));
}
