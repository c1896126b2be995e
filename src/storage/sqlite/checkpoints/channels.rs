//! Values of single channels of checkpoints of any trees.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    MAX_WALK,
    blobs::{blobs_with_bases, version_of},
    page::LINK,
};
use crate::{
    checkpoint::Result,
    tree::projection::{ChannelKey, ChannelLimits, ChannelRows, OneChannel},
};

const ENVELOPE: &str = "SELECT checkpoint, (SELECT value FROM json_each(blob_versions) WHERE key = ?3) \
     FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2";

/// What is stored of channels, in the order of the keys.
pub(crate) fn channels(
    db: &Connection,
    keys: &[ChannelKey],
    most: ChannelLimits,
) -> Result<Vec<ChannelRows>> {
    let mut find = db.prepare_cached(ENVELOPE)?;
    let mut sum = 0_u64;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let channel = &key.channel;
        let params = params![key.tree, key.checkpoint, channel];
        let row = find.query_row(params, |row| {
            let envelope = row.get_ref(0)?.as_bytes()?.to_vec();
            Ok((envelope, row.get::<_, Option<String>>(1)?))
        });
        let Some((envelope, version)) = row.optional()? else {
            found.push(ChannelRows::Missing);
            continue;
        };
        let of_chain = match &version {
            Some(version) => chain_weight(db, key, version)?,
            None => 0,
        };
        let weight = of_chain.saturating_add(envelope.len() as u64);
        if weight <= most.each {
            sum = sum.saturating_add(weight);
        }
        if weight > most.each || sum > most.all {
            found.push(ChannelRows::Weight(weight));
            continue;
        }
        let wanted = version.iter().map(|version| {
            let version = version_of(version)?;
            Ok((channel.clone(), version))
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let blobs = blobs_with_bases(db, key.tree, &"".into(), &wanted)?;
        found.push(ChannelRows::Read(OneChannel { envelope, blobs }));
    }
    Ok(found)
}

/// What a value weighs with all that it builds on.
fn chain_weight(db: &Connection, key: &ChannelKey, version: &str) -> Result<u64> {
    let mut link = db.prepare_cached(LINK)?;
    let (mut next, mut sum) = (Some(version.to_owned()), 0_u64);
    for _ in 0..MAX_WALK {
        let Some(version) = next else { break };
        let params = params![key.tree, "", key.channel, version];
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?));
        let found: Option<(Option<String>, i64)> = link.query_row(params, read).optional()?;
        let (base, weight) = found.unwrap_or_default();
        sum = sum.saturating_add(weight.unsigned_abs());
        next = base;
    }
    Ok(sum)
}
