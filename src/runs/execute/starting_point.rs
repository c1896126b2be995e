//! The starting point of a claimed run: loads the base checkpoint, unless the run before it on the branch has
//! left it in memory, and decides whether this attempt continues an earlier one.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    budget::{Budget, Reservation},
    checkpoint::{
        At, Query, Slot,
        frame::{self, Decoded},
    },
    engine::{Attempt, Start},
    id::CheckpointId,
    runs::{
        Error, Run, RunHandle, Service,
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
    /// The base checkpoint of a run, and the branch it will write to.
    pub(super) async fn starting_point(
        &self,
        run: &Run,
        slot: Slot,
        kwargs: &Kwargs,
        handle: &RunHandle,
    ) -> Result<(Start, Option<Reservation>), Error> {
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
        let mut memory = None;
        let mut base = match address.or(slot.head) {
            Some(id) => {
                let room = Room {
                    budget: self.shared.states.budget(),
                    payer: identity::principal(&kwargs.config),
                    cancel: &handle.cancel,
                };
                let known = if is_at_head {
                    self.shared.cache.claimed_head(slot)
                } else {
                    None
                };
                let (state, reserved) = match known {
                    Some(known) => ((*known).clone(), room.wait_for(&known).await),
                    None => self.load(slot, id, &room).await?,
                };
                memory = reserved;
                Some(state)
            }
            None => None,
        };
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
        Ok((start, memory))
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

    /// A checkpoint with its pending writes, and the memory of a large one, which is read once there
    /// is enough; its values come from the cache when they can.
    async fn load(
        &self,
        slot: Slot,
        id: CheckpointId,
        room: &Room<'_>,
    ) -> Result<(Decoded, Option<Reservation>), Error> {
        let saver = &self.shared.parts.saver;
        let ns = Arc::<str>::from("");
        let (mut decoded, mut reserved) = self.read(slot, id, Some(room)).await?;
        let page = std::slice::from_mut(&mut decoded);
        let references = References::of(saver, slot.tree, &ns, page).await?;
        let weight = references.weight();
        if weight <= BATCH_BYTES {
            references.resolve(page).await?;
        } else {
            // Runs that wait for more while they have some may wait for each other: all of it goes first.
            let before = reserved.take().map_or(0, |memory| memory.bytes() as u64);
            drop((references, decoded));
            reserved = room.wait(before / IN_MEMORY + weight).await;
            (decoded, _) = self.read(slot, id, None).await?;
            let page = std::slice::from_mut(&mut decoded);
            let references = References::of(saver, slot.tree, &ns, page).await?;
            references.resolve(page).await?;
        }
        if let Some(memory) = &mut reserved {
            // What it takes is known now, and mostly less: with what becomes of it about twice as much.
            let writes = decoded.writes.iter();
            let writes: usize = writes.map(|(_, write)| write.value.memory()).sum();
            let taken = 2 * (decoded.memory() + writes);
            memory.resize(taken.min(memory.bytes())).ok();
        }
        Ok((decoded, reserved))
    }

    /// A checkpoint without the values that its pending writes refer to; a large one waits in `room` for its memory,
    /// unless the caller has it.
    async fn read(
        &self,
        slot: Slot,
        id: CheckpointId,
        room: Option<&Room<'_>>,
    ) -> Result<(Decoded, Option<Reservation>), Error> {
        let saver = &self.shared.parts.saver;
        let ns = Arc::<str>::from("");
        let full = |values| Query {
            tree: slot.tree,
            thread: slot.thread,
            ns: ns.clone(),
            at: At::Id(id),
            values,
        };
        if let Some(cached) = self.shared.cache.get(slot.tree, id) {
            let reserved = match room {
                Some(room) => room.wait_for(&cached).await,
                None => None,
            };
            let stored = saver.load(full(false)).await?;
            let stored = stored.ok_or(Error::NoCheckpoint(id))?;
            return Ok((frame::with_writes(&cached, &stored)?, reserved));
        }
        let mut reserved = None;
        let decoded = match load::weighed(saver, slot.tree, &ns, id, BATCH_BYTES).await? {
            Weighed::Missing => None,
            Weighed::Read(rows) => load::decode_first(&rows)?,
            Weighed::Large(weight) => {
                if let Some(room) = room {
                    reserved = room.wait(weight).await;
                }
                let stored = saver.load(full(true)).await?;
                stored.map(|stored| frame::decode(&stored)).transpose()?
            }
        };
        Ok((decoded.ok_or(Error::NoCheckpoint(id))?, reserved))
    }
}

/// Where a run gets memory for its state from.
struct Room<'a> {
    budget: &'a Arc<Budget>,
    payer: Arc<str>,
    cancel: &'a CancellationToken,
}

impl Room<'_> {
    /// [`wait`](Self::wait) for a state that is in memory already; a small one takes none.
    async fn wait_for(&self, state: &Decoded) -> Option<Reservation> {
        let weight = state.memory() as u64 / IN_MEMORY;
        if weight > BATCH_BYTES {
            self.wait(weight).await
        } else {
            None
        }
    }

    /// Waits for the memory of a state that weighs so much; none for a run that is
    /// cancelled meanwhile, which the engine ends before it does anything.
    async fn wait(&self, weight: u64) -> Option<Reservation> {
        let bytes = usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
        tokio::select! {
            reservation = self.budget.wait(&self.payer, bytes) => Some(reservation),
            () = self.cancel.cancelled() => None,
        }
    }
}
