//! Runs of principals in the queue: how many are claimed of one, and what each may do by then.

use std::{collections::HashSet, time::Duration};

use backstitch::{
    id::{RunId, ThreadId, WorkerId},
    runs::{Created, NewRun, QueueClaim, RequestSlots},
    tree::members::{Access, Level},
    value,
    value::Value,
};

use super::backend::*;
use super::queue::{anything, dead, recover};

/// Sets bob's level on the tree of a thread.
async fn share(b: &Backend, thread: ThreadId, level: Option<Level>) {
    let row = b.trees.thread(thread).await.unwrap().unwrap();
    let mut tx = b.trees.begin(row.tree).await.unwrap();
    tx.put_member(row.tree, "bob".into(), level).await.unwrap();
    tx.commit().await.unwrap();
}

/// A run of bob's.
fn of_bob(thread: ThreadId, worker: Option<WorkerId>) -> NewRun {
    NewRun {
        claim: worker,
        access: Access::of("bob".into(), "request".into(), Level::Writer),
        ..new_run(thread)
    }
}

pub async fn a_claim_takes_no_more_of_one_principal_than_it_may_have(b: &Backend) {
    let mut of_one = vec![];
    for _ in 0..4 {
        let thread = b.thread().await;
        share(b, thread, Some(Level::Writer)).await;
        of_one.push(b.queue(of_bob(thread, None)).await.id);
    }
    let own = NewRun {
        claim: None,
        ..new_run(b.thread().await)
    };
    let own = b.queue(own).await.id;
    let claim = async |executed: usize| {
        let claim = QueueClaim {
            busy: vec![("bob".into(), executed)],
            most: 3,
            ..anything(10)
        };
        let claimed = b.runs.claim(claim).await.unwrap().runs;
        let mut claimed: Vec<_> = claimed.iter().map(|one| one.run.id).collect();
        claimed.sort();
        claimed
    };
    let mut expected = vec![of_one[0], of_one[1], own];
    expected.sort();
    assert_eq!(claim(1).await, expected);
    assert!(claim(3).await.is_empty());
    assert_eq!(claim(2).await, of_one[2..3]);
    assert_eq!(claim(0).await, of_one[3..]);
}

/// A run that waits, with a request of so many items, which take many times their bytes in memory.
async fn waiting(b: &Backend, items: usize, is_bobs: bool) -> RunId {
    let thread = b.thread().await;
    let new = if is_bobs {
        share(b, thread, Some(Level::Writer)).await;
        of_bob(thread, None)
    } else {
        NewRun {
            claim: None,
            ..new_run(thread)
        }
    };
    let items = Value::list(vec![Value::Null; items]);
    let new = NewRun {
        kwargs: value!({ "input": items }),
        ..new
    };
    b.queue(new).await.id
}

/// One slot for each twenty thousand of these items, and none takes more than four.
fn slots() -> RequestSlots {
    RequestSlots {
        bytes: 20_000 * size_of::<Value>(),
        most: 4,
    }
}

pub async fn runs_are_claimed_until_their_requests_take_all_slots(b: &Backend) {
    let claim = async |limit: usize| {
        let claim = QueueClaim {
            slots: slots(),
            ..anything(limit)
        };
        let claimed = b.runs.claim(claim).await.unwrap();
        let ids: Vec<_> = claimed.runs.iter().map(|one| one.run.id).collect();
        (ids, claimed.more)
    };
    let mut runs = vec![];
    for items in [0, 25_000, 0, 99_999, 0, 25_000, 25_000, 25_000] {
        runs.push(waiting(b, items, false).await);
    }
    // They take 1, 2, 1, 4, 1, 2, 2 and 2.
    assert_eq!(claim(3).await, (runs[..2].to_vec(), true));
    assert_eq!(
        claim(2).await,
        (runs[2..4].to_vec(), true),
        "the last one may take more than is left"
    );
    assert_eq!(claim(4).await, (runs[4..7].to_vec(), true));
    assert_eq!(claim(4).await, (runs[7..].to_vec(), false));
    assert_eq!(claim(4).await, (vec![], false));
}

