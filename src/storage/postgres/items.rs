//! Long-term memory. Times are the database's.

use std::{borrow::Cow, time::Duration};

use async_trait::async_trait;

use super::{
    Store,
    columns::{Time, column, name},
    connection::{self, prepare},
};
use crate::{
    checkpoint::{Error, codec},
    store::{self, Item, Namespace, Put},
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

#[async_trait]
impl store::Store for Store {
    async fn item(&self, namespace: Namespace, key: String) -> Result<Option<Item>, Error> {
        let (labels, named) = (names(&namespace), name(&key));
        let row = connection::retry(&self.pools.reads, |client| {
            let (labels, named) = (&labels, &named);
            async move {
                let statement = prepare(&client, SELECT).await?;
                Ok(client.query_opt(&statement, &[labels, named]).await?)
            }
        })
        .await?;
        let Some(row) = row else { return Ok(None) };
        let bytes: Vec<u8> = column(&row, "value")?;
        Ok(Some(Item {
            value: codec::decode(column(&row, "type")?, &bytes)
                .map_err(|error| Error::Corrupt(error.to_string()))?,
            created_at: column::<Time>(&row, "created_at")?.0,
            updated_at: column::<Time>(&row, "updated_at")?.0,
            ttl: column::<Option<i64>>(&row, "ttl")?
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
            namespace,
            key,
        }))
    }

    async fn put_item(&self, put: Put) -> Result<(), Error> {
        let (tag, bytes) = codec::encode_tagged(&put.value, codec::Format::default());
        let tag = &*tag;
        let (labels, named) = (names(&put.namespace), name(&put.key));
        let ttl = put.ttl.map(micros);
        connection::retry(&self.pools.reads, |client| {
            let (labels, named, tag, bytes, ttl) = (&labels, &named, &tag, &bytes, &ttl);
            async move {
                if ttl.is_some() {
                    let statement = prepare(&client, SWEEP).await?;
                    client.execute(&statement, &[]).await?;
                }
                let statement = prepare(&client, PUT).await?;
                client
                    .execute(&statement, &[labels, named, tag, bytes, ttl])
                    .await?;
                Ok(())
            }
        })
        .await
    }

    async fn delete_item(&self, namespace: Namespace, key: String) -> Result<bool, Error> {
        let (labels, named) = (names(&namespace), name(&key));
        let deleted = connection::retry(&self.pools.reads, |client| {
            let (labels, named) = (&labels, &named);
            async move {
                let statement = prepare(&client, DELETE).await?;
                Ok(client.execute(&statement, &[labels, named]).await?)
            }
        })
        .await?;
        Ok(deleted > 0)
    }
}

fn names(namespace: &[String]) -> Vec<Cow<'_, str>> {
    namespace.iter().map(|label| name(label)).collect()
}

/// Far enough in the future to be for ever, and no further than a time can be: 1,000 years.
fn micros(ttl: Duration) -> i64 {
    const LONGEST: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(ttl.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}
