//! Searching and counting threads.

mod orders;
mod shown;

use std::time::Duration;

pub use shown::Extent;
use shown::Shown;

use super::{
    Error, Result, Service,
    request::{Filter, Search, View},
};
use crate::{
    assistants::Tries,
    budget::Reservation,
    id::ThreadId,
    runs::{Listing, listing::BATCH_BYTES},
    tree::{
        Thread,
        load::StateMemory,
        read::head::Head,
        search::{self, Columns, Listed, Room, ThreadPage},
    },
    value::{Map, Value, contains_map},
};

/// How long the response to a change waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// What shows a thread whose values are too large.
const WITHOUT_VALUES: &str =
    ", or leave out `values` and `interrupts` with `select` of POST /threads/search";

/// Threads read at once when their values decide.
const BATCH: usize = 100;

/// Threads that were found, whose values are still to be read.
#[derive(Default)]
pub struct FoundThreads {
    found: Vec<Found>,
    /// What was read already of the rows, and of their heads, weighs.
    rows: u64,
    heads: u64,
    room: Room,
    /// What is read of the rows.
    columns: Columns,
}

struct Found {
    row: Listed,
    /// What is shown of its head.
    head: Shown,
}

impl Found {
    /// What it weighs with its head.
    fn weight(&self) -> u64 {
        self.row.weight + self.head.weight()
    }
}

impl FoundThreads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Drops those behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.found.truncate(len);
    }

    fn push(&mut self, mut found: Found) {
        // One that was left out when it was listed may have been read meanwhile.
        self.room.keep_within(std::slice::from_mut(&mut found.row));
        if found.row.is_whole {
            self.rows += found.row.weight;
        }
        self.heads += found.head.weight_in_memory();
        self.found.push(found);
    }

    /// The threads as clients see them, each of which is read when its turn comes.
    pub fn listing(self, service: Service) -> Listing<View, Error> {
        let largest = self.found.iter().map(Found::weight).max();
        let largest = largest.unwrap_or(0);
        Listing {
            largest,
            at_once: self.rows + self.heads + largest,
            items: Box::pin(async_stream::try_stream! {
                let tries = Tries::default();
                let columns = self.columns;
                for found in self.found {
                    // One that was deleted meanwhile is left out.
                    if let Some(view) = service.found_view(found, columns, &tries).await? {
                        yield view;
                    }
                }
            }),
        }
    }
}

impl Service {
    /// A page of threads. Of large values only the sizes are read.
    ///
    /// # Errors
    /// 503 `projection_behind`. Stored values that do not fit a graph, or the storage failed.
    pub async fn search(&self, search: &Search) -> Result<FoundThreads> {
        self.wait_projected(&search.filter.min_event).await?;
        let mut page = ThreadPage {
            filter: rows_of(&search.filter),
            sort_by: search.sort_by,
            ascending: search.ascending,
            limit: search.limit,
            offset: search.offset,
            after: None,
            columns: search.columns,
        };
        let mut found = FoundThreads {
            columns: search.columns,
            ..FoundThreads::default()
        };
        if search.filter.values.is_empty() {
            for row in self.rows(page).await? {
                let room = BATCH_BYTES.saturating_sub(found.heads);
                let extent = search.extent(&row.thread);
                found.push(self.measure_found(row, extent, room).await?);
            }
            return Ok(found);
        }
        let mut skip = search.offset;
        (page.limit, page.offset, page.columns.graph) = (BATCH, 0, true);
        let read = self.each_with_values(page, &search.filter.values, |one| {
            if skip > 0 {
                skip -= 1;
            } else {
                found.push(one);
            }
            (found.count() < search.limit).then(|| BATCH_BYTES.saturating_sub(found.heads))
        });
        self.within_limit(read).await?;
        Ok(found)
    }

