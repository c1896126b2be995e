//! The checkpoints of a page of history: those that a thread wrote, those that a fork inherits, and
//! those of one path. Which ones there are, and how large they are, is known before any is read.

use super::{json, stored::StoredStates};
use crate::{
    checkpoint::{At, List, Page, PageScope, SizedCheckpoint, StoredRows},
    engine::run::CREATED_BY,
    id::{BranchId, CheckpointId, TreeId},
    runs::listing::BATCH_BYTES,
    threads::{Result, Service, request::History},
    tree::{Thread, resolve, store::rows::Point},
    value::{Map, Value, contains_map},
};

/// Checkpoints that are measured at once, and rows of a path read at once.
const PAGE: usize = 256;

/// A checkpoint of a page of history.
pub(super) struct Listed {
    pub id: CheckpointId,
    /// Bytes that are stored of it.
    pub weight: u64,
    /// The branch whose pending writes it shows; without one those that a record of all lineages
    /// shows.
    pub owner: Option<BranchId>,
}

impl Service {
    /// States to list, newest first.
    ///
    /// # Errors
    /// 404 for an address that is not visible in the thread, or the storage failed.
    pub(super) async fn history_page(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<StoredStates> {
        if page.at.tree_address.is_some() {
            let listed = self.history_of_path(thread, page).await?;
            return Ok(self.stored_states(thread, page, listed, None));
        }
        let inherits = thread.tree != TreeId::of_root(thread.id) && page.at.ns.is_empty();
        let (mut listed, rows) = self.own_history(thread, page, !inherits).await?;
        if inherits {
            // A fork shows what it inherits too.
            listed.extend(self.inherited_history(thread, page).await?);
            listed.sort_by_key(|listed| std::cmp::Reverse(listed.id));
            listed.truncate(page.limit);
        }
        Ok(self.stored_states(thread, page, listed, rows))
    }

    /// States to list that the thread wrote itself. With `alone`, a small page is read at once.
    async fn own_history(
        &self,
        thread: &Thread,
        page: &History,
        alone: bool,
    ) -> Result<(Vec<Listed>, Option<StoredRows>)> {
        let (stored_filter, mut implied) = match &page.metadata {
            Some(wanted) => split_filter(wanted),
            None => (None, Map::new()),
        };
        if let Some(id) = implied.remove("thread_id")
            && id != *thread.id.to_string()
        {
            return Ok((vec![], None));
        }
        let mut list = List {
            tree: thread.tree,
            thread: thread.id,
            ns: Some(page.at.ns.clone()),
            before: page.before,
            id: page.at.checkpoint,
            metadata: stored_filter,
            limit: PAGE,
        };
        if implied.is_empty() {
            list.limit = page.limit.min(PAGE);
        }
        let is_whole = alone && implied.is_empty() && page.limit <= PAGE;
        let scope = PageScope {
            most: if is_whole { BATCH_BYTES } else { 0 },
            metadata: !implied.is_empty(),
        };
        let saver = &self.shared.parts.saver;
        let mut found: Vec<Listed> = vec![];
        loop {
            let sizes = match saver.page(list.clone(), scope).await? {
                Page::Rows(rows) if is_whole => return Ok((listed_rows(&rows), Some(rows))),
                // Nothing is small enough for none.
                Page::Rows(_) => break,
                Page::Sizes(sizes) => sizes,
            };
            for row in &sizes {
                if implied.is_empty() || contains_map(&metadata_of(thread, row)?, &implied) {
                    found.push(Listed {
                        id: row.id,
                        weight: row.weight,
                        owner: None,
                    });
                }
            }
            match sizes.last() {
                Some(last) if sizes.len() == list.limit && found.len() < page.limit => {
                    list.before = Some(last.id);
                }
                _ => break,
            }
        }
        found.truncate(page.limit);
        Ok((found, None))
    }

    /// States to list that a fork inherits from its parents.
    async fn inherited_history(&self, thread: &Thread, page: &History) -> Result<Vec<Listed>> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread.id).await?;
        drop(reader);
        let Some(base) = row.fork_checkpoint else {
            return Ok(vec![]);
        };
        self.walk(thread, page, base, None).await
    }

    /// States of one path: each shows the writes of the branch that continued from it.
    async fn history_of_path(&self, thread: &Thread, page: &History) -> Result<Vec<Listed>> {
        let selection = self.select(thread, &page.at).await?;
        let start = match selection.at {
            Some(At::Id(id) | At::Subgraph { start: id, .. }) => id,
            _ => return Ok(vec![]),
        };
        let owner = selection.owner.unwrap_or(thread.active_branch);
        self.walk(thread, page, start, Some(owner)).await
    }

    /// A page of the path from `start` towards the root. With `owner`, the branch of `start`, writes
    /// are shown as they are on that path, else as in a record of all lineages.
    async fn walk(
        &self,
        thread: &Thread,
        page: &History,
        start: CheckpointId,
        mut owner: Option<BranchId>,
    ) -> Result<Vec<Listed>> {
        let mut found: Vec<Listed> = vec![];
        let mut next = Some(start);
        // Beside an address in the tree the checkpoint is a part of that.
        let only = page
            .at
            .checkpoint
            .filter(|_| page.at.tree_address.is_none());
        while let Some(from) = next.take() {
            let mut reader = self.shared.parts.tree.reader().await?;
            let points: Vec<Point> = reader.path(thread.tree, from, PAGE).await?;
            drop(reader);
            let mut candidates = Vec::with_capacity(points.len());
            for point in points {
                next = point.parent;
                let child = owner.is_some().then_some(point.branch);
                let own = std::mem::replace(&mut owner, child);
                let is_older = page.before.is_none_or(|before| point.id < before);
                if is_older && only.is_none_or(|id| point.id == id) {
                    candidates.push((point.id, own));
                }
            }
            self.measure(thread, page, &candidates, &mut found).await?;
            if found.len() >= page.limit {
                break;
            }
        }
        Ok(found)
    }

    /// Adds those of some checkpoints to a page that pass its filter, until it is full.
    async fn measure(
        &self,
        thread: &Thread,
        page: &History,
        candidates: &[(CheckpointId, Option<BranchId>)],
        found: &mut Vec<Listed>,
    ) -> Result<()> {
        let candidates = if page.metadata.is_some() {
            candidates
        } else {
            let left = page.limit.saturating_sub(found.len());
            candidates.get(..left).unwrap_or(candidates)
        };
        if candidates.is_empty() {
            return Ok(());
        }
        let ids = candidates.iter().map(|(id, _)| *id).collect();
        let scope = PageScope {
            most: 0,
            metadata: page.metadata.is_some(),
        };
        let saver = &self.shared.parts.saver;
        let sizes = saver.page_of(thread.tree, "".into(), ids, scope).await?;
        let Page::Sizes(sizes) = sizes else {
            return Ok(());
        };
        let mut owners = candidates.iter();
        for row in sizes {
            // Both are in one order, and some checkpoints may be gone.
            let owner = owners.find(|(id, _)| *id == row.id);
            if let Some(wanted) = &page.metadata
                && !contains_map(&metadata_of(thread, &row)?, wanted)
            {
                continue;
            }
            found.push(Listed {
                id: row.id,
                weight: row.weight,
                owner: owner.and_then(|(_, owner)| *owner),
            });
            if found.len() == page.limit {
                break;
            }
        }
        Ok(())
    }
}

