//! The log of streams: which chunks are written, in which order they are read, and when they go.

use std::{sync::Arc, time::Duration};

use backstitch::{
    id::{CheckpointId, RunId, ThreadId, WorkerId},
    runs::{NewRun, Recover, Run, Undo},
    stream::log::{LogChunk, NewChunk},
};

use super::backend::*;
use backstitch::{
    checkpoint::{Error, Slot},
    runs::Finish,
};

/// A chunk of a run that is executed in this slot.
fn chunk(run: &Run, slot: &Slot, first: i64, last: i64) -> NewChunk {
    NewChunk {
        tree: slot.tree,
        thread: slot.thread,
        run: run.id,
        epoch: Some(slot.epoch),
        first,
        last,
        checkpoint: None,
        frames: vec![u8::try_from(first % 256).unwrap(); 9].into(),
        temporary: run.temporary,
        principal: run.principal.clone(),
    }
}

/// What a chunk has of the numbers of its frames.
fn numbers(chunks: &[LogChunk]) -> Vec<(i64, i64)> {
    chunks
        .iter()
        .map(|chunk| (chunk.first, chunk.last))
        .collect()
}

impl Backend {
    async fn append(&self, chunks: Vec<NewChunk>) -> Vec<Option<i64>> {
        self.log.append_chunks(chunks).await.unwrap()
    }

    async fn of_run(&self, run: RunId, after: i64) -> Vec<(i64, i64)> {
        numbers(&self.log.chunks_of_run(run, after).await.unwrap())
    }

    async fn of_thread(&self, thread: ThreadId, after: i64) -> Vec<LogChunk> {
        self.log.chunks_of_thread(thread, after).await.unwrap()
    }
}

pub async fn chunks_come_back_by_run_and_by_thread(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    assert_eq!(b.log.thread_position(thread).await.unwrap(), 0);
    assert_eq!(b.log.end_of_run(run.id).await.unwrap(), 0);
    let all = vec![
        chunk(&run, &slot, 1, 3),
        chunk(&run, &slot, 4, 4),
        chunk(&run, &slot, 5, 9),
    ];
    let positions: Vec<i64> = b.append(all.clone()).await.into_iter().flatten().collect();
    let first = positions[0];
    assert_eq!(positions, [first, first + 3, first + 4]);
    assert_eq!(b.log.thread_position(thread).await.unwrap(), first + 8);
    assert_eq!(b.log.end_of_run(run.id).await.unwrap(), 9);
    for (after, found) in [
        (0, &[(1, 3), (4, 4), (5, 9)][..]),
        (2, &[(1, 3), (4, 4), (5, 9)]),
        (3, &[(4, 4), (5, 9)]),
        (8, &[(5, 9)]),
        (9, &[]),
        (i64::MAX, &[]),
    ] {
        assert_eq!(b.of_run(run.id, after).await, found, "{after}");
    }
    let read = b.log.chunks_of_run(run.id, 3).await.unwrap();
    assert_eq!((read[0].run, read[0].position), (run.id, first + 3));
    assert_eq!(read[0].frames, all[1].frames);
    let (first, last) = (first - 1, first + 8);
    for (after, count) in [(0, 3), (first, 3), (first + 3, 2), (last - 1, 1), (last, 0)] {
        assert_eq!(b.of_thread(thread, after).await.len(), count, "{after}");
    }
    assert_eq!(b.of_run(unknown(), 0).await, []);
    b.log.trim_run(run.id, 4).await.unwrap();
    assert_eq!(b.of_run(run.id, 0).await, [(4, 4), (5, 9)]);
}

