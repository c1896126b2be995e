//! Reading channel values: full values, and the deltas that build on them.

use std::{collections::HashSet, sync::Arc};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{MAX_WALK, page::LINK};
use crate::{
    checkpoint::{BlobRow, Blobs, CheckpointRow, Error, Result, Version, frame},
    id::TreeId,
};

/// The blobs that a checkpoint names, with what they build on.
pub(super) fn values_of(
    db: &Connection,
    tree: TreeId,
    row: &CheckpointRow,
) -> Result<Vec<BlobRow>> {
    let versions = frame::versions_of(&row.blob_versions)?;
    let mut chains = Chains::new(db, tree, &row.ns)?;
    for (channel, version) in versions {
        chains.follow(&channel, version.to_string())?;
    }
    Ok(chains.found)
}

/// Values by channel and version, without what they build on, or what they weigh.
pub(crate) fn blobs(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    wanted: &[(Arc<str>, Version)],
    most: u64,
) -> Result<Blobs> {
    let mut link = db.prepare_cached(LINK)?;
    let mut weight = 0_u64;
    for (channel, version) in wanted {
        let key = params![tree, ns, channel, version.to_string()];
        let one: Option<i64> = link.query_row(key, |row| row.get(1)).optional()?;
        weight = weight.saturating_add(one.unwrap_or(0).unsigned_abs());
    }
    if weight > most {
        return Ok(Blobs::Weight(weight));
    }
    let mut chains = Chains::new(db, tree, ns)?;
    for (channel, version) in wanted {
        chains.add(channel, version.to_string())?;
    }
    Ok(Blobs::Rows(chains.found))
}

/// Values by channel and version, with what they build on.
pub(super) fn blobs_with_bases(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    wanted: &[(Arc<str>, Version)],
) -> Result<Vec<BlobRow>> {
    let mut chains = Chains::new(db, tree, ns)?;
    for (channel, version) in wanted {
        chains.follow(channel, version.to_string())?;
    }
    Ok(chains.found)
}

struct Chains<'a> {
    statement: CachedStatement<'a>,
    tree: TreeId,
    ns: &'a Arc<str>,
    found: Vec<BlobRow>,
    visited: HashSet<(Arc<str>, String)>,
}

impl<'a> Chains<'a> {
    fn new(db: &'a Connection, tree: TreeId, ns: &'a Arc<str>) -> Result<Self> {
        Ok(Self {
            statement: db.prepare_cached(
                "SELECT base_version, chain_bytes, type, blob FROM checkpoint_blobs \
                 WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4",
            )?,
            tree,
            ns,
            found: Vec::new(),
            visited: HashSet::new(),
        })
    }

    /// Adds a value and, while it is a delta, what it builds on. A version without a row has its
    /// value in the envelope; a base without a row is damage.
    fn follow(&mut self, channel: &Arc<str>, version: String) -> Result<()> {
        let mut next = Some(version);
        let mut is_base = false;
        for _ in 0..MAX_WALK {
            let Some(version) = next.take() else {
                return Ok(());
            };
            let key = (Arc::clone(channel), version);
            if self.visited.contains(&key) {
                return Ok(());
            }
            let Some(base) = self.add(channel, key.1.clone())? else {
                if is_base {
                    return Err(Error::Corrupt(format!(
                        "version {} of channel `{channel}` is missing, a later one builds on it",
                        key.1
                    )));
                }
                return Ok(());
            };
            self.visited.insert(key);
            next = base;
            is_base = true;
        }
        Err(Error::Corrupt(format!(
            "the deltas of channel `{channel}` have no end"
        )))
    }

    /// Adds one row if there is one, and returns the version that it builds on.
    fn add(&mut self, channel: &Arc<str>, version: String) -> Result<Option<Option<String>>> {
        let found = self
            .statement
            .query_row(params![self.tree, self.ns, channel, version], |row| {
                let base: Option<String> = row.get(0)?;
                let bytes = row.get_ref(3)?.as_blob()?.to_vec();
                Ok((base, row.get(1)?, row.get(2)?, bytes))
            })
            .optional()?;
        let Some((base, chain_bytes, tag, bytes)) = found else {
            return Ok(None);
        };
        self.found.push(BlobRow {
            ns: Arc::clone(self.ns),
            channel: Arc::clone(channel),
            version: version_of(&version)?,
            base: base.as_deref().map(version_of).transpose()?,
            chain_bytes,
            tag,
            bytes,
        });
        Ok(Some(base))
    }
}

pub(super) fn version_of(text: &str) -> Result<Version> {
    text.parse()
        .map_err(|why: crate::checkpoint::BadVersion| Error::Corrupt(why.to_string()))
}
