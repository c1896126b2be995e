//! Which idle connections are closed: the driver's buffers of one that carried something large would keep its size.

use std::time::Duration;

use test_support::postgres::empty_database;

use super::super::{Options, Store, connection::acquire};

/// Lets so much time pass that idle connections are looked through.
async fn look_through() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn an_idle_connection_that_carried_something_large_is_closed() {
    let database = empty_database().await;
    let options = Options {
        reads: 1,
        ..Options::new(&database.url)
    };
    let store = &Store::connect(options).await.unwrap();
    // The process of the database that serves the connection, which receives a text of so many bytes.
    let process = async |bytes: i32| {
        let db = acquire(&store.pools.reads).await.unwrap();
        let sql = "SELECT pg_backend_pid(), repeat('x', $1)";
        let row = db.query_one(sql, &[&bytes]).await.unwrap();
        row.get::<_, i32>(0)
    };
    let first = process(200 << 10).await;
    look_through().await;
    assert_eq!(process(300 << 10).await, first);
    look_through().await;
    let second = process(1).await;
    assert_ne!(second, first);
    look_through().await;
    assert_eq!(process(1).await, second);
}
