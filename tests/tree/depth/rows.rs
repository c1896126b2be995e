//! Long paths, put into the tables at once, as runs and posts would have done one by one.

use rusqlite::{Connection, params};
use uuid::Uuid;

use test_support::place::{Place, block_on};
use test_support::server::Server;

/// A checkpoint.
struct Step {
    id: Uuid,
    parent: Uuid,
    /// Checkpoints below the first one.
    n: i32,
    /// The newest message.
    last: Uuid,
}

/// A message, or that it was removed.
struct Row {
    id: Uuid,
    parent: Uuid,
    /// Messages since the first one.
    ordinal: i32,
    kind: &'static str,
    message: String,
    point: Uuid,
    n: i32,
    seq: i32,
}

/// Lets the branch that ends at `head` go on for `depth` checkpoints: every second one adds a
/// message, the last removes them all from the state, as a summary does.
pub fn prolong(place: &Place, server: &Server, thread: &str, head: &str, depth: usize) {
    let (thread, head) = (uuid(thread), uuid(head));
    match place.url() {
        Some(url) => block_on(in_postgres(url, thread, head, depth)),
        None => in_sqlite(
            &server.folder().join("data/backstitch.db"),
            thread,
            head,
            depth,
        ),
    }
}

fn uuid(text: &str) -> Uuid {
    Uuid::parse_str(text).unwrap()
}

/// What follows `head`, whose newest message is `last`.
fn rows(head: Uuid, last: Uuid, depth: usize) -> (Vec<Step>, Vec<Row>) {
    let (mut steps, mut rows) = (vec![], vec![]);
    let (mut parent, mut last) = (head, last);
    for n in 1..=i32::try_from(depth).unwrap() {
        let id = later(head, u64::try_from(n).unwrap());
        if n % 2 == 1 {
            let node = Uuid::now_v7();
            let ordinal = (n + 1) / 2;
            rows.push(Row {
                id: node,
                parent: last,
                ordinal,
                kind: "add",
                message: format!("old{ordinal}"),
                point: id,
                n,
                seq: 0,
            });
            last = node;
        }
        steps.push(Step {
            id,
            parent,
            n,
            last,
        });
        parent = id;
    }
    let end = steps.last().unwrap();
    let removed = rows.iter().enumerate().map(|(seq, row)| Row {
        id: Uuid::now_v7(),
        parent: end.last,
        ordinal: rows.last().unwrap().ordinal,
        kind: "remove",
        message: row.message.clone(),
        point: end.id,
        n: end.n,
        seq: i32::try_from(seq).unwrap(),
    });
    let removed: Vec<Row> = removed.collect();
    rows.extend(removed);
    (steps, rows)
}

/// A UUIDv6 that is so many ticks of 100 ns younger.
fn later(id: Uuid, ticks: u64) -> Uuid {
    let bits = id.as_u128();
    let high = (bits >> 80) as u64;
    let time = (high << 12 | ((bits >> 64) as u64 & 0xfff)) + ticks;
    let top = (time >> 12) << 16 | 0x6000 | (time & 0xfff);
    Uuid::from_u128(u128::from(top) << 64 | (bits & u128::from(u64::MAX)))
}