pub async fn the_last_frames_come_with_the_end_of_their_run_or_not_at_all(b: &Backend) {
    let mut running = Vec::new();
    for number in 0..8 {
        let thread = b.thread().await;
        let (run, slot) = b.start(new_run(thread)).await;
        let before = b.append(vec![chunk(&run, &slot, 1, 3)]).await;
        if number == 3 {
            assert_eq!(b.cancel(thread, None).await, [run.id]);
        }
        let mut frames = vec![chunk(&run, &slot, 4, 8), chunk(&run, &slot, 9, 9)];
        // Some have no log.
        frames.truncate(if number == 5 { 0 } else { 2 });
        let end = Finish {
            frames,
            ..finish(run.id, slot)
        };
        running.push((run, end, before[0].unwrap()));
    }
    let ends = running.iter().map(|(_, end, _)| b.runs.finish(end.clone()));
    let ended = futures::future::join_all(ends).await;
    for (number, ((run, end, before), ended)) in running.iter().zip(ended).enumerate() {
        if number == 3 {
            assert!(matches!(ended, Err(Error::Fenced)), "{ended:?}");
            assert_eq!(b.of_run(run.id, 0).await, [(1, 3)]);
            continue;
        }
        let positions = ended.unwrap();
        if number == 5 {
            assert_eq!(positions, [] as [i64; 0]);
            assert_eq!(b.of_run(run.id, 0).await, [(1, 3)]);
            continue;
        }
        assert_eq!(positions, [before + 3, before + 8]);
        let stored = b.of_thread(run.thread, 0).await;
        assert_eq!(numbers(&stored), [(1, 3), (4, 8), (9, 9)]);
        let of_stored: Vec<_> = stored.iter().map(|chunk| chunk.position).collect();
        assert_eq!(of_stored, [*before, before + 3, before + 8]);
        for (chunk, sent) in stored[1..].iter().zip(&end.frames) {
            assert_eq!(*chunk.frames, *sent.frames);
        }
        assert_eq!(b.log.thread_position(run.thread).await.unwrap(), before + 8);
        // A reply that is lost is asked for again, and it is not known where the frames are. Where none can be lost, the
        // run has ended already.
        match b.runs.finish(end.clone()).await {
            Ok(again) => assert!(again.is_empty(), "{again:?}"),
            Err(error) => assert!(matches!(error, Error::Fenced), "{error}"),
        }
        assert_eq!(b.of_run(run.id, 0).await.len(), 3);
    }
    b.tables.check(false).await;
}

