//! Searches for runs that were behind others of their branch and are first now.

use backstitch::{
    id::{RunId, ThreadId},
    runs::{NewRun, QueueClaim, Searched, Slice},
};

use super::backend::*;
use super::queue::anything;

/// A thread on which a run waits behind one that is executed.
struct Behind {
    thread: ThreadId,
    waiting: RunId,
    first: RunId,
    slot: backstitch::checkpoint::Slot,
}

/// So many such threads, in the order of a search.
async fn behind(b: &Backend, number: usize) -> Vec<Behind> {
    let mut all = vec![];
    for _ in 0..number {
        let thread = b.thread().await;
        let (first, slot) = b.start(new_run(thread)).await;
        let waiting = b.queue(new_run(thread)).await.id;
        all.push(Behind {
            thread,
            waiting,
            first: first.id,
            slot,
        });
    }
    all.sort_unstable_by_key(|one| one.thread);
    all
}

/// What a claim finds, and what comes of its search.
async fn claim(b: &Backend, freed: &[ThreadId], search: Option<Slice>) -> (Vec<RunId>, Searched) {
    let claim = QueueClaim {
        freed: freed.to_vec(),
        search,
        ..anything(100)
    };
    let claimed = b.runs.claim(claim).await.unwrap();
    let mut runs: Vec<RunId> = claimed.runs.iter().map(|one| one.run.id).collect();
    runs.sort_unstable();
    (runs, claimed.searched)
}

fn waiting(some: &[Behind]) -> Vec<RunId> {
    let mut runs: Vec<RunId> = some.iter().map(|one| one.waiting).collect();
    runs.sort_unstable();
    runs
}

pub async fn a_claim_without_a_search_finds_freed_runs_on_the_threads_that_it_is_told_of(
    b: &Backend,
) {
    let all = behind(b, 3).await;
    for one in &all {
        b.finish(one.first, one.slot).await;
    }
    let nothing = Searched::default();
    assert_eq!(claim(b, &[], None).await, (vec![], nothing));
    let told = claim(b, &[all[1].thread], None).await;
    assert_eq!(told, (vec![all[1].waiting], nothing));
}

pub async fn a_claim_searches_one_slice_and_says_where_the_next_one_begins(b: &Backend) {
    let all = behind(b, 5).await;
    for one in &all {
        b.finish(one.first, one.slot).await;
    }
    let mut slice = Slice::first(2);
    for some in all.chunks(2) {
        let (runs, searched) = claim(b, &[], Some(slice)).await;
        assert_eq!(runs, waiting(some));
        assert!(searched.advanced);
        assert_eq!(searched.next.is_some(), some.len() == 2);
        let Some(next) = searched.next else {
            return;
        };
        assert!(next > some[1].thread);
        slice.from = next;
    }
    panic!("the last slice was none");
}

pub async fn the_slice_after_one_begins_with_another_thread(b: &Backend) {
    let all = behind(b, 3).await;
    let second = &all[1];
    let branch = Some(second.slot.branch);
    for _ in 0..3 {
        let pinned = NewRun {
            branch,
            ..new_run(second.thread)
        };
        b.queue(pinned).await;
    }
    b.finish(second.first, second.slot).await;
    let (runs, searched) = claim(b, &[], Some(Slice::first(2))).await;
    assert_eq!(runs, [second.waiting]);
    let third = Slice {
        from: searched.next.unwrap(),
        runs: 2,
    };
    b.finish(all[2].first, all[2].slot).await;
    let (runs, searched) = claim(b, &[], Some(third)).await;
    assert_eq!((runs, searched.next), (vec![all[2].waiting], None));
}

pub async fn a_run_that_nobody_was_told_of_is_found_in_the_last_slice(b: &Backend) {
    let all = behind(b, 7).await;
    b.finish(all[6].first, all[6].slot).await;
    let mut slice = Slice::first(3);
    for some in [&all[..3], &all[3..6]] {
        let (runs, searched) = claim(b, &[], Some(slice)).await;
        assert_eq!((runs, searched.advanced), (vec![], false));
        let next = searched.next.unwrap();
        assert!(next > some[2].thread);
        slice.from = next;
    }
    let last = Searched {
        advanced: true,
        next: None,
    };
    let (runs, searched) = claim(b, &[], Some(slice)).await;
    assert_eq!((runs, searched), (vec![all[6].waiting], last));
    // The next round has the others alone.
    let (runs, searched) = claim(b, &[], Some(Slice::first(7))).await;
    assert_eq!((runs, searched), (vec![], Searched::default()));
}
