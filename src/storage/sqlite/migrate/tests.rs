//! Databases of earlier versions, brought up to date.

use rusqlite::{Connection, params, types::Value as Column};
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

/// All rows of a query.
fn rows(db: &Connection, query: &str) -> Vec<Vec<Column>> {
    let mut statement = db.prepare(query).unwrap();
    let columns = statement.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    let rows = statement.query_map([], read).unwrap();
    rows.map(Result::unwrap).collect()
}

/// All rows of a table with all columns, both in an order that does not depend on how they are stored.
fn table(db: &Connection, name: &str) -> Vec<Vec<Column>> {
    let columns = format!(
        "SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info('{name}') ORDER BY name"
    );
    let columns = rows(db, &columns);
    let names = columns.iter().map(|column| match &column[0] {
        Column::Text(name) => name.as_str(),
        other => panic!("{other:?}"),
    });
    let names: Vec<_> = names.collect();
    let names = names.join(", ");
    let mut all = rows(db, &format!("SELECT {names} FROM {name} ORDER BY {names}"));
    all.extend(columns);
    all
}

#[test]
fn tables_of_large_values_keep_their_rows_indexes_and_triggers() {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch(HISTORY).unwrap();
    let tx = db.transaction().unwrap();
    for migration in all().iter().filter(|migration| migration.number < 53) {
        apply(&tx, migration).unwrap();
    }
    tx.execute_batch(
        "INSERT INTO checkpoints VALUES (x'01', '', x'02', NULL, 0, x'03', x'04', NULL, NULL, 5, x'06', 'loop', 1, zeroblob(100000),
                                         '{}', 7, 8, '{\"a\":\"1.000001\"}', 'g', x'09', x'0a', 'json p', zeroblob(100000)),
                                        (x'01', 'n', x'03', x'02', 1, x'03', x'04', x'02', x'05', 5, NULL, 'loop', 2, x'01',
                                         '{}', 7, 0, '{}', NULL, NULL, NULL, NULL, NULL);
         INSERT INTO checkpoint_blobs VALUES (x'01', '', 'b', '2.000001', '1.000001', 7, 'json', x'02'),
                                             (x'01', '', 'a', '1.000001', NULL, 0, 'json', zeroblob(100000));
         INSERT INTO checkpoint_writes VALUES (x'01', 'n', x'02', x'03', x'04', 0, 'p', NULL, 'json', zeroblob(100000)),
                                              (x'01', 'n', x'02', x'03', x'04', -1, 'p', 'c', 'json', x'05');
         INSERT INTO store_items VALUES ('o', x'6100', 'k', 'json', zeroblob(100000), 1, 2, 3, 4),
                                        ('o', x'6100', 'l', 'json', x'06', 5, 6, NULL, NULL);
         INSERT INTO runs (seq, tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, temporary, address, \
                           base_checkpoint_id, last_checkpoint_id, epoch, worker_id, attempt, run_at, created_at, updated_at, error, \
                           metadata, type, kwargs, losses, lost_at, opened_branch, principal, behind, webhook, started_at, thread_user)
           VALUES (7, x'01', x'02', x'03', x'04', x'05', 'running', 'enqueue', 1, x'02', x'06', x'07', 8, x'08', 9, 10, 11, 12, '{}', '{\"a\":1}',
                   'json', zeroblob(100000), 13, x'0c', 14, 'p', 15, 'https://h:1/p', 16, '\"u\"'),
                  (5, x'01', x'03', x'03', NULL, x'05', 'pending', 'reject', 0, NULL, NULL, NULL, NULL, NULL, 0, 1, 2, 3, NULL, '{}',
                   'json', x'04', 0, NULL, 0, NULL, 1, NULL, NULL, NULL);
         INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal, attempts, next_at, dead_at, last_error, created_at, \
                             assistant_id, status, strategy, metadata, type, kwargs, error, started_at, run_created_at, ended_at)
           VALUES (x'06', x'01', x'03', 'u', 'h', 'p', 1, 2, 3, 'e', 4, x'05', 'success', 'enqueue', '{}', 'json', zeroblob(100000), 'f', 5, 6, 7),
                  (x'07', x'01', x'03', 'v', 'i', '', 8, 9, NULL, NULL, 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
         INSERT INTO assistants (assistant_id, owner, graph_id, version, name, description, metadata, type, config, context, created_at, updated_at)
           VALUES (x'01', 'o', 'g', 2, 'n', 'd', '{}', 'json', zeroblob(100000), x'02', 3, 4), (x'02', '', 'g', 1, 'n', NULL, '{}', 'json', x'03', x'04', 5, 6);
         INSERT INTO assistant_versions (assistant_id, version, graph_id, name, description, metadata, type, config, context, created_at)
           VALUES (x'01', 2, 'g', 'n', 'd', '{}', 'json', zeroblob(100000), x'02', 3), (x'01', 1, 'g', 'm', NULL, '{}', 'json', x'03', x'04', 5);
         INSERT INTO idempotency_keys VALUES ('p', 'k', x'01', x'02', x'03', x'04', zeroblob(100000), 7),
                                             ('p', 'l', x'01', x'02', x'03', x'04', NULL, 8);",
    )
    .unwrap();
    let seen = |db: &Connection| {
        let tables = [
            "checkpoints",
            "checkpoint_blobs",
            "checkpoint_writes",
            "store_items",
            "idempotency_keys",
            "runs",
            "outbox",
            "assistants",
            "assistant_versions",
            "row_counts",
            "pins",
            "all_checkpoint_writes",
        ];
        let others = "SELECT name, CASE name WHEN 'checkpoints_sub' THEN '' ELSE sql END FROM sqlite_schema \
                      WHERE type IN ('index', 'trigger') AND sql NOT NULL ORDER BY 1";
        (tables.map(|name| table(db, name)), rows(db, others))
    };
    let before = seen(&tx);
    for migration in all()
        .iter()
        .filter(|migration| matches!(migration.number, 53 | 54))
    {
        apply(&tx, migration).unwrap();
    }
    assert_eq!(seen(&tx), before);
    let item = "DELETE FROM store_items WHERE key = 'k'";
    tx.execute(item, []).unwrap();
    let counts = "SELECT total FROM row_counts WHERE kind = 'store_items' AND owner = 'o'";
    assert_eq!(rows(&tx, counts), [[Column::Integer(1)]]);
    // Numbers go on behind the last one, and the triggers of runs fire.
    tx.execute_batch(
        "UPDATE runs SET status = 'success' WHERE seq = 7; DELETE FROM runs WHERE seq = 5;
         INSERT INTO runs (tree_id, run_id, thread_id, assistant_id, strategy, run_at, created_at, updated_at, type, kwargs)
           VALUES (x'01', x'09', x'03', x'05', 'enqueue', 1, 2, 3, 'json', x'04')",
    )
    .unwrap();
    let last =
        "SELECT max(seq), (SELECT octet_length(kwargs) FROM outbox WHERE host = 'h:1') FROM runs";
    assert_eq!(
        rows(&tx, last),
        [[Column::Integer(8), Column::Integer(100_000)]]
    );
}

