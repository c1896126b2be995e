//! Vectors of items of long-term memory, and the items that are nearest to one.

use std::borrow::Cow;

use deadpool_postgres::Transaction;
use futures::future::try_join_all;
use tokio_postgres::Statement;

use super::{
    columns::{Params, column, name, unname},
    connection::{Object, Result, prepare},
    items::{bound, encoded_item, item_weight, namespace_of},
};
use crate::{
    checkpoint::{Error, codec},
    store::{
        Item,
        embed::Vectors,
        memory::BATCH,
        rank::{Name, Nearest, Ranking},
        search::Found,
    },
    value::Value,
};

const DELETE: &str = "
DELETE FROM store_vectors WHERE owner = $1 AND namespace = $2 AND key = $3";

const INSERT: &str = "
INSERT INTO store_vectors (owner, namespace, key, path, part, model, vector)
SELECT $1, $2, $3, n.path, n.part, $4, n.vector
  FROM unnest($5::text[], $6::int[], $7::bytea[]) AS n (path, part, vector)";

/// The next vectors of a range, from behind one on, with the values of their items if $8, as long as these weigh at
/// most $10 together; an item that has expired has no row beside its vectors. Each item is looked up by its key, and its
/// value comes with the first of its vectors alone; the number of a part before all others is -1.
const SCAN: &str = concat!(
    "
SELECT v.namespace, v.key, v.path, v.part, v.vector, i.there, i.type, i.weight,
       CASE WHEN sum(i.weight) OVER w <= $10::bigint THEN i.value END AS value
  FROM (SELECT l.*, $8 AND ($5 < 0 OR (l.namespace, l.key) <> ($2, $3)) AND row_number() OVER (
                 PARTITION BY l.namespace, l.key ORDER BY l.path, l.part) = 1 AS is_compared
          FROM (SELECT s.namespace, s.key, s.path, s.part, CASE WHEN s.model = $7 THEN s.vector END AS vector
                  FROM store_vectors s
                 WHERE s.owner = $1 AND (s.namespace, s.key, s.path, s.part) > ($2, $3, $4, $5)
                   AND s.namespace < $6
                 ORDER BY s.namespace, s.key, s.path, s.part LIMIT $9) l) v
  LEFT JOIN LATERAL (
    SELECT true AS there, o.type, CASE WHEN v.is_compared THEN o.value END AS value, CASE WHEN v.is_compared THEN ",
    weight!("o.type", "o.value"),
    " END AS weight FROM store_items o
     WHERE o.owner = $1 AND o.namespace = v.namespace AND o.key = v.key
       AND (o.expires_at IS NULL OR o.expires_at > now()) LIMIT 1) i ON true
WINDOW w AS (ORDER BY v.namespace, v.key, v.path, v.part ROWS UNBOUNDED PRECEDING)
 ORDER BY v.namespace, v.key, v.path, v.part"
);

/// Vectors that one statement reads with the values of their items.
const BATCH_WITH_VALUES: usize = 32;

/// Items of the page that are read at once.
const AT_ONCE: usize = 16;

/// The statements of [`replace`], prepared before its transaction begins.
pub(super) async fn statements_of_put(db: &Object) -> Result<[Statement; 2]> {
    Ok([prepare(db, DELETE).await?, prepare(db, INSERT).await?])
}

