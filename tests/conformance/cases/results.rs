//! Results of tasks that stand in the row of the checkpoint from which the tasks ran.

use std::sync::Arc;

use backstitch::{
    checkpoint::{Commit, List, Page, PageScope, Slot, StoredRows, WriteRow},
    id::{CheckpointId, RunId, ThreadId},
    tree::{Copied, NewCopy, event, store::rows::NewEvent, usage::Amount},
};

use super::{backend::*, sessions::*};

/// Supersteps of one run: the first brings no result, the third those of so many tasks, the others one.
fn run_of(slot: &Slot, tasks: u128) -> Vec<Commit> {
    let run = RunId::mint();
    let mut parent = None;
    let mut commits = Vec::new();
    for step in 0..5 {
        let mut commit = superstep(slot, parent, step);
        commit.checkpoint.run = Some(run);
        if let Some(parent) = parent {
            let number = u128::try_from(step).unwrap();
            commit.writes.push(WriteRow {
                path: format!("~__pregel_pull, node {step}").into(),
                tag: "b7".into(),
                ..result(parent, number, &[0, step as u8, b' '])
            });
            if step == 2 {
                let others = (1..tasks).map(|task| WriteRow {
                    path: format!("~__pregel_pull, other {task}").into(),
                    tag: "b3".into(),
                    ..result(parent, 10 + task, b"of another task")
                });
                commit.writes.extend(others);
            }
        }
        parent = Some(commit.checkpoint.id);
        commits.push(commit);
    }
    commits
}

type Shape = (u128, i32, Arc<str>, Arc<str>, Vec<u8>, bool);

/// What is told of each result; the last of it is whether it belongs to the branch of the slot.
fn shape_of(slot: &Slot, writes: &[WriteRow]) -> Vec<Shape> {
    let shape = |write: &WriteRow| {
        let task = write.task.0.as_u128();
        let (path, tag) = (write.path.clone(), write.tag.clone());
        let is_own = write.branch == slot.branch && write.channel.is_none();
        (task, write.idx, path, tag, write.bytes.clone(), is_own)
    };
    writes.iter().map(shape).collect()
}

/// What is told of the results at the checkpoints of a run.
#[derive(Debug, PartialEq)]
struct Told {
    /// Of each checkpoint by itself.
    single: Vec<Vec<Shape>>,
    /// Of a page.
    paged: Vec<Vec<Shape>>,
    /// What each weighs.
    weights: Vec<u64>,
    usage: Amount,
    /// Whose they are, as whoever looks for interrupts is told.
    finished: Vec<Vec<(u128, i32, Arc<str>)>>,
}

async fn told(b: &Backend, slot: &Slot, ids: &[CheckpointId]) -> Told {
    let mut single = Vec::new();
    for id in ids {
        let stored = b.by_id(slot, *id).await.unwrap();
        single.push(shape_of(slot, &stored.writes));
    }
    let list = List {
        limit: 10,
        ns: Some("".into()),
        ..list_all(slot)
    };
    let page = |most| {
        let scope = PageScope {
            most,
            metadata: false,
        };
        b.saver.page(list.clone(), scope)
    };
    let Page::Rows(StoredRows { rows, .. }) = page(1 << 20).await.unwrap() else {
        panic!("the page is small");
    };
    let paged: Vec<_> = rows
        .iter()
        .map(|(_, writes)| shape_of(slot, writes))
        .collect();
    let Page::Sizes(sizes) = page(1).await.unwrap() else {
        panic!("nothing weighs so little");
    };
    let weights: Vec<_> = sizes.iter().map(|size| size.weight).collect();
    let usage = b.trees.usage(slot.tree, slot.thread).await.unwrap();
    let mut finished = Vec::new();
    for id in ids {
        let pending = b
            .trees
            .pending_interrupts(slot.tree, slot.branch, *id, u64::MAX);
        let rows = pending.await.unwrap().rows.unwrap();
        let whose = |row: &WriteRow| (row.task.0.as_u128(), row.idx, row.path.clone());
        finished.push(rows.iter().map(whose).collect());
    }
    Told {
        finished,
        single,
        paged,
        weights,
        usage: usage.writes,
    }
}

fn ids_of(commits: &[Commit]) -> Vec<CheckpointId> {
    commits.iter().map(|one| one.checkpoint.id).collect()
}

