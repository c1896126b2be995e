//! Values that pending writes refer to: those that a task has appended are stored once, with the value they became a
//! part of.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    BlobRow, Blobs, Error, Saver, Version,
    frame::{Chains, Decoded},
};
use crate::{id::TreeId, value::Value};

/// What a state weighs at most that is read at once.
pub const AT_ONCE: u64 = 768 << 10;

/// What pending writes refer to that are stored as references to blobs: read if it is small, else measured.
pub struct References<'a> {
    saver: &'a Arc<dyn Saver>,
    tree: TreeId,
    ns: &'a Arc<str>,
    wanted: Vec<(Arc<str>, Version)>,
    found: Blobs,
}

impl<'a> References<'a> {
    /// Those of some checkpoints of one namespace.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn of(
        saver: &'a Arc<dyn Saver>,
        tree: TreeId,
        ns: &'a Arc<str>,
        page: &[Decoded],
    ) -> Result<Self, Error> {
        let named = |decoded: &Decoded| {
            let references = decoded.references.iter();
            let named = references.map(|(at, version)| {
                let channel = decoded.writes.get(*at).map(|(_, write)| &write.channel);
                (channel.cloned().unwrap_or_default(), *version)
            });
            named.collect::<Vec<_>>()
        };
        let wanted: HashSet<_> = page.iter().flat_map(named).collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let found = if wanted.is_empty() {
            Blobs::Rows(vec![])
        } else {
            saver
                .blobs(tree, ns.clone(), wanted.clone(), AT_ONCE)
                .await?
        };
        Ok(Self {
            saver,
            tree,
            ns,
            wanted,
            found,
        })
    }

    /// What they weigh.
    pub fn weight(&self) -> u64 {
        match &self.found {
            Blobs::Rows(rows) => rows.iter().map(BlobRow::weight).sum(),
            Blobs::Weight(weight) => *weight,
        }
    }

    /// Fills in the values of the checkpoints that they are of, each of which is decoded once.
    ///
    /// # Errors
    /// The storage failed, or a row cannot be read.
    pub async fn resolve(self, page: &mut [Decoded]) -> Result<(), Error> {
        let rows = match self.found {
            Blobs::Rows(rows) => rows,
            Blobs::Weight(_) => {
                let (ns, wanted) = (self.ns.clone(), self.wanted);
                match self.saver.blobs(self.tree, ns, wanted, u64::MAX).await? {
                    Blobs::Rows(rows) => rows,
                    // Nothing is larger than that.
                    Blobs::Weight(_) => vec![],
                }
            }
        };
        let chains = Chains::new(&rows);
        let mut values: HashMap<(Arc<str>, Version), Value> = HashMap::new();
        for decoded in page {
            for (at, version) in std::mem::take(&mut decoded.references) {
                let write = &mut decoded.writes[at].1;
                let key = (write.channel.clone(), version);
                write.value = match values.get(&key) {
                    Some(value) => value.clone(),
                    None => {
                        let items = chains.items(&write.channel, version);
                        let items = items.map_err(Error::Corrupt)?.unwrap_or_default();
                        values.insert(key, items.clone());
                        items
                    }
                };
            }
        }
        Ok(())
    }
}

/// Fills in the values of pending writes that are stored as references to blobs, whatever they weigh.
///
/// # Errors
/// The storage failed, or a row cannot be read.
pub async fn resolve_references(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    mut decoded: Decoded,
) -> Result<Decoded, Error> {
    let page = std::slice::from_mut(&mut decoded);
    let references = References::of(saver, tree, ns, page).await?;
    references.resolve(page).await?;
    Ok(decoded)
}
