//! The starting point of a claimed run: loads the base checkpoint, unless the run before it on the branch has
//! left it in memory, and decides whether this attempt continues an earlier one.

use std::sync::Arc;

use crate::{
    budget::Reservation,
    checkpoint::{
        At, Query, Slot,
        frame::{self, Decoded},
    },
    engine::{Attempt, Start, counted},
    id::CheckpointId,
    runs::{
        Error, Run, RunHandle, Service,
        execute::memory::Room,
        listing::{BATCH_BYTES, IN_MEMORY},
        request::{Kwargs, identity},
    },
    tree::{
        self,
        address::auto_name,
        load::{self, References, Weighed},
    },
};

impl Service {
    /// The base checkpoint of a run with the memory that it takes, and the branch it will write to.
    pub(super) async fn starting_point(
        &self,
        run: &Run,
        slot: Slot,
        kwargs: &Kwargs,
        handle: &RunHandle,
    ) -> Result<Start, Error> {
        // An earlier attempt has stored checkpoints, if the head is not where the run began.
        let moved = slot.head.is_some() && slot.head != run.base;
        let attempt = match run.attempt {
            ..=1 => Attempt::First,
            _ if moved => Attempt::FromOwnCheckpoint,
            _ => Attempt::FromBase,
        };
        let at_base = attempt != Attempt::FromOwnCheckpoint;
        let address = run.address.filter(|_| at_base);
        let is_at_head = address.is_none() || address == slot.head;
        let payer = identity::principal(&kwargs.config);
        let room = self.inner.memory.room(payer, &handle.cancel);
        let base = address.or(slot.head);
        let by_end = is_at_head && !kwargs.shows_parent();
        let (mut base, memory) = self.load(slot, base, by_end, &room).await?;
        if is_at_head {
            // Open interrupts of other branches at this checkpoint are not this one's.
            if let Some(base) = &mut base {
                base.writes.retain(|(branch, _)| *branch == slot.branch);
            }
        }
        let written_by = base.as_ref().and_then(|base| base.checkpoint.run);
        if !at_base && written_by != Some(run.id) {
            let detail = "the branch has moved on since the run was interrupted by a crash";
            return Err(Error::Invalid(detail.into()));
        }
        let saver = self.shared.parts.saver.clone();
        let mut start = tree::start::start(saver, slot, address, base, Some(run.id));
        start.attempt = attempt;
        start.memory = Some(memory);
        if at_base {
            start.inside = kwargs.inside();
        }
        if kwargs.resumes() {
            tree::start::copy_open_interrupts(&mut start);
        }
        if let Some(branching) = kwargs.branching {
            let name = self.branch_of(&mut start, branching.activate).await?;
            handle.publisher.name_branch(name);
            handle.publisher.start();
        }
        Ok(start)
    }

    /// The name of the branch that a run works on. A branch that the run will make is named here,
    /// so that the stream can have the name before the first write.
    async fn branch_of(&self, start: &mut Start, activate: bool) -> Result<Arc<str>, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let Some(open) = &mut start.open else {
            let branch = reader.branch(start.slot.tree, start.slot.branch).await?;
            return Ok(branch.ok_or(crate::checkpoint::Error::Fenced)?.name);
        };
        let source = open.source;
        let taken = reader.branches(source.tree, source.thread).await?;
        let from = taken.iter().find(|branch| branch.id == source.branch);
        let from = from.ok_or(crate::checkpoint::Error::Fenced)?;
        let name = auto_name(&from.name, taken.iter().map(|branch| &*branch.name));
        open.name = Some(name.clone());
        open.activate = activate;
        Ok(name)
    }

    /// A checkpoint with its pending writes, and the memory that it takes, for which this waits; its values come from
    /// the cache when they can, and `by_end` all of it if the run before ended there.
    async fn load(
        &self,
        slot: Slot,
        id: Option<CheckpointId>,
        by_end: bool,
        room: &Room<'_>,
    ) -> Result<(Option<Decoded>, Reservation), Error> {
        let mut memory = None;
        loop {
            let read = match id {
                Some(id) => self.read(slot, id, by_end, &mut memory, room).await?,
                None => Read::None,
            };
            let needed = match (read, memory.take()) {
                (Read::State(state), Some(memory)) => return Ok((Some(*state), memory)),
                (Read::None, Some(memory)) => return Ok((None, memory)),
                (Read::Needs(bytes), _) => bytes,
                (Read::State(_) | Read::None, None) => 0,
            };
            // Runs that wait for more while they have some may wait for each other: all of it goes first.
            memory = Some(room.wait(needed).await);
        }
    }

    /// Reads a checkpoint as far as there is memory for it.
    async fn read(
        &self,
        slot: Slot,
        id: CheckpointId,
        by_end: bool,
        memory: &mut Option<Reservation>,
        room: &Room<'_>,
    ) -> Result<Read, Error> {
        let cache = &self.shared.cache;
        if let Some(known) = cache.claimed_head(slot).filter(|_| by_end) {
            let needed = counted(known.memory());
            return Ok(if room.has(memory, needed) {
                Read::State(Box::new((*known).clone()))
            } else {
                Read::Needs(needed)
            });
        }
        let saver = &self.shared.parts.saver;
        let ns = Arc::<str>::from("");
        let full = |values| Query {
            tree: slot.tree,
            thread: slot.thread,
            ns: ns.clone(),
            at: At::Id(id),
            values,
        };
        let mut needed;
        let mut decoded = if let Some(cached) = cache.get(slot.tree, id) {
            needed = counted(cached.memory());
            if !room.has(memory, needed) {
                return Ok(Read::Needs(needed));
            }
            let stored = saver.load(full(false)).await?;
            let stored = stored.ok_or(Error::NoCheckpoint(id))?;
            frame::with_row(&cached, &stored)?
        } else {
            let weighed = load::weighed(saver, slot.tree, &ns, id, BATCH_BYTES).await?;
            needed = bytes_of(weighed.weight());
            if !room.has(memory, needed) {
                return Ok(Read::Needs(needed));
            }
            let decoded = match weighed {
                Weighed::Missing => None,
                Weighed::Read(rows) => load::decode_first(&rows)?,
                Weighed::Large(_) => {
                    let stored = saver.load(full(true)).await?;
                    stored.map(|stored| frame::decode(&stored)).transpose()?
                }
            };
            decoded.ok_or(Error::NoCheckpoint(id))?
        };
        let page = std::slice::from_mut(&mut decoded);
        let references = References::of(saver, slot.tree, &ns, page).await?;
        needed += bytes_of(references.weight());
        if !room.has(memory, needed) {
            return Ok(Read::Needs(needed));
        }
        references.resolve(page).await?;
        Ok(Read::State(Box::new(decoded)))
    }
}

/// What came of reading a checkpoint.
enum Read {
    State(Box<Decoded>),
    /// There is none.
    None,
    /// So many bytes of memory are needed first.
    Needs(usize),
}

/// What values of this weight take while they are read.
fn bytes_of(weight: u64) -> usize {
    usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX)
}
