-- Threads, branches, checkpoints, message index, events and runs.
-- Ids are BLOB(16) compared bytewise, times INTEGER microseconds since 1970, JSON is TEXT,
-- values of users are BLOB in the codec that the row's `type` names.
-- Tables that are written per superstep have no foreign keys: the fence on `branches` refuses
-- writers of what was deleted, and the checks would cost every superstep.

CREATE TABLE trees (
  tree_id BLOB PRIMARY KEY,
  owner TEXT NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tree_members (
  tree_id BLOB NOT NULL REFERENCES trees ON DELETE CASCADE,
  principal TEXT NOT NULL,
  level TEXT NOT NULL CHECK (level IN ('owner', 'manager', 'writer', 'reader')),
  PRIMARY KEY (tree_id, principal)
) WITHOUT ROWID;
CREATE INDEX tree_members_principal ON tree_members (principal);

CREATE TABLE threads (
  thread_id BLOB PRIMARY KEY,
  tree_id BLOB NOT NULL,
  parent_thread_id BLOB,                    -- direct fork parent, NULL = root
  fork_checkpoint_id BLOB,                  -- last inherited checkpoint; NULL = root or blank slate
  fork_checkpoint_depth INTEGER NOT NULL DEFAULT -1,
  fork_anchor TEXT,                         -- as the client sent it
  fork_position TEXT CHECK (fork_position IN ('at', 'before')),
  fork_event_number INTEGER NOT NULL DEFAULT 0,
  fork_level INTEGER NOT NULL DEFAULT 0,    -- number of forks above
  active_branch_id BLOB,
  last_event_number INTEGER NOT NULL DEFAULT 0,
  metadata TEXT NOT NULL DEFAULT '{}',
  config TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,              -- without head moves: those are in branches.updated_at
  deleted_at INTEGER                        -- tombstone
) WITHOUT ROWID;
CREATE INDEX threads_tree ON threads (tree_id);
CREATE INDEX threads_parent ON threads (parent_thread_id) WHERE parent_thread_id IS NOT NULL;

CREATE TABLE branches (
  tree_id BLOB NOT NULL,
  branch_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  name TEXT NOT NULL,
  head_checkpoint_id BLOB,
  head_depth INTEGER NOT NULL DEFAULT -1,
  writer_epoch INTEGER NOT NULL DEFAULT 0,  -- the fence
  version INTEGER NOT NULL DEFAULT 0,       -- raised by every head move
  outcome TEXT NOT NULL DEFAULT 'idle' CHECK (outcome IN ('idle', 'interrupted', 'error')),
  error TEXT,                               -- of the last run, {"error", "message"}
  origin TEXT NOT NULL CHECK (origin IN
    ('root', 'fork', 'rewind', 'btw', 'restore', 'message', 'edit', 'checkpoint', 'update')),
  source_branch_id BLOB,
  creation_id BLOB,                         -- set where writes were copied: above the copied subgraph rows
  run_id BLOB,                              -- the run that created it
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, branch_id),
  UNIQUE (tree_id, thread_id, name)
) WITHOUT ROWID;

CREATE TABLE tags (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  name TEXT NOT NULL,
  checkpoint_id BLOB NOT NULL,
  depth INTEGER NOT NULL,
  message_id TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, thread_id, name)
) WITHOUT ROWID;

-- Insert-only.
CREATE TABLE checkpoints (
  tree_id BLOB NOT NULL,
  checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id BLOB NOT NULL,
  parent_checkpoint_id BLOB,
  depth INTEGER NOT NULL,
  thread_id BLOB NOT NULL,                  -- who wrote it
  branch_id BLOB NOT NULL,
  root_checkpoint_id BLOB,                  -- subgraph rows: the root checkpoint they ran under
  last_node_id BLOB,                        -- newest 'add' message node on the path, carried forward
  event_number INTEGER NOT NULL DEFAULT 0,  -- newest event on the path, carried forward
  run_id BLOB,
  source TEXT NOT NULL,
  step INTEGER NOT NULL,
  checkpoint TEXT NOT NULL,                 -- envelope: versions and the scalars among the values
  metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, checkpoint_ns, checkpoint_id)
) WITHOUT ROWID;
CREATE INDEX checkpoints_thread ON checkpoints (tree_id, thread_id, checkpoint_ns, checkpoint_id DESC);
CREATE INDEX checkpoints_sub ON checkpoints (tree_id, root_checkpoint_id, checkpoint_ns)
  WHERE checkpoint_ns <> '';

-- Insert-only.
CREATE TABLE checkpoint_blobs (
  tree_id BLOB NOT NULL,
  checkpoint_ns TEXT NOT NULL DEFAULT '',
  channel TEXT NOT NULL,
  version TEXT NOT NULL,                    -- <counter>.<6 hex random>
  base_version TEXT,                        -- NULL = full value, else a delta on that version
  chain_bytes INTEGER NOT NULL DEFAULT 0,   -- delta bytes since the last full value
  type TEXT NOT NULL,
  blob BLOB NOT NULL,
  PRIMARY KEY (tree_id, checkpoint_ns, channel, version)
) WITHOUT ROWID;

