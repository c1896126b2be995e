//! What waits to be written in a group counts for the share that its principal has of the connections, and what has no
//! limit waits for one as long as it takes.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use test_support::postgres::empty_database;

use super::super::{Options, Store, connection::acquire, migrate};
use crate::{
    checkpoint::Error,
    contention::{shares::on_behalf_of, unlimited::without_limit},
    id::ThreadId,
    tree::{IfExists, NewThread, Store as _},
    value::Map,
};

#[tokio::test]
async fn new_threads_that_wait_count_for_the_share_of_their_principal() {
    let database = empty_database().await;
    migrate(&database.url).await.unwrap();
    let options = Options {
        reads: 4,
        ..Options::new(&database.url)
    };
    let store = &Store::connect(options).await.unwrap();
    let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
    let has_share = |principal: &Arc<str>| {
        let share = on_behalf_of(Some(principal.clone()), store.pools.reads.share());
        share.now_or_never().is_some()
    };
    let create = || {
        let new = NewThread {
            id: ThreadId::mint(),
            metadata: Map::new(),
            owner: "ann".into(),
            if_exists: IfExists::Raise,
            ttl: None,
        };
        let creating = async move { store.create_thread(new).await };
        Box::pin(on_behalf_of(Some(ann.clone()), creating))
    };
    let mut first = create();
    assert!((&mut first).now_or_never().is_none());
    assert!(has_share(&ann));
    let mut second = create();
    assert!((&mut second).now_or_never().is_none());
    assert!(!has_share(&ann));
    assert!(has_share(&bob));
    for created in [first.await, second.await] {
        assert!(created.unwrap().is_some());
    }
    assert!(has_share(&ann));
}

#[tokio::test]
async fn a_read_without_a_limit_waits_for_a_connection_as_long_as_it_takes() {
    let database = empty_database().await;
    migrate(&database.url).await.unwrap();
    let options = Options {
        reads: 1,
        ..Options::new(&database.url)
    };
    let store = &Store::connect(options).await.unwrap();
    let held = acquire(&store.pools.reads).await.unwrap();
    let read = || store.thread(ThreadId::mint());
    assert!(matches!(read().await, Err(Error::Unavailable(_))));
    let mut patient = Box::pin(without_limit(read()));
    let longer = tokio::time::timeout(Duration::from_millis(1500), patient.as_mut());
    assert!(longer.await.is_err());
    drop(held);
    assert!(patient.await.unwrap().is_none());
}