/// Puts the vectors of an item in place of those that it has.
pub(super) async fn replace(
    transaction: &Transaction<'_>,
    [delete, insert]: &[Statement; 2],
    (owner, labels, key): (&str, &[Cow<'_, str>], &str),
    vectors: &Vectors,
) -> Result<()> {
    transaction
        .execute(delete, &[&owner, &labels, &key])
        .await?;
    if vectors.all.is_empty() {
        return Ok(());
    }
    let all = || vectors.all.iter();
    let paths: Vec<Cow<'_, str>> = all().map(|vector| name(&vector.path)).collect();
    let parts: Vec<i32> = all().map(|vector| vector.part).collect();
    let bytes: Vec<&[u8]> = all().map(|vector| &*vector.bytes).collect();
    let params: Params<'_, 7> = [
        &owner,
        &labels,
        &key,
        &&*vectors.model,
        &paths,
        &parts,
        &bytes,
    ];
    transaction.execute(insert, &params).await?;
    Ok(())
}

pub(super) async fn nearest_items(db: &Object, search: &Nearest) -> Result<Found> {
    let mut ranking = Ranking::new(search);
    let filters = ranking.filters();
    let most = if filters {
        BATCH_WITH_VALUES.min(search.batch())
    } else {
        search.batch()
    };
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut room = BATCH;
    let scan = prepare(db, SCAN).await?;
    for range in &search.ranges {
        let (mut namespace, to) = (bound(&range.from), bound(&range.to));
        // Nothing comes before an empty key, and no part has this number.
        let (mut key, mut path, mut part) = (String::new(), String::new(), -1);
        loop {
            if !ranking.reserve(room) {
                return Ok(Found::NoMemory);
            }
            let model = &*search.model;
            let weight = i64::try_from(room).unwrap_or(i64::MAX);
            let params: Params<'_, 10> = [
                &&*range.owner,
                &namespace,
                &key,
                &path,
                &part,
                &to,
                &model,
                &filters,
                &limit,
                &weight,
            ];
            let rows = db.query(&scan, &params).await?;
            let mut last;
            (room, last) = (BATCH, None);
            let mut is_cut = false;
            for row in &rows {
                let stored: Option<&[u8]> = column(row, "value")?;
                let weight: Option<i64> = column(row, "weight")?;
                if let (None, Some(weight)) = (stored, weight) {
                    // There was no room for it.
                    is_cut = true;
                    if last.is_none() {
                        room = usize::try_from(weight).unwrap_or(usize::MAX).max(BATCH);
                    }
                    break;
                }
                last = Some(row);
                if !ranking.may_read(stored.map_or(0, <[u8]>::len)) {
                    return Ok(Found::TooMuchToRead);
                }
                if !column::<Option<bool>>(row, "there")?.unwrap_or(false) {
                    continue;
                }
                let name = Name {
                    namespace: namespace_of(row)?,
                    key: unname(column(row, "key")?).to_string(),
                    owner: range.owner.clone(),
                };
                if filters && stored.is_none() && !ranking.is_at(&name) {
                    // It was not there at its first vector.
                    continue;
                }
                let vector: Option<&[u8]> = column(row, "vector")?;
                ranking.offer(name, vector, || -> Result<Value, Error> {
                    let decoded = codec::decode(column(row, "type")?, stored.unwrap_or_default());
                    decoded.map_err(|error| Error::Corrupt(error.to_string()))
                })?;
            }
            if let Some(last) = last {
                namespace = column(last, "namespace")?;
                key = column(last, "key")?;
                path = column(last, "path")?;
                part = column(last, "part")?;
            }
            if !is_cut && rows.len() < most {
                break;
            }
        }
    }
    let (mut items, mut returned) = (vec![], 0_usize);
    let page = ranking.finish();
    // In few round trips, and without more in memory than was taken for it.
    for few in page.chunks(AT_ONCE) {
        let weigh = few
            .iter()
            .map(|(name, _)| item_weight(db, &name.owner, &name.namespace, &name.key));
        let weights = try_join_all(weigh).await?.into_iter().flatten();
        let weights = weights.map(|weight| usize::try_from(weight).unwrap_or(usize::MAX));
        returned = weights.fold(returned, usize::saturating_add);
        if returned > search.page_bytes {
            return Ok(Found::TooMuchToReturn);
        }
        if !search.reserve(returned) {
            return Ok(Found::NoMemory);
        }
        let reads = few
            .iter()
            .map(|(name, _)| encoded_item(db, &name.owner, &name.namespace, &name.key));
        for (found, (_, score)) in try_join_all(reads).await?.into_iter().zip(few) {
            items.extend(found.map(|item| Item {
                score: Some(*score),
                ..item
            }));
        }
    }
    Ok(Found::Items(items))
}

statements!(DELETE, INSERT, SCAN);
