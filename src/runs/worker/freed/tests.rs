//! Which slices are searched, and when: a claim costs as much as one slice, and no slice is left out.

use uuid::Uuid;

use super::*;

fn thread(number: u128) -> ThreadId {
    ThreadId(Uuid::from_u128(number))
}

fn found(advanced: bool, next: Option<u128>) -> Searched {
    Searched {
        advanced,
        next: next.map(thread),
    }
}

/// Where the next claim searches, and whether another one is to follow at once when it finds this.
fn claim(freed: &mut Freed, searched: Searched) -> (Option<u128>, bool) {
    let candidates = freed.take();
    let from = candidates.slice.map(|slice| slice.from.0.as_u128());
    (from, freed.advance(&candidates, searched))
}

const NOTHING: Searched = Searched {
    advanced: false,
    next: None,
};

#[test]
fn a_claim_without_a_poll_searches_nothing() {
    let mut freed = Freed::default();
    freed.add(thread(7));
    let candidates = freed.take();
    assert_eq!(candidates.threads, [thread(7)]);
    assert_eq!(candidates.slice, None);
    assert!(!freed.advance(&candidates, NOTHING));
    assert!(freed.take().threads.is_empty());
}

#[test]
fn each_poll_searches_one_slice_until_the_round_ends() {
    let mut freed = Freed::default();
    freed.poll(false);
    assert_eq!(claim(&mut freed, NOTHING), (None, false));
    freed.poll(true);
    assert_eq!(claim(&mut freed, found(false, Some(3))), (Some(0), false));
    assert_eq!(claim(&mut freed, NOTHING), (None, false));
    freed.poll(false);
    assert_eq!(claim(&mut freed, found(false, Some(5))), (Some(3), false));
    freed.poll(true);
    assert_eq!(claim(&mut freed, found(false, None)), (Some(5), false));
    freed.poll(false);
    assert_eq!(claim(&mut freed, NOTHING), (None, false));
    freed.poll(true);
    assert_eq!(claim(&mut freed, NOTHING), (Some(0), false));
}

#[test]
fn the_slice_after_one_that_had_freed_runs_is_searched_at_once() {
    let mut freed = Freed::default();
    freed.poll(true);
    assert_eq!(claim(&mut freed, found(true, Some(3))), (Some(0), true));
    assert_eq!(claim(&mut freed, found(false, Some(5))), (Some(3), false));
    freed.poll(false);
    assert_eq!(claim(&mut freed, found(true, None)), (Some(5), false));
}

#[test]
fn all_slices_are_searched_at_once_when_the_worker_starts() {
    let mut freed = Freed::default();
    freed.search_all();
    assert_eq!(claim(&mut freed, found(false, Some(3))), (Some(0), true));
    assert_eq!(claim(&mut freed, found(false, Some(5))), (Some(3), true));
    assert_eq!(claim(&mut freed, found(false, None)), (Some(5), false));
    freed.poll(true);
    assert_eq!(claim(&mut freed, found(false, Some(3))), (Some(0), false));
}

#[test]
fn what_a_failed_claim_was_told_of_is_tried_again() {
    let mut freed = Freed::default();
    freed.poll(true);
    claim(&mut freed, found(false, Some(3)));
    freed.add(thread(7));
    freed.poll(false);
    let failed = freed.take();
    freed.put_back(failed.clone());
    let next = freed.take();
    assert_eq!(next.threads, [thread(7)]);
    assert_eq!(next.slice, failed.slice);
    assert_eq!(next.slice.unwrap().from, thread(3));
}

#[test]
fn a_claim_is_told_of_so_many_threads_and_the_next_one_of_the_others() {
    let mut freed = Freed::default();
    for number in 0..AT_ONCE + 1 {
        let number = u128::try_from(number).unwrap();
        freed.add(thread(number));
        freed.add_unpublished(thread(number));
    }
    let first = freed.take();
    assert_eq!(first.threads.len(), AT_ONCE);
    assert!(freed.advance(&first, NOTHING));
    let last = freed.take();
    assert_eq!(last.threads.len(), 1);
    assert!(!first.threads.contains(&last.threads[0]));
    assert!(!freed.advance(&last, NOTHING));
    assert!(freed.take_unpublished().is_empty());
}

#[test]
fn no_slice_follows_the_last_thread_that_there_can_be() {
    let slice = Slice::first(2);
    assert_eq!(slice.next(&[thread(4), thread(4)]), Some(thread(5)));
    assert_eq!(slice.next(&[thread(4)]), None);
    assert_eq!(slice.next(&[thread(4), thread(u128::MAX)]), None);
}
