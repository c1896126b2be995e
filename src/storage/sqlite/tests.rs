//! Tests of data directories and of what a database refuses.

use std::fs;

use rusqlite::Connection;

use super::{Error, Options, Store, connection::DATABASE};
use crate::{
    id::ThreadId,
    tree::{IfExists, NewThread, Store as _},
    value::Map,
};

mod indexes;
mod plans;
mod shares;

fn options(path: &std::path::Path) -> Options {
    Options {
        path: path.to_owned(),
        synchronous_off: true,
    }
}

fn new_thread() -> NewThread {
    NewThread {
        id: ThreadId::mint(),
        metadata: Map::new(),
        owner: "local".into(),
        if_exists: IfExists::Raise,
        ttl: None,
    }
}

#[tokio::test]
async fn data_is_there_after_the_store_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/nested");
    let new = new_thread();
    let id = new.id;
    let store = Store::open(options(&path)).unwrap();
    store.create_thread(new).await.unwrap().unwrap();
    drop(store);
    let store = Store::open(options(&path)).unwrap();
    assert!(store.thread(id).await.unwrap().is_some());
}

#[test]
fn a_data_directory_is_used_by_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = Store::open(options(folder.path())).unwrap();
    let second = Store::open(options(folder.path())).unwrap_err();
    assert!(matches!(second, Error::InUse { .. }), "{second}");
    let message = second.to_string();
    assert!(message.contains("another process"), "{message}");
    assert!(message.contains(&folder.path().display().to_string()));
    drop(first);
    Store::open(options(folder.path())).unwrap();
}

#[test]
fn a_newer_database_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(options(folder.path())).unwrap());
    let db = Connection::open(folder.path().join(DATABASE)).unwrap();
    db.execute(
        "INSERT INTO refinery_schema_history SELECT 999, 'later', applied_on, checksum \
         FROM refinery_schema_history LIMIT 1",
        [],
    )
    .unwrap();
    drop(db);
    let refused = Store::open(options(folder.path())).unwrap_err();
    let Error::Newer { found, known, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(found, 999);
    let message = refused.to_string();
    assert!(message.contains("version 999"), "{message}");
    assert!(message.contains(&format!("up to {known}")), "{message}");
}

#[test]
fn a_database_of_another_build_is_refused() {
    for change in [
        "UPDATE refinery_schema_history SET checksum = '1' WHERE version = 1",
        "UPDATE refinery_schema_history SET version = 0 WHERE version = 1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(options(folder.path())).unwrap());
        let db = Connection::open(folder.path().join(DATABASE)).unwrap();
        assert_eq!(db.execute(change, []).unwrap(), 1);
        drop(db);
        let refused = Store::open(options(folder.path())).unwrap_err();
        assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
        assert!(refused.to_string().contains("another build"), "{refused}");
    }
}

#[test]
fn what_is_no_directory_or_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let refused = Store::open(options(&file)).unwrap_err();
    assert!(matches!(refused, Error::Folder { .. }), "{refused}");

    fs::write(folder.path().join(DATABASE), "not a database".repeat(100)).unwrap();
    let refused = Store::open(options(folder.path())).unwrap_err();
    assert!(matches!(refused, Error::Open { .. }), "{refused}");
    assert!(refused.to_string().contains(DATABASE), "{refused}");
}

#[tokio::test]
async fn a_private_store_is_removed_when_it_goes() {
    let store = Store::private().unwrap();
    let folder = store._private.as_ref().unwrap().path().to_owned();
    store.create_thread(new_thread()).await.unwrap().unwrap();
    assert!(folder.join(DATABASE).exists());
    drop(store);
    assert!(!folder.exists());
}

#[test]
fn events_cannot_be_changed_or_removed() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(options(folder.path())).unwrap());
    let db = Connection::open(folder.path().join(DATABASE)).unwrap();
    db.execute(
        "INSERT INTO events (tree_id, thread_id, event_number, kind, created_at) \
         VALUES (x'01', x'01', 1, 1, 0)",
        [],
    )
    .unwrap();
    for sql in ["UPDATE events SET payload = '[]'", "DELETE FROM events"] {
        let refused = db.execute(sql, []).unwrap_err().to_string();
        assert!(refused.contains("immutable"), "{refused}");
    }
    db.execute("UPDATE purge_switch SET open = 1", []).unwrap();
    assert_eq!(db.execute("DELETE FROM events", []).unwrap(), 1);
}

#[tokio::test]
async fn a_read_that_takes_too_long_is_ended() {
    let store = Store::private().unwrap();
    let store = store.with_read_limit(std::time::Duration::from_millis(50));
    let endless =
        "WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT count(*) FROM c";
    let counted = store
        .readers
        .read(move |db| Ok(db.query_row(endless, [], |row| row.get::<_, i64>(0))?))
        .await;
    let text = counted.unwrap_err().to_string();
    assert!(text.contains("longer than this server allows"), "{text}");
    let id = ThreadId::mint();
    assert!(store.thread(id).await.unwrap().is_none());
}
