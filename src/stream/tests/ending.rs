//! How the stream of a run with a log ends: its last frames go with the final row.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{sync::mpsc, task::yield_now};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{custom, now, options};
use crate::{
    checkpoint::Error,
    engine::Sink,
    id::{RunId, ThreadId, TreeId},
    stream::{
        LastFrames, Mode, Publisher, RunOwner, Since, Subscription,
        log::{Log, LogChunk, LogWriter, NewChunk, TemporaryRun},
    },
    value::Value,
};

pub const EPOCH: i64 = 7;

/// A log that writes chunks when it is told whether it takes them.
struct Slow {
    written: Arc<Mutex<Vec<NewChunk>>>,
    turns: tokio::sync::Mutex<mpsc::UnboundedReceiver<bool>>,
}

#[async_trait]
impl Log for Slow {
    async fn append_chunks(&self, chunks: Vec<NewChunk>) -> Result<Vec<Option<i64>>, Error> {
        let takes = self.turns.lock().await.recv().await.unwrap();
        let position = |chunk: &NewChunk| takes.then_some(1000 + chunk.first);
        let positions = chunks.iter().map(position).collect();
        if takes {
            self.written.lock().extend(chunks);
        }
        Ok(positions)
    }

    async fn chunks_of_run(&self, _: RunId, _: i64) -> Result<Vec<LogChunk>, Error> {
        unreachable!("nobody reads here")
    }

    async fn chunks_of_thread(&self, _: ThreadId, _: i64) -> Result<Vec<LogChunk>, Error> {
        unreachable!("nobody reads here")
    }

    async fn ended_run(&self, _: RunId) -> Result<Option<TemporaryRun>, Error> {
        unreachable!("nobody reads here")
    }

    async fn end_of_run(&self, _: RunId) -> Result<i64, Error> {
        unreachable!("nobody reads here")
    }

    async fn thread_position(&self, _: ThreadId) -> Result<i64, Error> {
        unreachable!("nobody reads here")
    }

    async fn thread_start(&self, _: ThreadId) -> Result<i64, Error> {
        unreachable!("nobody reads here")
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn trim_run(&self, _: RunId, _: i64) -> Result<(), Error> {
        Ok(())
    }

    async fn trim_principal(&self, _: Arc<str>, _: i64, _: usize) -> Result<u64, Error> {
        Ok(0)
    }

    async fn sweep_log(&self, _: Duration, _: usize) -> Result<u64, Error> {
        Ok(0)
    }
}

/// A stream whose log writes when the test says so.
pub struct Rig {
    pub publisher: Arc<Publisher>,
    reader: Subscription,
    written: Arc<Mutex<Vec<NewChunk>>>,
    turns: mpsc::UnboundedSender<bool>,
}

impl Rig {
    pub fn new() -> Self {
        let (turns, take) = mpsc::unbounded_channel();
        let written = Arc::new(Mutex::new(vec![]));
        let log = Arc::new(Slow {
            written: written.clone(),
            turns: tokio::sync::Mutex::new(take),
        });
        let writer = LogWriter::new(log, 1 << 30, 1 << 30, |_| {});
        tokio::spawn(writer.clone().run(CancellationToken::new()));
        let publisher = Publisher::new(crate::stream::Options {
            resumable: true,
            ..options(&[Mode::Custom])
        });
        publisher.log_to(&writer);
        let rig = Self {
            reader: publisher.subscribe(Since::Start, &[]),
            publisher,
            written,
            turns,
        };
        rig.own(EPOCH);
        rig
    }

    pub fn own(&self, epoch: i64) {
        let tree = TreeId(Uuid::nil());
        self.publisher.own(RunOwner { tree, epoch });
    }

    pub fn send(&self, number: i64) {
        self.publisher.emit(custom(Value::Int(number)));
    }

