//! Items of long-term memory by namespace and key.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    checkpoint::{Error, codec},
    store::{Item, Namespace, Put, ttl_micros},
    time::Timestamp,
    value::Value,
};

/// The stored form of a namespace.
fn text(namespace: &[String]) -> String {
    Value::from_iter(namespace.iter().map(String::as_str)).to_json()
}

pub(super) fn item(
    db: &Connection,
    namespace: &Namespace,
    key: &str,
) -> Result<Option<Item>, Error> {
    let found = db
        .prepare_cached(
            "SELECT type, value, created_at, updated_at, ttl FROM store_items \
             WHERE namespace = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)",
        )?
        .query_row(params![text(namespace), key, Timestamp::now().0], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Vec<u8>>(1)?,
                Timestamp(row.get(2)?),
                Timestamp(row.get(3)?),
                row.get::<_, Option<i64>>(4)?,
            ))
        })
        .optional()?;
    let Some((tag, bytes, created_at, updated_at, ttl)) = found else {
        return Ok(None);
    };
    Ok(Some(Item {
        value: codec::decode(&tag, &bytes).map_err(|error| Error::Corrupt(error.to_string()))?,
        namespace: namespace.clone(),
        key: key.to_owned(),
        created_at,
        updated_at,
        ttl: ttl.map(|micros| Duration::from_micros(micros.unsigned_abs())),
    }))
}

pub(super) fn put_item(db: &Connection, put: &Put) -> Result<(), Error> {
    let (tag, bytes) = codec::encode_tagged(&put.value, codec::Format::default());
    let now = Timestamp::now();
    let ttl = put.ttl.map(ttl_micros);
    // Who lets things expire pays for clearing them away.
    if ttl.is_some() {
        db.prepare_cached("DELETE FROM store_items WHERE expires_at <= ?1")?
            .execute([now.0])?;
    }
    db.prepare_cached(
        "INSERT INTO store_items \
         (namespace, key, type, value, created_at, updated_at, ttl, expires_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?5 + ?6) \
         ON CONFLICT (namespace, key) DO UPDATE SET type = excluded.type, \
           value = excluded.value, updated_at = excluded.updated_at, ttl = excluded.ttl, \
           expires_at = excluded.expires_at, \
           created_at = CASE WHEN expires_at <= excluded.updated_at \
             THEN excluded.created_at ELSE created_at END",
    )?
    .execute(params![
        text(&put.namespace),
        put.key,
        tag,
        bytes,
        now.0,
        ttl
    ])?;
    Ok(())
}

pub(super) fn delete_item(
    db: &Connection,
    namespace: &Namespace,
    key: &str,
) -> Result<bool, Error> {
    let deleted = db
        .prepare_cached("DELETE FROM store_items WHERE namespace = ?1 AND key = ?2")?
        .execute(params![text(namespace), key])?;
    Ok(deleted > 0)
}
