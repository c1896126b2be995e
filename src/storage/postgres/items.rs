//! Items of long-term memory by owner, namespace and key. Times are those of the database.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio_postgres::Row;

use super::{
    columns::{Params, Time, all, column, execute, name, one, unname},
    connection::{Object, Result, prepare},
    vectors,
};
use crate::{
    checkpoint::Error,
    store::{
        Encoded, Item, Namespace, Put,
        memory::BATCH,
        namespace::Bound,
        search::{Found, ListScan, Listing, Next, Scan, Search},
        ttl_micros,
    },
};

const SELECT: &str = "
SELECT namespace, key, type, value, created_at, updated_at, ttl FROM store_items
 WHERE owner = $1 AND namespace = $2 AND key = $3 AND (expires_at IS NULL OR expires_at > now())";

const WEIGHT: &str = concat!(
    "SELECT ",
    weight!("type", "value"),
    " AS weight FROM store_items
 WHERE owner = $1 AND namespace = $2 AND key = $3 AND (expires_at IS NULL OR expires_at > now())"
);

/// The next items of a range, from a namespace and a key on, with the values of the first of them as long as these
/// weigh at most $6 together.
const PAGE: &str = concat!(
    "
SELECT namespace, key, type, weight, CASE WHEN sum(weight) OVER w <= $6::bigint THEN value END AS value, created_at, updated_at, ttl
  FROM (SELECT namespace, key, type, value, created_at, updated_at, ttl, ",
    weight!("type", "value"),
    " AS weight FROM store_items
 WHERE owner = $1 AND (namespace, key) >= ($2, $3) AND namespace < $4
   AND (expires_at IS NULL OR expires_at > now())
 ORDER BY namespace, key LIMIT $5) i
WINDOW w AS (ORDER BY namespace, key ROWS UNBOUNDED PRECEDING)
 ORDER BY namespace, key"
);

/// As [`PAGE`], without what an offset passes over.
const NAMES: &str = "
SELECT namespace, key FROM store_items
 WHERE owner = $1 AND (namespace, key) >= ($2, $3) AND namespace < $4
   AND (expires_at IS NULL OR expires_at > now())
 ORDER BY namespace, key LIMIT $5";

/// Namespaces of a range that have items, one probe of the index each. From a namespace of $4 labels
/// or more the next one is behind all that have its first $4 labels.
const NAMESPACES: &str = "
WITH RECURSIVE found (namespace) AS (
  (SELECT namespace FROM store_items
    WHERE owner = $1 AND namespace >= $2 AND namespace < $3 AND (expires_at IS NULL OR expires_at > now())
    ORDER BY namespace, key LIMIT 1)
  UNION ALL
  SELECT (SELECT s.namespace FROM store_items s
           WHERE s.owner = $1 AND s.namespace < $3 AND (s.expires_at IS NULL OR s.expires_at > now())
             AND s.namespace >= CASE WHEN cardinality(f.namespace) >= $4
                   THEN f.namespace[:$4 - 1] || (f.namespace[$4] || chr(1))
                   ELSE f.namespace || ''::text END
           ORDER BY s.namespace, s.key LIMIT 1)
    FROM found f WHERE f.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL LIMIT $5";

/// An item is replaced also when its owner may have no other one. Vectors that the item had do not stand for its new value.
const PUT: &str = "
WITH gone AS (DELETE FROM store_vectors WHERE owner = $1 AND namespace = $2 AND key = $3)
INSERT INTO store_items AS old (owner, namespace, key, type, value, ttl, expires_at)
SELECT $1, $2, $3, $4::text, $5::bytea, $6::bigint, now() + $6::bigint * interval '1 microsecond'
 WHERE (SELECT COALESCE(sum(total), 0) FROM row_counts WHERE kind = 'store_items' AND row_counts.owner = $1) < $7::bigint
    OR EXISTS (SELECT 1 FROM store_items s WHERE s.owner = $1 AND s.namespace = $2 AND s.key = $3)
ON CONFLICT (owner, namespace, key) DO UPDATE SET type = EXCLUDED.type, value = EXCLUDED.value,
  updated_at = now(), ttl = EXCLUDED.ttl, expires_at = EXCLUDED.expires_at,
  created_at = CASE WHEN old.expires_at <= now() THEN now() ELSE old.created_at END";

const DELETE: &str = "
DELETE FROM store_items WHERE owner = $1 AND namespace = $2 AND key = $3
RETURNING expires_at IS NULL OR expires_at > now() AS was_there";

/// A row that somebody else has locked is being written or refreshed. Labels have no periods. Each
/// item is looked up by its key: a condition on the time that an index could serve would tempt the
/// planner to walk all items that expire.
const REFRESH: &str = "
UPDATE store_items s SET expires_at = now() + s.ttl * interval '1 microsecond'
 WHERE s.ctid = ANY (ARRAY(
   SELECT found.ctid
     FROM unnest($1::text[], $2::text[], $3::text[]) AS n (owner, labels, key)
    CROSS JOIN LATERAL (
      SELECT o.ctid FROM store_items o
       WHERE o.owner = n.owner AND o.namespace = string_to_array(n.labels, '.') AND o.key = n.key
         AND o.ttl IS NOT NULL AND COALESCE(o.expires_at > now(), false)
       LIMIT 1 FOR UPDATE SKIP LOCKED) found))";

/// What another process deletes is left to it.
const SWEEP: &str = "
DELETE FROM store_items WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM store_items WHERE expires_at <= now()
   ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))";

