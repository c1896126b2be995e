//! Task results and control values ahead of their checkpoint: one fenced statement.

use tokio_postgres::{Client, Statement};

use super::commit::arrays::Writes;
use crate::{
    checkpoint::{Error, Flush},
    storage::postgres::{
        Store, branches,
        connection::{self, Object, Result, prepare},
    },
};

/// Task results ahead of their checkpoint. The lock is shared, so that flushes of parallel tasks
/// do not queue behind each other, and yet waits for a takeover in progress.
const FLUSH: &str = concat!(
    "
WITH f AS (SELECT 1 FROM branches WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 FOR SHARE),",
    insert_writes!("$4::text[], $5::uuid[], $6::uuid[], $7::int[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bool[]"),
    "
SELECT 1 AS ok FROM f"
);

/// Writes task results, and before them the branch that they open, which waits for the row of the tree.
pub(crate) async fn flush(store: &Store, flush: &Flush) -> Result<(), Error> {
    let _turn = match &flush.open {
        Some(_) => Some(store.hot.tree_for_run(flush.slot.tree).await?),
        None => None,
    };
    let critical = &store.pools.critical;
    connection::retry(
        critical,
        |mut db| async move { write(&mut db, flush).await },
    )
    .await
}

async fn write(db: &mut Object, flush: &Flush) -> Result<()> {
    let statement = prepare(db, FLUSH).await?;
    db.carries(flush.writes.iter().map(|write| write.bytes.len()).sum());
    let written = match &flush.open {
        None => send_flush(db, &statement, flush).await?,
        Some(new) => {
            let transaction = db.transaction().await?;
            let opened = branches::open(transaction.client(), &flush.slot, new).await?;
            let written = opened && send_flush(transaction.client(), &statement, flush).await?;
            if written {
                transaction.commit().await?;
            }
            written
        }
    };
    if written {
        Ok(())
    } else {
        Err(Error::Fenced.into())
    }
}

async fn send_flush(
    client: &Client,
    statement: &Statement,
    flush: &Flush,
) -> Result<bool, tokio_postgres::Error> {
    let writes = Writes::of(&flush.writes);
    let row = client
        .query_opt(
            statement,
            &[
                &flush.slot.tree.0,
                &flush.slot.branch.0,
                &flush.slot.epoch,
                &writes.nss,
                &writes.checkpoints,
                &writes.tasks,
                &writes.idxs,
                &writes.paths,
                &writes.channels,
                &writes.tags,
                &writes.bytes,
                &writes.upserts,
            ],
        )
        .await?;
    Ok(row.is_some())
}

statements!(FLUSH);
