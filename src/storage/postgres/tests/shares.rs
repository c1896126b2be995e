//! What waits to be written in a group counts for the share that its principal has of the connections.

use std::sync::Arc;

use futures::FutureExt;
use test_support::postgres::empty_database;

use super::super::{Options, Store, migrate};
use crate::{
    contention::shares::on_behalf_of,
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