/// Items that are read before it is known how large they are.
const FIRST_BATCH: usize = 16;
/// Most items that one statement reads.
const MOST: usize = 1000;

fn names(namespace: &[String]) -> Vec<Cow<'_, str>> {
    namespace.iter().map(|label| name(label)).collect()
}

pub(super) fn namespace_of(row: &Row) -> Result<Namespace, Error> {
    let labels: Vec<&str> = column(row, "namespace")?;
    Ok(labels
        .into_iter()
        .map(|label| unname(label).to_string())
        .collect())
}

/// The text right behind another one, in the order of the database.
pub(super) fn behind(text: &str) -> String {
    format!("{text}\u{1}")
}

/// A bound of namespaces. Behind all of them comes a label longer than any, of the last character.
pub(super) fn bound(bound: &Bound) -> Vec<String> {
    let stored = |namespace: &[String]| -> Vec<String> {
        namespace
            .iter()
            .map(|label| name(label).into_owned())
            .collect()
    };
    match bound {
        Bound::Before(namespace) => stored(namespace),
        Bound::Behind(namespace) => {
            let mut labels = stored(namespace);
            match labels.last_mut() {
                Some(last) => *last = behind(last),
                None => labels.push("\u{10FFFF}".repeat(1000)),
            }
            labels
        }
    }
}

fn item_of(row: &Row, owner: &Arc<str>) -> Result<Item<Encoded>, Error> {
    let bytes: &[u8] = column(row, "value")?;
    let ttl: Option<i64> = column(row, "ttl")?;
    Ok(Item {
        owner: owner.clone(),
        namespace: namespace_of(row)?,
        key: unname(column(row, "key")?).to_string(),
        value: Encoded {
            tag: column::<&str>(row, "type")?.into(),
            bytes: bytes.to_vec(),
        },
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
        ttl: ttl.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        score: None,
    })
}