fn in_sqlite(path: &std::path::Path, thread: Uuid, head: Uuid, depth: usize) {
    let mut db = Connection::open(path).unwrap();
    let tx = db.transaction().unwrap();
    let tree = thread.as_bytes();
    let of_head = "SELECT last_node_id FROM checkpoints WHERE tree_id = ?1 AND checkpoint_id = ?2";
    let last: [u8; 16] = tx
        .query_row(of_head, params![tree, head.as_bytes()], |row| row.get(0))
        .unwrap();
    let (steps, rows) = rows(head, Uuid::from_bytes(last), depth);
    let mut insert = tx
        .prepare(
            "INSERT INTO checkpoints (tree_id, checkpoint_id, parent_checkpoint_id, depth, \
             thread_id, branch_id, last_node_id, event_number, source, step, checkpoint, \
             metadata, created_at) \
             SELECT tree_id, ?3, ?4, depth + ?5, thread_id, branch_id, ?6, event_number, source, \
               step + ?5, checkpoint, metadata, created_at FROM checkpoints \
              WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2",
        )
        .unwrap();
    for step in &steps {
        let ids = [step.id, step.parent, step.last];
        let [id, parent, last] = ids.each_ref().map(Uuid::as_bytes);
        let done = insert.execute(params![tree, head.as_bytes(), id, parent, step.n, last]);
        assert_eq!(done.unwrap(), 1);
    }
    drop(insert);
    let mut insert = tx
        .prepare(
            "INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, \
             message_id, checkpoint_id, depth, seq, thread_id, branch_id, role, created_at) \
             SELECT c.tree_id, ?3, ?4, m.ordinal + ?5, ?6, ?7, ?8, c.depth + ?9, ?10, \
               c.thread_id, c.branch_id, 'human', c.created_at \
               FROM checkpoints c JOIN message_nodes m ON m.tree_id = c.tree_id \
                AND m.node_id = c.last_node_id \
              WHERE c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?2",
        )
        .unwrap();
    for row in &rows {
        let ids = [row.id, row.parent, row.point];
        let [id, parent, point] = ids.each_ref().map(Uuid::as_bytes);
        let done = insert.execute(params![
            tree,
            head.as_bytes(),
            id,
            parent,
            row.ordinal,
            row.kind,
            row.message,
            point,
            row.n,
            row.seq
        ]);
        assert_eq!(done.unwrap(), 1);
    }
    drop(insert);
    let end = steps.last().unwrap();
    let moved = tx.execute(
        "UPDATE branches SET head_checkpoint_id = ?3, head_depth = head_depth + ?4, \
         version = version + ?4 WHERE tree_id = ?1 AND head_checkpoint_id = ?2",
        params![tree, head.as_bytes(), end.id.as_bytes(), end.n],
    );
    assert_eq!(moved.unwrap(), 1);
    tx.commit().unwrap();
    db.execute_batch("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

async fn in_postgres(url: &str, thread: Uuid, head: Uuid, depth: usize) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let of_head = "SELECT last_node_id FROM checkpoints WHERE tree_id = $1 AND checkpoint_id = $2";
    let last = client.query_one(of_head, &[&thread, &head]).await.unwrap();
    let (steps, rows) = rows(head, last.get(0), depth);
    let column = |of: fn(&Step) -> Uuid| steps.iter().map(of).collect::<Vec<_>>();
    let numbers: Vec<i32> = steps.iter().map(|step| step.n).collect();
    let done = client
        .execute(
            "INSERT INTO checkpoints (tree_id, checkpoint_id, parent_checkpoint_id, depth, \
             thread_id, branch_id, last_node_id, event_number, source, step, checkpoint, \
             metadata, created_at) \
             SELECT c.tree_id, x.id, x.parent, c.depth + x.n, c.thread_id, c.branch_id, x.last, \
               c.event_number, c.source, c.step + x.n, c.checkpoint, c.metadata, c.created_at \
               FROM checkpoints c, \
                 unnest($3::uuid[], $4::uuid[], $5::int[], $6::uuid[]) x(id, parent, n, last) \
              WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2",
            &[
                &thread,
                &head,
                &column(|step| step.id),
                &column(|step| step.parent),
                &numbers,
                &column(|step| step.last),
            ],
        )
        .await
        .unwrap();
    assert_eq!(done, depth as u64);
    let column = |of: fn(&Row) -> Uuid| rows.iter().map(of).collect::<Vec<_>>();
    let number = |of: fn(&Row) -> i32| rows.iter().map(of).collect::<Vec<_>>();
    let kinds: Vec<&str> = rows.iter().map(|row| row.kind).collect();
    let messages: Vec<&str> = rows.iter().map(|row| &*row.message).collect();
    let done = client
        .execute(
            "INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, \
             message_id, checkpoint_id, depth, seq, thread_id, branch_id, role, created_at) \
             SELECT c.tree_id, x.id, x.parent, m.ordinal + x.ordinal, x.kind, x.message, x.point, \
               c.depth + x.n, x.seq, c.thread_id, c.branch_id, 'human', c.created_at \
               FROM checkpoints c JOIN message_nodes m ON m.tree_id = c.tree_id \
                AND m.node_id = c.last_node_id, \
                 unnest($3::uuid[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::uuid[], \
                   $9::int[], $10::int[]) x(id, parent, ordinal, kind, message, point, n, seq) \
              WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2",
            &[
                &thread,
                &head,
                &column(|row| row.id),
                &column(|row| row.parent),
                &number(|row| row.ordinal),
                &kinds,
                &messages,
                &column(|row| row.point),
                &number(|row| row.n),
                &number(|row| row.seq),
            ],
        )
        .await
        .unwrap();
    assert_eq!(done, rows.len() as u64);
    let end = steps.last().unwrap();
    let moved = client
        .execute(
            "UPDATE branches SET head_checkpoint_id = $3, head_depth = head_depth + $4, \
             version = version + $4 WHERE tree_id = $1 AND head_checkpoint_id = $2",
            &[&thread, &head, &end.id, &end.n],
        )
        .await
        .unwrap();
    assert_eq!(moved, 1);
    // As autovacuum would, so that plans are those of tables of this size.
    client.batch_execute("ANALYZE").await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
