//! Reading channel values: full values, and the deltas that build on them.

use std::{borrow::Cow, sync::Arc};

use tokio_postgres::{Row, types::ToSql};

use crate::{
    checkpoint::{BlobRow, Blobs, Error, Version},
    id::TreeId,
    storage::postgres::{
        columns::{column, name, unname, version},
        connection::{Object, Result, prepare},
    },
};

/// Values by channel and version if they weigh at most `$5`; the first column of the first row is what they weigh.
const BLOBS: &str = concat!(
    "
WITH found AS MATERIALIZED (
  SELECT b.* FROM unnest($3::text[], $4::text[]) v(channel, version)
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, b.chain_bytes, b.type, ",
    weight!("b.type", "b.blob"),
    " AS weight FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = v.channel COLLATE \"C\" AND b.version = v.version COLLATE \"C\" LIMIT 1) b),
fit AS MATERIALIZED (SELECT COALESCE(sum(f.weight), 0)::bigint AS weight FROM found f)
SELECT f.weight, x.* FROM fit f LEFT JOIN LATERAL (
  SELECT k.channel, k.version, k.base_version, k.chain_bytes, k.type, b.blob FROM found k CROSS JOIN LATERAL (
    SELECT b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.version LIMIT 1) b
   WHERE f.weight <= $5::bigint) x ON true"
);

/// Values by channel and version, without what they build on, or what they weigh.
pub(crate) async fn blobs(
    db: &Object,
    tree: TreeId,
    ns: &str,
    wanted: &[(Arc<str>, Version)],
    most: u64,
) -> Result<Blobs> {
    let (channels, versions): (Vec<Cow<'_, str>>, Vec<String>) = wanted
        .iter()
        .map(|(channel, version)| (name(channel), version.to_string()))
        .unzip();
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let statement = prepare(db, BLOBS).await?;
    let params: [&(dyn ToSql + Sync); 5] = [&tree.0, &name(ns), &channels, &versions, &most];
    let rows = db.query(&statement, &params).await?;
    let weight = rows.first().map(|row| column::<i64>(row, "weight"));
    let weight = weight.transpose()?.unwrap_or(0);
    if weight > most {
        return Ok(Blobs::Weight(weight.unsigned_abs()));
    }
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        if column::<Option<&str>>(row, "channel")?.is_some() {
            found.push(blob_of(row, ns)?);
        }
    }
    Ok(Blobs::Rows(found))
}

/// The aggregated blobs of a row; `ns` returns the namespace of each.
pub(super) fn blobs_of(row: &Row, ns: impl Fn(usize) -> Arc<str>) -> Result<Vec<BlobRow>, Error> {
    let Some(channels) = column::<Option<Vec<&str>>>(row, "b_channels")? else {
        return Ok(Vec::new());
    };
    let versions: Vec<&str> = column(row, "b_versions")?;
    let bases: Vec<Option<&str>> = column(row, "b_bases")?;
    let chains: Vec<i32> = column(row, "b_chains")?;
    let tags: Vec<&str> = column(row, "b_types")?;
    let bytes: Vec<Vec<u8>> = column(row, "b_blobs")?;
    let mut blobs = Vec::with_capacity(bytes.len());
    for (index, bytes) in bytes.into_iter().enumerate() {
        blobs.push(BlobRow {
            ns: ns(index),
            channel: unname(channels[index]),
            version: version(versions[index])?,
            base: bases[index].map(version).transpose()?,
            chain_bytes: chains[index],
            tag: Arc::from(tags[index]),
            bytes,
        });
    }
    Ok(blobs)
}

/// One row of `checkpoint_blobs`.
fn blob_of(row: &Row, ns: &str) -> Result<BlobRow, Error> {
    Ok(BlobRow {
        ns: Arc::from(ns),
        channel: unname(column(row, "channel")?),
        version: version(column(row, "version")?)?,
        base: column::<Option<&str>>(row, "base_version")?
            .map(version)
            .transpose()?,
        chain_bytes: column(row, "chain_bytes")?,
        tag: Arc::from(column::<&str>(row, "type")?),
        bytes: column(row, "blob")?,
    })
}

statements!(BLOBS);
