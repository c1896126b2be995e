//! Tests of the thread that writes.

use std::sync::mpsc;

use rusqlite::Connection;
use tokio::time::Instant;

use super::{LONGEST, Writer};
use crate::checkpoint::Error;

fn writer() -> (Writer, Connection, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON; \
         CREATE TABLE parent (id INTEGER PRIMARY KEY); \
         CREATE TABLE t (n INTEGER UNIQUE, \
           parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED); \
         CREATE TABLE groups (n INTEGER);",
    )
    .unwrap();
    let reader = Connection::open(&file).unwrap();
    (Writer::start(db).unwrap(), reader, folder)
}

fn insert(db: &Connection, n: i64) -> Result<i64, Error> {
    db.execute("INSERT INTO t (n) VALUES (?1)", [n])?;
    Ok(n)
}

fn count(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap()
}

/// Keeps the writer busy until the sender goes, so that what is queued meanwhile is one group.
fn occupy(writer: &Writer) -> mpsc::Sender<()> {
    let (release, occupied) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    drop(writer.submit(move |_| {
        started.send(()).ok();
        occupied.recv().ok();
        Ok(())
    }));
    running.recv().unwrap();
    release
}

#[tokio::test]
async fn jobs_queued_together_share_a_transaction_and_fail_alone() {
    let (writer, reader, folder) = writer();
    let release = occupy(&writer);
    let jobs: Vec<_> = [1, 2, 1, 3]
        .into_iter()
        .map(|n| {
            writer.submit(move |db| {
                db.execute("INSERT INTO groups (n) VALUES (?1)", [n])?;
                insert(db, n)
            })
        })
        .collect();
    let file = folder.path().join("db");
    // Runs last in the group: nobody outside sees the others yet.
    let seen_within = writer.submit(move |db| {
        let outside = Connection::open(file)?;
        Ok((count(db), count(&outside)))
    });
    drop(release);
    let mut results = Vec::new();
    for job in jobs {
        results.push(job.await);
    }
    assert!(matches!(results[0], Ok(1)));
    assert!(matches!(results[1], Ok(2)));
    assert!(matches!(results[2], Err(Error::Database(_))), "{results:?}");
    assert!(matches!(results[3], Ok(3)));
    assert_eq!(seen_within.await.unwrap(), (3, 0));
    assert_eq!(count(&reader), 3);
    let rows: i64 = reader
        .query_row("SELECT count(*) FROM groups", [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        rows, 3,
        "the failed job left nothing, also not what it did first"
    );
}

#[tokio::test]
async fn a_job_that_fails_alone_leaves_nothing() {
    let (writer, reader, _folder) = writer();
    let failed = writer
        .submit(|db| {
            insert(db, 1)?;
            Err::<(), _>(Error::Fenced)
        })
        .await;
    assert!(matches!(failed, Err(Error::Fenced)));
    assert_eq!(count(&reader), 0);
    assert_eq!(writer.submit(|db| insert(db, 1)).await.unwrap(), 1);
    assert_eq!(count(&reader), 1);
}

#[tokio::test]
async fn when_the_commit_fails_every_job_of_the_group_is_told() {
    let (writer, reader, _folder) = writer();
    let release = occupy(&writer);
    let good = writer.submit(|db| insert(db, 1));
    let dangling = writer.submit(|db| {
        // Noticed at COMMIT only.
        db.execute("INSERT INTO t (n, parent) VALUES (2, 99)", [])?;
        Ok(2)
    });
    let refused = writer.submit(|_| Err::<i64, _>(Error::Fenced));
    drop(release);
    assert!(matches!(good.await, Err(Error::Unavailable(_))));
    assert!(matches!(dangling.await, Err(Error::Unavailable(_))));
    assert!(matches!(refused.await, Err(Error::Fenced)));
    assert_eq!(count(&reader), 0);
    // And the writer goes on.
    assert_eq!(writer.submit(|db| insert(db, 1)).await.unwrap(), 1);
    assert_eq!(count(&reader), 1);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let (writer, reader, _folder) = writer();
    let limit = |pages: i64| {
        writer.submit(move |db| {
            db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(Error::from)
        })
    };
    let now = limit(1).await.unwrap();
    let big = || {
        writer.submit(|db| {
            db.execute(
                "INSERT INTO t (n, parent) SELECT value, NULL FROM \
                 (WITH RECURSIVE s (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s \
                  WHERE value < 20000) SELECT value FROM s)",
                [],
            )?;
            Ok(())
        })
    };
    let release = occupy(&writer);
    let (first, full) = (writer.submit(|db| insert(db, -1)), big());
    drop(release);
    assert!(matches!(full.await, Err(Error::Unavailable(_))));
    // Whether its neighbour went with it is SQLite's choice, but the reply is the truth.
    assert_eq!(count(&reader), i64::from(first.await.is_ok()));
    limit(now + 1000).await.unwrap();
    big().await.unwrap();
    assert!(count(&reader) >= 20000);
}

#[tokio::test]
async fn what_was_queued_is_done_before_the_writer_ends() {
    let (writer, reader, _folder) = writer();
    let release = occupy(&writer);
    for n in 0..300 {
        drop(writer.submit(move |db| insert(db, n)));
    }
    drop(release);
    drop(writer);
    assert_eq!(count(&reader), 300);
}

#[tokio::test]
async fn a_held_transaction_keeps_others_out_until_it_is_committed() {
    let (writer, reader, _folder) = writer();
    let open = writer.transaction().await.unwrap();
    let queued = writer.submit(|db| insert(db, 3));
    open.run(|db| insert(db, 1)).await.unwrap();
    let failed = open.run(|db| insert(db, 2).and_then(|_| insert(db, 1)));
    assert!(failed.await.is_err());
    assert_eq!(count(&reader), 0);
    open.commit().await.unwrap();
    // The failed call left nothing; what it was about did not end the rest.
    queued.await.unwrap();
    let sum = reader.query_row("SELECT sum(n) FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(sum.unwrap(), 4);
}

#[tokio::test]
async fn a_held_transaction_that_is_dropped_or_silent_is_undone() {
    let (writer, reader, _folder) = writer();
    let dropped = writer.transaction().await.unwrap();
    dropped.run(|db| insert(db, 1)).await.unwrap();
    drop(dropped);
    let silent = writer.transaction().await.unwrap();
    silent.run(|db| insert(db, 2)).await.unwrap();
    // Behind the silent one, which does nothing until it is rolled back.
    writer.submit(|db| insert(db, 3)).await.unwrap();
    assert!(silent.run(|db| insert(db, 4)).await.is_err());
    assert!(matches!(silent.commit().await, Err(Error::Unavailable(_))));
    let only = reader.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(only.unwrap(), 3);
}

#[tokio::test]
async fn a_transaction_that_has_worked_for_long_takes_no_further_job() {
    let (writer, _reader, folder) = writer();
    let release = occupy(&writer);
    let first = writer.submit(|db| {
        let end = Instant::now() + LONGEST;
        while Instant::now() < end {
            std::thread::yield_now();
        }
        insert(db, 1)
    });
    let file = folder.path().join("db");
    let seen_by_next = writer.submit(move |db| {
        insert(db, 2)?;
        Ok(count(&Connection::open(file)?))
    });
    let alone = async {
        let transaction = writer.transaction().await.unwrap();
        transaction.run(|db| Ok(count(db))).await
    };
    drop(release);
    let (first, seen, alone) = tokio::join!(first, seen_by_next, alone);
    assert_eq!(first.unwrap(), 1);
    assert_eq!(seen.unwrap(), 1, "the first one was committed by itself");
    assert_eq!(
        alone.unwrap(),
        2,
        "it begins after all that was queued before it"
    );
}
