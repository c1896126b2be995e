//! What statements on rows that are no part of trees cost: items, crons, assistants, deliveries, idempotency keys and
//! the log of streams. A principal has some of each, and then four times as many; the same operations are made with
//! both, and find or change as much.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use test_support::place::block_on;
use uuid::Uuid;

use super::{
    FACTOR, Measured, Meter, OfPostgres, OfSqlite, SLACK_OF_POSTGRES, SLACK_OF_SQLITE,
    assert_twice, complaints,
    exceptions::{OF_ROOMS_IN_POSTGRES, OF_ROOMS_IN_SQLITE},
    operations::operate,
    which::{Test, of_postgres, of_sqlite},
};
use crate::{
    assistants::{Content, store::NewAssistant},
    crons::{CronRow, store::CreatedCron},
    id::{AssistantId, CronId, RunId, ThreadId, TreeId, WorkerId},
    idempotency::{self, Claim},
    runs,
    store::{
        Namespace, Put,
        embed::{Vector, Vectors},
    },
    stream::log::NewChunk,
    time::Timestamp,
    tree::{IfExists, NewThread, members::Access},
    value::Map,
    webhooks::outbox::Key,
};

/// Rows of each kind at first.
const FEW: usize = 400;
/// Rows that an operation finds or changes.
pub(super) const PAGE: usize = 10;
/// 2026-11-20T22:00:00Z.
pub(super) const DUE: i64 = 1_795_212_000_000_000;

/// A storage in all its roles.
pub(super) trait Rooms: runs::Storage + idempotency::Store {}
impl<T: runs::Storage + idempotency::Store> Rooms for T {}

pub(super) fn ann() -> Arc<str> {
    "ann".into()
}

