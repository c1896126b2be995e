//! Searching and counting threads.

use super::{
    Error, Service,
    request::{Filter, Search, View},
};
use crate::{
    tree::{
        Thread,
        search::{self, ThreadPage},
    },
    value::{Map, Value, contains_map},
};

/// Threads read at once when their values decide.
const BATCH: usize = 100;

impl Service {
    /// A page of threads.
    ///
    /// # Errors
    /// 503 `projection_behind`. Stored values that do not fit a graph, or the storage failed.
    pub async fn search(&self, search: &Search) -> Result<Vec<View>, Error> {
        self.wait_projected(&search.filter.min_event).await?;
        let mut page = ThreadPage {
            filter: rows_of(&search.filter),
            sort_by: search.sort_by,
            ascending: search.ascending,
            limit: search.limit,
            offset: search.offset,
        };
        let tree = &self.shared.parts.tree;
        let mut views = Vec::new();
        if search.filter.values.is_empty() {
            for row in tree.search(page).await? {
                views.push(match search.with_values {
                    true => self.view(row).await?,
                    false => View {
                        row,
                        values: Value::Null,
                        interrupts: Map::new(),
                    },
                });
            }
            return Ok(views);
        }
        // No index knows values: threads are read until the page is full.
        let mut skip = search.offset;
        (page.limit, page.offset) = (BATCH, 0);
        loop {
            let rows = tree.search(page.clone()).await?;
            let last = rows.len() < BATCH;
            for row in rows {
                let view = self.view(row).await?;
                if !has(&view, &search.filter.values) {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                views.push(view);
                if views.len() == search.limit {
                    return Ok(views);
                }
            }
            if last {
                return Ok(views);
            }
            page.offset += BATCH;
        }
    }

    /// How many threads there are.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        self.wait_projected(&filter.min_event).await?;
        if filter.values.is_empty() {
            return Ok(self.shared.parts.tree.count(rows_of(filter)).await?);
        }
        let search = Search {
            filter: filter.clone(),
            limit: usize::MAX,
            offset: 0,
            sort_by: search::SortBy::ThreadId,
            ascending: true,
            with_values: true,
        };
        Ok(self.search(&search).await?.len() as u64)
    }

    /// A thread as clients see it.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn view(&self, row: Thread) -> Result<View, Error> {
        let head = self.shared.head_of(&row).await?;
        Ok(View {
            row,
            values: head.values,
            interrupts: head.interrupts,
        })
    }
}

fn has(view: &View, wanted: &Map) -> bool {
    view.values
        .as_map()
        .is_some_and(|values| contains_map(values, wanted))
}

/// The part of a filter that rows alone decide.
fn rows_of(filter: &Filter) -> search::ThreadFilter {
    search::ThreadFilter {
        ids: filter.ids.clone(),
        metadata: filter.metadata.clone(),
        status: filter.status,
        mode: filter.mode,
        principal: filter.principal.clone(),
    }
}