pub async fn the_result_of_the_only_task_stands_in_the_row_of_its_checkpoint(b: &Backend) {
    let alone = b.slot().await;
    let one_by_one = run_of(&alone, 1);
    for commit in &one_by_one {
        b.commit(commit.clone()).await;
    }
    let together = b.slot().await;
    let commits = run_of(&together, 1);
    for result in b.saver.commit(commits.clone()).await {
        result.unwrap();
    }
    assert_eq!(b.rows(&alone).await["checkpoint_writes"], 4);
    assert!(!b.rows(&together).await.contains_key("checkpoint_writes"));
    let expected = told(b, &alone, &ids_of(&one_by_one)).await;
    assert_eq!(told(b, &together, &ids_of(&commits)).await, expected);
    b.tables.check(false).await;
}

pub async fn the_results_of_several_tasks_stand_in_the_row_of_their_checkpoint(b: &Backend) {
    let alone = b.slot().await;
    let one_by_one = run_of(&alone, 100);
    for commit in &one_by_one {
        b.commit(commit.clone()).await;
    }
    let together = b.slot().await;
    let commits = run_of(&together, 100);
    for result in b.saver.commit(commits.clone()).await {
        result.unwrap();
    }
    assert_eq!(b.rows(&alone).await["checkpoint_writes"], 103);
    assert!(!b.rows(&together).await.contains_key("checkpoint_writes"));
    let expected = told(b, &alone, &ids_of(&one_by_one)).await;
    let found = told(b, &together, &ids_of(&commits)).await;
    assert_eq!(found.single, expected.single);
    assert_eq!(found.paged, expected.paged);
    assert_eq!(found.single[1].len(), 100);
    for (weight, least) in found.weights.iter().zip(&expected.weights) {
        assert!(
            (*least..least + 12 * 1024).contains(weight),
            "{weight}, {least}"
        );
    }
    assert_eq!(found.usage.rows, 4);
    b.tables.check(false).await;
}

pub async fn results_beside_control_values_and_readable_ones_stay_rows(b: &Backend) {
    for change in ["control", "readable"] {
        let slot = b.slot().await;
        let mut commits = run_of(&slot, 100);
        let writes = &mut commits[2].writes;
        let at = writes[0].checkpoint;
        match change {
            "control" => writes.push(WriteRow {
                upsert: false,
                ..control(at, 2, (-5, "__step__"), b"memo")
            }),
            _ => writes[50].tag = "json".into(),
        }
        for result in b.saver.commit(commits.clone()).await {
            result.unwrap();
        }
        let written = commits[2].writes.len();
        let rows = usize::try_from(b.rows(&slot).await["checkpoint_writes"]);
        assert_eq!(rows, Ok(written), "{change}");
        let stored = b.by_id(&slot, at).await.unwrap().writes;
        assert_eq!(stored.len(), written, "{change}");
    }
}

pub async fn a_copy_and_a_new_branch_take_results_along_that_stand_in_rows_of_checkpoints(
    b: &Backend,
) {
    let slot = b.slot().await;
    let commits = run_of(&slot, 3);
    for result in b.saver.commit(commits.clone()).await {
        result.unwrap();
    }
    let ids = ids_of(&commits);
    let expected = told(b, &slot, &ids).await;
    let copy = NewCopy {
        id: ThreadId::mint(),
        owner: "somebody".into(),
        reader: None,
        limit: 5000,
        events: vec![NewEvent {
            kind: event::THREAD_CREATED,
            ..NewEvent::default()
        }],
    };
    let Copied::Done(thread) = b.trees.copy_thread(slot.thread, copy).await.unwrap() else {
        panic!("it was not copied");
    };
    let copied = b.trees.slot(thread.id).await.unwrap().unwrap();
    assert_eq!(told(b, &copied, &ids).await, expected);
    for (base, name) in [(2, "again"), (1, "and again")] {
        let branch = new_branch(&slot, name, Some((ids[base], base.try_into().unwrap())));
        let id = branch.id;
        let mut tx = begin(b, slot.tree).await;
        tx.insert_branch(branch).await.unwrap();
        tx.copy_writes(slot.tree, ids[base], slot.branch, id)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let own = Slot { branch: id, ..slot };
        let mut writes = b.by_id(&slot, ids[base]).await.unwrap().writes;
        writes.retain(|write| write.branch == id);
        let mut at_base = commits[base + 1].writes.clone();
        at_base.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(
            shape_of(&own, &writes),
            shape_of(&own, &at_base)
                .into_iter()
                .map(|(task, idx, path, tag, bytes, _)| (task, idx, path, tag, bytes, true))
                .collect::<Vec<_>>()
        );
    }
}
