//! How many rows of a table an owner has.

use deadpool_postgres::Transaction;
use tokio_postgres::Statement;

use super::{
    columns::{Params, column},
    connection::Result,
};

/// The counts of one owner are behind the rows that it writes: who has inserted one sees it here.
pub(super) const COUNT: &str = "
SELECT COALESCE(sum(total), 0)::bigint AS total FROM row_counts WHERE kind = $1 AND owner = $2";

/// Whether an owner, as it is stored, has more rows of a table than it may. In the transaction that has inserted one
/// the count is exact: whoever inserts another one waits for its end.
pub(super) async fn is_over(
    db: &Transaction<'_>,
    count: &Statement,
    (table, owner): (&str, &str),
    most: usize,
) -> Result<bool> {
    let params: Params<'_, 2> = [&table, &owner];
    let row = db.query_one(count, &params).await?;
    let total = column::<i64>(&row, "total")?;
    Ok(usize::try_from(total).is_ok_and(|total| total > most))
}

statements!(COUNT);
