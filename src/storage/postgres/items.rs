//! Items of long-term memory by namespace and key. Times are those of the database.

use std::{borrow::Cow, time::Duration};

use deadpool_postgres::Object;

use super::{
    columns::{Time, column, name},
    connection::{Failure, prepare},
};
use crate::{
    checkpoint::{Error, codec},
    store::{Item, Namespace, Put, ttl_micros},
};

const SELECT: &str = "
SELECT type, value, created_at, updated_at, ttl FROM store_items
 WHERE namespace = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > now())";

/// Who lets things expire pays for clearing them away; what others clear is left to them.
const SWEEP: &str = "
DELETE FROM store_items WHERE (namespace, key) IN (
  SELECT namespace, key FROM store_items WHERE expires_at <= now()
   ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED)";

const PUT: &str = "
INSERT INTO store_items AS old (namespace, key, type, value, ttl, expires_at)
VALUES ($1, $2, $3, $4, $5::bigint, now() + $5::bigint * interval '1 microsecond')
ON CONFLICT (namespace, key) DO UPDATE SET type = EXCLUDED.type, value = EXCLUDED.value,
  updated_at = now(), ttl = EXCLUDED.ttl, expires_at = EXCLUDED.expires_at,
  created_at = CASE WHEN old.expires_at <= now() THEN now() ELSE old.created_at END";

const DELETE: &str = "DELETE FROM store_items WHERE namespace = $1 AND key = $2";

pub(super) async fn item(
    db: &Object,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item>, Failure> {
    let statement = prepare(db, SELECT).await?;
    let row = db
        .query_opt(&statement, &[&names(namespace), &name(key)])
        .await?;
    let Some(row) = row else { return Ok(None) };
    let bytes: &[u8] = column(&row, "value")?;
    Ok(Some(Item {
        value: codec::decode(column(&row, "type")?, bytes)
            .map_err(|error| Error::Corrupt(error.to_string()))?,
        created_at: column::<Time>(&row, "created_at")?.0,
        updated_at: column::<Time>(&row, "updated_at")?.0,
        ttl: column::<Option<i64>>(&row, "ttl")?
            .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        namespace: namespace.clone(),
        key: key.to_owned(),
    }))
}

pub(super) async fn put_item(db: &Object, put: &Put) -> Result<(), Failure> {
    let (tag, bytes) = codec::encode_tagged(&put.value, codec::Format::default());
    let ttl = put.ttl.map(ttl_micros);
    if ttl.is_some() {
        let statement = prepare(db, SWEEP).await?;
        db.execute(&statement, &[]).await?;
    }
    let statement = prepare(db, PUT).await?;
    let (labels, key) = (names(&put.namespace), name(&put.key));
    db.execute(&statement, &[&labels, &key, &&*tag, &bytes, &ttl])
        .await?;
    Ok(())
}

pub(super) async fn delete_item(
    db: &Object,
    namespace: &Namespace,
    key: &str,
) -> Result<bool, Failure> {
    let statement = prepare(db, DELETE).await?;
    let deleted = db
        .execute(&statement, &[&names(namespace), &name(key)])
        .await?;
    Ok(deleted > 0)
}

fn names(namespace: &[String]) -> Vec<Cow<'_, str>> {
    namespace.iter().map(|label| name(label)).collect()
}
