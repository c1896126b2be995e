//! Labels of checkpoints: what their triggers take.

use test_support::postgres::database;
use tokio_postgres::{Client, NoTls};

/// Checkpoints of the long thread. A walk over their labels for each of them would read some sixty pages.
const LONG: i64 = 5_000;

/// Checkpoints of one long thread and of many short ones, each with a label, and what the database knows of such a table.
const ROWS: &str = "
INSERT INTO checkpoints (tree_id, checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, metadata)
SELECT t.id, gen_random_uuid(), 0, t.id, t.id, 'loop', 0, '{}', '{\"tier\":\"gold\"}'
  FROM (SELECT gen_random_uuid() AS id, 5000 AS size UNION ALL SELECT gen_random_uuid(), 20 FROM generate_series(1, 500) OFFSET 0) t
 CROSS JOIN LATERAL generate_series(1, t.size);
VACUUM ANALYZE checkpoints;
VACUUM ANALYZE checkpoint_labels;";

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Pages of the index of labels that sessions which have ended have read.
async fn pages(client: &Client) -> i64 {
    let read = "SELECT (idx_blks_hit + idx_blks_read)::bigint FROM pg_statio_user_tables WHERE relname = 'checkpoint_labels'";
    client.query_one(read, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn labels_of_a_long_thread_are_removed_one_by_one_where_most_threads_are_short() {
    let database = database().await;
    let filling = connect(&database.url).await;
    for statement in ROWS.split_inclusive(";\n") {
        filling.batch_execute(statement).await.unwrap();
    }
    drop(filling);
    let deleting = connect(&database.url).await;
    deleting
        .batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let delete = "DELETE FROM checkpoints WHERE thread_id = (SELECT thread_id FROM checkpoints GROUP BY 1 ORDER BY count(*) DESC LIMIT 1)";
    let watching = connect(&database.url).await;
    let left = "SELECT count(*) FROM checkpoint_labels";
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'";
    // The figures of a session arrive when it has ended.
    let alone = async |others: i64| {
        while watching
            .query_one(sessions, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            > 1 + others
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    alone(1).await;
    let before = pages(&watching).await;
    assert_eq!(deleting.execute(delete, &[]).await.unwrap(), LONG as u64);
    drop(deleting);
    alone(0).await;
    let taken = pages(&watching).await - before;
    println!("{taken} pages for {LONG} labels");
    assert!((LONG..12 * LONG).contains(&taken), "{taken}");
    let left: i64 = watching.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 500 * 20);
}
