-- What stands behind a large column of a row is read by way of it, and a table WITHOUT ROWID compares keys with whole
-- rows: requests of runs and configs of assistants come last in their rows, and the keys of deliveries and versions are an
-- index. V053 did the same for other tables.
--
-- All rows are copied before the first table goes: of pages that become free and are used again within one transaction
-- SQLite keeps a copy.

DROP VIEW pins;

CREATE TABLE runs_new (
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
  losses INTEGER NOT NULL DEFAULT 0,        -- how often its process died while it stood where it stands
  lost_at BLOB,                             -- head of its branch when that happened last
  opened_branch INTEGER NOT NULL DEFAULT 0,
  principal TEXT,                           -- NULL: the server itself, and everybody while there are no keys
  behind INTEGER NOT NULL DEFAULT 0,        -- created behind others of its branch, which are not gone yet
  started_at INTEGER,                       -- the first attempt
  webhook TEXT,                             -- NULL: none
  thread_user TEXT,                         -- JSON: the user of its thread, when its request named none
  type TEXT NOT NULL,
  error TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  kwargs BLOB NOT NULL                      -- the request
);
INSERT INTO runs_new
  SELECT seq, tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, temporary, address, base_checkpoint_id,
         last_checkpoint_id, epoch, worker_id, attempt, run_at, created_at, updated_at, losses, lost_at, opened_branch, principal,
         behind, started_at, webhook, thread_user, type, error, metadata, kwargs
    FROM runs;

CREATE TABLE outbox_new (
  run_id BLOB NOT NULL,                   -- also the delivery's id: one webhook per run
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  url TEXT NOT NULL,
  host TEXT NOT NULL,                     -- with its port, as the URL names it
  principal TEXT NOT NULL,                -- '' while nobody authenticates
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL,               -- pushed on by whoever takes it, so that a dead sender delays and loses nothing
  dead_at INTEGER,                        -- after the last try
  last_error TEXT,
  created_at INTEGER NOT NULL,
  -- What is reported of a run that goes with its thread; NULL for others, whose own row has it.
  assistant_id BLOB,
  status TEXT,
  strategy TEXT,
  started_at INTEGER,
  run_created_at INTEGER,
  ended_at INTEGER,
  type TEXT,
  error TEXT,
  metadata TEXT,
  kwargs BLOB,
  PRIMARY KEY (run_id, tree_id)
);
INSERT INTO outbox_new
  SELECT run_id, tree_id, thread_id, url, host, principal, attempts, next_at, dead_at, last_error, created_at, assistant_id, status,
         strategy, started_at, run_created_at, ended_at, type, error, metadata, kwargs
    FROM outbox;

CREATE TABLE assistants_new (
  assistant_id BLOB PRIMARY KEY,
  owner TEXT NOT NULL,
  graph_id TEXT NOT NULL,
  version INTEGER NOT NULL,                 -- the active one
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  type TEXT NOT NULL,                       -- codec of config and context
  name TEXT NOT NULL,
  description TEXT,
  metadata TEXT NOT NULL,
  config BLOB NOT NULL,
  context BLOB NOT NULL
);
INSERT INTO assistants_new
  SELECT assistant_id, owner, graph_id, version, created_at, updated_at, type, name, description, metadata, config, context
    FROM assistants;

CREATE TABLE assistant_versions_new (
  assistant_id BLOB NOT NULL,
  version INTEGER NOT NULL,
  graph_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  type TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT,
  metadata TEXT NOT NULL,
  config BLOB NOT NULL,
  context BLOB NOT NULL,
  PRIMARY KEY (assistant_id, version)
);
INSERT INTO assistant_versions_new
  SELECT assistant_id, version, graph_id, created_at, type, name, description, metadata, config, context FROM assistant_versions;

DROP TABLE runs;
ALTER TABLE runs_new RENAME TO runs;
DROP TABLE outbox;
ALTER TABLE outbox_new RENAME TO outbox;
DROP TABLE assistants;
ALTER TABLE assistants_new RENAME TO assistants;
DROP TABLE assistant_versions;
ALTER TABLE assistant_versions_new RENAME TO assistant_versions;

