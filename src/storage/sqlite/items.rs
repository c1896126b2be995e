//! Items of long-term memory by owner, namespace and key.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{columns::unreadable, counts, vectors};
use crate::{
    checkpoint::{Error, Result, codec},
    store::{
        Encoded, Item, Namespace, Put,
        namespace::Bound,
        search::{Found, ListScan, Listing, Next, Scan, Search},
        ttl_micros,
    },
    time::Timestamp,
};

const SELECT: &str = "SELECT namespace, key, type, value, created_at, updated_at, ttl FROM store_items \
  WHERE owner = ?1 AND namespace = ?2 AND key = ?3 AND (expires_at IS NULL OR expires_at > ?4)";

const WEIGHT: &str = concat!(
    "SELECT ",
    weight!("type", "value"),
    " FROM store_items \
  WHERE owner = ?1 AND namespace = ?2 AND key = ?3 AND (expires_at IS NULL OR expires_at > ?4)"
);

/// The items of a range. They have their values where those are compared; else the values of those that are wanted are
/// read by key.
const PAGE: &str = "SELECT namespace, key, type, CASE WHEN ?5 THEN value END, created_at, updated_at, ttl, \
    octet_length(value) FROM store_items \
  WHERE owner = ?1 AND namespace >= ?2 AND namespace < ?3 \
    AND (expires_at IS NULL OR expires_at > ?4) \
  ORDER BY namespace, key";

/// The first namespace of a range that has an item.
const NAMESPACE: &str = "SELECT namespace FROM store_items \
  WHERE owner = ?1 AND namespace >= ?2 AND namespace < ?3 \
    AND (expires_at IS NULL OR expires_at > ?4) \
  ORDER BY namespace, key LIMIT 1";

const PUT: &str = "INSERT INTO store_items \
    (owner, namespace, key, type, value, created_at, updated_at, ttl, expires_at) \
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?6 + ?7) \
  ON CONFLICT (owner, namespace, key) DO UPDATE SET type = excluded.type, \
    value = excluded.value, updated_at = excluded.updated_at, ttl = excluded.ttl, \
    expires_at = excluded.expires_at, \
    created_at = CASE WHEN expires_at <= excluded.updated_at \
      THEN excluded.created_at ELSE created_at END";

/// Also when it has expired: it is replaced.
const EXISTS: &str = "SELECT 1 FROM store_items WHERE owner = ?1 AND namespace = ?2 AND key = ?3";

const DELETE: &str = "DELETE FROM store_items WHERE owner = ?1 AND namespace = ?2 AND key = ?3 \
  RETURNING expires_at IS NULL OR expires_at > ?4";

const REFRESH: &str = "UPDATE store_items SET expires_at = ?4 + ttl \
  WHERE owner = ?1 AND namespace = ?2 AND key = ?3 AND ttl IS NOT NULL AND expires_at > ?4";

const SWEEP: &str = "DELETE FROM store_items WHERE (owner, namespace, key) IN ( \
  SELECT owner, namespace, key FROM store_items WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

/// The stored form of a namespace: bytes that sort as lists of labels do.
fn bytes(namespace: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in namespace {
        for byte in label.bytes() {
            bytes.push(byte);
            if byte == 0 {
                bytes.push(u8::MAX);
            }
        }
        bytes.push(0);
    }
    bytes
}

/// The namespace of a stored form.
fn labels(bytes: &[u8]) -> Option<Namespace> {
    let mut labels = Vec::new();
    let mut label = Vec::new();
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != 0 {
            label.push(byte);
        } else if rest.next_if_eq(&u8::MAX).is_some() {
            label.push(0);
        } else {
            labels.push(String::from_utf8(std::mem::take(&mut label)).ok()?);
        }
    }
    label.is_empty().then_some(labels)
}

pub(super) fn namespace_of(row: &Row<'_>) -> rusqlite::Result<Namespace> {
    let stored = row.get_ref(0)?.as_blob()?;
    labels(stored).ok_or_else(|| unreadable(0, "not a namespace"))
}

/// No text has the byte 255, so it comes behind every label.
pub(super) fn bound(bound: &Bound) -> Vec<u8> {
    match bound {
        Bound::Before(namespace) => bytes(namespace),
        Bound::Behind(namespace) => {
            let mut bytes = bytes(namespace);
            bytes.push(u8::MAX);
            bytes
        }
    }
}

