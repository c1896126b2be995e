//! Threads of a list, of which metadata and configs are read together only while they are small.

use crate::{
    checkpoint::codec,
    tree::{Thread, load::AT_ONCE},
    value::Map,
};

/// A thread of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The thread.
    pub thread: Thread,
    /// What its metadata and its config weigh.
    pub weight: u64,
    /// Whether these are there. Else they are empty: what those before it in the list have weighs so much
    /// that they are read when their turn comes.
    pub is_whole: bool,
}

/// How many bytes of JSON these are at the most.
pub const ROOM: u64 = WEIGHT / codec::JSON_TEXT;

/// What these weigh.
const WEIGHT: u64 = 8 * AT_ONCE;

/// What metadata and configs of the threads of a list may weigh that are read at once.
#[derive(Debug)]
pub struct Room(u64);

impl Default for Room {
    fn default() -> Self {
        Self(WEIGHT)
    }
}

impl Room {
    /// What texts of JSON weigh that have so many bytes, and whether there was room for them.
    pub fn take(&mut self, bytes: usize) -> (u64, bool) {
        let weight = codec::JSON_TEXT.saturating_mul(bytes as u64);
        (weight, self.admit(weight))
    }

    /// Leaves out what there is no room for.
    pub fn keep_within(&mut self, threads: &mut [Listed]) {
        for listed in threads {
            if listed.is_whole && !self.admit(listed.weight) {
                (listed.thread.metadata, listed.thread.config) = (Map::new(), Map::new());
                listed.is_whole = false;
            }
        }
    }

    fn admit(&mut self, weight: u64) -> bool {
        let left = self.0.checked_sub(weight);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{BranchId, ThreadId, TreeId},
        time::Timestamp,
        tree::Outcome,
    };

    fn listed(weight: u64) -> Listed {
        let id = ThreadId::mint();
        let thread = Thread {
            id,
            tree: TreeId::of_root(id),
            metadata: Map::from([("a", 1.into())]),
            config: Map::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            state_updated_at: Timestamp(0),
            active_branch: BranchId::mint(),
            head: None,
            head_depth: -1,
            epoch: 0,
            outcome: Outcome::Idle,
            error: None,
            busy: false,
        };
        Listed {
            thread,
            weight,
            is_whole: true,
        }
    }

    #[test]
    fn what_does_not_fit_is_read_later() {
        let mut room = Room::default();
        assert_eq!(room.take(1000), (12_000, true));
        let much = usize::try_from(AT_ONCE).unwrap();
        assert_eq!(room.take(much), (12 * AT_ONCE, false));
        assert_eq!(room.take(1), (12, true), "small ones still fit");
    }

    #[test]
    fn what_is_left_out_is_empty_and_known_to_be() {
        let mut threads = [listed(7 * AT_ONCE), listed(AT_ONCE), listed(1)];
        Room::default().keep_within(&mut threads);
        let whole = threads.each_ref().map(|one| one.is_whole);
        assert_eq!(whole, [true, true, false]);
        let has_metadata = threads
            .each_ref()
            .map(|one| !one.thread.metadata.is_empty());
        assert_eq!(has_metadata, whole);
        assert_eq!(threads[2].weight, 1, "it still counts for its turn");
    }
}
