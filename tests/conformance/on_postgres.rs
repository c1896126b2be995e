//! A store in a database of its own on Postgres, and threads in it.

use backstitch::{
    checkpoint::Slot,
    id::ThreadId,
    storage::postgres::{Options, Store},
    tree::Store as _,
};
use test_support::postgres::{Database, database};

use crate::rows::new_thread;

/// A store, and its database, which goes with the value.
pub async fn store() -> (Database, Store) {
    let database = database().await;
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    (database, store)
}

/// The slot of a new thread.
pub async fn slot(store: &Store) -> Slot {
    let id = ThreadId::mint();
    store.create_thread(new_thread(id)).await.unwrap().unwrap();
    store.take_slot(id).await.unwrap().unwrap()
}
