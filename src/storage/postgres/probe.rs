//! Finding out whether the database can still be written to.

use super::connection::{Object, Result};

/// Of several processes that probe at a time one does, since the table is emptied under a lock.
const IS_MY_TURN: &str = "SELECT pg_try_advisory_xact_lock(7020604113410814836)";

/// An emptied table begins with a new file: writing to it takes blocks that were not there before,
/// as new rows of other tables do, where a changed row may find room in a block it has already.
const EMPTY: &str = "TRUNCATE disk_probe";

const FILL: &str = "INSERT INTO disk_probe (filler) SELECT decode(repeat(md5(random()::text), 512), 'hex') FROM generate_series(1, 32)";

/// Fails when 256 KiB cannot be written, as on a full disk.
pub(super) async fn probe(db: &mut Object) -> Result<()> {
    let transaction = db.transaction().await?;
    let turn = transaction.query_one(IS_MY_TURN, &[]).await?;
    if turn.try_get(0)? {
        transaction.execute(EMPTY, &[]).await?;
        transaction.execute(FILL, &[]).await?;
        transaction.commit().await?;
    }
    Ok(())
}

statements!(IS_MY_TURN, EMPTY, FILL);