pub(super) fn labels(labels: &[&str]) -> Namespace {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

pub(super) fn put(namespace: Namespace, key: String, ttl: Option<Duration>) -> Put {
    let bytes = vec![0; 64];
    let vector = |part| Vector {
        path: "".into(),
        part,
        bytes: bytes.clone(),
    };
    Put {
        owner: ann(),
        namespace,
        key,
        tag: "json".into(),
        bytes: format!("{{\"text\": \"{}\"}}", "x".repeat(200)).into_bytes(),
        ttl,
        vectors: Some(Vectors {
            model: "m".into(),
            all: vec![vector(0)],
        }),
    }
}

pub(super) fn content(name: String) -> Content {
    Content {
        graph: "agent".into(),
        name,
        description: Some("x".repeat(200)),
        metadata: Map::new(),
        config: Map::new(),
        context: Map::new(),
    }
}

pub(super) fn cron(assistant: AssistantId, thread: Option<ThreadId>, due: i64) -> CronRow {
    let at = Timestamp(due);
    CronRow {
        id: CronId::mint(),
        owner: ann(),
        principal: Some(ann()),
        assistant,
        thread,
        schedule: "0 * * * *".into(),
        timezone: Some("x".repeat(200)),
        end_time: None,
        enabled: true,
        on_run_completed: None,
        metadata: Map::new(),
        payload: Map::new(),
        next_run: Some(at),
        last_run: None,
        created_at: at,
        updated_at: at,
    }
}

pub(super) fn claim(key: &str) -> Claim {
    Claim {
        key: idempotency::Key {
            principal: ann(),
            text: key.into(),
        },
        request: [0; 16],
        id: Uuid::now_v7(),
        worker: WorkerId::mint(),
    }
}

pub(super) fn chunk(thread: ThreadId, run: RunId, first: usize, temporary: bool) -> NewChunk {
    let first = i64::try_from(first).unwrap();
    NewChunk {
        tree: TreeId(thread.0),
        thread,
        run,
        epoch: None,
        first,
        last: first,
        checkpoint: None,
        frames: vec![7; 200].into(),
        temporary,
        principal: Some(ann()),
    }
}

/// What the operations name.
pub(super) struct Known {
    pub(super) thread: ThreadId,
    pub(super) assistant: AssistantId,
    run: RunId,
    pub(super) deliveries: Vec<Key>,
}

impl Known {
    async fn new<S: Rooms>(store: &S) -> Self {
        let thread = ThreadId::mint();
        let new = NewThread {
            id: thread,
            metadata: Map::new(),
            owner: "ann".to_owned(),
            if_exists: IfExists::Raise,
            ttl: None,
        };
        store.create_thread(new).await.unwrap();
        let assistant = AssistantId::mint();
        let new = NewAssistant {
            id: assistant,
            owner: ann(),
            content: content("main".into()),
        };
        store.create_assistant(new, usize::MAX).await.unwrap();
        for number in 0..PAGE {
            let few = put(labels(&["few"]), number.to_string(), None);
            store.put_item(few, usize::MAX >> 1).await.unwrap();
            let of_thread = cron(assistant, Some(thread), DUE - 1);
            create_cron(store, of_thread).await;
        }
        Self {
            thread,
            assistant,
            run: RunId::mint(),
            deliveries: Vec::new(),
        }
    }
}

pub(super) async fn create_cron<S: Rooms>(store: &S, row: CronRow) -> CronRow {
    let created = store.create_cron(row, Access::unrestricted(), usize::MAX >> 1);
    match created.await.unwrap() {
        CreatedCron::Done(row) => *row,
        other => panic!("{other:?}"),
    }
}

/// Adds the rows of these numbers.
async fn add<S: Rooms>(store: &S, known: &Known, numbers: std::ops::Range<usize>) {
    let one = async |number: usize| {
        let name = format!("n{number:05}");
        let namespace = labels(&["many", &name[..4]]);
        let many = put(namespace, name.clone(), Some(Duration::from_secs(9999)));
        store.put_item(many, usize::MAX >> 1).await.unwrap();
        let assistant = AssistantId::mint();
        let new = NewAssistant {
            id: assistant,
            owner: ann(),
            content: content(name.clone()),
        };
        store.create_assistant(new, usize::MAX >> 1).await.unwrap();
        let due = DUE + i64::try_from(number).unwrap();
        create_cron(store, cron(assistant, None, due)).await;
        store.claim_key(claim(&name)).await.unwrap();
    };
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(64) {
        // Fewer than there are connections.
        let all = stream::iter(some);
        all.for_each_concurrent(8, |number| one(*number)).await;
        let mine = some
            .iter()
            .map(|number| chunk(known.thread, known.run, *number, false));
        store.append_chunks(mine.collect()).await.unwrap();
        let other = ThreadId::mint();
        let ended = |number: &usize| chunk(other, RunId::mint(), *number, true);
        store
            .append_chunks(some.iter().map(ended).collect())
            .await
            .unwrap();
    }
}

/// Deliveries of these numbers, to hosts of which each has a hundred.
fn outbox(numbers: &str, id: &str, at: &str) -> String {
    format!(
        "INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal, next_at, created_at)
         SELECT {id}, {id}, {id}, 'http://h/', 'h' || (i / 100), 'ann', {at}, {at} FROM ({numbers}) n"
    )
}

/// What the operations cost with few rows and with many; `open` opens the database, and `fill` writes deliveries of
/// numbers from one to another.
fn measure<S: Rooms, M: Meter>(
    meter: &mut M,
    open: impl AsyncFn(&M) -> S,
    fill: impl AsyncFn(&M, usize, usize),
) -> Measured {
    let mut known = block_on(async {
        let store = open(meter).await;
        let known = Known::new(&store).await;
        add(&store, &known, 0..FEW).await;
        fill(meter, 0, FEW).await;
        known
    });
    meter.arm();
    block_on(async {
        let store = open(meter).await;
        meter.read();
        operate(&store, &mut known).await;
        let small = meter.read();
        add(&store, &known, FEW..FEW * FACTOR).await;
        fill(meter, FEW, FEW * FACTOR).await;
        meter.read();
        operate(&store, &mut known).await;
        Measured {
            small,
            large: meter.read(),
        }
    })
}

#[test]
fn other_rows_of_postgres_cost_the_same_among_four_times_as_many() {
    let statements = of_postgres(Test::Rooms);
    assert_twice(|| {
        let mut meter = OfPostgres::start();
        let url = meter.database.url.clone();
        block_on(crate::storage::postgres::migrate(&url)).unwrap();
        let open = async |_: &OfPostgres| {
            let options = crate::storage::postgres::Options::new(url.clone());
            crate::storage::postgres::Store::connect(options)
                .await
                .unwrap()
        };
        let fill = async |meter: &OfPostgres, from, to| {
            let numbers = format!("SELECT i FROM generate_series({from} + 1, {to}) i");
            let sql = outbox(
                &numbers,
                "gen_random_uuid()",
                "now() - i * interval '1 second'",
            );
            let client = test_support::tables::connect(&meter.database.url).await;
            client.batch_execute(&sql).await.unwrap();
        };
        let costs = measure(&mut meter, open, fill);
        complaints(&statements, &costs, SLACK_OF_POSTGRES, OF_ROOMS_IN_POSTGRES)
    });
}

#[test]
fn other_rows_of_sqlite_cost_the_same_among_four_times_as_many() {
    let statements = of_sqlite(Test::Rooms);
    assert_twice(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = OfSqlite { folder, read: 0 };
        std::fs::File::create(meter.file()).unwrap();
        let open = async |meter: &OfSqlite| {
            let options = crate::storage::sqlite::Options {
                path: meter.folder.path().to_owned(),
                synchronous_off: true,
            };
            crate::storage::sqlite::Store::open(options).unwrap()
        };
        let fill = async |meter: &OfSqlite, from, to| {
            let numbers = format!(
                "WITH RECURSIVE c(i) AS (SELECT {from} + 1 UNION ALL SELECT i + 1 FROM c WHERE i < {to}) SELECT i FROM c"
            );
            let sql = outbox(
                &numbers,
                "randomblob(16)",
                "unixepoch() * 1000000 - i * 1000000",
            );
            let file = meter.folder.path().join("backstitch.db");
            let db = rusqlite::Connection::open(file).unwrap();
            db.busy_timeout(Duration::from_secs(60)).unwrap();
            db.execute_batch(&sql).unwrap();
        };
        let costs = measure(&mut meter, open, fill);
        complaints(&statements, &costs, SLACK_OF_SQLITE, OF_ROOMS_IN_SQLITE)
    });
}
