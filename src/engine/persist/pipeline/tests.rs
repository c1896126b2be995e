//! What shares a transaction, and when a run waits for one.

use async_trait::async_trait;
use tokio::{sync::mpsc, task::yield_now, time::advance};
use uuid::Uuid;

use super::*;
use crate::{
    checkpoint::{
        Blobs, CheckpointRow, EventRow, List, NewBranch, NodeRow, Page, PageScope, Query, Slot,
        Source, Stored, Version, codec::Format,
    },
    id::{BranchId, CheckpointId, NodeId, ThreadId, TreeId},
    time::Timestamp,
    value::Map,
};

mod barriers;
mod gather;
mod shared_memory;
mod writer;

/// A storage that writes what it gets when the test says so: steps of the supersteps of each
/// transaction, none for a flush.
struct Slow {
    begun: mpsc::UnboundedSender<Vec<i64>>,
    ends: tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<(), Error>>>,
}

impl Slow {
    async fn transaction(&self, steps: Vec<i64>) -> Result<(), Error> {
        self.begun.send(steps).unwrap();
        self.ends.lock().await.recv().await.unwrap()
    }
}

#[async_trait]
impl Saver for Slow {
    fn format(&self) -> Format {
        Format::default()
    }

    async fn load(&self, _: Query) -> Result<Option<Stored>, Error> {
        Ok(None)
    }

    async fn list(&self, _: List) -> Result<Vec<Stored>, Error> {
        Ok(vec![])
    }

    async fn page(&self, _: List, _: PageScope) -> Result<Page, Error> {
        Ok(Page::Sizes(vec![]))
    }

    async fn page_of(
        &self,
        _: TreeId,
        _: Arc<str>,
        _: Vec<CheckpointId>,
        _: PageScope,
    ) -> Result<Page, Error> {
        Ok(Page::Sizes(vec![]))
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let steps: Vec<_> = commits.iter().map(|one| one.checkpoint.step).collect();
        let count = steps.len();
        match self.transaction(steps).await {
            Ok(()) => vec![Ok(0); count],
            Err(error) => vec![Err(error); count],
        }
    }

    async fn flush(&self, _: Flush) -> Result<(), Error> {
        self.transaction(vec![]).await
    }

    async fn blobs(
        &self,
        _: TreeId,
        _: Arc<str>,
        _: Vec<(Arc<str>, Version)>,
        _: u64,
    ) -> Result<Blobs, Error> {
        Ok(Blobs::Rows(vec![]))
    }
}

/// A pipeline into a slow storage.
struct Rig {
    pipeline: Arc<Pipeline>,
    fenced: CancellationToken,
    begun: mpsc::UnboundedReceiver<Vec<i64>>,
    ends: mpsc::UnboundedSender<Result<(), Error>>,
}

impl Rig {
    fn new(limits: RunAhead) -> Self {
        Self::within(limits, Arc::default())
    }

    /// One of several that share memory.
    fn within(limits: RunAhead, memory: Arc<AheadMemory>) -> Self {
        let (begin, begun) = mpsc::unbounded_channel();
        let (ends, end) = mpsc::unbounded_channel();
        let fenced = CancellationToken::new();
        let saver = Arc::new(Slow {
            begun: begin,
            ends: tokio::sync::Mutex::new(end),
        });
        Self {
            pipeline: Arc::new(Pipeline::new(saver, limits, memory, fenced.clone())),
            fenced,
            begun,
            ends,
        }
    }

    /// Adds supersteps of so many bytes without waiting for room.
    fn push(&self, steps: impl IntoIterator<Item = i64>, bytes: usize) {
        for step in steps {
            self.pipeline
                .push(Write::Commit(superstep(step, bytes)), vec![]);
        }
    }

    /// The transaction that begins next.
    async fn next(&mut self) -> Vec<i64> {
        self.begun.recv().await.unwrap()
    }

    /// The present transaction ends.
    async fn end(&self, result: Result<(), Error>) {
        self.ends.send(result).unwrap();
        for _ in 0..10 {
            yield_now().await;
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.pipeline.room(bytes).now_or_never().is_some()
    }
}

fn slot() -> Slot {
    Slot {
        tree: TreeId(Uuid::nil()),
        thread: ThreadId(Uuid::nil()),
        branch: BranchId(Uuid::nil()),
        epoch: 1,
        head: None,
        head_depth: -1,
    }
}

fn superstep(step: i64, bytes: usize) -> Box<Commit> {
    let slot = slot();
    let checkpoint = CheckpointRow {
        ns: "".into(),
        id: CheckpointId(Uuid::nil()),
        parent: None,
        root: None,
        depth: 0,
        thread: slot.thread,
        branch: slot.branch,
        run: None,
        source: Source::Loop,
        step,
        last_node: None,
        event_number: 0,
        envelope: vec![b'x'; bytes],
        blob_versions: String::new(),
        metadata: String::new(),
        created_at: Timestamp(0),
        run_supersteps: 0,
    };
    Box::new(Commit {
        slot,
        open: None,
        checkpoint,
        blobs: vec![],
        writes: vec![],
        nodes: vec![],
        events: vec![],
    })
}

fn flush() -> Write {
    Write::Flush(Box::new(Flush {
        slot: slot(),
        open: None,
        writes: vec![],
    }))
}

#[tokio::test(start_paused = true)]
async fn supersteps_that_end_during_a_transaction_share_the_next_one() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.push(1..=3, 10);
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [1, 2, 3]);
    assert!(rig.pipeline.drained().now_or_never().is_none());
    rig.end(Ok(())).await;
    rig.pipeline.drained().await.unwrap();
    rig.push([4], 10);
    assert_eq!(rig.next().await, [4]);
}

