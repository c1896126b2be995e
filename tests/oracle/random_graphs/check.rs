//! The storages of the random tests: faults on demand, and a look at the raw rows.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use backstitch::{
    Local,
    checkpoint::{
        Blobs, Commit, Error, Flush, Format, List, Page, PageScope, Query, Saver, Stored, Version,
    },
    id::{CheckpointId, ThreadId, TreeId},
    local::Parts,
    storage, tree,
};

use test_support::postgres::{Database, database};

/// Where cases run.
pub struct Place {
    pub local: Local,
    /// The right to write, to fence off what is left of a dropped run.
    pub tree: Arc<dyn tree::Store>,
    pub faults: Arc<Faults>,
    rows: Rows,
}

enum Rows {
    Unseen,
    Sqlite(tempfile::TempDir),
    Postgres(Database),
}

/// Which call of the storage fails, and how.
#[derive(Default)]
pub struct Faults {
    /// Calls until then; 0 for never.
    left: AtomicUsize,
    kind: AtomicUsize,
}

impl Faults {
    /// The `call`-th write from now on: 1 is refused, 2 is done and says it failed, others work.
    pub fn arm(&self, call: usize, kind: usize) {
        self.kind.store(kind, Ordering::Relaxed);
        self.left.store(call + 1, Ordering::Relaxed);
    }

    pub fn disarm(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    fn now(&self) -> usize {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(1))
            });
        match left {
            Ok(1) => self.kind.load(Ordering::Relaxed),
            _ => 0,
        }
    }
}

struct Faulty<S> {
    saver: S,
    faults: Arc<Faults>,
}

fn broken() -> Error {
    Error::Unavailable("on purpose".to_owned())
}

#[async_trait]
impl<S: Saver> Saver for Faulty<Arc<S>> {
    fn format(&self) -> Format {
        self.saver.format()
    }

    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.saver.load(query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.saver.list(list).await
    }

    async fn page(&self, list: List, scope: PageScope) -> Result<Page, Error> {
        self.saver.page(list, scope).await
    }

    async fn page_of(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        ids: Vec<CheckpointId>,
        scope: PageScope,
    ) -> Result<Page, Error> {
        self.saver.page_of(tree, ns, ids, scope).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let count = commits.len();
        match self.faults.now() {
            1 => (0..count).map(|_| Err(broken())).collect(),
            2 => {
                self.saver.commit(commits).await;
                (0..count).map(|_| Err(broken())).collect()
            }
            _ => self.saver.commit(commits).await,
        }
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        match self.faults.now() {
            1 => Err(broken()),
            2 => self.saver.flush(flush).await.and(Err(broken())),
            _ => self.saver.flush(flush).await,
        }
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
        most: u64,
    ) -> Result<Blobs, Error> {
        self.saver.blobs(tree, ns, wanted, most).await
    }
}

/// What must never be found: a head that is not there, a checkpoint without its parent, a result
/// without its checkpoint.
const ORPHANS: [&str; 3] = [
    "SELECT count(*) FROM branches b WHERE b.thread_id = $1 AND b.head_checkpoint_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = b.tree_id
         AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id
         AND c.depth = b.head_depth)",
    "SELECT count(*) FROM checkpoints c WHERE c.thread_id = $1 AND CASE
       WHEN c.parent_checkpoint_id IS NULL THEN c.depth <> 0
       ELSE NOT EXISTS (SELECT 1 FROM checkpoints p WHERE p.tree_id = c.tree_id
         AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_checkpoint_id
         AND p.depth = c.depth - 1) END",
    "SELECT count(*) FROM checkpoint_writes w WHERE w.tree_id = $1
       AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = w.tree_id
         AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id)",
];

impl Place {
    pub fn of(local: Local) -> Self {
        let store = Arc::new(storage::sqlite::Store::private().unwrap());
        Self {
            local,
            tree: store,
            faults: Arc::default(),
            rows: Rows::Unseen,
        }
    }

    fn over<S: Saver + tree::Store>(store: S, rows: Rows) -> Self {
        let (store, faults) = (Arc::new(store), Arc::<Faults>::default());
        let saver = Arc::new(Faulty {
            saver: store.clone(),
            faults: faults.clone(),
        });
        Self {
            local: Local::over(Parts {
                saver,
                tree: store.clone(),
                items: None,
            }),
            tree: store,
            faults,
            rows,
        }
    }

    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = storage::sqlite::Options {
            path: folder.path().to_owned(),
            synchronous_off: true,
        };
        let store = storage::sqlite::Store::open(options).unwrap();
        Self::over(store, Rows::Sqlite(folder))
    }

    pub async fn postgres() -> Self {
        let database = database().await;
        let options = storage::postgres::Options::new(&database.url);
        let store = storage::postgres::Store::connect(options).await.unwrap();
        Self::over(store, Rows::Postgres(database))
    }

    /// Looks for rows that hang in the air.
    pub async fn check(&self, thread: ThreadId) -> Result<(), String> {
        for query in ORPHANS {
            let found = self.count(query, thread).await;
            if found > 0 {
                return Err(format!("{found} rows hang in the air: {query}"));
            }
        }
        Ok(())
    }

    async fn count(&self, query: &str, thread: ThreadId) -> i64 {
        match &self.rows {
            Rows::Unseen => 0,
            Rows::Sqlite(folder) => {
                let file = folder.path().join("backstitch.db");
                let db = rusqlite::Connection::open(file).unwrap();
                let id = thread.0.as_bytes();
                db.query_row(query, [id], |row| row.get(0)).unwrap()
            }
            Rows::Postgres(database) => {
                let connected = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await;
                let (client, connection) = connected.unwrap();
                let connection = tokio::spawn(connection);
                let row = client.query_one(query, &[&thread.0]).await.unwrap();
                drop(client);
                connection.await.unwrap().unwrap();
                row.get(0)
            }
        }
    }
}
