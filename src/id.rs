//! Identifiers. Threads and runs are UUIDv7, checkpoints UUIDv6, tasks and interrupts hashes.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text).map(Self)
            }
        }
        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }
    )*};
}

ids! {
    /// All checkpoints of a thread and its forks; equals the root thread's id.
    TreeId;
    /// One conversation.
    ThreadId;
    /// A named head pointer in a thread.
    BranchId;
    /// One execution of an assistant on a thread.
    RunId;
    /// An immutable state. Its text is greater than its parent's.
    CheckpointId;
    /// One node execution in a superstep, derived from the checkpoint it runs from.
    TaskId;
    /// A graph with its configuration.
    AssistantId;
    /// A server process that executes runs.
    WorkerId;
    /// A schedule by which runs are created.
    CronId;
    /// A version of a message in the message index.
    NodeId;
    /// A business event.
    EventId;
}

impl TreeId {
    /// The tree of a root thread.
    pub fn of_root(thread: ThreadId) -> Self {
        Self(thread.0)
    }
}

macro_rules! minted_v7 {
    ($($name:ident)*) => {$(
        impl $name {
            /// A new id, ordered by creation time.
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }
        }
    )*};
}
minted_v7!(ThreadId BranchId RunId WorkerId NodeId AssistantId CronId);

impl RunId {
    /// The id of the run at this place, from 0, in a list that begins with this one.
    pub(crate) fn following(self, at: usize) -> Self {
        match at {
            0 => self,
            at => Self(Uuid::new_v5(&self.0, at.to_string().as_bytes())),
        }
    }

    /// The id of the `nth` run, from 1, that resumes the task which begins with this one: of two that resume one
    /// state only one can be created.
    pub(crate) fn resuming(self, nth: usize) -> Self {
        Self(Uuid::new_v5(&self.0, format!("resume {nth}").as_bytes()))
    }
}

impl ThreadId {
    /// The id of the thread that exists only for a run.
    pub(crate) fn of_run(run: RunId) -> Self {
        Self(Uuid::new_v5(&run.0, b"thread"))
    }
}

impl RunId {
    /// The id of the run that a cron creates at a due time, in microseconds since the Unix epoch:
    /// whoever creates it twice finds it there already.
    pub(crate) fn of_cron(cron: CronId, due: i64) -> Self {
        let mut hash = Xxh3::new();
        hash.update(cron.0.as_bytes());
        hash.update(&due.to_be_bytes());
        let mut random = [0; 10];
        random.copy_from_slice(&hash.digest128().to_be_bytes()[..10]);
        let millis = u64::try_from(due / 1000).unwrap_or(0);
        let id = uuid::Builder::from_unix_timestamp_millis(millis, &random);
        Self(id.into_uuid())
    }
}

impl EventId {
    /// The id of a thread's event (UUIDv5 of its number under the thread's id): numbers are never
    /// used twice, so the id need not be stored.
    pub fn of(thread: ThreadId, number: i64) -> Self {
        Self(Uuid::new_v5(&thread.0, &number.to_be_bytes()))
    }
}

impl AssistantId {
    /// The id of the assistant that the server creates for each registered graph
    /// (UUIDv5 of the graph's name, as LangGraph's server computes it).
    pub fn of_graph(graph: &str) -> Self {
        const NAMESPACE: Uuid = uuid::uuid!("6ba7b821-9dad-11d1-80b4-00c04fd430c8");
        Self(Uuid::new_v5(&NAMESPACE, graph.as_bytes()))
    }
}

/// 100 ns ticks of the last checkpoint id of this process, so that its ids rise.
static LAST_TICKS: AtomicU64 = AtomicU64::new(0);

impl CheckpointId {
    /// A new id for a checkpoint of superstep `step` whose text is greater than all of `above`
    /// (parent, active head), whatever the clocks say.
    ///
    /// The step is written into the clock-seq field for people who read ids; it is never read back.
    pub fn mint(step: i64, above: impl IntoIterator<Item = Self>) -> Self {
        let floor = above.into_iter().map(|id| id.ticks()).max().unwrap_or(0);
        let now = jiff::Timestamp::now().as_nanosecond() / 100;
        let now = u64::try_from(now).unwrap_or(0) + GREGORIAN_OFFSET;
        let ticks = LAST_TICKS
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
                Some(now.max(last + 1).max(floor + 1))
            })
            .map_or(now, |last| now.max(last + 1).max(floor + 1));
        let clock_seq = (step.rem_euclid(1 << 14)) as u64;
        let node: u64 = rand::random::<u64>() & 0xffff_ffff_ffff;
        // RFC 9562 layout of version 6: 48 high bits of time, version, 12 low bits of time.
        let high = ((ticks >> 12) << 16) | 0x6000 | (ticks & 0x0fff);
        let low = (0b10 << 62) | (clock_seq << 48) | node;
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The time field in 100 ns ticks since 1582; zero for ids that are not version 6.
    fn ticks(self) -> u64 {
        let (high, _) = self.0.as_u64_pair();
        if self.0.get_version_num() != 6 {
            return 0;
        }
        ((high >> 16) << 12) | (high & 0x0fff)
    }
}

