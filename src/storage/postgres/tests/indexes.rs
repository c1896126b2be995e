//! Which indexes the statements of this room read: one that none of them reads is only written.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use test_support::postgres::Database;
use tokio_postgres::Client;

use super::{
    super::{
        connection::{KEYED, PATIENT, SESSION},
        statements,
    },
    plans::{connect, migrated, plan},
};

/// The indexes of a database that make no constraint.
async fn indexes(client: &Client) -> BTreeSet<String> {
    let query = "SELECT i.relname::text FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
         WHERE i.relnamespace = 'public'::regnamespace
           AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.oid AND c.contype IN ('p', 'u', 'x'))";
    let rows = client.query(query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Takes away the indexes that a plan reads.
fn take_read(plan: &Json, unread: &mut BTreeSet<String>) {
    if let Some(index) = plan["Index Name"].as_str() {
        unread.remove(index);
    }
    for child in plan["Plans"].as_array().into_iter().flatten() {
        take_read(child, unread);
    }
}

/// Takes away the indexes that the generic plans of all statements read, under the settings of each pool.
async fn take_planned(database: &Database, unread: &mut BTreeSet<String>) {
    let patient = format!("{SESSION} {PATIENT}");
    for session in [&*format!("{SESSION} {KEYED}"), SESSION, &*patient] {
        let client = connect(&database.url, session).await;
        for statement in statements() {
            if let Some(plan) = plan(&client, statement.text).await {
                take_read(&plan, unread);
            }
        }
    }
}

#[tokio::test]
async fn every_index_is_read_by_a_statement() {
    let database = migrated().await;
    let client = connect(&database.url, "-c statement_timeout=0").await;
    let mut unread = indexes(&client).await;
    assert!(unread.len() > 30, "{unread:?}");
    // All threads of the trees have one owner, which makes an index of owners useless.
    take_planned(&database, &mut unread).await;
    println!("of a new database: {unread:?}");
    client
        .batch_execute(include_str!("trees.sql"))
        .await
        .unwrap();
    take_planned(&database, &mut unread).await;
    assert!(
        unread.is_empty(),
        "no plan of a statement reads these, unless they are there for a foreign key, which is a reason to except \
         one here by name: {unread:?}"
    );
}
