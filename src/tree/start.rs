//! Where a run starts: its base checkpoint, and the branch it writes to.

use std::{collections::HashMap, sync::Arc};

use super::{index::Indexer, load::keep_own_writes};
use crate::{
    checkpoint::{Saver, Slot, frame::Decoded},
    engine::Start,
    id::{CheckpointId, RunId},
};

/// The start of a run that holds `slot` and addresses `address`, or the head without one. `base`
/// is that checkpoint. Off the head the run writes to a new branch, made by its first write.
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
        continues: None,
        again: false,
        floor: slot.head,
    }
}

/// For a run that answers at an interrupted checkpoint which its thread has moved past: the branch
/// it makes takes over the questions, so that they stay open where they are and can be answered
/// again should the run stop before its first checkpoint.
pub fn copy_open_interrupts(start: &mut Start) {
    const QUESTION: &str = "__interrupt__";
    let (Some(open), Some(base)) = (&mut start.open, &start.base) else {
        return;
    };
    let question = base
        .writes
        .iter()
        .find(|(_, write)| &*write.channel == QUESTION);
    let Some((owner, _)) = question else { return };
    if *owner != open.source.branch {
        let checkpoint = &base.checkpoint;
        if checkpoint.branch != *owner || checkpoint.thread != open.source.thread {
            return;
        }
        open.writes_of = Some(*owner);
    }
    open.copy_writes = true;
}
