-- Threads, branches, checkpoints, runs. Keys of everything that belongs to a conversation lead with
-- tree_id, so that one tree lies on one shard. Identifiers that are ordered or compared as text
-- have the collation "C": bytewise, as the program and SQLite compare them.

CREATE TABLE trees (
  tree_id uuid PRIMARY KEY,
  owner text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tree_members (
  tree_id uuid REFERENCES trees ON DELETE CASCADE,
  principal text,
  level text NOT NULL CHECK (level IN ('owner', 'manager', 'writer', 'reader')),
  PRIMARY KEY (tree_id, principal)
);
CREATE INDEX tree_members_principal ON tree_members (principal);

CREATE TABLE threads (
  thread_id uuid PRIMARY KEY,
  tree_id uuid NOT NULL,
  parent_thread_id uuid,                  -- direct fork parent, NULL = root
  fork_checkpoint_id uuid,                -- last inherited checkpoint; NULL = root or blank slate
  fork_checkpoint_depth int NOT NULL DEFAULT -1,
  fork_anchor text,                       -- anchor and position as the client sent them
  fork_position text CHECK (fork_position IN ('at', 'before')),
  fork_event_number bigint NOT NULL DEFAULT 0,
  fork_level int NOT NULL DEFAULT 0,      -- number of forks above
  active_branch_id uuid,
  last_event_number bigint NOT NULL DEFAULT 0,
  metadata jsonb NOT NULL DEFAULT '{}',
  config jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz                  -- tombstone: relatives still need its checkpoints
) WITH (fillfactor = 80);
CREATE INDEX threads_tree ON threads (tree_id);
CREATE INDEX threads_parent ON threads (parent_thread_id) WHERE parent_thread_id IS NOT NULL;

-- Head pointer, compare-and-swap target and fence in one row. No column that a commit changes is
-- indexed, and pages are half empty: head moves are HOT updates.
CREATE TABLE branches (
  tree_id uuid,
  branch_id uuid,
  thread_id uuid NOT NULL REFERENCES threads ON DELETE CASCADE,
  name text COLLATE "C" NOT NULL,
  head_checkpoint_id uuid,
  head_depth int NOT NULL DEFAULT -1,
  writer_epoch bigint NOT NULL DEFAULT 0, -- the fence
  version bigint NOT NULL DEFAULT 0,      -- raised by every head move
  outcome text NOT NULL DEFAULT 'idle' CHECK (outcome IN ('idle', 'interrupted', 'error')),
  error jsonb,                            -- of the last run, with outcome 'error'
  origin text NOT NULL CHECK (origin IN
    ('root', 'fork', 'rewind', 'btw', 'restore', 'message', 'edit', 'checkpoint', 'update')),
  source_branch_id uuid,
  creation_id uuid,                       -- set with copied writes: above the subgraph rows that belong to the copy
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(), -- when the state last changed
  PRIMARY KEY (tree_id, branch_id),
  UNIQUE (tree_id, thread_id, name)
) WITH (fillfactor = 50);

CREATE TABLE tags (
  tree_id uuid,
  thread_id uuid REFERENCES threads ON DELETE CASCADE,
  name text COLLATE "C",
  checkpoint_id uuid NOT NULL,
  depth int NOT NULL,
  message_id text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tree_id, thread_id, name)
);

CREATE TABLE checkpoints (                -- insert-only
  tree_id uuid,
  checkpoint_ns text COLLATE "C" DEFAULT '',
  checkpoint_id uuid,
  parent_checkpoint_id uuid,
  depth int NOT NULL,
  thread_id uuid NOT NULL,                -- who wrote it
  branch_id uuid NOT NULL,
  root_checkpoint_id uuid,                -- subgraph rows: the root checkpoint they ran under
  last_node_id uuid,                      -- newest 'add' message node on the path, carried forward
  event_number bigint NOT NULL DEFAULT 0, -- newest event on the path, carried forward
  run_id uuid,
  source text NOT NULL,
  step bigint NOT NULL,
  checkpoint jsonb NOT NULL,              -- channel_versions, versions_seen, and the channel_values that jsonb keeps
  metadata jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tree_id, checkpoint_ns, checkpoint_id)
);
CREATE INDEX checkpoints_thread ON checkpoints (tree_id, thread_id, checkpoint_ns, checkpoint_id DESC);
CREATE INDEX checkpoints_sub ON checkpoints (tree_id, root_checkpoint_id, checkpoint_ns) WHERE checkpoint_ns <> '';

CREATE TABLE checkpoint_blobs (           -- insert-only
  tree_id uuid,
  checkpoint_ns text COLLATE "C" DEFAULT '',
  channel text COLLATE "C",
  version text COLLATE "C",               -- <counter>.<6 hex digits>, compared by counter
  base_version text COLLATE "C",          -- NULL = full value, else a delta on that version
  chain_bytes int NOT NULL DEFAULT 0,     -- delta bytes since the last full value
  type text NOT NULL,
  blob bytea NOT NULL,
  PRIMARY KEY (tree_id, checkpoint_ns, channel, version)
);

