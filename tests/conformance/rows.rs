//! Rows that tests write past the server.

use std::time::Duration;

use backstitch::{
    checkpoint::{CheckpointRow, Commit, NodeRow, Slot, Source, Version},
    id::{AssistantId, CheckpointId, NodeId, RunId, ThreadId, WorkerId},
    runs::{NewRun, Strategy},
    time::Timestamp,
    tree::{IfExists, NewThread, members::Access},
    value::{Map, Value},
};

/// A thread without metadata.
pub fn new_thread(id: ThreadId) -> NewThread {
    NewThread {
        id,
        metadata: Map::new(),
        owner: "local".into(),
        if_exists: IfExists::Raise,
        ttl: None,
    }
}

/// A run that starts at once when its slot is free.
pub fn new_run(thread: ThreadId) -> NewRun {
    NewRun {
        id: RunId::mint(),
        thread,
        create_thread: None,
        assistant: AssistantId::of_graph("agent"),
        metadata: Map::new(),
        kwargs: Value::Null,
        address: None,
        branch: None,
        strategy: Strategy::Enqueue,
        after: Duration::ZERO,
        temporary: false,
        claim: Some(WorkerId::mint()),
        own_metadata: None,
        thread_metadata: Map::new(),
        inherits_user: false,
        thread_config: Map::new(),
        max_queued: 100,
        access: Access::unrestricted(),
        unchanged_since: None,
    }
}

/// A commit of an empty checkpoint in the root namespace.
pub fn superstep(slot: &Slot, parent: Option<CheckpointId>, step: i64) -> Commit {
    Commit {
        slot: *slot,
        open: None,
        checkpoint: CheckpointRow {
            ns: "".into(),
            id: CheckpointId::mint(step, parent),
            parent,
            root: None,
            depth: 0,
            thread: slot.thread,
            branch: slot.branch,
            run: None,
            source: Source::Loop,
            step,
            last_node: None,
            event_number: 0,
            envelope: b"any bytes".into(),
            blob_versions: "{}".into(),
            metadata: "{}".into(),
            created_at: Timestamp::now(),
            run_supersteps: 0,
        },
        blobs: Vec::new(),
        writes: Vec::new(),
        nodes: Vec::new(),
        events: Vec::new(),
    }
}

/// The version after `greatest`, with a random part of its own.
pub fn version_after(greatest: u64) -> Version {
    Version {
        counter: greatest + 1,
        salt: rand::random::<u32>() & 0x00ff_ffff,
    }
}

/// A message that is added, of no role.
pub fn added(message: &str, parent: Option<NodeId>, ordinal: i32) -> NodeRow {
    NodeRow {
        id: NodeId::mint(),
        parent,
        ordinal,
        kind: "add",
        message_id: message.into(),
        edit_of: None,
        seq: 0,
        role: None,
        event_number: None,
        event_offset: None,
    }
}