#[tokio::test(start_paused = true)]
async fn what_is_deferred_is_written_when_somebody_waits_for_it_or_taken_with_the_end() {
    let mut rig = Rig::new(RunAhead::default());
    rig.pipeline.defer();
    rig.push([0], 10);
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(rig.begun.try_recv().is_err());
    assert!(rig.pipeline.drained().now_or_never().is_none());
    assert_eq!(rig.next().await, [0]);
    rig.end(Ok(())).await;

    rig.pipeline.defer();
    rig.push([1], 10);
    assert!(rig.has_room(10));
    assert!(rig.begun.try_recv().is_err());
    assert!(!rig.has_room(1 << 20), "which lets it go");
    assert_eq!(rig.next().await, [1]);
    // Held while another is under way.
    rig.pipeline.defer();
    rig.push([2], 10);
    rig.end(Ok(())).await;
    assert!(rig.begun.try_recv().is_err());
    let rest = rig.pipeline.take_rest().await.unwrap().unwrap();
    let steps: Vec<i64> = rest
        .commits()
        .iter()
        .map(|one| one.checkpoint.step)
        .collect();
    assert_eq!(steps, [2]);
    let written = rest.write();
    tokio::pin!(written);
    assert!((&mut written).now_or_never().is_none());
    assert_eq!(rig.next().await, [2]);
    rig.end(Ok(())).await;
    written.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_run_whose_rest_was_taken_is_refused() {
    let rig = Rig::new(RunAhead::default());
    rig.pipeline.defer();
    rig.push([0], 10);
    let rest = rig.pipeline.take_rest().await.unwrap().unwrap();
    let mut late = Box::pin(rig.pipeline.drained());
    assert!((&mut late).now_or_never().is_none());
    drop(rest);
    assert!(matches!(late.await, Err(Error::Fenced)));
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_at_each_limit_and_goes_on_when_a_transaction_has_ended() {
    let limits = RunAhead {
        supersteps: 3,
        bytes: 100,
        age: Duration::from_millis(50),
    };
    // How many there are.
    let mut rig = Rig::new(limits);
    rig.push([0], 1);
    assert_eq!(rig.next().await, [0]);
    rig.push([1, 2], 1);
    assert!(!rig.has_room(1));
    rig.end(Ok(())).await;
    assert!(rig.has_room(1));
    // Their bytes: what has more than allowed goes when nothing else is there.
    let mut rig = Rig::new(limits);
    assert!(rig.has_room(1000));
    rig.push([0], 60);
    assert!(rig.has_room(40) && !rig.has_room(41));
    assert_eq!(rig.next().await, [0]);
    rig.end(Ok(())).await;
    assert!(rig.has_room(1000));
    // Their age.
    let mut rig = Rig::new(limits);
    rig.push([0], 1);
    assert_eq!(rig.next().await, [0]);
    advance(Duration::from_millis(49)).await;
    assert!(rig.has_room(1));
    rig.push([1], 1);
    advance(Duration::from_millis(1)).await;
    assert!(!rig.has_room(1));
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [1]);
    assert!(rig.has_room(1), "the second one ended a millisecond ago");
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_superstep_are_those_of_all_its_rows() {
    let text: Arc<str> = "x".repeat(500).into();
    let node = NodeRow {
        id: NodeId(Uuid::nil()),
        parent: None,
        ordinal: 1,
        kind: "add",
        message_id: text.clone(),
        edit_of: None,
        seq: 0,
        role: Some("human".into()),
        event_number: None,
        event_offset: Some(1),
    };
    let event = EventRow {
        kind: "MessageAdded",
        payload: Map::new(),
        message_id: Some(text),
    };
    let limits = RunAhead {
        bytes: 10_000,
        ..RunAhead::default()
    };
    type Change = fn(&mut Commit, NodeRow, EventRow);
    let changes: [(Change, [usize; 2]); 3] = [
        (|_, _, _| (), [10, 10]),
        (
            |commit, node, _| commit.nodes = vec![node; 10],
            [5010, 7000],
        ),
        (
            |commit, _, event| commit.events = vec![event; 10],
            [5010, 7000],
        ),
    ];
    for (change, [least, most]) in changes {
        let rig = Rig::new(limits);
        let mut commit = superstep(0, 10);
        change(&mut commit, node.clone(), event.clone());
        rig.pipeline.push(Write::Commit(commit), vec![]);
        assert!(rig.has_room(10_000 - most), "{least}");
        assert!(!rig.has_room(10_001 - least), "{least}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_limit_of_one_a_superstep_is_written_alone() {
    let limits = RunAhead {
        supersteps: 1,
        ..RunAhead::default()
    };
    let mut rig = Rig::new(limits);
    assert!(rig.has_room(1));
    rig.push([0], 1);
    assert!(!rig.has_room(1));
    assert_eq!(rig.next().await, [0]);
    assert!(!rig.has_room(1));
    rig.end(Ok(())).await;
    assert!(rig.has_room(1));
}

#[tokio::test(start_paused = true)]
async fn results_of_tasks_and_what_opens_a_branch_go_alone_in_their_order() {
    let mut rig = Rig::new(RunAhead::default());
    let mut opening = superstep(0, 1);
    opening.open = Some(NewBranch {
        id: BranchId(Uuid::nil()),
        base: None,
        base_depth: -1,
        source: slot(),
        origin: "checkpoint",
        activate: false,
        copy_writes: false,
        writes_of: None,
        name: None,
        run: None,
    });
    rig.pipeline.push(Write::Commit(opening), vec![]);
    rig.push([1, 2], 1);
    rig.pipeline.push(flush(), vec![]);
    rig.push([3], 1);
    for steps in [vec![0], vec![1, 2], vec![], vec![3]] {
        assert_eq!(rig.next().await, steps);
        rig.end(Ok(())).await;
    }
    rig.pipeline.drained().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_nothing_is_written_and_everybody_who_waits_gets_it() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push(0..2, 1);
    assert_eq!(rig.next().await.len(), 2);
    rig.push([2], 1);
    let pipeline = rig.pipeline.clone();
    let waits = tokio::spawn(async move { pipeline.drained().await });
    rig.end(Err(Error::Fenced)).await;
    assert!(matches!(waits.await.unwrap(), Err(Error::Fenced)));
    assert!(rig.fenced.is_cancelled());
    rig.push([3], 1);
    assert!(matches!(rig.pipeline.room(1).await, Err(Error::Fenced)));
    assert!(rig.begun.try_recv().is_err(), "nothing more is written");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_database_leaves_the_run_to_end_by_itself() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 1);
    rig.next().await;
    rig.end(Err(Error::Unavailable("gone".into()))).await;
    let result = rig.pipeline.room(1).await;
    assert!(matches!(result, Err(Error::Unavailable(_))));
    assert!(!rig.fenced.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_the_end_of_a_run_is_left_to_whoever_ends_it() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.push(1..=2, 10);
    let pipeline = rig.pipeline.clone();
    let taking = tokio::spawn(async move { pipeline.take_rest().await });
    rig.end(Ok(())).await;
    let rest = taking.await.unwrap().unwrap().unwrap();
    let steps = |rest: &Rest| -> Vec<i64> {
        let commits = rest.commits();
        commits.iter().map(|one| one.checkpoint.step).collect()
    };
    assert_eq!(steps(&rest), [1, 2]);
    assert!(rig.begun.try_recv().is_err());
    // If they cannot be written together with the end, they are by themselves.
    let writing = tokio::spawn(rest.write());
    assert_eq!(rig.next().await, [1, 2]);
    rig.end(Ok(())).await;
    writing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_when_results_wait_or_all_is_written() {
    let mut rig = Rig::new(RunAhead::default());
    assert!(rig.pipeline.take_rest().await.unwrap().is_none());
    let mut rig_with_results = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    let pipeline = rig.pipeline.clone();
    let taking = tokio::spawn(async move { pipeline.take_rest().await });
    rig.end(Ok(())).await;
    assert!(taking.await.unwrap().unwrap().is_none());

    let rig = &mut rig_with_results;
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.push([1], 10);
    rig.pipeline.push(flush(), vec![]);
    let pipeline = rig.pipeline.clone();
    let taking = tokio::spawn(async move { pipeline.take_rest().await });
    rig.end(Ok(())).await;
    assert_eq!(rig.next().await, [1]);
    rig.end(Ok(())).await;
    assert!(rig.next().await.is_empty());
    rig.end(Ok(())).await;
    assert!(taking.await.unwrap().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_end_leaves_nothing_to_write() {
    let mut rig = Rig::new(RunAhead::default());
    rig.push([0], 10);
    assert_eq!(rig.next().await, [0]);
    rig.push([1], 10);
    let pipeline = rig.pipeline.clone();
    let taking = tokio::spawn(async move { pipeline.take_rest().await });
    rig.end(Err(Error::Fenced)).await;
    assert!(matches!(taking.await.unwrap(), Err(Error::Fenced)));
}
