//! Pages of threads in orders that no index has, made of pages in orders that one has.

use std::collections::HashSet;

use crate::{
    threads::{Result, Service},
    tree::search::{Listed, Room, SortBy, ThreadPage, ThreadStatus},
};

/// Threads that are read at once, and how often, before all of them are sorted by the storage.
const ROWS: usize = 200;
const READS: usize = 10;

impl Service {
    /// A page of threads.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn rows(&self, page: ThreadPage) -> Result<Vec<Listed>> {
        if page.filter.ids.is_none() {
            if page.sort_by == SortBy::Status && page.filter.status.is_none() {
                return self.by_status(page).await;
            }
            if page.sort_by == SortBy::StateUpdatedAt
                && let Some(found) = self.by_time_of_state(&page).await?
            {
                return Ok(found);
            }
        }
        Ok(self.shared.parts.tree.search(page).await?)
    }

    /// The threads of one status after those of the other, each by id.
    async fn by_status(&self, page: ThreadPage) -> Result<Vec<Listed>> {
        let mut statuses: Vec<ThreadStatus> =
            ThreadStatus::ALL.iter().map(|(_, one)| *one).collect();
        statuses.sort_by_key(|status| status.as_str());
        if !page.ascending {
            statuses.reverse();
        }
        let wanted = page.limit.saturating_add(page.offset);
        if wanted > ROWS * READS {
            return Ok(self.shared.parts.tree.search(page).await?);
        }
        let (mut found, mut known, mut room) = (vec![], HashSet::new(), Room::default());
        for status in statuses {
            let mut one = ThreadPage {
                sort_by: SortBy::ThreadId,
                limit: wanted,
                offset: 0,
                ..page.clone()
            };
            one.filter.status = Some(status);
            let mut rows = self.shared.parts.tree.search(one).await?;
            // The status of a thread may have changed between two reads.
            rows.retain(|listed| known.insert(listed.thread.id));
            room.keep_within(&mut rows);
            found.append(&mut rows);
            if found.len() >= wanted {
                break;
            }
        }
        found.truncate(wanted);
        Ok(found.into_iter().skip(page.offset).collect())
    }

    /// The threads whose states changed last, or first. No state changed after its thread did, and none before
    /// its thread was made: threads are read in that order until none behind them can come before those that were
    /// found; `None` where that takes too many.
    async fn by_time_of_state(&self, page: &ThreadPage) -> Result<Option<Vec<Listed>>> {
        let wanted = page.limit.saturating_add(page.offset);
        if wanted > ROWS * READS {
            return Ok(None);
        }
        let bound = if page.ascending {
            SortBy::CreatedAt
        } else {
            SortBy::UpdatedAt
        };
        let mut next = ThreadPage {
            sort_by: bound,
            limit: wanted.max(ROWS),
            offset: 0,
            ..page.clone()
        };
        let (mut found, mut known): (Vec<Listed>, _) = (vec![], HashSet::new());
        for _ in 0..READS {
            let mut rows = self.shared.parts.tree.search(next.clone()).await?;
            let is_last = rows.len() < next.limit;
            let reached = rows.last().map(|last| match bound {
                SortBy::CreatedAt => last.thread.created_at,
                _ => last.thread.updated_at,
            });
            if let Some(last) = rows.last() {
                next.advance(&last.thread);
            }
            rows.retain(|listed| known.insert(listed.thread.id));
            found.append(&mut rows);
            found.sort_by_key(|listed| (listed.thread.state_updated_at, listed.thread.id));
            if !page.ascending {
                found.reverse();
            }
            found.truncate(wanted);
            Room::default().keep_within(&mut found);
            let is_full = found.len() == wanted;
            let worst = found.last().map(|last| last.thread.state_updated_at);
            let is_past = if page.ascending {
                reached > worst
            } else {
                reached < worst
            };
            if is_last || is_full && is_past {
                return Ok(Some(found.into_iter().skip(page.offset).collect()));
            }
        }
        Ok(None)
    }
}