pub async fn what_is_read_at_once_is_bounded(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let large = |first| NewChunk {
        frames: vec![7; 400_000].into(),
        ..chunk(&run, &slot, first, first)
    };
    b.append((1..=6).map(large).collect()).await;
    assert_eq!(b.of_run(run.id, 0).await, [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(b.of_run(run.id, 3).await, [(4, 4), (5, 5), (6, 6)]);
    assert_eq!(b.of_thread(thread, 0).await.len(), 3);
    // One that is larger than the bound is read all the same.
    let huge = NewChunk {
        frames: vec![7; 3_000_000].into(),
        ..chunk(&run, &slot, 7, 7)
    };
    b.append(vec![huge]).await;
    assert_eq!(b.of_run(run.id, 6).await, [(7, 7)]);
}

pub async fn a_principal_has_its_newest_chunks_up_to_its_share(b: &Backend) {
    let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
    let thread = b.thread().await;
    let (first, slot) = b.start(new_run(thread)).await;
    let (second, other) = b.start(new_run(b.thread().await)).await;
    let of = |principal: &Arc<str>, chunk| NewChunk {
        principal: Some(principal.clone()),
        frames: vec![7; 1000].into(),
        ..chunk
    };
    // Each write is newer than the ones before.
    for n in 1..=3 {
        b.append(vec![of(&ann, chunk(&first, &slot, n, n))]).await;
        b.append(vec![of(&bob, chunk(&second, &other, 2 * n, 2 * n))])
            .await;
        let mine = of(&ann, chunk(&second, &other, 2 * n + 1, 2 * n + 1));
        b.append(vec![mine]).await;
        b.append(vec![chunk(&first, &slot, 10 + n, 10 + n)]).await;
    }
    let each = of(&ann, chunk(&first, &slot, 1, 1)).bytes();
    assert!(each > 1000);
    let trim = async |principal: &Arc<str>, chunks: i64, limit| {
        let most = chunks * each;
        b.log
            .trim_principal(principal.clone(), most, limit)
            .await
            .unwrap()
    };
    assert_eq!(trim(&ann, 6, 100).await, 0);
    assert_eq!(trim(&"eve".into(), 0, 100).await, 0);
    assert_eq!(trim(&ann, 3, 2).await, 2);
    assert_eq!(trim(&ann, 3, 2).await, 1);
    assert_eq!(trim(&ann, 3, 2).await, 0);
    // What is nobody's and what is somebody else's stays.
    let left = [(3, 3), (11, 11), (12, 12), (13, 13)];
    assert_eq!(b.of_run(first.id, 0).await, left);
    let left = [(2, 2), (4, 4), (5, 5), (6, 6), (7, 7)];
    assert_eq!(b.of_run(second.id, 0).await, left);
}

pub async fn what_went_with_its_run_or_thread_is_in_nobodys_share(b: &Backend) {
    let ann: Arc<str> = "ann".into();
    let mut threads = Vec::new();
    for _ in 0..3 {
        let thread = b.thread().await;
        let (run, slot) = b.start(new_run(thread)).await;
        let chunks = (1..=2).map(|n| NewChunk {
            principal: Some(ann.clone()),
            ..chunk(&run, &slot, n, n)
        });
        b.append(chunks.collect()).await;
        threads.push((thread, run, slot));
    }
    let each = NewChunk {
        principal: Some(ann.clone()),
        ..chunk(&threads[0].1, &threads[0].2, 1, 1)
    };
    let most = 2 * each.bytes();
    assert!(b.trees.delete_thread(threads[0].0).await.unwrap());
    b.log.trim_run(threads[1].1.id, 3).await.unwrap();
    assert_eq!(b.log.trim_principal(ann.clone(), most, 9).await.unwrap(), 0);
    let left = [(1, 1), (2, 2)];
    assert_eq!(b.of_run(threads[2].1.id, 0).await, left);
    // What is left is counted still.
    assert_eq!(b.log.trim_principal(ann.clone(), 0, 9).await.unwrap(), 2);
    assert_eq!(b.of_run(threads[2].1.id, 0).await, []);
}

pub async fn a_chunk_is_written_once_and_by_whoever_executes_the_run(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    let first = chunk(&run, &slot, 1, 2);
    let once = b.append(vec![first.clone()]).await;
    let other = NewChunk {
        frames: vec![0].into(),
        ..first.clone()
    };
    assert_eq!(
        b.append(vec![other, chunk(&run, &slot, 3, 3)]).await[0],
        once[0]
    );
    let read = b.log.chunks_of_run(run.id, 0).await.unwrap();
    assert_eq!(
        (read[0].frames.clone(), numbers(&read)),
        (first.frames.to_vec(), vec![(1, 2), (3, 3)])
    );
    let stale = NewChunk {
        epoch: Some(slot.epoch - 1),
        ..chunk(&run, &slot, 4, 4)
    };
    assert_eq!(b.append(vec![stale]).await, [None]);
    b.finish(run.id, slot).await;
    let late = chunk(&run, &slot, 4, 4);
    assert_eq!(b.append(vec![late.clone()]).await, [None]);
    // What comes behind its end.
    let end = NewChunk {
        epoch: None,
        ..late
    };
    assert!(b.append(vec![end]).await[0].is_some());
    assert_eq!(b.of_run(run.id, 0).await, [(1, 2), (3, 3), (4, 4)]);
}

pub async fn pruning_takes_the_logs_of_ended_runs_without_checkpoints(b: &Backend) {
    let thread = b.thread().await;
    let mut head = None;
    let mut ended = vec![];
    for _ in 0..2 {
        let (run, slot) = b.start(new_run(thread)).await;
        for step in 0..2 {
            let mut commit = superstep(&slot, head, step);
            commit.checkpoint.run = Some(run.id);
            head = Some(commit.checkpoint.id);
            b.commit(commit).await;
        }
        b.append(vec![chunk(&run, &slot, 1, 2)]).await;
        b.finish(run.id, Slot { head, ..slot }).await;
        ended.push(run);
    }
    let (open, slot) = b.start(new_run(thread)).await;
    b.append(vec![chunk(&open, &slot, 1, 1)]).await;
    assert!(b.trees.prune_thread(thread).await.unwrap().unwrap() > 0);
    assert_eq!(b.of_run(ended[0].id, 0).await, []);
    assert_eq!(b.log.end_of_run(ended[0].id).await.unwrap(), 0);
    assert_eq!(b.of_run(ended[1].id, 0).await, [(1, 2)]);
    assert_eq!(b.of_run(open.id, 0).await, [(1, 1)]);
}

pub async fn a_run_writes_on_when_it_opens_a_branch(b: &Backend) {
    let thread = b.thread().await;
    // The epoch of a branch that others have written to.
    let (before, slot) = b.start(new_run(thread)).await;
    let base = b.line(&slot, None, 2).await[0];
    b.finish(before.id, slot).await;
    let (run, source) = b.start(new_run(thread)).await;
    let first = chunk(&run, &source, 1, 1);
    assert!(b.append(vec![first]).await[0].is_some());
    let (mut open, slot) = fork(&source, Some((base, 0)));
    open.run = Some(run.id);
    let mut commit = superstep(&slot, Some(base), 1);
    commit.open = Some(open);
    b.commit(commit).await;
    // One that was on its way, and one of the new slot.
    for chunk in [chunk(&run, &source, 2, 2), chunk(&run, &slot, 3, 3)] {
        assert!(b.append(vec![chunk]).await[0].is_some());
    }
    b.finish(run.id, slot).await;
}

pub async fn runs_of_a_thread_share_positions_without_a_gap(b: &Backend) {
    let (one, other) = (b.thread().await, b.thread().await);
    let (first, slot) = b.start(new_run(one)).await;
    let (apart, elsewhere) = b.start(new_run(other)).await;
    b.append(vec![
        chunk(&first, &slot, 1, 5),
        chunk(&apart, &elsewhere, 1, 2),
    ])
    .await;
    b.finish(first.id, slot).await;
    let (second, slot) = b.start(new_run(one)).await;
    let writes = (0..20_i64).map(|n| {
        let own = chunk(&second, &slot, 2 * n + 1, 2 * n + 2);
        let foreign = chunk(&apart, &elsewhere, n + 3, n + 3);
        b.log.append_chunks(vec![own, foreign])
    });
    for written in futures::future::join_all(writes).await {
        assert!(written.unwrap().iter().all(Option::is_some));
    }
    for (thread, count) in [(one, 45), (other, 22)] {
        let chunks = b.of_thread(thread, 0).await;
        let mut next = chunks[0].position;
        let start = b.log.thread_start(thread).await.unwrap();
        assert_eq!(next, start + 1);
        for chunk in &chunks {
            assert_eq!(chunk.position, next);
            next += chunk.last - chunk.first + 1;
        }
        assert_eq!(next - chunks[0].position, count);
        let (last, far) = (chunks[chunks.len() - 1].run, i64::MAX);
        b.log.trim_run(last, far).await.unwrap();
        b.log.trim_run(first.id, far).await.unwrap();
        assert_eq!(b.of_thread(thread, 0).await, []);
        assert_eq!(
            b.log.thread_start(thread).await.unwrap(),
            start,
            "what is gone counts"
        );
    }
    let unknown = ThreadId::mint();
    assert_eq!(b.log.thread_start(unknown).await.unwrap(), 0);
}

pub async fn a_takeover_supersedes_what_no_checkpoint_stands_for(b: &Backend) {
    let (dead, me) = (WorkerId::mint(), WorkerId::mint());
    b.runs.renew(dead, Duration::from_secs(60)).await.unwrap();
    b.runs.renew(me, Duration::from_secs(60)).await.unwrap();
    let begin = async || {
        let new = NewRun {
            claim: Some(dead),
            ..new_run(b.thread().await)
        };
        b.start(new).await
    };
    let (run, slot) = begin().await;
    let (none, none_slot) = begin().await;
    let step = |parent: Option<CheckpointId>, number| {
        let mut commit = superstep(&slot, parent, number);
        commit.checkpoint.run = Some(run.id);
        commit
    };
    let first = step(None, 0);
    let first_id = first.checkpoint.id;
    b.commit(first).await;
    let second = step(Some(first_id), 1);
    let second_id = second.checkpoint.id;
    b.commit(second).await;
    let at = |first, checkpoint| NewChunk {
        checkpoint,
        ..chunk(&run, &slot, first, first)
    };
    b.append(vec![
        at(1, None),
        at(2, Some(first_id)),
        at(3, Some(second_id)),
        // Of a superstep that was not stored.
        at(4, Some(CheckpointId::mint(2, Some(second_id)))),
        chunk(&none, &none_slot, 1, 1),
    ])
    .await;
    b.runs.retire(dead).await.unwrap();
    let recover = Recover {
        worker: me,
        busy: vec![],
        limit: 10,
        slots: Default::default(),
        failed: vec![],
    };
    let mut taken = b.runs.recover(recover).await.unwrap().taken;
    taken.retain(|taken| taken.run.id == run.id);
    assert_eq!(b.of_run(run.id, 0).await, [(1, 1), (2, 2)]);
    assert_eq!(b.of_thread(run.thread, 0).await.len(), 2);
    assert_eq!(b.of_run(none.id, 0).await, [], "it had stored nothing");
    // The one that died is not heard any more; the next one is.
    assert_eq!(b.append(vec![at(5, None)]).await, [None]);
    let next = chunk(&taken[0].run, &taken[0].slot, 1_000_000_001, 1_000_000_001);
    assert!(b.append(vec![next]).await[0].is_some());
    assert_eq!(b.of_run(run.id, 2).await, [(1_000_000_001, 1_000_000_001)]);
}

pub async fn the_log_of_a_run_goes_with_it(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    b.append(vec![chunk(&run, &slot, 1, 1)]).await;
    b.finish(run.id, slot).await;
    let mut tx = b.runs.begin(run.tree).await.unwrap();
    let undo = Undo {
        thread,
        run: run.id,
        ended: true,
        error: None,
    };
    assert!(tx.remove_run(undo).await.unwrap().is_some());
    tx.commit().await.unwrap();
    assert_eq!(b.of_run(run.id, 0).await, []);
    let (run, slot) = b.start(new_run(thread)).await;
    b.append(vec![chunk(&run, &slot, 1, 1)]).await;
    assert!(b.log.thread_position(thread).await.unwrap() > 0);
    b.finish(run.id, slot).await;
    b.trees.delete_thread(thread).await.unwrap();
    assert_eq!(b.of_run(run.id, 0).await, []);
    assert_eq!(b.log.thread_position(thread).await.unwrap(), 0);
}

pub async fn old_chunks_are_swept_and_those_of_stateless_runs_stay_a_while(b: &Backend) {
    let thread = b.thread().await;
    let (run, slot) = b.start(new_run(thread)).await;
    b.append((1..=5).map(|n| chunk(&run, &slot, n, n)).collect())
        .await;
    let id = ThreadId::mint();
    let new = NewRun {
        create_thread: Some(new_thread(id)),
        temporary: true,
        ..new_run(id)
    };
    let (stateless, slot) = b.start(new).await;
    b.append(vec![chunk(&stateless, &slot, 1, 1)]).await;
    let mut end = finish(stateless.id, slot);
    end.delete_thread = true;
    b.runs.finish(end).await.unwrap();
    assert!(b.trees.thread(id).await.unwrap().is_none());
    assert_eq!(b.of_run(stateless.id, 0).await, [(1, 1)]);
    let ended = b.log.ended_run(stateless.id).await.unwrap().unwrap();
    assert_eq!(
        (ended.thread, ended.principal, ended.error),
        (id, None, None)
    );
    assert_eq!(b.log.ended_run(run.id).await.unwrap(), None);
    let hour = Duration::from_secs(3600);
    assert_eq!(b.log.sweep_log(hour, 100).await.unwrap(), 0);
    assert_eq!(b.log.sweep_log(Duration::ZERO, 4).await.unwrap(), 4);
    assert_eq!(b.log.sweep_log(Duration::ZERO, 4).await.unwrap(), 2);
    assert_eq!(b.of_run(run.id, 0).await, []);
}
