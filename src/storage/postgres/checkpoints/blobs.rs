//! Reading channel values: full values, and the deltas that build on them.

use std::{borrow::Cow, sync::Arc};

use tokio_postgres::Row;

use crate::{
    checkpoint::{BlobRow, Error, Version},
    id::TreeId,
    storage::postgres::{
        columns::{all, column, name, unname, version},
        connection::{Object, Result},
    },
};

/// Values by channel and version, each row of their chains once.
const BLOBS: &str = "
WITH RECURSIVE chain AS (
  SELECT b.* FROM unnest($3::text[], $4::text[]) v(channel, version)
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = v.channel COLLATE \"C\" AND b.version = v.version COLLATE \"C\" LIMIT 1) b
  UNION
  SELECT b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT k.channel, k.version, k.base_version, x.chain_bytes, x.type, x.blob
  FROM chain k CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1
   AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.version LIMIT 1) x";

/// Values by channel and version, with what they build on.
pub(crate) async fn blobs(
    db: &Object,
    tree: TreeId,
    ns: &str,
    wanted: &[(Arc<str>, Version)],
) -> Result<Vec<BlobRow>> {
    let (channels, versions): (Vec<Cow<'_, str>>, Vec<String>) = wanted
        .iter()
        .map(|(channel, version)| (name(channel), version.to_string()))
        .unzip();
    all(
        db,
        BLOBS,
        &[&tree.0, &name(ns), &channels, &versions],
        |row| blob_of(row, ns),
    )
    .await
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
