//! What of a thread a request looks at: by checkpoint as LangGraph's clients do, or by branch,
//! tag, message and event.

use std::sync::Arc;

use super::{
    Error, Service,
    request::{Address, threads::History},
    view,
};
use crate::{
    checkpoint::{
        At, List,
        frame::{self, Decoded},
    },
    engine::run::CREATED_BY,
    id::{BranchId, CheckpointId, TreeId},
    tree::{
        self, Thread,
        load::{self, keep_first_writes, keep_own_writes},
        resolve,
        store::rows::{Point, Position},
    },
    value::{Map, Value, contains_map},
};

/// Rows of a path read at once.
const PAGE: usize = 256;

/// What a request looks at.
pub(super) struct Look {
    /// Which checkpoint; `None` where nothing is.
    pub at: Option<At>,
    /// The branch whose pending writes count; by the rules of records without one.
    pub owner: Option<BranchId>,
    /// How a branch stands now, not a record of the past.
    pub live: bool,
}

impl Service {
    /// What `at` means in a thread.
    ///
    /// # Errors
    /// 404 for what the thread does not see, or the storage failed.
    pub(super) async fn look(&self, thread: &Thread, at: &Address) -> Result<Look, Error> {
        let Some(place) = &at.place else {
            return Ok(match (at.checkpoint, at.ns.is_empty()) {
                (Some(id), _) => Look {
                    at: Some(At::Id(id)),
                    owner: None,
                    live: false,
                },
                (None, true) => Look {
                    at: Some(At::ActiveHead),
                    owner: Some(thread.active_branch),
                    live: true,
                },
                (None, false) => Look {
                    at: thread.head.map(|start| At::Subgraph {
                        start,
                        branch: thread.active_branch,
                        before: None,
                    }),
                    owner: None,
                    live: true,
                },
            });
        };
        let mut reader = self.inner.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread.id).await?;
        let found = tree::resolve(&mut *reader, &row, place).await?;
        let named = found.named.filter(|_| place.position == Position::At);
        let id = found.base.id();
        let head_of_active = (id == thread.head).then_some(thread.active_branch);
        let owner = named.as_ref().map(|branch| branch.id).or(head_of_active);
        let wanted = id.map(|id| match at.ns.is_empty() {
            true => At::Id(id),
            false => At::Subgraph {
                start: id,
                branch: owner.unwrap_or(thread.active_branch),
                before: None,
            },
        });
        Ok(Look {
            at: wanted,
            owner,
            live: named.is_some(),
        })
    }

    /// The checkpoint that is looked at, with the pending writes that count; `None` also for one
    /// that the thread does not see.
    pub(super) async fn seen(
        &self,
        thread: &Thread,
        ns: &Arc<str>,
        look: &Look,
    ) -> Result<Option<Decoded>, Error> {
        let Some(at) = look.at.clone() else {
            return Ok(None);
        };
        let saver = &self.inner.parts.saver;
        let found = load::checkpoint(saver, thread.tree, thread.id, ns, at).await?;
        let Some(mut decoded) = found else {
            return Ok(None);
        };
        let checkpoint = &decoded.checkpoint;
        if look.owner.is_none() && checkpoint.thread != thread.id {
            let root = checkpoint.root.unwrap_or(checkpoint.id);
            let mut reader = self.inner.parts.tree.reader().await?;
            if !reader.visible(thread.tree, thread.id, root).await? {
                return Ok(None);
            }
        }
        match look.owner.filter(|_| ns.is_empty()) {
            Some(owner) => decoded.writes.retain(|(branch, _)| *branch == owner),
            None => keep_own_writes(&mut decoded, look.owner.unwrap_or(thread.active_branch)),
        }
        Ok(Some(decoded))
    }

    /// States to list, newest first, with the pending writes that each shows.
    ///
    /// # Errors
    /// 404 for what the thread does not see, or the storage failed.
    pub(super) async fn listed(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Vec<Decoded>, Error> {
        if page.at.place.is_some() {
            return self.path(thread, page).await;
        }
        let mut found = self.stored(thread, page).await?;
        if thread.tree != TreeId::of_root(thread.id) && page.at.ns.is_empty() {
            // A fork shows what it inherits too.
            found.extend(self.inherited(thread, page).await?);
            found.sort_by_key(|decoded| std::cmp::Reverse(decoded.checkpoint.id));
            found.truncate(page.limit);
        }
        Ok(found)
    }

    /// States to list that the thread wrote itself.
    async fn stored(&self, thread: &Thread, page: &History) -> Result<Vec<Decoded>, Error> {
        let (noted, mut usual) = match &page.metadata {
            Some(wanted) => taken_apart(wanted),
            None => (None, Map::new()),
        };
        if let Some(id) = usual.remove("thread_id")
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
            metadata: noted,
            limit: page.limit,
        };
        if !usual.is_empty() {
            list.limit = list.limit.max(PAGE);
        }
        let saver = &self.inner.parts.saver;
        let mut found: Vec<Decoded> = vec![];
        loop {
            let rows = saver.list(list.clone()).await?;
            for stored in &rows {
                let decoded = frame::decode(stored)?;
                if contains_map(&view::metadata(thread.id, &decoded.checkpoint), &usual) {
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
            record(thread, decoded);
        }
        Ok(found)
    }

    async fn inherited(&self, thread: &Thread, page: &History) -> Result<Vec<Decoded>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread.id).await?;
        drop(reader);
        let Some(base) = row.fork_checkpoint else {
            return Ok(vec![]);
        };
        self.walk(thread, page, base, None).await
    }

    /// One path: of every checkpoint the writes of the branch that went on from it.
    async fn path(&self, thread: &Thread, page: &History) -> Result<Vec<Decoded>, Error> {
        let look = self.look(thread, &page.at).await?;
        let start = match look.at {
            Some(At::Id(id) | At::Subgraph { start: id, .. }) => id,
            _ => return Ok(vec![]),
        };
        let owner = look.owner.unwrap_or(thread.active_branch);
        self.walk(thread, page, start, Some(owner)).await
    }

    /// A page of the path from `start` towards the root. With `owner`, the branch that holds
    /// `start`, writes are shown as they are on that path, else as in a record of all lineages.
    async fn walk(
        &self,
        thread: &Thread,
        page: &History,
        start: CheckpointId,
        mut owner: Option<BranchId>,
    ) -> Result<Vec<Decoded>, Error> {
        let (mut found, mut owners) = (vec![], vec![]);
        let mut next = Some(start);
        // Beside a place the checkpoint is a part of the address.
        let only = page.at.checkpoint.filter(|_| page.at.place.is_none());
        let saver = &self.inner.parts.saver;
        let root = "".into();
        'path: while let Some(from) = next.take() {
            let mut reader = self.inner.parts.tree.reader().await?;
            let points: Vec<Point> = reader.path(thread.tree, from, PAGE).await?;
            drop(reader);
            for point in points {
                next = point.parent;
                let child = owner.is_some().then_some(point.branch);
                let whose = std::mem::replace(&mut owner, child);
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
                    && !contains_map(&view::metadata(thread.id, &decoded.checkpoint), wanted)
                {
                    continue;
                }
                found.push(decoded);
                owners.push(whose);
                if found.len() == page.limit {
                    break 'path;
                }
            }
        }
        load::resolve_references_of_page(saver, thread.tree, &root, &mut found).await?;
        for (decoded, owner) in found.iter_mut().zip(owners) {
            match owner {
                Some(owner) => decoded.writes.retain(|(branch, _)| *branch == owner),
                None => record(thread, decoded),
            }
        }
        Ok(found)
    }
}

/// Keeps of the writes of a checkpoint what a record of all lineages shows.
fn record(thread: &Thread, decoded: &mut Decoded) {
    match thread.head == Some(decoded.checkpoint.id) {
        true => keep_own_writes(decoded, thread.active_branch),
        false => keep_first_writes(decoded),
    }
}

/// A filter of metadata, taken apart into what checkpoints note (`None` for any) and what they say
/// without noting it.
fn taken_apart(wanted: &Map) -> (Option<Map>, Map) {
    let (mut noted, mut usual) = (wanted.clone(), Map::new());
    let is_usual = |key: &str, value: &Value| match key {
        "thread_id" => true,
        "parents" => value.as_map().is_some_and(Map::is_empty),
        "created_by" => *value == *CREATED_BY,
        "run_attempt" => value.as_f64() == Some(1.0),
        _ => false,
    };
    noted.retain(|key, value| !is_usual(key, value));
    for (key, value) in wanted.iter().filter(|(key, value)| is_usual(key, value)) {
        // What all of them say need not be looked for.
        let by_all = &**key == "parents";
        if !by_all {
            usual.insert(key.clone(), value.clone());
        }
    }
    (Some(noted).filter(|noted| !noted.is_empty()), usual)
}