fn item_of(row: &Row<'_>, owner: &Arc<str>) -> Result<Item<Encoded>> {
    let (tag, value) = (row.get_ref(2)?.as_str(), row.get_ref(3)?.as_blob());
    let corrupt = |error: &dyn std::fmt::Display| Error::Corrupt(error.to_string());
    let tag = tag.map_err(|error| corrupt(&error))?;
    let value = value.map_err(|error| corrupt(&error))?;
    let ttl: Option<i64> = row.get(6)?;
    Ok(Item {
        owner: owner.clone(),
        namespace: namespace_of(row)?,
        key: row.get(1)?,
        value: Encoded {
            tag: tag.into(),
            bytes: value.to_vec(),
        },
        created_at: Timestamp(row.get(4)?),
        updated_at: Timestamp(row.get(5)?),
        ttl: ttl.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        score: None,
    })
}

pub(super) fn item(
    db: &Connection,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item>> {
    let found = encoded_item(db, owner, namespace, key)?;
    found.map(Item::decode).transpose()
}

/// An item with the bytes of its value.
pub(super) fn encoded_item(
    db: &Connection,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item<Encoded>>> {
    let mut statement = db.prepare_cached(SELECT)?;
    let now = Timestamp::now().0;
    let mut rows = statement.query(params![&**owner, bytes(namespace), key, now])?;
    rows.next()?.map(|row| item_of(row, owner)).transpose()
}

pub(super) fn item_weight(
    db: &Connection,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<u64>> {
    let mut statement = db.prepare_cached(WEIGHT)?;
    let name = params![&**owner, bytes(namespace), key, Timestamp::now().0];
    let found = statement.query_row(name, |row| row.get::<_, i64>(0));
    Ok(found.optional()?.map(i64::unsigned_abs))
}

pub(super) fn put_item(db: &Connection, put: &Put, most: usize) -> Result<bool> {
    if counts::is_full(db, "store_items", &put.owner, most)? {
        let name = params![&*put.owner, bytes(&put.namespace), put.key];
        if !db.prepare_cached(EXISTS)?.exists(name)? {
            return Ok(false);
        }
    }
    db.prepare_cached(PUT)?.execute(params![
        &*put.owner,
        bytes(&put.namespace),
        put.key,
        &*put.tag,
        put.bytes,
        Timestamp::now().0,
        put.ttl.map(ttl_micros)
    ])?;
    let name = (&*put.owner, &*bytes(&put.namespace), &*put.key);
    vectors::replace(db, name, put.vectors.as_ref())?;
    Ok(true)
}

pub(super) fn delete_item(
    db: &Connection,
    owner: &Arc<str>,
    namespace: &Namespace,
    key: &str,
) -> Result<bool> {
    let now = Timestamp::now().0;
    let was_there = db
        .prepare_cached(DELETE)?
        .query_row(params![&**owner, bytes(namespace), key, now], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(was_there.unwrap_or(false))
}

pub(super) fn search_items(db: &Connection, search: &Search) -> Result<Found> {
    let now = Timestamp::now().0;
    let mut scan = Scan::new(search);
    let filters = !search.filter.is_empty();
    let mut statement = db.prepare_cached(PAGE)?;
    for range in &search.ranges {
        let (from, to) = (bound(&range.from), bound(&range.to));
        let mut rows = statement.query(params![&*range.owner, from, to, now, filters])?;
        while !scan.is_over()
            && let Some(row) = rows.next()?
        {
            let weight = if scan.unread() > 0 {
                0
            } else {
                let bytes = usize::try_from(row.get::<_, i64>(7)?).unwrap_or(usize::MAX);
                codec::weight(row.get_ref(2)?.as_str().unwrap_or_default(), bytes)
            };
            let weight = usize::try_from(weight).unwrap_or(usize::MAX);
            match scan.next(weight) {
                Next::Skip => {}
                Next::Read if filters => scan.offer(item_of(row, &range.owner)?, weight)?,
                Next::Read => {
                    let key: String = row.get(1)?;
                    // It may have expired since.
                    let namespace = namespace_of(row)?;
                    if let Some(item) = encoded_item(db, &range.owner, &namespace, &key)? {
                        scan.offer(item, weight)?;
                    }
                }
                Next::Stop => break,
            }
        }
    }
    Ok(scan.finish())
}

pub(super) fn item_namespaces(
    db: &Connection,
    listing: &Listing,
) -> Result<Option<Vec<Namespace>>> {
    let now = Timestamp::now().0;
    let mut scan = ListScan::new(listing);
    let mut statement = db.prepare_cached(NAMESPACE)?;
    for range in &listing.ranges {
        let (mut from, to) = (bound(&range.from), bound(&range.to));
        while !scan.is_over() {
            let next = statement
                .query_row(params![&*range.owner, from, to, now], namespace_of)
                .optional()?;
            let Some(namespace) = next else { break };
            from = match listing.depth() {
                Some(depth) if depth <= namespace.len() => {
                    bound(&Bound::Behind(namespace[..depth].to_vec()))
                }
                _ => {
                    // Right behind the namespace itself, before those below it.
                    let mut bytes = bytes(&namespace);
                    bytes.push(0);
                    bytes
                }
            };
            scan.offer(namespace);
        }
    }
    Ok(scan.finish())
}

pub(super) fn refresh_items(
    db: &Connection,
    names: &[(Arc<str>, Namespace, String)],
) -> Result<()> {
    let now = Timestamp::now().0;
    let mut statement = db.prepare_cached(REFRESH)?;
    for (owner, namespace, key) in names {
        statement.execute(params![&**owner, bytes(namespace), key, now])?;
    }
    Ok(())
}

pub(super) fn sweep_items(db: &Connection, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let deleted = db
        .prepare_cached(SWEEP)?
        .execute(params![Timestamp::now().0, limit])?;
    Ok(deleted as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_namespaces_sort_as_lists_of_labels_do() {
        let mut all: Vec<Namespace> = [
            &["a"][..],
            &["a", "b"],
            &["a", "\0"],
            &["a\0"],
            &["a\0", "z"],
            &["a!"],
            &["b"],
            &["\0"],
            &["\0\0", "\u{1}"],
            &["é", "\u{10FFFF}"],
        ]
        .iter()
        .map(|labels| labels.iter().map(|label| (*label).to_owned()).collect())
        .collect();
        for namespace in &all {
            assert_eq!(labels(&bytes(namespace)).as_ref(), Some(namespace));
        }
        all.sort();
        let stored: Vec<_> = all.iter().map(|namespace| bytes(namespace)).collect();
        assert!(stored.is_sorted());
        for prefix in &all {
            let below = |namespace: &Namespace| {
                let stored = bytes(namespace);
                stored >= bound(&Bound::Before(prefix.clone()))
                    && stored < bound(&Bound::Behind(prefix.clone()))
            };
            for namespace in &all {
                let starts = namespace.starts_with(prefix);
                assert_eq!(below(namespace), starts, "{namespace:?} {prefix:?}");
            }
        }
    }

    #[test]
    fn items_of_before_belong_to_the_principal_of_servers_without_keys() {
        let db = Connection::open_in_memory().unwrap();
        let migration = |text: &str| db.execute_batch(text).unwrap();
        migration(include_str!("../../../sql/sqlite/V005__store_items.sql"));
        let all: [&[&str]; 5] = [
            &["a"],
            &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"],
            &["é", "\",\""],
            &["a\0", "z"],
            &["\0\0"],
        ];
        for (number, namespace) in all.iter().enumerate() {
            let text = crate::value::Value::from_iter(namespace.iter().copied()).to_json();
            let insert = "INSERT INTO store_items VALUES (?1, 'k', 'json', ?2, 1, 2, 3, ?3)";
            let value = number.to_string().into_bytes();
            db.execute(insert, params![text, value, i64::MAX]).unwrap();
        }
        migration(include_str!("../../../sql/sqlite/V021__owned_items.sql"));
        for (number, namespace) in all.iter().enumerate() {
            let namespace: Namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
            let item = item(&db, &"local".into(), &namespace, "k")
                .unwrap()
                .unwrap();
            assert_eq!(item.value.as_i64(), i64::try_from(number).ok());
            assert_eq!((item.created_at.0, item.updated_at.0), (1, 2));
            assert_eq!(item.ttl, Some(Duration::from_micros(3)));
        }
    }
}