-- Indexes, triggers and views go with their table.
CREATE UNIQUE INDEX one_running_per_branch ON runs (tree_id, thread_id, branch_id) WHERE status = 'running';
CREATE INDEX runs_open ON runs (tree_id, thread_id, seq) WHERE status IN ('pending', 'running');
CREATE INDEX runs_thread ON runs (thread_id, seq);
CREATE INDEX runs_ready ON runs (coalesce(principal, ''), run_at, seq) WHERE status = 'pending' AND behind = 0;
CREATE INDEX runs_waiting ON runs (thread_id, branch_id, seq) WHERE status = 'pending';
CREATE INDEX runs_behind ON runs (thread_id) WHERE status = 'pending' AND behind = 1;
CREATE TRIGGER report_ended_run AFTER UPDATE OF status ON runs
WHEN NEW.webhook IS NOT NULL AND OLD.status IN ('pending', 'running') AND NEW.status NOT IN ('pending', 'running')
BEGIN
  INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal, next_at, created_at)
  VALUES (NEW.run_id, NEW.tree_id, NEW.thread_id, NEW.webhook,
    -- The URL was written so that a path follows its authority.
    substr(substr(NEW.webhook, instr(NEW.webhook, '://') + 3, instr(substr(NEW.webhook, instr(NEW.webhook, '://') + 3), '/') - 1), 1, 300),
    coalesce(NEW.principal, ''), NEW.updated_at, NEW.updated_at)
  ON CONFLICT DO NOTHING;
  UPDATE outbox SET assistant_id = NEW.assistant_id, status = NEW.status, strategy = NEW.strategy, metadata = NEW.metadata,
         type = NEW.type, kwargs = NEW.kwargs, error = NEW.error, started_at = NEW.started_at, run_created_at = NEW.created_at,
         ended_at = NEW.updated_at
   WHERE run_id = NEW.run_id AND tree_id = NEW.tree_id AND NEW.temporary;
END;
-- A delivery goes with the run it reports, unless the run goes with its thread because it has ended.
CREATE TRIGGER drop_report AFTER DELETE ON runs
WHEN OLD.webhook IS NOT NULL AND NOT OLD.temporary
BEGIN
  DELETE FROM outbox WHERE run_id = OLD.run_id AND tree_id = OLD.tree_id;
END;
-- A run takes its log along, unless it goes with its thread because it has ended.
CREATE TRIGGER drop_run_events AFTER DELETE ON runs
WHEN NOT OLD.temporary
BEGIN
  DELETE FROM run_events WHERE run_id = OLD.run_id;
END;
CREATE TRIGGER keep_ended_run AFTER DELETE ON runs
WHEN OLD.temporary AND OLD.status NOT IN ('pending', 'running')
BEGIN
  INSERT OR IGNORE INTO ended_runs (run_id, tree_id, thread_id, principal, error, ended_at)
  SELECT OLD.run_id, OLD.tree_id, OLD.thread_id, OLD.principal, OLD.error, OLD.updated_at
   WHERE EXISTS (SELECT 1 FROM run_events e WHERE e.run_id = OLD.run_id);
END;
CREATE INDEX outbox_due ON outbox (next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_hosts ON outbox (host, next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_dead ON outbox (dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX assistants_owner ON assistants (owner, created_at, assistant_id);
CREATE INDEX assistants_created ON assistants (created_at, assistant_id);
-- The server takes the id of one of its assistants from a client who has it.
CREATE TRIGGER count_taken_assistants AFTER UPDATE OF owner ON assistants WHEN OLD.owner <> NEW.owner BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'assistants' AND owner = OLD.owner;
END;
CREATE TRIGGER count_added_assistants AFTER INSERT ON assistants BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('assistants', NEW.owner, 1)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + 1;
END;
CREATE TRIGGER count_deleted_assistants AFTER DELETE ON assistants BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'assistants' AND owner = OLD.owner;
END;

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
