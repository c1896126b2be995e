//! Databases of earlier versions, brought up to date.

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::{HISTORY, all, apply};
use crate::{
    checkpoint::{At, Query, Saver as _, frame},
    id::{CheckpointId, ThreadId, TreeId},
    storage::sqlite::{Options, Store, connection::DATABASE},
    value,
};

#[tokio::test]
async fn checkpoints_that_were_json_are_read_with_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = Connection::open(folder.path().join(DATABASE)).unwrap();
    db.execute_batch(HISTORY).unwrap();
    let tx = db.transaction().unwrap();
    for migration in all().iter().filter(|migration| migration.number < 42) {
        apply(&tx, migration).unwrap();
    }
    let (tree, id) = ([1_u8; 16], [2_u8; 16]);
    let envelope =
        r#"{"channel_values":{"n":5},"channel_versions":{"list":"1.000007","n":"1.000007"}}"#;
    tx.execute(
        "INSERT INTO checkpoints (tree_id, checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, \
         metadata, created_at) VALUES (?1, ?2, 0, ?1, ?1, 'loop', 0, ?3, '{\"a\":1}', 0)",
        params![tree, id, envelope],
    )
    .unwrap();
    tx.execute(
        "INSERT INTO checkpoint_blobs (tree_id, channel, version, type, blob) \
         VALUES (?1, 'list', '1.000007', 'json', CAST('[1,2]' AS BLOB))",
        params![tree],
    )
    .unwrap();
    tx.commit().unwrap();
    drop(db);
    let path = folder.path().to_owned();
    let synchronous_off = true;
    let store = Store::open(Options {
        path,
        synchronous_off,
    })
    .unwrap();
    let query = Query {
        tree: TreeId(Uuid::from_bytes(tree)),
        thread: ThreadId(Uuid::from_bytes(tree)),
        ns: "".into(),
        at: At::Id(CheckpointId(Uuid::from_bytes(id))),
        values: true,
    };
    let stored = store.load(query).await.unwrap().unwrap();
    assert_eq!(
        stored.row.blob_versions,
        r#"{"list":"1.000007","n":"1.000007"}"#
    );
    let decoded = frame::decode(&stored).unwrap().checkpoint;
    assert_eq!(decoded.values["n"], value!(5));
    assert_eq!(decoded.values["list"], value!([1, 2]));
    assert_eq!(decoded.metadata.get("a"), Some(&value!(1)));
}