    /// Until the writer has taken what there is.
    pub async fn taken(&self) {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// Lets the log take what is on its way, or refuse it.
    pub async fn write(&self, takes: bool) {
        self.turns.send(takes).unwrap();
        // The writer gathers frames for a moment.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    /// First and last number and epoch of what the log has.
    pub fn log(&self) -> Vec<(i64, i64, Option<i64>)> {
        let written = self.written.lock();
        let of = |chunk: &NewChunk| (chunk.first, chunk.last, chunk.epoch);
        written.iter().map(of).collect()
    }

    pub async fn last(&self) -> LastFrames {
        self.publisher.take_last(None).await
    }

    /// The values that the reader is shown now.
    pub fn shown(&mut self) -> Vec<i64> {
        let shown = now(&mut self.reader).into_iter();
        shown.filter_map(|(_, data, _)| data.as_i64()).collect()
    }
}

/// First and last number of each chunk.
pub fn numbers(last: &LastFrames) -> Vec<(i64, i64)> {
    let of = |chunk: &NewChunk| (chunk.first, chunk.last);
    last.chunks().iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_stored_before_the_last_frames_are_taken() {
    let mut rig = Rig::new();
    rig.send(1);
    rig.taken().await;
    // The first event and this one are with the log.
    rig.send(2);
    assert!(rig.last().now_or_never().is_none());
    rig.turns.send(true).unwrap();
    let mut last = rig.last().await;
    assert_eq!(rig.log(), [(1, 2, Some(EPOCH))]);
    assert_eq!(numbers(&last), [(3, 3), (4, 4)]);
    assert_eq!(rig.shown(), [1]);
    // Nothing follows, and nothing is shown, until they are stored.
    rig.send(3);
    assert!(rig.shown().is_empty());
    last.stored_at(vec![1003, 1004]);
    assert!(rig.publisher.ended(last));
    assert_eq!(rig.shown(), [2]);
    rig.send(3);
    assert!(!rig.publisher.log_end(None), "the end is there");
    assert_eq!((rig.shown(), rig.publisher.last()), (vec![], 4));
    assert_eq!(rig.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn frames_that_were_not_stored_go_to_the_log_and_others_follow() {
    let mut rig = Rig::new();
    rig.send(1);
    let last = rig.last().await;
    assert_eq!(numbers(&last), [(1, 2), (3, 3)]);
    rig.publisher.go_on();
    rig.send(2);
    rig.write(true).await;
    let firsts = |all: Vec<(i64, i64, _)>| all.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!(firsts(rig.log()), [1, 3]);
    assert_eq!(rig.shown(), [1, 2]);
    let again = rig.last().await;
    assert_eq!(numbers(&again), [(4, 4)]);
}

/// Somebody else has ended the run so, or the reply is lost: it is not known what is in the log.
#[tokio::test(start_paused = true)]
async fn last_frames_without_positions_are_appended_by_the_writer() {
    let mut rig = Rig::new();
    rig.send(1);
    let mut last = rig.last().await;
    last.stored_at(vec![]);
    assert!(!rig.publisher.ended(last));
    assert!(rig.shown().is_empty());
    rig.write(true).await;
    // Whoever executes the run now.
    assert_eq!(rig.log(), [(1, 2, None), (3, 3, None)]);
    assert_eq!(rig.shown(), [1]);
    assert!(rig.publisher.flushed().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_an_earlier_attempt_that_is_refused_does_not_end_the_stream_of_the_next() {
    let mut rig = Rig::new();
    rig.send(1);
    rig.taken().await;
    rig.publisher.begin_attempt(2, 1_000_000_000);
    rig.own(EPOCH + 1);
    rig.send(2);
    rig.write(false).await;
    rig.write(true).await;
    assert_eq!(rig.log()[0].2, Some(EPOCH + 1));
    assert_eq!(rig.shown(), [2]);
    // One of this attempt does: another process executes the run.
    rig.send(3);
    rig.write(false).await;
    assert!(!rig.publisher.is_local());
    assert!(rig.last().await.is_empty());
}

/// Another process has ended the run, of which this one learns before the log refuses the chunk.
#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_refused_behind_the_end_is_appended_with_it() {
    let mut rig = Rig::new();
    rig.send(1);
    rig.taken().await;
    rig.publisher.fence();
    assert!(rig.publisher.log_end(None));
    rig.write(false).await;
    rig.write(true).await;
    assert_eq!(rig.log(), [(1, 2, None), (3, 3, None)]);
    assert_eq!(rig.shown(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_was_taken_while_an_attempt_began_is_appended_by_it() {
    let mut rig = Rig::new();
    rig.publisher.start();
    rig.publisher.begin_attempt(2, 1_000_000_000);
    rig.taken().await;
    // Under the epoch of the one before.
    rig.own(EPOCH + 1);
    rig.write(false).await;
    rig.write(true).await;
    let first = 1_000_000_001;
    assert_eq!(rig.log(), [(first, first, Some(EPOCH + 1))]);
    assert!(rig.shown().is_empty());
    assert_eq!(rig.publisher.last(), first as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_not_begun_begins_with_its_end() {
    let rig = Rig::new();
    let last = rig.publisher.take_last(Some(("Oops", "why"))).await;
    // What the run is, and then its failure with the end.
    assert_eq!(numbers(&last), [(1, 1), (2, 3)]);
}
