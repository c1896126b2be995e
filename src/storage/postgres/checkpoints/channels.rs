//! Values of single channels of checkpoints of any trees, in one statement.

use std::borrow::Cow;

use tokio_postgres::Row;
use uuid::Uuid;

use super::load::envelope;
use crate::{
    checkpoint::{BlobRow, Error},
    storage::postgres::{
        columns::{Params, all, column, name, version},
        connection::{Object, Result},
    },
    tree::projection::{ChannelKey, ChannelLimits, ChannelRows, OneChannel},
};

/// The envelopes of checkpoints of the root graph, and of each the chain of blobs of one channel: of those that weigh
/// at most `$4`, the first ones that weigh at most `$5` together. Of the others it is said what they weigh. Each row has
/// one envelope or one blob.
const CHANNELS: &str = concat!(
    "
WITH RECURSIVE page AS MATERIALIZED (
  SELECT i.n, i.tree, i.channel, c.checkpoint, c.blob_versions ->> i.channel AS version
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY i(tree, id, channel, n) CROSS JOIN LATERAL (
    SELECT c.checkpoint, c.blob_versions FROM checkpoints c WHERE c.tree_id = i.tree AND c.checkpoint_ns = '' AND c.checkpoint_id = i.id LIMIT 1) c),
chain AS (
  SELECT p.n, p.tree, b.* FROM page p
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, ",
    weight!("b.type", "b.blob"),
    " AS weight FROM checkpoint_blobs b
     WHERE b.tree_id = p.tree AND b.checkpoint_ns = '' AND b.channel = p.channel AND b.version = p.version LIMIT 1) b
  UNION
  SELECT k.n, k.tree, b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, ",
    weight!("b.type", "b.blob"),
    " AS weight FROM checkpoint_blobs b
     WHERE b.tree_id = k.tree AND b.checkpoint_ns = '' AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b),
sized AS (
  SELECT p.n, octet_length(p.checkpoint) + COALESCE(k.weight, 0) AS weight
    FROM page p LEFT JOIN (SELECT k.n, sum(k.weight) AS weight FROM chain k GROUP BY k.n) k ON k.n = p.n),
fit AS MATERIALIZED (
  SELECT s.n, s.weight::bigint AS weight, s.weight <= $4::bigint
         AND sum(CASE WHEN s.weight <= $4::bigint THEN s.weight ELSE 0 END) OVER (ORDER BY s.n) <= $5::bigint AS whole FROM sized s)
SELECT f.n, f.weight, f.whole, CASE WHEN f.whole THEN p.checkpoint END AS bytes, NULL::text AS version, NULL::text AS base_version,
       NULL::int AS chain_bytes, NULL::text AS type FROM fit f JOIN page p ON p.n = f.n
UNION ALL
SELECT k.n, k.weight, true, x.blob, k.version, k.base_version, x.chain_bytes, x.type
  FROM fit f JOIN chain k ON k.n = f.n CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = k.tree
   AND b.checkpoint_ns = '' AND b.channel = k.channel AND b.version = k.version LIMIT 1) x WHERE f.whole"
);

/// What is stored of channels, in the order of the keys.
pub(crate) async fn channels(
    db: &Object,
    keys: &[ChannelKey],
    most: ChannelLimits,
) -> Result<Vec<ChannelRows>> {
    let trees: Vec<Uuid> = keys.iter().map(|key| key.tree.0).collect();
    let ids: Vec<Uuid> = keys.iter().map(|key| key.checkpoint.0).collect();
    let names: Vec<Cow<'_, str>> = keys.iter().map(|key| name(&key.channel)).collect();
    let [each, together] =
        [most.each, most.all].map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    let params: Params<'_, 5> = [&trees, &ids, &names, &each, &together];
    let rows = all(db, CHANNELS, &params, |row| part_of(row, keys)).await?;
    let mut found = vec![ChannelRows::Missing; keys.len()];
    let mut blobs = vec![];
    for (at, part) in rows {
        match part {
            Part::Of(rows) => found[at] = rows,
            Part::Blob(blob) => blobs.push((at, blob)),
        }
    }
    for (at, blob) in blobs {
        if let ChannelRows::Read(channel) = &mut found[at] {
            channel.blobs.push(blob);
        }
    }
    Ok(found)
}

/// What a row has.
enum Part {
    Of(ChannelRows),
    Blob(BlobRow),
}

/// A row and the index of its key.
fn part_of(row: &Row, keys: &[ChannelKey]) -> Result<(usize, Part), Error> {
    let n: i64 = column(row, "n")?;
    let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
    let key = keys.get(at);
    let key = key.ok_or_else(|| Error::Corrupt(format!("there is no key {n} of a channel")))?;
    let bytes: Option<Vec<u8>> = column(row, "bytes")?;
    let part = match (bytes, column::<Option<&str>>(row, "version")?) {
        (None, _) => {
            let weight: i64 = column(row, "weight")?;
            Part::Of(ChannelRows::Weight(weight.unsigned_abs()))
        }
        (Some(bytes), None) => Part::Of(ChannelRows::Read(OneChannel {
            envelope: envelope(bytes),
            blobs: vec![],
        })),
        (Some(bytes), Some(text)) => Part::Blob(BlobRow {
            ns: "".into(),
            channel: key.channel.clone(),
            version: version(text)?,
            base: column::<Option<&str>>(row, "base_version")?
                .map(version)
                .transpose()?,
            chain_bytes: column(row, "chain_bytes")?,
            tag: column::<&str>(row, "type")?.into(),
            bytes,
        }),
    };
    Ok((at, part))
}

statements!(CHANNELS);