pub(super) async fn item(
    db: &Object,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item>> {
    let found = encoded_item(db, owner, namespace, key).await?;
    Ok(found.map(Item::decode).transpose()?)
}

/// An item with the bytes of its value.
pub(super) async fn encoded_item(
    db: &Object,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item<Encoded>>> {
    let (labels, stored) = (names(namespace), name(key));
    let params: Params<'_, 3> = [&&**owner, &labels, &stored];
    one(db, SELECT, &params, |row| item_of(row, owner)).await
}

pub(super) async fn item_weight(
    db: &Object,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<u64>> {
    let (labels, stored) = (names(namespace), name(key));
    let params: Params<'_, 3> = [&&**owner, &labels, &stored];
    let read = |row: &Row| -> Result<u64, Error> {
        Ok(u64::try_from(column::<i64>(row, "weight")?).unwrap_or(0))
    };
    one(db, WEIGHT, &params, read).await
}

pub(super) async fn put_item(db: &mut Object, put: &Put, most: usize) -> Result<bool> {
    let (labels, key) = (names(&put.namespace), name(&put.key));
    let ttl = put.ttl.map(ttl_micros);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let params: Params<'_, 7> = [
        &&*put.owner,
        &labels,
        &key,
        &&*put.tag,
        &put.bytes,
        &ttl,
        &most,
    ];
    let statement = prepare(db, PUT).await?;
    let Some(vectors) = &put.vectors else {
        return Ok(db.execute(&statement, &params).await? > 0);
    };
    let replace = vectors::statements_of_put(db).await?;
    let transaction = db.transaction().await?;
    if transaction.execute(&statement, &params).await? == 0 {
        return Ok(false);
    }
    // Behind the item's lock: what another writer has stored meanwhile is seen.
    vectors::replace(&transaction, &replace, (&put.owner, &labels, &key), vectors).await?;
    transaction.commit().await?;
    Ok(true)
}

pub(super) async fn delete_item(
    db: &Object,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<bool> {
    let (labels, stored) = (names(namespace), name(key));
    let params: Params<'_, 3> = [&&**owner, &labels, &stored];
    let was_there = one(db, DELETE, &params, |row| column::<bool>(row, "was_there"));
    Ok(was_there.await?.unwrap_or(false))
}

/// Where a search goes on in a range.
struct Position {
    namespace: Vec<String>,
    key: String,
}

impl Position {
    fn behind(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            namespace: column(row, "namespace")?,
            key: behind(column(row, "key")?),
        })
    }
}

pub(super) async fn search_items(db: &Object, search: &Search) -> Result<Found> {
    let mut scan = Scan::new(search);
    let (mut read_rows, mut read) = (0_usize, 0_usize);
    let mut room = BATCH;
    for range in &search.ranges {
        let mut at = Position {
            namespace: bound(&range.from),
            key: String::new(),
        };
        let to = bound(&range.to);
        while !scan.is_over() {
            let skip = scan.unread();
            let (text, batch) = if skip > 0 {
                (NAMES, skip.min(MOST))
            } else if let Some(each) = read.checked_div(read_rows) {
                let fits = BATCH / each.max(1);
                (PAGE, fits.clamp(1, MOST))
            } else {
                (PAGE, FIRST_BATCH)
            };
            let batch = if search.filter.is_empty() {
                batch.min(search.limit.saturating_add(skip))
            } else {
                batch
            };
            let most = i64::try_from(batch).unwrap_or(i64::MAX);
            let weight = i64::try_from(room).unwrap_or(i64::MAX);
            let params: Params<'_, 6> =
                [&&*range.owner, &at.namespace, &at.key, &to, &most, &weight];
            let params = if skip > 0 {
                &params[..5]
            } else {
                if !scan.begin_batch(room) {
                    break;
                }
                &params
            };
            let statement = prepare(db, text).await?;
            let rows = db.query(&statement, params).await?;
            let mut last;
            (room, last) = (BATCH, None);
            let mut is_cut = false;
            for row in &rows {
                let mut weight = 0;
                if skip == 0 {
                    weight = usize::try_from(column::<i64>(row, "weight")?).unwrap_or(usize::MAX);
                    if column::<Option<&[u8]>>(row, "value")?.is_none() {
                        // There was no room for it.
                        is_cut = true;
                        if last.is_none() {
                            room = weight.max(BATCH);
                        }
                        break;
                    }
                }
                last = Some(row);
                match scan.next(weight) {
                    Next::Skip => {}
                    Next::Read => {
                        (read_rows, read) = (read_rows + 1, read.saturating_add(weight));
                        scan.offer(item_of(row, &range.owner)?, weight)?;
                    }
                    Next::Stop => break,
                }
            }
            if let Some(last) = last {
                at = Position::behind(last)?;
            }
            if !is_cut && rows.len() < batch {
                break;
            }
        }
    }
    Ok(scan.finish())
}

pub(super) async fn item_namespaces(
    db: &Object,
    listing: &Listing,
) -> Result<Option<Vec<Namespace>>> {
    let depth = listing.depth();
    let depth = depth.map_or(i32::MAX, |depth| i32::try_from(depth).unwrap_or(i32::MAX));
    let mut scan = ListScan::new(listing);
    for range in &listing.ranges {
        let (mut from, to) = (bound(&range.from), bound(&range.to));
        while !scan.is_over() {
            let most = i64::try_from(MOST).unwrap_or(i64::MAX);
            let params: Params<'_, 5> = [&&*range.owner, &from, &to, &depth, &most];
            let found = all(db, NAMESPACES, &params, namespace_of).await?;
            let last = found.last().cloned();
            let is_full = found.len() == MOST;
            for namespace in found {
                scan.offer(namespace);
            }
            match last {
                Some(last) if is_full => {
                    from = match listing.depth() {
                        Some(depth) if depth <= last.len() => {
                            bound(&Bound::Behind(last[..depth].to_vec()))
                        }
                        _ => {
                            let mut labels = bound(&Bound::Before(last));
                            labels.push(String::new());
                            labels
                        }
                    };
                }
                _ => break,
            }
        }
    }
    Ok(scan.finish())
}

pub(super) async fn refresh_items(
    db: &Object,
    items: &[(Arc<str>, Namespace, String)],
) -> Result<()> {
    let owners: Vec<&str> = items.iter().map(|(owner, ..)| &**owner).collect();
    let labels: Vec<String> = items
        .iter()
        .map(|(_, namespace, _)| names(namespace).join("."))
        .collect();
    let keys: Vec<Cow<'_, str>> = items.iter().map(|(.., key)| name(key)).collect();
    execute(db, REFRESH, &[&owners, &labels, &keys]).await?;
    Ok(())
}

pub(super) async fn sweep_items(db: &Object, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    execute(db, SWEEP, &[&limit]).await
}

statements!(
    SELECT, WEIGHT, PAGE, NAMES, NAMESPACES, PUT, DELETE, REFRESH, SWEEP
);
