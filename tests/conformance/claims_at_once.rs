//! Claims of runs at the very moment at which their principals lose the right to write, on Postgres,
//! where several connections work on one queue.

use std::{sync::Arc, time::Duration};

use crate::rows::{new_run, new_thread};
use backstitch::{
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{ClaimedRun, Created, NewRun, QueueClaim, Slice, Store as _},
    storage::postgres::{Options, Store},
    tree::{
        Store as _,
        members::{Access, Level},
    },
};
use test_support::{postgres::database, tables::connect};
use tokio::task::JoinHandle;

/// A run of bob's that waits, on a thread of its own.
async fn queued(store: &Store) -> (TreeId, RunId) {
    let thread = ThreadId::mint();
    store
        .create_thread(new_thread(thread))
        .await
        .unwrap()
        .unwrap();
    let tree = store.thread(thread).await.unwrap().unwrap().tree;
    let mut tx = backstitch::runs::Store::begin(store, tree).await.unwrap();
    tx.put_member(tree, "bob".into(), Some(Level::Writer))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let new = NewRun {
        claim: None,
        access: Access::of("bob".into(), "request".into(), Level::Writer),
        ..new_run(thread)
    };
    let run = new.id;
    let created = store.create_run(new).await.unwrap();
    assert!(matches!(created, Created::Queued(_)), "{created:?}");
    (tree, run)
}

fn claim(store: &Arc<Store>) -> JoinHandle<Vec<ClaimedRun>> {
    let store = store.clone();
    tokio::spawn(async move {
        let claim = QueueClaim {
            worker: WorkerId::mint(),
            limit: 10,
            slots: Default::default(),
            busy: vec![],
            most: usize::MAX,
            freed: vec![],
            search: Some(Slice::first(1000)),
        };
        store.claim(claim).await.unwrap().runs
    })
}

/// Takes bob's right to write away, and returns the runs that end with it.
fn revoke(store: &Arc<Store>, tree: TreeId) -> JoinHandle<Vec<(ThreadId, RunId)>> {
    let store = store.clone();
    tokio::spawn(async move {
        let mut tx = backstitch::runs::Store::begin(&*store, tree).await.unwrap();
        let ended = tx.executed_for(tree, "bob".into()).await.unwrap().executed;
        tx.put_member(tree, "bob".into(), None).await.unwrap();
        tx.commit().await.unwrap();
        ended
    })
}

#[tokio::test]
async fn a_run_that_is_claimed_while_its_principal_loses_the_right_ends_or_is_refused() {
    let database = database().await;
    let store = Arc::new(Store::connect(Options::new(&database.url)).await.unwrap());
    let runs = [queued(&store).await, queued(&store).await];
    let client = connect(&database.url).await;
    // The claim stops where it has taken the first run; what it reads of rights it has read by then.
    client
        .batch_execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN IF NEW.writer_epoch <> OLD.writer_epoch THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END';
             CREATE TRIGGER wait BEFORE UPDATE ON branches FOR EACH ROW EXECUTE FUNCTION wait();
             SELECT pg_advisory_lock(7);",
        )
        .await
        .unwrap();
    let waiting = async |kinds: &str| {
        let sql =
            format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ({kinds})");
        let row = client.query_one(&*sql, &[]).await.unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    };
    let pause = || tokio::time::sleep(Duration::from_millis(10));
    let claimed = claim(&store);
    while waiting("'advisory'").await == 0 {
        pause().await;
    }
    let revoked = runs.map(|(tree, _)| revoke(&store, tree));
    loop {
        let done = revoked.iter().filter(|one| one.is_finished()).count();
        if done + waiting("'transactionid', 'tuple'").await >= runs.len() {
            break;
        }
        pause().await;
    }
    client
        .batch_execute("SELECT pg_advisory_unlock(7)")
        .await
        .unwrap();
    let mut claimed = claimed.await.unwrap();
    let mut ended = vec![];
    for revoked in revoked {
        ended.extend(revoked.await.unwrap());
    }
    claimed.extend(claim(&store).await.unwrap());
    for (_, run) in runs {
        let claimed = claimed.iter().find(|one| one.run.id == run).unwrap();
        let has_ended = ended.iter().any(|(_, one)| *one == run);
        assert!(has_ended || !claimed.is_permitted, "{run} is executed");
    }
}
