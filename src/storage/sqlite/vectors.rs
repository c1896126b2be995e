//! Vectors of items of long-term memory, and the items that are nearest to one.

use rusqlite::{Connection, params};

use super::items::{bound, encoded_item, item_weight, namespace_of};
use crate::{
    checkpoint::{Error, Result, codec},
    store::{
        Encoded,
        embed::Vectors,
        rank::{Name, Nearest, Ranking},
        search::Found,
    },
    time::Timestamp,
    value::Value,
};

const DELETE: &str = "DELETE FROM store_vectors WHERE owner = ?1 AND namespace = ?2 AND key = ?3";

const INSERT: &str = "INSERT INTO store_vectors (owner, namespace, key, path, part, model, vector) \
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// The vectors of a range whose items are there, each item looked up by its key.
const SCAN: &str = "SELECT v.namespace, v.key, CASE WHEN v.model = ?5 THEN v.vector END \
  FROM store_vectors v CROSS JOIN store_items i \
  WHERE v.owner = ?1 AND v.namespace >= ?2 AND v.namespace < ?3 \
    AND i.owner = v.owner AND i.namespace = v.namespace AND i.key = v.key \
    AND (i.expires_at IS NULL OR i.expires_at > ?4) \
  ORDER BY v.namespace, v.key, v.path, v.part";

/// Puts the vectors of an item in place of those that it has.
pub(super) fn replace(
    db: &Connection,
    (owner, namespace, key): (&str, &[u8], &str),
    vectors: Option<&Vectors>,
) -> Result<()> {
    db.prepare_cached(DELETE)?
        .execute(params![owner, namespace, key])?;
    let Some(vectors) = vectors else {
        return Ok(());
    };
    let mut insert = db.prepare_cached(INSERT)?;
    for vector in &vectors.all {
        insert.execute(params![
            owner,
            namespace,
            key,
            &*vector.path,
            vector.part,
            &*vectors.model,
            vector.bytes
        ])?;
    }
    Ok(())
}

pub(super) fn nearest_items(db: &Connection, search: &Nearest) -> Result<Found> {
    let now = Timestamp::now().0;
    let mut ranking = Ranking::new(search);
    let mut statement = db.prepare_cached(SCAN)?;
    for range in &search.ranges {
        let (from, to) = (bound(&range.from), bound(&range.to));
        let model = &*search.model;
        let mut rows = statement.query(params![&*range.owner, from, to, now, model])?;
        while let Some(row) = rows.next()? {
            let name = Name {
                namespace: namespace_of(row)?,
                key: row.get(1)?,
                owner: range.owner.clone(),
            };
            // Its value counts once, however many vectors it has.
            let is_compared = ranking.filters() && !ranking.is_at(&name);
            let (owner, namespace, key) = (&name.owner, &name.namespace, &name.key);
            let mut weight = None;
            if is_compared {
                weight = item_weight(db, owner, namespace, key)?;
            }
            let weight = usize::try_from(weight.unwrap_or(0)).unwrap_or(usize::MAX);
            if !ranking.reserve(weight) {
                return Ok(Found::NoMemory);
            }
            let mut item = None;
            if is_compared {
                item = encoded_item(db, owner, namespace, key)?;
            }
            if !ranking.may_read(item.as_ref().map_or(0, |item| item.value.bytes.len())) {
                return Ok(Found::TooMuchToRead);
            }
            if is_compared && item.is_none() {
                // It has just expired.
                continue;
            }
            let corrupt = |error: &dyn std::fmt::Display| Error::Corrupt(error.to_string());
            let vector = row.get_ref(2)?.as_blob_or_null();
            let vector = vector.map_err(|error| corrupt(&error))?;
            ranking.offer(name, vector, || match &item {
                Some(item) => {
                    let Encoded { tag, bytes } = &item.value;
                    codec::decode(tag, bytes).map_err(|error| corrupt(&error))
                }
                None => Ok(Value::Null),
            })?;
        }
    }
    let (mut items, mut returned) = (vec![], 0_usize);
    for (name, score) in ranking.finish() {
        let (owner, namespace, key) = (&name.owner, &name.namespace, &name.key);
        let weight = item_weight(db, owner, namespace, key)?.unwrap_or(0);
        returned = returned.saturating_add(usize::try_from(weight).unwrap_or(usize::MAX));
        if returned > search.page_bytes {
            return Ok(Found::TooMuchToReturn);
        }
        if !search.reserve(returned) {
            return Ok(Found::NoMemory);
        }
        let Some(mut item) = encoded_item(db, owner, namespace, key)? else {
            continue;
        };
        item.score = Some(score);
        items.push(item);
    }
    Ok(Found::Items(items))
}
