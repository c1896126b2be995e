//! Pages of checkpoints: whole when they are small, else their sizes. Measuring reads no values:
//! SQLite knows the length of one without its overflow pages.

use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::{
    MAX_WALK,
    blobs::{blobs_with_bases, version_of},
    list::each,
    load::{BY_ID, metadata_of, read_checkpoint, writes_at},
};
use crate::{
    checkpoint::{
        CheckpointRow, List, Page, PageScope, Result, SizedCheckpoint, Source, StoredRows, Version,
        chain_sizes::ChainSizes, codec::JSON_TEXT, frame,
    },
    fail_point,
    id::{CheckpointId, TreeId},
    storage::sqlite::columns::{id, id_if, parsed},
};

/// The checkpoints that a list selects, newest first.
pub(crate) fn page(db: &Connection, list: &List, scope: PageScope) -> Result<Page> {
    let ns = list.ns.clone().unwrap_or_default();
    let list = List {
        ns: Some(ns.clone()),
        ..list.clone()
    };
    let mut pager = Pager::new(db, list.tree, &ns, scope)?;
    each(db, &list, |row| pager.add(row))?;
    pager.finish()
}

/// Checkpoints by id.
pub(crate) fn page_of(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    ids: &[CheckpointId],
    scope: PageScope,
) -> Result<Page> {
    let mut pager = Pager::new(db, tree, ns, scope)?;
    let mut find = db.prepare_cached(BY_ID)?;
    for id in ids {
        let mut rows = find.query(params![tree, ns, id])?;
        if let Some(row) = rows.next()? {
            pager.add(row)?;
        }
    }
    pager.finish()
}

pub(super) const LINK: &str = concat!(
    "SELECT base_version, ",
    weight!("type", "blob"),
    " FROM checkpoint_blobs \
    WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4"
);

// Reads the tables, not the view of both: through the view SQLite would read each result to measure it.
pub(super) const WRITTEN: &str = concat!(
    "SELECT (SELECT coalesce(sum(",
    weight!("type", "writes"),
    "), 0) \
    FROM checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3) + \
    (SELECT coalesce(sum(",
    weight!("type", "result"),
    "), 0) \
    FROM (SELECT substr(result_header, 1, instr(result_header, ' ') - 1) AS type, result FROM checkpoints \
          WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 AND result_task IS NOT NULL))"
);

struct Pager<'a> {
    db: &'a Connection,
    link: CachedStatement<'a>,
    written: CachedStatement<'a>,
    tree: TreeId,
    ns: &'a Arc<str>,
    scope: PageScope,
    sizes: Vec<SizedCheckpoint>,
    /// The rows, as long as all of them may come whole.
    rows: Vec<CheckpointRow>,
    chains: ChainSizes,
    /// Bytes of rows and pending writes.
    others: u64,
    /// The values that the rows name.
    versions: Vec<(Arc<str>, Version)>,
}

impl<'a> Pager<'a> {
    fn new(db: &'a Connection, tree: TreeId, ns: &'a Arc<str>, scope: PageScope) -> Result<Self> {
        Ok(Self {
            db,
            link: db.prepare_cached(LINK)?,
            written: db.prepare_cached(WRITTEN)?,
            tree,
            ns,
            scope,
            sizes: Vec::new(),
            rows: Vec::new(),
            chains: ChainSizes::default(),
            others: 0,
            versions: Vec::new(),
        })
    }

    fn is_whole(&self) -> bool {
        self.others.saturating_add(self.chains.distinct()) <= self.scope.most
    }

    /// Adds a checkpoint, out of the columns of `select!`.
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        let checkpoint: CheckpointId = id(row, 1)?;
        let envelope = row.get_ref(12)?.as_bytes().map_err(rusqlite::Error::from)?;
        let versions = row.get_ref(16)?.as_str().map_err(rusqlite::Error::from)?;
        let metadata = row.get_ref(13)?.as_str().map_err(rusqlite::Error::from)?;
        let written: i64 = self
            .written
            .query_row(params![self.tree, self.ns, checkpoint], |row| row.get(0))?;
        let mut weight = (envelope.len() + versions.len()) as u64 + written.unsigned_abs();
        weight += JSON_TEXT * metadata.len() as u64;
        self.others += weight;
        for (channel, version) in frame::versions_of(versions)? {
            self.measure(&channel, version)?;
            weight += self.chains.sum(&channel, version);
            if self.is_whole() {
                self.versions.push((channel, version));
            }
        }
        if self.is_whole() {
            self.rows.push(read_checkpoint(row)?);
        } else {
            (self.rows, self.versions) = (Vec::new(), Vec::new());
        }
        self.sizes.push(SizedCheckpoint {
            id: checkpoint,
            run: id_if(row, 7)?,
            source: parsed::<Source>(row, 8)?,
            step: row.get(9)?,
            metadata: if self.scope.metadata {
                Some(metadata_of(row)?)
            } else {
                None
            },
            weight,
        });
        Ok(())
    }

    /// Adds the rows of a value's chain that were not met before.
    fn measure(&mut self, channel: &Arc<str>, version: Version) -> Result<()> {
        let mut next = Some(version);
        for _ in 0..MAX_WALK {
            let Some(version) = next else { return Ok(()) };
            if self.chains.base(channel, version).is_some() {
                return Ok(());
            }
            let text = version.to_string();
            let key = params![self.tree, self.ns, channel, text];
            let found = self.link.query_row(key, |row| {
                Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?))
            });
            let Some((base, weight)) = found.optional()? else {
                return Ok(());
            };
            let base = base.as_deref().map(version_of).transpose()?;
            let weight = weight.unsigned_abs();
            self.chains.add(channel.clone(), version, base, weight);
            next = base;
        }
        Ok(())
    }

    fn finish(self) -> Result<Page> {
        fail_point!("checkpoints::page");
        if !self.is_whole() {
            return Ok(Page::Sizes(self.sizes));
        }
        let rows = self.rows.into_iter().map(|row| {
            let writes = writes_at(self.db, self.tree, &row.ns, row.id)?;
            Ok((row, writes))
        });
        Ok(Page::Rows(StoredRows {
            rows: rows.collect::<Result<_>>()?,
            blobs: blobs_with_bases(self.db, self.tree, self.ns, &self.versions)?,
        }))
    }
}
