//! What does not wait for the disk: tables that are derived from events, since after a crash they are derived once more.

use std::time::Duration;

use test_support::postgres::Cluster;
use tokio::time::{sleep, timeout};

use super::{
    super::{Options, Store, connection::SESSION},
    plans::connect,
};
use crate::{
    id::ThreadId,
    tree::{
        IfExists, NewThread, Store as _,
        projection::{Progress, ProjectionStep, Store as _},
    },
    value::Map,
};

/// What waits for the disk waits for that of another server too, which is not there: for ever.
const FOR_EVER: [&str; 3] = [
    "ALTER SYSTEM SET wal_level = replica",
    "ALTER SYSTEM SET max_wal_senders = 1",
    "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
];

/// How long what does not wait may take, on a busy machine; the database ends no statement before.
const PATIENCE: Duration = Duration::from_secs(15);

fn new_thread() -> NewThread {
    NewThread {
        id: ThreadId::mint(),
        metadata: Map::new(),
        owner: "ann".into(),
        if_exists: IfExists::Raise,
        ttl: None,
    }
}

fn step(of: &Progress) -> ProjectionStep {
    ProjectionStep {
        tree: of.tree,
        thread: of.thread,
        from: of.offsets[0],
        to: of.last,
        head: of.head.clone().unwrap_or_default(),
    }
}

#[tokio::test]
async fn tables_that_are_derived_do_not_wait_for_the_disk() {
    let cluster = Cluster::start();
    let database = cluster.database().await;
    // It goes before the database does, which would wait too.
    let cluster = cluster;
    let new = new_thread();
    let thread = new.id;
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    store.create_thread(new).await.unwrap().unwrap();
    let behind = store.progress(vec![thread]).await.unwrap();
    assert!(!behind[0].reached(None), "{behind:?}");
    drop(store);
    let client = connect(&database.url, SESSION).await;
    for setting in FOR_EVER {
        client.batch_execute(setting).await.unwrap();
    }
    drop(client);
    cluster.crash();
    cluster.recover();

    let options = Options {
        read_limit: 2 * PATIENCE,
        ..Options::new(&database.url)
    };
    let store = Store::connect(options).await.unwrap();
    let client = connect(&database.url, SESSION).await;
    let another_waits = async {
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while client.query(waiting, &[]).await.unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        created = store.create_thread(new_thread()) => panic!("it waits for no disk: {created:?}"),
        () = another_waits => {}
    }
    let steps = behind.iter().map(step).collect();
    let applied = timeout(PATIENCE, store.apply(steps)).await;
    applied.expect("it waits for the disk").unwrap();
    let now = store.progress(vec![thread]).await.unwrap();
    assert!(now[0].reached(None), "{now:?}");
}
