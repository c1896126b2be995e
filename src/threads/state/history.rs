//! The checkpoints of a page of history: those that a thread wrote, those that a fork inherits, and
//! those of one path.

use super::json;
use crate::{
    checkpoint::{
        At, List,
        frame::{self, Decoded},
    },
    engine::run::CREATED_BY,
    id::{BranchId, CheckpointId, TreeId},
    threads::{Error, Service, request::History},
    tree::{
        Thread,
        load::{self, keep_first_writes, keep_own_writes},
        resolve,
        store::rows::Point,
    },
    value::{Map, Value, contains_map},
};

/// Rows of a path read at once.
const PAGE: usize = 256;

impl Service {
    /// States to list, newest first, with the pending writes that each shows.
    ///
    /// # Errors
    /// 404 for an address that is not visible in the thread, or the storage failed.
    pub(super) async fn history_page(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Vec<Decoded>, Error> {
        if page.at.tree_address.is_some() {
            return self.history_of_path(thread, page).await;
        }
        let mut found = self.own_history(thread, page).await?;
        if thread.tree != TreeId::of_root(thread.id) && page.at.ns.is_empty() {
            // A fork shows what it inherits too.
            found.extend(self.inherited_history(thread, page).await?);
            found.sort_by_key(|decoded| std::cmp::Reverse(decoded.checkpoint.id));
            found.truncate(page.limit);
        }
        Ok(found)
    }

    /// States to list that the thread wrote itself.
    async fn own_history(&self, thread: &Thread, page: &History) -> Result<Vec<Decoded>, Error> {
        let (stored_filter, mut implied) = match &page.metadata {
            Some(wanted) => split_filter(wanted),
            None => (None, Map::new()),
        };
        if let Some(id) = implied.remove("thread_id")
            && id != *thread.id.to_string()
        {
            return Ok(vec![]);
        }
        let mut list = List {
            tree: thread.tree,
            thread: thread.id,
            ns: Some(page.at.ns.clone()),
            before: page.before,
            id: page.at.checkpoint,
            metadata: stored_filter,
            limit: page.limit,
        };
        if !implied.is_empty() {
            list.limit = list.limit.max(PAGE);
        }
        let saver = &self.shared.parts.saver;
        let mut found: Vec<Decoded> = vec![];
        loop {
            let rows = saver.list(list.clone()).await?;
            for row in &rows {
                let decoded = frame::decode(row)?;
                if contains_map(&json::metadata(thread.id, &decoded.checkpoint), &implied) {
                    found.push(decoded);
                }
            }
            match rows.last() {
                Some(last) if rows.len() == list.limit && found.len() < page.limit => {
                    list.before = Some(last.row.id);
                }
                _ => break,
            }
        }
        found.truncate(page.limit);
        load::resolve_references_of_page(saver, thread.tree, &page.at.ns, &mut found).await?;
        for decoded in &mut found {
            retain_recorded_writes(thread, decoded);
        }
        Ok(found)
    }

    /// States to list that a fork inherits from its parents.
    async fn inherited_history(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Vec<Decoded>, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread.id).await?;
        drop(reader);
        let Some(base) = row.fork_checkpoint else {
            return Ok(vec![]);
        };
        self.walk(thread, page, base, None).await
    }

    /// States of one path: each shows the writes of the branch that continued from it.
    async fn history_of_path(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Vec<Decoded>, Error> {
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
    ) -> Result<Vec<Decoded>, Error> {
        let (mut found, mut owners) = (vec![], vec![]);
        let mut next = Some(start);
        // Beside an address in the tree the checkpoint is a part of that.
        let only = page
            .at
            .checkpoint
            .filter(|_| page.at.tree_address.is_none());
        let saver = &self.shared.parts.saver;
        let root = "".into();
        'path: while let Some(from) = next.take() {
            let mut reader = self.shared.parts.tree.reader().await?;
            let points: Vec<Point> = reader.path(thread.tree, from, PAGE).await?;
            drop(reader);
            for point in points {
                next = point.parent;
                let child = owner.is_some().then_some(point.branch);
                let own = std::mem::replace(&mut owner, child);
                if page.before.is_some_and(|before| point.id >= before)
                    || only.is_some_and(|id| point.id != id)
                {
                    continue;
                }
                let at = At::Id(point.id);
                let loaded = load::unresolved_checkpoint(saver, thread.tree, thread.id, &root, at);
                let Some(decoded) = loaded.await? else {
                    continue;
                };
                if let Some(wanted) = &page.metadata
                    && !contains_map(&json::metadata(thread.id, &decoded.checkpoint), wanted)
                {
                    continue;
                }
                found.push(decoded);
                owners.push(own);
                if found.len() == page.limit {
                    break 'path;
                }
            }
        }
        load::resolve_references_of_page(saver, thread.tree, &root, &mut found).await?;
        for (decoded, owner) in found.iter_mut().zip(owners) {
            match owner {
                Some(owner) => decoded.writes.retain(|(branch, _)| *branch == owner),
                None => retain_recorded_writes(thread, decoded),
            }
        }
        Ok(found)
    }
}

/// Retains the writes of a checkpoint that a record of all lineages shows.
fn retain_recorded_writes(thread: &Thread, decoded: &mut Decoded) {
    if thread.head == Some(decoded.checkpoint.id) {
        keep_own_writes(decoded, thread.active_branch);
    } else {
        keep_first_writes(decoded);
    }
}

/// A filter of metadata as two: what checkpoints store (`None` for any), and what is implied for
/// those that store nothing else.
fn split_filter(filter: &Map) -> (Option<Map>, Map) {
    let is_implied = |key: &str, value: &Value| match key {
        "thread_id" => true,
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
