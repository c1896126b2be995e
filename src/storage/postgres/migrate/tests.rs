//! Databases of earlier versions, brought up to date.

use test_support::postgres::empty_database;
use tokio_postgres::NoTls;
use uuid::Uuid;

use super::{HISTORY, all, apply_one, migrate};
use crate::{
    checkpoint::{At, List, Query, Saver as _, frame},
    id::{CheckpointId, ThreadId, TreeId},
    storage::postgres::{Options, Store},
    value,
};

#[tokio::test]
async fn checkpoints_that_were_jsonb_are_read_and_found_by_their_metadata() {
    let database = empty_database().await;
    let (mut client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(HISTORY).await.unwrap();
    for migration in all().iter().filter(|migration| migration.number < 42) {
        apply_one(&mut client, migration).await.unwrap();
    }
    let (tree, id) = (Uuid::from_u128(1), Uuid::from_u128(2));
    // NUL is stored as the character 26 and a digit.
    let rows = format!(
        r#"INSERT INTO checkpoints (tree_id, checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, metadata)
           VALUES ('{tree}', '{id}', 0, '{tree}', '{tree}', 'loop', 0,
             '{{"channel_values": {{"n": 5, "text": "a\u001a0b"}}, "channel_versions": {{"list": "1.000007", "n": "1.000007", "text": "1.000007"}}}}',
             '{{"graph_id": "chat", "assistant_id": "{id}", "user": "ada", "deep": {{"b": 1.5}}}}');
           INSERT INTO checkpoint_blobs (tree_id, channel, version, type, blob)
           VALUES ('{tree}', 'list', '1.000007', 'json', '[1,2]')"#
    );
    client.batch_execute(&rows).await.unwrap();
    migrate(&database.url).await.unwrap();
    let store = Store::connect(Options::new(&database.url)).await.unwrap();
    let (tree, thread) = (TreeId(tree), ThreadId(tree));
    let query = Query {
        tree,
        thread,
        ns: "".into(),
        at: At::Id(CheckpointId(id)),
        values: true,
    };
    let stored = store.load(query).await.unwrap().unwrap();
    let decoded = frame::decode(&stored).unwrap().checkpoint;
    assert_eq!(decoded.values["n"], value!(5));
    assert_eq!(decoded.values["text"], value!("a\0b"));
    assert_eq!(decoded.values["list"], value!([1, 2]));
    for (filter, found) in [
        (value!({"deep": {"b": 1.5}}), 1),
        (value!({"user": "bob"}), 0),
        (value!({"graph_id": "chat"}), 1),
        (value!({"assistant_id": (id.to_string()), "user": "ada"}), 1),
        (value!({"graph_id": "other"}), 0),
    ] {
        let list = List {
            tree,
            thread,
            ns: Some("".into()),
            before: None,
            id: None,
            metadata: filter.as_map().cloned(),
            limit: 10,
        };
        assert_eq!(store.list(list).await.unwrap().len(), found);
    }
}

#[tokio::test]
async fn checkpoints_of_earlier_versions_have_labels() {
    let database = empty_database().await;
    let (mut client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(HISTORY).await.unwrap();
    for migration in all().iter().filter(|migration| migration.number < 55) {
        apply_one(&mut client, migration).await.unwrap();
    }
    let id = Uuid::from_u128;
    let mut rows = String::new();
    for (number, ns, metadata) in [
        (1, "", r#"{"user": "ada", "n": 1, "deep": {"user": "bob"}}"#),
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
        let (tree, id) = (id(9), id(number));
        rows += &format!(
            "INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, metadata)
             VALUES ('{tree}', '{ns}', '{id}', 0, '{tree}', '{tree}', 'loop', 0, '{{}}', '{metadata}');"
        );
    }
    client.batch_execute(&rows).await.unwrap();
    migrate(&database.url).await.unwrap();
    let labels = "SELECT label, checkpoint_id FROM checkpoint_labels ORDER BY label";
    let labels = client.query(labels, &[]).await.unwrap();
    let labels = labels.iter().map(|row| (row.get(0), row.get(1)));
    let labels: Vec<(String, Uuid)> = labels.collect();
    let expected = [("", 6), ("user=ada", 1), ("user=bob", 2)];
    assert_eq!(
        labels,
        expected.map(|(label, number)| (label.to_owned(), id(number)))
    );
}