CREATE TABLE checkpoint_writes (          -- results and control values of tasks, at the checkpoint they run from
  tree_id uuid,
  checkpoint_ns text COLLATE "C" DEFAULT '',
  checkpoint_id uuid,
  branch_id uuid,
  task_id uuid,
  idx int CHECK (idx <= 0),               -- 0 = output; -1 __error__, -2 __scheduled__, -3 __interrupt__, -4 __resume__, -5 __step__
  task_path text COLLATE "C" NOT NULL DEFAULT '',
  channel text COLLATE "C" CHECK ((channel IS NULL) = (idx = 0)),
  type text NOT NULL,
  writes bytea NOT NULL,                  -- list of (idx, channel, value)
  PRIMARY KEY (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx)
);
COMMENT ON TABLE checkpoint_writes IS 'One row per finished task (idx 0, all its output writes as a list; first writer wins) and one row per task and control channel (idx < 0; control-only batches upsert). Rows go only together with their checkpoint.';

CREATE TABLE message_nodes (
  tree_id uuid,
  node_id uuid,
  parent_node_id uuid,                    -- previous 'add' node on the path
  ordinal int NOT NULL,                   -- 1-based position in the chain of adds
  kind text NOT NULL CHECK (kind IN ('add', 'edit', 'remove')),
  message_id text NOT NULL,
  edit_of text,                           -- the id this one replaces
  checkpoint_id uuid NOT NULL,            -- first checkpoint with it
  depth int NOT NULL,
  seq int NOT NULL,                       -- place in that checkpoint
  settled_checkpoint_id uuid,             -- set at run end or interrupt, on the run's last message
  thread_id uuid NOT NULL,
  branch_id uuid NOT NULL,
  run_id uuid,
  role text,
  event_number bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tree_id, node_id)
);
CREATE INDEX message_nodes_message ON message_nodes (tree_id, message_id);
CREATE INDEX message_nodes_parent ON message_nodes (tree_id, parent_node_id) WHERE kind = 'add';
CREATE INDEX message_nodes_checkpoint ON message_nodes (tree_id, checkpoint_id);

CREATE TABLE runs (
  tree_id uuid,
  run_id uuid,
  thread_id uuid NOT NULL,
  branch_id uuid,                         -- NULL = floating: takes the active branch when claimed
  opened_branch boolean NOT NULL DEFAULT false, -- branch_id was created by this run
  seq bigint GENERATED ALWAYS AS IDENTITY,
  assistant_id uuid NOT NULL,
  status text NOT NULL DEFAULT 'pending' CHECK (status IN
    ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
  strategy text NOT NULL,
  temporary boolean NOT NULL DEFAULT false, -- the thread goes with the run
  metadata jsonb NOT NULL DEFAULT '{}',
  address jsonb,                          -- {"checkpoint_id": ...} when it starts elsewhere than at the head
  type text NOT NULL,                     -- codec of input and kwargs
  input bytea,                            -- unused while the input is part of kwargs
  kwargs bytea,
  base_checkpoint_id uuid,
  last_checkpoint_id uuid,
  epoch bigint,
  worker_id uuid,
  attempt int NOT NULL DEFAULT 0,
  idempotency_key text,
  error jsonb,
  run_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tree_id, run_id),
  UNIQUE (run_id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX one_running_per_branch ON runs (tree_id, thread_id, branch_id) WHERE status = 'running';
CREATE INDEX runs_queue ON runs (run_at, seq) WHERE status = 'pending';
CREATE INDEX runs_open ON runs (tree_id, thread_id, seq) WHERE status IN ('pending', 'running');
CREATE INDEX runs_worker ON runs (worker_id) WHERE status = 'running';
CREATE INDEX runs_thread ON runs (thread_id, seq DESC);

CREATE TABLE workers (
  worker_id uuid PRIMARY KEY,
  lease interval NOT NULL,
  lease_until timestamptz NOT NULL,       -- by this database's clock
  draining boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE events (                     -- business events, insert-only; token streams are elsewhere
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  event_id uuid NOT NULL,
  event_type text NOT NULL,
  payload jsonb NOT NULL,                 -- ids and small facts
  branch_id uuid,
  checkpoint_id uuid,
  message_id text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tree_id, thread_id, event_number)
);
CREATE FUNCTION events_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('backstitch.purge', true) = 'on' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'events are immutable';
END $$;
CREATE TRIGGER events_immutable BEFORE UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION events_immutable();

CREATE TABLE projection_offsets (
  projection text,
  thread_id uuid,
  tree_id uuid NOT NULL,
  last_event_number bigint NOT NULL DEFAULT 0,
  dirty boolean NOT NULL DEFAULT true,
  PRIMARY KEY (projection, thread_id)
);

CREATE TABLE idempotency_keys (
  principal text,
  key text,
  request_hash bytea NOT NULL,
  status int,
  response bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (principal, key)
);

CREATE VIEW pins AS                       -- checkpoints whose whole path must stay
  SELECT b.tree_id, b.head_checkpoint_id AS checkpoint_id, b.head_depth AS depth
    FROM branches b JOIN threads t USING (thread_id)
   WHERE t.deleted_at IS NULL AND b.head_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT g.tree_id, g.checkpoint_id, g.depth
    FROM tags g JOIN threads t USING (thread_id) WHERE t.deleted_at IS NULL
  UNION ALL
  SELECT tree_id, fork_checkpoint_id, fork_checkpoint_depth
    FROM threads WHERE deleted_at IS NULL AND fork_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT r.tree_id, c.checkpoint_id, c.depth
    FROM runs r JOIN checkpoints c ON c.tree_id = r.tree_id AND c.checkpoint_ns = ''
     AND c.checkpoint_id = (r.address->>'checkpoint_id')::uuid
   WHERE r.status IN ('pending', 'running');