/// The entries of a page that came whole.
fn listed_rows(rows: &StoredRows) -> Vec<Listed> {
    let rows = rows.rows.iter();
    rows.map(|(row, _)| Listed {
        id: row.id,
        weight: 0,
        owner: None,
    })
    .collect()
}

/// The metadata of a checkpoint as clients see it.
fn metadata_of(thread: &Thread, row: &SizedCheckpoint) -> Result<Map> {
    let stored = row.metadata.as_deref().unwrap_or("{}");
    let stored = Value::from_json_slice(stored.as_bytes()).map_err(|error| {
        crate::checkpoint::Error::Corrupt(format!("checkpoint {}: metadata: {error}", row.id))
    })?;
    let stored = stored.as_map().cloned().unwrap_or_default();
    Ok(json::metadata_of(
        thread.id, stored, row.run, row.source, row.step,
    ))
}

/// A filter of metadata as two: what checkpoints store (`None` for any), and what is implied for
/// those that store nothing else.
fn split_filter(filter: &Map) -> (Option<Map>, Map) {
    let is_implied = |key: &str, value: &Value| match key {
        "thread_id" | "checkpoint_ns" | "checkpoint_map" => true,
        "parents" => value.as_map().is_some_and(Map::is_empty),
        "created_by" => *value == *CREATED_BY,
        "run_attempt" => value.as_f64() == Some(1.0),
        _ => false,
    };
    let mut stored = filter.clone();
    stored.retain(|key, value| !is_implied(key, value));
    let mut implied = filter.clone();
    // Empty `parents` are implied for all of them.
    implied.retain(|key, value| is_implied(key, value) && &**key != "parents");
    (Some(stored).filter(|stored| !stored.is_empty()), implied)
}
