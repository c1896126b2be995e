//! Composes the engine's `Start` from a slot and a base checkpoint. Nothing here does I/O.

use std::{collections::HashMap, sync::Arc};

use super::{index::Indexer, load::keep_own_writes};
use crate::{
    checkpoint::{Saver, Slot, frame::Decoded},
    engine::{Attempt, Start, reserved::INTERRUPT},
    id::{CheckpointId, RunId},
};

/// The start of a run that has `slot` and addresses the checkpoint `address`, or the head without
/// one. `base` is that checkpoint. Off the head, the run's first write creates a new branch.
pub fn start(
    saver: Arc<dyn Saver>,
    slot: Slot,
    address: Option<CheckpointId>,
    mut base: Option<Decoded>,
    run: Option<RunId>,
) -> Start {
    if let Some(base) = &mut base {
        keep_own_writes(base, slot.branch);
    }
    let superseded = address.is_some() && address != slot.head;
    let (mut target, mut open) = (slot, None);
    if superseded {
        let depth = base.as_ref().map_or(-1, |base| base.checkpoint.depth);
        let (new, on) = slot.branch_off(address, depth, "checkpoint", run);
        open = Some(new);
        target = on;
    }
    Start {
        saver,
        slot: target,
        open,
        base,
        index: Some(Arc::new(Indexer::default())),
        addressed: address.is_some(),
        superseded,
        inside: HashMap::new(),
        attempt: Attempt::First,
        floor: slot.head,
        memory: None,
    }
}

/// Makes the new branch of a run copy the open interrupts of its base, if that is a checkpoint that
/// the thread has moved past. The run resumes the copy: the originals stay open, and the copy can be
/// resumed anew if the run stops before its first checkpoint.
pub fn copy_open_interrupts(start: &mut Start) {
    let (Some(open), Some(base)) = (&mut start.open, &start.base) else {
        return;
    };
    let interrupt = base
        .writes
        .iter()
        .find(|(_, write)| &*write.channel == INTERRUPT);
    let Some((owner, _)) = interrupt else { return };
    if *owner != open.source.branch {
        let checkpoint = &base.checkpoint;
        if checkpoint.branch != *owner || checkpoint.thread != open.source.thread {
            return;
        }
        open.writes_of = Some(*owner);
    }
    open.copy_writes = true;
}