/// 100 ns ticks between 1582-10-15 and the Unix epoch.
const GREGORIAN_OFFSET: u64 = 0x01B2_1DD2_1381_4000;

impl TaskId {
    /// The task id of writes by the client itself (commands, state updates).
    pub const NULL: Self = Self(Uuid::nil());
}

/// The id of a task: the hash of a checkpoint id and the parts that name it (LangGraph's rule, XXH3-128).
pub fn task_id<'a>(checkpoint: CheckpointId, parts: impl IntoIterator<Item = &'a str>) -> TaskId {
    let mut hash = Xxh3::new();
    hash.update(checkpoint.0.as_bytes());
    for part in parts {
        hash.update(part.as_bytes());
    }
    TaskId(Uuid::from_u128(hash.digest128()))
}

/// The task id of the `index`-th update of a state update on `checkpoint`.
pub fn update_task_id(checkpoint: CheckpointId, index: usize) -> TaskId {
    let name = match index {
        0 => "__interrupt__".to_owned(),
        n => format!("__interrupt__:{n}"),
    };
    TaskId(Uuid::new_v5(&checkpoint.0, name.as_bytes()))
}

/// The task id of a state update that acts as input.
pub fn input_task_id(checkpoint: CheckpointId) -> TaskId {
    TaskId(Uuid::new_v5(&checkpoint.0, b"__input__"))
}

/// The id of the `slot`-th interrupt of the task that runs in namespace `ns` (32 hex digits).
pub fn interrupt_id(ns: &str, slot: usize) -> String {
    let hash = match slot {
        0 => xxh3_128(ns.as_bytes()),
        n => xxh3_128(format!("{ns}|{n}").as_bytes()),
    };
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_ids_rise_above_ids_from_the_future() {
        let ahead = CheckpointId::mint(0, []);
        let (high, low) = ahead.0.as_u64_pair();
        let ahead = CheckpointId(Uuid::from_u64_pair(high + (1 << 40), low));
        let next = CheckpointId::mint(7, [ahead]);
        assert!(next.to_string() > ahead.to_string());
        assert_eq!(next.0.get_version_num(), 6);
    }

    #[test]
    fn the_step_shows_in_the_clock_seq_group() {
        assert_eq!(&CheckpointId::mint(-1, []).to_string()[19..23], "bfff");
        assert_eq!(&CheckpointId::mint(10, []).to_string()[19..23], "800a");
    }

    #[test]
    fn task_ids_match_langgraphs() {
        let cases: [(&str, &[&str], &str); 3] = [
            (
                "1f1e52cd-e998-68fe-bfff-bc9763962222",
                &["__start__", "0", "__start__", "__pregel_pull", "__start__"],
                "05bce49e-23f0-5c75-8e60-b081bda24cb7",
            ),
            (
                "1f1e52cd-e99f-6dbc-8001-73ab74eaa6ef",
                &["human", "2", "human", "__pregel_pull", "branch:to:human"],
                "274752fa-1148-a03f-7d27-a703e092dbb7",
            ),
            (
                "1f1e52cd-e9de-6777-8001-a326832d7650",
                &["work", "2", "work", "__pregel_push", "1"],
                "abfa20ef-7936-9396-b230-515651c8755b",
            ),
        ];
        for (checkpoint, parts, expected) in cases {
            let checkpoint = checkpoint.parse().unwrap();
            let id = task_id(checkpoint, parts.iter().copied());
            assert_eq!(id.to_string(), expected);
        }
    }

    #[test]
    fn interrupt_and_update_ids_match_langgraphs() {
        let ns = "human:274752fa-1148-a03f-7d27-a703e092dbb7";
        assert_eq!(interrupt_id(ns, 0), "92f0c28c24081e55a29e8a656eb2d5d7");
        let checkpoint = "1f1e52cd-e998-68fe-bfff-bc9763962222".parse().unwrap();
        assert_eq!(
            update_task_id(checkpoint, 0).to_string(),
            "3946c568-9474-5eb5-9a95-a4f7309f6f60"
        );
        assert_eq!(
            input_task_id(checkpoint).to_string(),
            "def3d4bf-7f5d-52f8-976b-55577c820316"
        );
    }

    #[test]
    fn system_assistants_have_the_ids_clients_know() {
        assert_eq!(
            AssistantId::of_graph("agent").to_string(),
            "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
        );
    }
}