    /// Calls `visit` with every thread of `page` and those behind it whose values contain `wanted`,
    /// until it returns none; else it returns how many bytes of further heads may stay in memory. No
    /// index knows values: all of them are read, one at a time.
    async fn each_with_values(
        &self,
        mut page: ThreadPage,
        wanted: &Map,
        mut visit: impl FnMut(Found) -> Option<u64> + Send,
    ) -> Result<()> {
        let tries = Tries::default();
        let mut room = BATCH_BYTES;
        let mut is_last = false;
        loop {
            let rows = self.rows(page.clone()).await?;
            match rows.last() {
                Some(last) if rows.len() == page.limit => page.advance(&last.thread),
                _ => is_last = true,
            }
            for row in rows {
                let Some(row) = self.whole(row, page.columns).await? else {
                    continue;
                };
                let found = self.measure_found(row, Extent::State, room).await?;
                let _memory = self.wait_for_head(&found).await;
                let values = self.found_head(&found, &tries).await?.values;
                if !values
                    .as_map()
                    .is_some_and(|values| contains_map(values, wanted))
                {
                    continue;
                }
                match visit(found) {
                    Some(left) => room = left,
                    None => return Ok(()),
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// How many threads there are.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub async fn count(&self, filter: &Filter) -> Result<u64> {
        self.wait_projected(&filter.min_event).await?;
        if filter.values.is_empty() {
            return Ok(self.shared.parts.tree.count(rows_of(filter)).await?);
        }
        let page = ThreadPage {
            filter: rows_of(filter),
            sort_by: search::SortBy::ThreadId,
            ascending: true,
            limit: BATCH,
            offset: 0,
            after: None,
            // Nothing else is looked at.
            columns: Columns {
                graph: true,
                ..Columns::NONE
            },
        };
        let mut count = 0;
        let read = self.each_with_values(page, &filter.values, |_| {
            count += 1;
            Some(BATCH_BYTES)
        });
        self.within_limit(read).await?;
        Ok(count)
    }

    /// A thread as clients see it, for the response to what has changed it: it waits for the memory of a large head,
    /// since it is not refused any more. Where others have the memory for long, such heads are read one by one beside
    /// it.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn written_view(&self, row: Thread) -> Result<View> {
        let shown = self.measure_shown(&row, Extent::State, BATCH_BYTES).await?;
        let weight = shown.weight();
        let memory = match &self.memory {
            Some(memory) => tokio::time::timeout(PATIENCE, memory.wait(weight)).await,
            None => Ok(None),
        };
        let _alone = match memory {
            Ok(_) => None,
            Err(_) => self.shared.states.beside().await,
        };
        let head = self.read_shown(&row, &shown, None).await?;
        Ok(view_of(row, head))
    }

    /// A thread as clients see it; a large head is read once there is memory for it.
    ///
    /// # Errors
    /// There is none, or the client may never have as much; or the storage failed.
    pub(super) async fn weighed_view(&self, row: Thread) -> Result<View> {
        let shown = self.measure_shown(&row, Extent::State, BATCH_BYTES).await?;
        let _memory = match &self.memory {
            Some(memory) => memory.obtain_state(shown.weight(), WITHOUT_VALUES).await?,
            None => None,
        };
        let head = self.read_shown(&row, &shown, None).await?;
        self.access.record_shown(row.id);
        Ok(view_of(row, head))
    }

    /// A thread with its open interrupts and without its values, for a request that changes it.
    ///
    /// # Errors
    /// No such thread, there is no memory for its head, or the storage failed.
    pub async fn to_change(&self, id: ThreadId) -> Result<View> {
        let row = self.row(id).await?;
        let shown = self.measure_shown(&row, Extent::State, BATCH_BYTES).await?;
        let memory = self.change_memory();
        memory.take(shown.weight())?;
        let head = self.read_shown(&row, &shown, None).await?;
        self.access.record_shown(row.id);
        Ok(view_of(
            row,
            Head {
                values: Value::Null,
                ..head
            },
        ))
    }

    /// A thread with what these columns have of its metadata and its config; `None` if it was deleted meanwhile.
    async fn whole(&self, listed: Listed, columns: Columns) -> Result<Option<Listed>> {
        if listed.is_whole {
            return Ok(Some(listed));
        }
        let page = ThreadPage {
            filter: search::ThreadFilter {
                ids: Some(vec![listed.thread.id]),
                ..search::ThreadFilter::default()
            },
            limit: 1,
            columns,
            ..ThreadPage::default()
        };
        let found = self.shared.parts.tree.search(page).await?.pop();
        // All else is as it was when the threads were listed, since the head is.
        Ok(found.map(|found| Listed {
            thread: Thread {
                metadata: found.thread.metadata,
                config: found.thread.config,
                ..listed.thread
            },
            is_whole: true,
            ..listed
        }))
    }

    /// A thread with the size of what is shown of it, and that itself if it fits into `room`.
    async fn measure_found(&self, row: Listed, extent: Extent, room: u64) -> Result<Found> {
        let head = self.measure_shown(&row.thread, extent, room).await?;
        Ok(Found { row, head })
    }

    /// The memory of a large head that is read to be compared, as soon as there is enough.
    async fn wait_for_head(&self, found: &Found) -> Option<Reservation> {
        match (&self.memory, found.head.weight_of_large()) {
            (Some(memory), Some(weight)) => memory.wait(weight).await,
            _ => None,
        }
    }

    async fn found_head(&self, found: &Found, tries: &Tries) -> Result<Head> {
        let thread = &found.row.thread;
        self.read_shown(thread, &found.head, Some(tries)).await
    }

    async fn found_view(
        &self,
        found: Found,
        columns: Columns,
        tries: &Tries,
    ) -> Result<Option<View>> {
        let Found { row, head } = found;
        let Some(row) = self.whole(row, columns).await? else {
            return Ok(None);
        };
        let found = Found { row, head };
        let head = self.found_head(&found, tries).await?;
        self.access.record_shown(found.row.thread.id);
        Ok(Some(view_of(found.row.thread, head)))
    }
}

fn view_of(row: Thread, head: Head) -> View {
    View {
        row,
        values: head.values,
        interrupts: head.interrupts,
    }
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