#[test]
fn checkpoints_of_earlier_versions_have_labels() {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch(HISTORY).unwrap();
    let tx = db.transaction().unwrap();
    for migration in all().iter().filter(|migration| migration.number < 55) {
        apply(&tx, migration).unwrap();
    }
    for (number, ns, metadata) in [
        (
            1_u8,
            "",
            r#"{"user": "ada", "n": 1, "deep": {"user": "bob"}}"#,
        ),
        (2, "", r#" {"user":"bob","graph_id":"g","user_id":"u"}"#),
        (3, "", "{}"),
        (4, "", r#"{"user_id":"u"}"#),
        (5, "inside", r#"{"user":"ada"}"#),
        (
            6,
            "",
            r#"{"a":"","b":"","c":"","d":"","e":"","f":"","g":"","h":"","user":"ada"}"#,
        ),
    ] {
        tx.execute(
            "INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, \
             metadata, created_at) VALUES (x'09', ?1, ?2, 0, x'09', x'09', 'loop', 0, '{}', ?3, 0)",
            params![ns, [number], metadata],
        )
        .unwrap();
    }
    for migration in all().iter().filter(|migration| migration.number >= 55) {
        apply(&tx, migration).unwrap();
    }
    let labels = rows(
        &tx,
        "SELECT label, checkpoint_id FROM checkpoint_labels ORDER BY label",
    );
    let expected = [("", 6), ("user=ada", 1), ("user=bob", 2)];
    assert_eq!(
        labels,
        expected
            .map(|(label, number)| [Column::Text(label.to_owned()), Column::Blob(vec![number])])
    );
}
