//! The starting point of a claimed run: loads the base checkpoint, and decides whether this attempt
//! continues an earlier one.

use std::sync::Arc;

use super::{Error, Run, Service, request::Kwargs};
use crate::{
    checkpoint::{
        At, Query, Slot,
        frame::{self, Decoded},
    },
    engine::{Attempt, Start},
    id::CheckpointId,
    stream::Publisher,
    tree::{self, address::auto_name},
};

impl Service {
    /// The base checkpoint of a run, and the branch it will write to.
    pub(super) async fn starting_point(
        &self,
        run: &Run,
        slot: Slot,
        kwargs: &Kwargs,
        publisher: &Publisher,
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
        let mut base = match address.or(slot.head) {
            Some(id) => Some(self.load(run, slot, id).await?),
            None => None,
        };
        if address.is_none() || address == slot.head {
            // Open interrupts of other branches at this checkpoint are not this one's.
            if let Some(base) = &mut base {
                base.writes.retain(|(branch, _)| *branch == slot.branch);
            }
        }
        let made_by = base.as_ref().and_then(|base| base.checkpoint.run);
        if !at_base && made_by != Some(run.id) {
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
            publisher.name_branch(name);
            publisher.start();
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

    /// A checkpoint with its pending writes; its values come from the cache when they can.
    async fn load(&self, run: &Run, slot: Slot, id: CheckpointId) -> Result<Decoded, Error> {
        let cached = self.shared.cache.get(slot.tree, id);
        let stored = self
            .shared
            .parts
            .saver
            .load(Query {
                tree: slot.tree,
                thread: run.thread,
                ns: "".into(),
                at: At::Id(id),
                values: cached.is_none(),
            })
            .await?
            .ok_or(Error::NoCheckpoint(id))?;
        let decoded = match cached {
            Some(cached) => frame::with_writes(&cached, &stored)?,
            None => frame::decode(&stored)?,
        };
        let saver = &self.shared.parts.saver;
        Ok(tree::load::resolve_references(saver, slot.tree, &"".into(), decoded).await?)
    }
}