pub async fn principals_have_slots_in_turn_by_what_their_requests_take(b: &Backend) {
    let mut bobs = vec![];
    for items in [99_999, 0, 99_999, 0] {
        bobs.push(waiting(b, items, true).await);
    }
    let mut own = vec![];
    for _ in 0..6 {
        own.push(waiting(b, 0, false).await);
    }
    let claim = async |limit: usize, busy: usize| {
        let claim = QueueClaim {
            slots: slots(),
            busy: vec![("bob".into(), busy)],
            most: 6,
            ..anything(limit)
        };
        let claimed = b.runs.claim(claim).await.unwrap().runs;
        let ids = claimed.iter().map(|one| one.run.id);
        ids.collect::<HashSet<_>>()
    };
    // Bob's first run takes four slots: then it is the others' turn until they have as many.
    let expected = [bobs[0], own[0], own[1], own[2], own[3]];
    assert_eq!(claim(8, 0).await, HashSet::from(expected));
    // With these bob has five, and with the next one all he may have.
    let expected = [bobs[1], bobs[2], own[4], own[5]];
    assert_eq!(claim(20, 4).await, HashSet::from(expected));
    assert_eq!(claim(20, 0).await, HashSet::from([bobs[3]]));
}

pub async fn the_right_of_a_runs_principal_is_read_when_it_is_created_and_claimed(b: &Backend) {
    let thread = b.thread().await;
    for level in [None, Some(Level::Reader)] {
        share(b, thread, level).await;
        let refused = b.runs.create_run(of_bob(thread, None)).await.unwrap();
        assert!(matches!(refused, Created::Denied(_)), "{refused:?}");
    }
    share(b, thread, Some(Level::Writer)).await;
    let [first, second] = [
        b.queue(of_bob(thread, None)).await,
        b.queue(of_bob(thread, None)).await,
    ];
    assert_eq!(first.principal.as_deref(), Some("bob"));
    let claim = async || {
        let claimed = b.runs.claim(anything(10)).await.unwrap().runs;
        let [claimed] = claimed.try_into().unwrap();
        claimed
    };
    let claimed = claim().await;
    assert_eq!((claimed.run.id, claimed.is_permitted), (first.id, true));
    b.finish(first.id, claimed.slot).await;
    share(b, thread, Some(Level::Reader)).await;
    let claimed = claim().await;
    assert_eq!((claimed.run.id, claimed.is_permitted), (second.id, false));
    b.finish(second.id, claimed.slot).await;
    // One of the server itself needs no level.
    let own = NewRun {
        claim: None,
        ..new_run(thread)
    };
    let own = b.queue(own).await;
    let claimed = claim().await;
    assert_eq!((claimed.run.id, claimed.is_permitted), (own.id, true));
}

pub async fn a_claim_needs_no_search_to_refuse_what_waits_when_a_right_is_withdrawn(b: &Backend) {
    let thread = b.thread().await;
    share(b, thread, Some(Level::Writer)).await;
    let run = b.queue(of_bob(thread, None)).await;
    let mut tx = b.runs.begin(run.tree).await.unwrap();
    let found = tx.executed_for(run.tree, "bob".into()).await.unwrap();
    assert_eq!(found.executed, []);
    tx.put_member(run.tree, "bob".into(), None).await.unwrap();
    tx.commit().await.unwrap();
    let told = QueueClaim {
        freed: found.waiting,
        search: None,
        ..anything(10)
    };
    let [claimed] = b.runs.claim(told).await.unwrap().runs.try_into().unwrap();
    assert_eq!((claimed.run.id, claimed.is_permitted), (run.id, false));
}

pub async fn the_right_of_a_runs_principal_is_read_when_it_is_taken_over(b: &Backend) {
    for (level, is_permitted) in [(Some(Level::Owner), true), (None, false)] {
        let (dead, me) = (dead(b).await, WorkerId::mint());
        b.runs.renew(me, Duration::from_secs(60)).await.unwrap();
        let thread = b.thread().await;
        share(b, thread, Some(Level::Writer)).await;
        let (run, _) = b.start(of_bob(thread, Some(dead))).await;
        share(b, thread, level).await;
        let found = recover(b, me, 10).await;
        let [taken] = found.taken.try_into().unwrap();
        assert_eq!((taken.run.id, taken.is_permitted), (run.id, is_permitted));
        b.finish(run.id, taken.slot).await;
    }
}
