//! Supersteps that share a transaction: what is stored of them is what would be without it.

use backstitch::{
    checkpoint::{Commit, Error, EventRow, NodeRow, Slot},
    id::{CheckpointId, NodeId, RunId},
    runs::{Finish, NewRun, Run, Status},
    tree::Outcome,
    value,
    value::Map,
};

use super::backend::*;

/// Supersteps of one run, from `parent` on and after the message `last`: without messages, with two,
/// with a removal and a third, without, with an edit. The newest message is returned too.
fn run_of(
    slot: &Slot,
    parent: Option<CheckpointId>,
    last: Option<NodeId>,
) -> (Vec<Commit>, Option<NodeId>) {
    let changes: [&[(&str, &'static str)]; 5] = [
        &[],
        &[("add", "a"), ("add", "b")],
        &[("remove", "a"), ("add", "c")],
        &[],
        &[("edit", "b")],
    ];
    let run = RunId::mint();
    let (mut parent, mut last) = (parent, last);
    let mut commits = Vec::new();
    for (step, changes) in (0..).zip(changes) {
        let mut commit = superstep(slot, parent, step);
        commit.checkpoint.run = Some(run);
        let version = version_after(step as u64);
        commit.checkpoint.blob_versions = blob_versions(&[("c", version)]);
        commit.blobs = vec![blob("c", version, None, &[step as u8])];
        let mut adds = 0;
        for (at, (kind, message)) in (0..).zip(changes) {
            let (event, kind) = match *kind {
                "add" => ("MessageAdded", "add"),
                "edit" => ("MessageEdited", "edit"),
                _ => ("MessageRemoved", "remove"),
            };
            commit.events.push(EventRow {
                kind: event,
                payload: Map::new(),
                message_id: Some((*message).into()),
            });
            adds += i32::from(kind == "add");
            let node = NodeRow {
                kind,
                seq: at,
                event_offset: Some(at + 1),
                ..added(message, last, adds)
            };
            if kind == "add" {
                last = Some(node.id);
            }
            commit.nodes.push(node);
        }
        commit.checkpoint.last_node = last;
        parent = Some(commit.checkpoint.id);
        commits.push(commit);
    }
    (commits, last)
}

/// What is stored of a run: the depth and the event number of each checkpoint, the events, the messages.
async fn stored(b: &Backend, slot: &Slot, commits: &[Commit]) -> String {
    let mut rows = Vec::new();
    for commit in commits {
        let stored = b.by_id(slot, commit.checkpoint.id).await.unwrap();
        let row = &stored.row;
        let bytes = stored.blobs[0].bytes.clone();
        rows.push((row.depth, row.event_number, row.last_node.is_some(), bytes));
    }
    let events = b.probe.events(slot.thread).await;
    let nodes = b.probe.nodes(slot.tree).await;
    format!("{rows:?}\n{events:?}\n{nodes:?}")
}

pub async fn supersteps_that_share_a_transaction_are_stored_as_those_that_do_not(b: &Backend) {
    let alone = b.slot().await;
    let (one_by_one, _) = run_of(&alone, None, None);
    for commit in &one_by_one {
        b.commit(commit.clone()).await;
    }
    let expected = stored(b, &alone, &one_by_one).await;
    let mut runs = Vec::new();
    for _ in 0..8 {
        let mut slot = b.slot().await;
        let stale = slot;
        if runs.len() == 3 {
            slot = b.trees.take_slot(slot.thread).await.unwrap().unwrap();
        }
        let (commits, _) = run_of(&stale, None, None);
        let saver = b.saver.clone();
        let sent = commits.clone();
        let sending = tokio::spawn(async move { saver.commit(sent).await });
        runs.push((slot, commits, sending));
    }
    for (number, (slot, commits, sending)) in runs.into_iter().enumerate() {
        let results = sending.await.unwrap();
        if number == 3 {
            assert!(results.iter().all(|one| matches!(one, Err(Error::Fenced))));
            assert!(!b.rows(&slot).await.contains_key("checkpoints"));
            continue;
        }
        let depths: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(depths, [0, 1, 2, 3, 4]);
        assert_eq!(stored(b, &slot, &commits).await, expected);
    }
    b.tables.check(false).await;
}

pub async fn events_of_two_branches_that_share_a_transaction_have_numbers_of_their_own(
    b: &Backend,
) {
    let main = b.slot().await;
    let (first, last) = run_of(&main, None, None);
    let ids: Vec<_> = first.iter().map(|commit| commit.checkpoint.id).collect();
    b.saver.commit(first).await;
    let (open, side) = fork(&main, Some((ids[1], 1)));
    let mut commit = superstep(&side, Some(ids[1]), 9);
    commit.open = Some(open);
    let (mut of_main, mut of_side) = (ids[4], commit.checkpoint.id);
    b.commit(commit).await;
    let (mut last_of_main, mut last_of_side) = (last, None);
    for _ in 0..5 {
        let (one, newest) = run_of(&main, Some(of_main), last_of_main);
        last_of_main = newest;
        let (other, newest) = run_of(&side, Some(of_side), last_of_side);
        last_of_side = newest;
        (of_main, of_side) = (one[4].checkpoint.id, other[4].checkpoint.id);
        let results = tokio::join!(b.saver.commit(one), b.saver.commit(other));
        for result in results.0.into_iter().chain(results.1) {
            result.unwrap();
        }
    }
    let events = b.probe.events(main.thread).await;
    let numbers: Vec<_> = events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    let messages = events
        .iter()
        .filter(|(_, kind)| kind.starts_with("Message"));
    assert_eq!(messages.count(), 11 * 5);
}

/// The last supersteps of a run that was started, and its end.
fn end_of(run: &Run, slot: Slot) -> (Vec<Commit>, Finish) {
    let (mut commits, _) = run_of(&slot, None, None);
    for commit in &mut commits {
        commit.checkpoint.run = Some(run.id);
    }
    let head = Some(commits[4].checkpoint.id);
    (commits, finish(run.id, Slot { head, ..slot }))
}

pub async fn a_run_ends_in_the_transaction_of_its_last_supersteps(b: &Backend) {
    let mut running = Vec::new();
    for number in 0..8 {
        let thread = b.thread().await;
        let (run, slot) = b.start(new_run(thread)).await;
        if number == 3 {
            assert_eq!(b.cancel(thread, None).await, [run.id]);
        }
        let (commits, end) = end_of(&run, slot);
        let runs = b.runs.clone();
        let ending = tokio::spawn(async move { runs.finish_with(commits, end).await });
        running.push((run, slot, ending));
    }
    for (number, (run, slot, ending)) in running.into_iter().enumerate() {
        let result = ending.await.unwrap();
        let row = b.run(&run).await;
        if number == 3 {
            assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
            assert_eq!(row.status, Status::Interrupted);
            assert!(!b.rows(&slot).await.contains_key("checkpoints"));
            continue;
        }
        result.unwrap();
        assert_eq!(row.status, Status::Success);
        assert_eq!(b.rows(&slot).await["checkpoints"], 5);
        let state = b.trees.thread(run.thread).await.unwrap().unwrap();
        assert_eq!((state.busy, state.outcome), (false, Outcome::Idle));
        let head = b
            .load(&slot, "", backstitch::checkpoint::At::ActiveHead)
            .await;
        assert_eq!(row.last_checkpoint, head.map(|head| head.row.id));
        let events = b.probe.events(run.thread).await;
        let kinds: Vec<_> = events.iter().map(|(_, kind)| &**kind).collect();
        let end = &kinds[kinds.len() - 3..];
        assert_eq!(end, ["MessageEdited", "CheckpointCreated", "RunFinished"]);
    }
    b.tables.check(false).await;
}

pub async fn a_run_whose_last_supersteps_are_refused_has_not_ended(b: &Backend) {
    for delete_thread in [false, true] {
        let thread = b.thread().await;
        let (run, slot) = b.start(new_run(thread)).await;
        let (commits, end) = end_of(&run, slot);
        let other = superstep(&slot, None, 0);
        let head = other.checkpoint.id;
        b.commit(other).await;
        let end = Finish {
            delete_thread,
            ..end
        };
        let result = b.runs.finish_with(commits, end).await;
        assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
        assert_eq!(b.run(&run).await.status, Status::Running);
        assert_eq!(b.rows(&slot).await["checkpoints"], 1);
        assert!(b.by_id(&slot, head).await.is_some());
    }
}

pub async fn a_temporary_thread_goes_with_the_last_supersteps_of_its_run(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let (commits, end) = end_of(&run, slot);
    let end = Finish {
        delete_thread: true,
        ..end
    };
    b.runs.finish_with(commits, end).await.unwrap();
    assert!(b.rows(&slot).await.is_empty());
    assert!(b.runs.run(thread, run.id).await.unwrap().is_none());
}

pub async fn runs_that_end_at_once_end_alone_or_are_refused_alone(b: &Backend) {
    let mut running = Vec::new();
    for number in 0..24 {
        let thread = b.thread().await;
        let (run, slot) = b.start(new_run(thread)).await;
        if number % 5 == 3 {
            assert_eq!(b.cancel(thread, None).await, [run.id]);
        }
        running.push((run, slot));
    }
    let ends = running.iter().map(|(run, slot)| {
        let error = Some(value!({"error": "Oops", "message": "x"}));
        let end = Finish {
            status: Status::Error,
            outcome: Outcome::Error,
            error,
            ..finish(run.id, *slot)
        };
        b.runs.finish(end)
    });
    let results = futures::future::join_all(ends).await;
    for (number, ((run, _), result)) in running.iter().zip(results).enumerate() {
        let row = b.run(run).await;
        let thread = b.trees.thread(run.thread).await.unwrap().unwrap();
        let events = b.probe.events(run.thread).await;
        let ends = events.iter().filter(|(_, kind)| kind == "RunFinished");
        assert_eq!(ends.count(), 1);
        if number % 5 == 3 {
            assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
            assert_eq!((row.status, row.error), (Status::Interrupted, None));
            assert_eq!(thread.outcome, Outcome::Idle);
        } else {
            result.unwrap();
            assert_eq!(row.status, Status::Error);
            assert_eq!((row.error, thread.outcome), (thread.error, Outcome::Error));
        }
    }
    b.tables.check(false).await;
}

pub async fn runs_of_two_branches_of_a_thread_end_at_once(b: &Backend) {
    let main = b.slot().await;
    let base = b.line(&main, None, 1).await[0];
    let (mut open, side) = fork(&main, Some((base, 0)));
    open.activate = false;
    let mut commit = superstep(&side, Some(base), 1);
    commit.open = Some(open);
    b.commit(commit).await;
    for _ in 0..5 {
        let (one, of_main) = b.start(new_run(main.thread)).await;
        let on_side = NewRun {
            branch: Some(side.branch),
            ..new_run(main.thread)
        };
        let (other, of_side) = b.start(on_side).await;
        let (one, other) = (finish(one.id, of_main), finish(other.id, of_side));
        let results = tokio::join!(b.runs.finish(one), b.runs.finish(other));
        results.0.unwrap();
        results.1.unwrap();
    }
    let events = b.probe.events(main.thread).await;
    let numbers: Vec<_> = events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    let ends = events.iter().filter(|(_, kind)| kind == "RunFinished");
    assert_eq!(ends.count(), 10);
}