-- One row per finished task (idx 0, all its output as a list, first writer wins) and one per task
-- and control channel (idx < 0, control-only batches upsert). Rows go only with their checkpoint.
CREATE TABLE checkpoint_writes (
  tree_id BLOB NOT NULL,
  checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id BLOB NOT NULL,
  branch_id BLOB NOT NULL,
  task_id BLOB NOT NULL,
  idx INTEGER NOT NULL CHECK (idx <= 0),
  task_path TEXT NOT NULL DEFAULT '',
  channel TEXT CHECK ((channel IS NULL) = (idx = 0)),
  type TEXT NOT NULL,
  writes BLOB NOT NULL,
  PRIMARY KEY (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx)
) WITHOUT ROWID;

-- References only: content is in the checkpoint's messages channel.
CREATE TABLE message_nodes (
  tree_id BLOB NOT NULL,
  node_id BLOB NOT NULL,
  parent_node_id BLOB,                      -- previous 'add' node on the path
  ordinal INTEGER NOT NULL,                 -- 1-based position in the chain of adds
  kind TEXT NOT NULL CHECK (kind IN ('add', 'edit', 'remove')),
  message_id TEXT NOT NULL,
  edit_of TEXT,                             -- id this one replaces
  checkpoint_id BLOB NOT NULL,              -- first checkpoint with it
  depth INTEGER NOT NULL,
  seq INTEGER NOT NULL,                     -- place in that checkpoint
  settled_checkpoint_id BLOB,               -- set at run end or interrupt, on the run's last message
  thread_id BLOB NOT NULL,
  branch_id BLOB NOT NULL,
  run_id BLOB,
  role TEXT,
  event_number INTEGER,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, node_id)
) WITHOUT ROWID;
CREATE INDEX message_nodes_message ON message_nodes (tree_id, message_id);
CREATE INDEX message_nodes_parent ON message_nodes (tree_id, parent_node_id) WHERE kind = 'add';

-- Business events, gapless per thread; token streams are elsewhere.
CREATE TABLE events (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  event_number INTEGER NOT NULL,
  event_id BLOB NOT NULL,
  event_type TEXT NOT NULL,
  payload TEXT NOT NULL,                    -- ids and small facts
  branch_id BLOB,
  checkpoint_id BLOB,
  message_id TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
) WITHOUT ROWID;

-- Open only inside the transaction of a deletion.
CREATE TABLE purge_switch (one INTEGER PRIMARY KEY CHECK (one = 1), open INTEGER NOT NULL);
INSERT INTO purge_switch VALUES (1, 0);
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are immutable'); END;
CREATE TRIGGER events_never_go BEFORE DELETE ON events
WHEN (SELECT open FROM purge_switch) = 0
BEGIN SELECT RAISE(ABORT, 'events are immutable'); END;

CREATE TABLE runs (
  seq INTEGER PRIMARY KEY,                  -- order of creation
  tree_id BLOB NOT NULL,
  run_id BLOB NOT NULL UNIQUE,
  thread_id BLOB NOT NULL,
  branch_id BLOB,                           -- NULL = floating
  assistant_id BLOB NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN
    ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
  strategy TEXT NOT NULL,
  temporary INTEGER NOT NULL DEFAULT 0,     -- the thread goes with the run
  address BLOB,                             -- the checkpoint it starts from, when that is not the head
  base_checkpoint_id BLOB,                  -- head of its branch when it was first claimed
  last_checkpoint_id BLOB,
  epoch INTEGER,
  worker_id BLOB,
  attempt INTEGER NOT NULL DEFAULT 0,
  run_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  idempotency_key TEXT,
  error TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  type TEXT NOT NULL,
  input BLOB,                               -- NULL = inside kwargs
  kwargs BLOB NOT NULL
);
CREATE UNIQUE INDEX one_running_per_branch ON runs (tree_id, thread_id, branch_id) WHERE status = 'running';
CREATE INDEX runs_queue ON runs (run_at, seq) WHERE status = 'pending';
CREATE INDEX runs_open ON runs (tree_id, thread_id, seq) WHERE status IN ('pending', 'running');
CREATE INDEX runs_thread ON runs (thread_id, seq);

CREATE TABLE workers (
  worker_id BLOB PRIMARY KEY,
  lease_until INTEGER NOT NULL,
  draining INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Checkpoints whose whole path must stay.
CREATE VIEW pins AS
  SELECT b.tree_id, b.head_checkpoint_id AS checkpoint_id, b.head_depth AS depth
    FROM branches b JOIN threads t ON t.thread_id = b.thread_id
   WHERE t.deleted_at IS NULL AND b.head_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT g.tree_id, g.checkpoint_id, g.depth
    FROM tags g JOIN threads t ON t.thread_id = g.thread_id WHERE t.deleted_at IS NULL
  UNION ALL
  SELECT tree_id, fork_checkpoint_id, fork_checkpoint_depth
    FROM threads WHERE deleted_at IS NULL AND fork_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT r.tree_id, c.checkpoint_id, c.depth
    FROM runs r JOIN checkpoints c
      ON c.tree_id = r.tree_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.address
   WHERE r.status IN ('pending', 'running');
