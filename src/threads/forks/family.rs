//! The family of a thread: the threads of its tree in pages, with the points at which they part.

use std::{collections::HashSet, sync::Arc};

use crate::{
    checkpoint::codec::JSON_TEXT,
    id::{CheckpointId, ThreadId, TreeId},
    runs::listing::{BATCH_BYTES, IN_MEMORY},
    threads::{Result, Service, messages::lookup::PageMemory},
    tree::{
        self, Read,
        fork::points::{self, ForkPoint},
        messages::content::MessageContents,
        projection::preview,
        store::rows::{ForkCursor, Relative, ThreadRow},
    },
    value::Value,
};

/// States that one page of a family may read for the beginnings of messages.
const PREVIEW_STATES: usize = 200;

/// Which part of a family.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Only what is behind this fork.
    pub after: Option<ForkCursor>,
    /// At most so many threads, and points.
    pub limit: usize,
    /// At most so many bytes of what clients put into the threads, and as many of points, unless one thread alone
    /// has more.
    pub bytes: usize,
}

/// A page of the family of a thread.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its tree.
    pub tree: TreeId,
    /// Oldest first: the first thread of the tree, then its forks.
    pub threads: Vec<Relative>,
    /// The points at which these threads part from others.
    pub points: Vec<ForkPoint>,
    /// The beginning of the first message of each way to go on, by point and way.
    pub previews: Vec<Vec<Option<Arc<str>>>>,
    /// Where the next page begins, if there is one.
    pub next: Option<ForkCursor>,
}

/// Threads of a page, as far as they fit.
struct Threads {
    rows: Vec<Relative>,
    next: Option<ForkCursor>,
}

impl Service {
    /// A part of the family of a thread. After many states that were read for them, messages have no previews.
    ///
    /// # Errors
    /// 404: no such thread. 409 `path_too_deep`. There is no memory for it, or the storage failed.
    pub async fn family(&self, id: ThreadId, part: Part) -> Result<Family> {
        let (mut reader, thread) = self.reader(id).await?;
        let mut memory = PageMemory::new(self.memory.clone());
        let mut threads = threads(&mut *reader, &thread, part, &mut memory).await?;
        let is_first = part.after.is_none();
        let mut points = points::of_threads(&mut *reader, &threads.rows, &thread, is_first).await?;
        // Where paths part depends on which threads there are, so that a page with too much of it begins anew with
        // fewer threads.
        while threads.rows.len() > 1 && bytes_of(&points) > part.bytes {
            threads.halve();
            points = points::of_threads(&mut *reader, &threads.rows, &thread, is_first).await?;
        }
        drop(reader);
        points.truncate(part.limit);
        let previews = self.point_previews(&thread, &points).await?;
        Ok(Family {
            tree: thread.tree,
            threads: threads.rows,
            points,
            previews,
            next: threads.next,
        })
    }

    async fn point_previews(
        &self,
        thread: &ThreadRow,
        points: &[ForkPoint],
    ) -> Result<Vec<Vec<Option<Arc<str>>>>> {
        let target = self.shared.message_graph(thread, None).ok();
        let mut read: HashSet<CheckpointId> = HashSet::new();
        let mut previews = Vec::with_capacity(points.len());
        for point in points {
            let mut shown = Vec::with_capacity(point.options.len());
            for option in &point.options {
                let (Some(node), Some(target)) = (&option.message, &target) else {
                    shown.push(None);
                    continue;
                };
                if read.len() == PREVIEW_STATES && !read.contains(&node.checkpoint) {
                    shown.push(None);
                    continue;
                }
                read.insert(node.checkpoint);
                let values = self.conversation_in(thread, target.channel.clone());
                shown.push(preview_text(&values, node.checkpoint, &node.message_id).await?);
            }
            previews.push(shown);
        }
        Ok(previews)
    }
}

impl Threads {
    /// Leaves the second half to the next page.
    fn halve(&mut self) {
        self.rows.truncate(self.rows.len().div_ceil(2));
        // The first thread of the tree is before all forks.
        let last = self.rows.last().filter(|last| last.row.parent.is_some());
        self.next = Some(last.map_or(ForkCursor::START, ForkCursor::of));
    }
}

/// The threads of a part of a tree, as many as have so many bytes; the others are not read.
async fn threads(
    read: &mut dyn Read,
    from: &ThreadRow,
    part: Part,
    memory: &mut PageMemory,
) -> Result<Threads> {
    let mut rows = Vec::new();
    if part.after.is_none() {
        rows.extend(points::root(read, from.tree).await?);
    }
    let left = part.bytes.saturating_sub(rows.iter().map(content).sum());
    let room = part.limit.saturating_sub(rows.len());
    let mut at = part.after.unwrap_or(ForkCursor::START);
    // One more shows whether there are more.
    let sizes = read.relative_sizes(from.tree, at, room + 1).await?;
    let of_page = &sizes[..room.min(sizes.len())];
    let least = usize::from(rows.is_empty());
    let count = first(of_page, left as u64).max(least).min(of_page.len());
    let next = |at| (sizes.len() > count).then_some(at);
    let mut unread = &sizes[..count];
    while !unread.is_empty() {
        // What is read at once of JSON weighs more than its text.
        let batch = first(unread, BATCH_BYTES / JSON_TEXT).max(1);
        let (now, later) = unread.split_at(batch);
        memory.begin(now.iter().sum::<u64>().saturating_mul(JSON_TEXT))?;
        let forks = read.relatives(from.tree, at, batch).await?;
        let Some(last) = forks.last() else {
            // The others were deleted meanwhile.
            memory.begin(0)?;
            return Ok(Threads { rows, next: None });
        };
        at = ForkCursor::of(last);
        let maps = forks.iter().flat_map(|fork| fork.row.metadata.values());
        memory.weight += maps.map(Value::memory).sum::<usize>() as u64 / IN_MEMORY;
        rows.extend(forks);
        unread = later;
    }
    memory.begin(0)?;
    Ok(Threads {
        rows,
        next: next(at),
    })
}

/// How many of the first sizes have so many bytes together.
fn first(sizes: &[u64], bytes: u64) -> usize {
    let mut left = bytes;
    let fits = |size: &&u64| {
        let rest = left.checked_sub(**size);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    sizes.iter().take_while(fits).count()
}

/// The bytes that clients put into a thread of a page.
fn content(relative: &Relative) -> usize {
    let row = &relative.row;
    let anchor = row.fork_anchor.as_ref().map_or(0, |anchor| anchor.len());
    Value::map(row.metadata.clone()).rough_size() + anchor
}

fn bytes_of(points: &[ForkPoint]) -> usize {
    points.iter().map(ForkPoint::bytes).sum()
}

/// The beginning of a message's text.
async fn preview_text(
    values: &MessageContents<'_>,
    at: CheckpointId,
    id: &str,
) -> Result<Option<Arc<str>>, tree::Error> {
    let messages = values.messages_if_small(at).await?;
    Ok(messages.and_then(|messages| messages.find(id).map(preview)))
}
