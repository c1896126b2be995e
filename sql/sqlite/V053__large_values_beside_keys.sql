-- SQLite compares keys of a table WITHOUT ROWID with whole rows, so that each search among large values reads several of
-- them from beginning to end. These tables hold values of any size: their keys are an index now, and a value is read
-- where it is asked for. Large columns come last, since what stands behind one is read by way of it.
--
-- All rows are copied before the first table goes: of pages that become free and are used again within one transaction
-- SQLite keeps a copy.

DROP VIEW pins;
DROP VIEW all_checkpoint_writes;

CREATE TABLE checkpoints_new (
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
  created_at INTEGER NOT NULL,
  run_supersteps INTEGER NOT NULL DEFAULT 0,
  graph_id TEXT,
  assistant_id BLOB,
  result_task BLOB,                         -- NULL: results are in checkpoint_writes
  result_header TEXT,                       -- checkpoint_writes.type, a space, checkpoint_writes.task_path
  blob_versions TEXT NOT NULL DEFAULT '{}',
  metadata TEXT NOT NULL,
  checkpoint TEXT NOT NULL,                 -- bytes of the codec: what has no column; JSON text in old rows
  result BLOB,                              -- checkpoint_writes.writes
  PRIMARY KEY (tree_id, checkpoint_ns, checkpoint_id)
);
INSERT INTO checkpoints_new
  SELECT tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, root_checkpoint_id, last_node_id,
         event_number, run_id, source, step, created_at, run_supersteps, graph_id, assistant_id, result_task, result_header,
         blob_versions, metadata, checkpoint, result
    FROM checkpoints;

CREATE TABLE checkpoint_blobs_new (
  tree_id BLOB NOT NULL,
  checkpoint_ns TEXT NOT NULL DEFAULT '',
  channel TEXT NOT NULL,
  version TEXT NOT NULL,                    -- <counter>.<6 hex random>
  base_version TEXT,                        -- NULL = full value, else a delta on that version
  chain_bytes INTEGER NOT NULL DEFAULT 0,   -- delta bytes since the last full value
  type TEXT NOT NULL,
  blob BLOB NOT NULL,
  PRIMARY KEY (tree_id, checkpoint_ns, channel, version)
);
INSERT INTO checkpoint_blobs_new
  SELECT tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob FROM checkpoint_blobs;

CREATE TABLE checkpoint_writes_new (
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
);
INSERT INTO checkpoint_writes_new
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes FROM checkpoint_writes;

CREATE TABLE store_items_new (
  owner TEXT NOT NULL,
  namespace BLOB NOT NULL,
  key TEXT NOT NULL,
  type TEXT NOT NULL,                       -- codec of the value
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ttl INTEGER,                              -- microseconds after the last write, NULL = kept for ever
  expires_at INTEGER,
  value BLOB NOT NULL,
  PRIMARY KEY (owner, namespace, key)
);
INSERT INTO store_items_new
  SELECT owner, namespace, key, type, created_at, updated_at, ttl, expires_at, value FROM store_items;

CREATE TABLE idempotency_keys_new (
  principal TEXT NOT NULL,
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,               -- of method, path and body
  claim_id BLOB NOT NULL,                   -- who may answer
  first_id BLOB NOT NULL,                   -- the first claim of this request, and the id of its run
  worker_id BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  response BLOB,
  PRIMARY KEY (principal, key)
);
INSERT INTO idempotency_keys_new
  SELECT principal, key, request_hash, claim_id, first_id, worker_id, created_at, response FROM idempotency_keys;

DROP TABLE checkpoints;
ALTER TABLE checkpoints_new RENAME TO checkpoints;
DROP TABLE checkpoint_blobs;
ALTER TABLE checkpoint_blobs_new RENAME TO checkpoint_blobs;
DROP TABLE checkpoint_writes;
ALTER TABLE checkpoint_writes_new RENAME TO checkpoint_writes;
DROP TABLE store_items;
ALTER TABLE store_items_new RENAME TO store_items;
DROP TABLE idempotency_keys;
ALTER TABLE idempotency_keys_new RENAME TO idempotency_keys;

-- Indexes, triggers and views go with their table.
CREATE INDEX checkpoints_thread ON checkpoints (tree_id, thread_id, checkpoint_ns, checkpoint_id DESC);
CREATE INDEX checkpoints_sub ON checkpoints (tree_id, root_checkpoint_id, checkpoint_ns, checkpoint_id)
  WHERE checkpoint_ns <> '';
CREATE INDEX checkpoints_depth ON checkpoints (thread_id, depth, checkpoint_id) WHERE checkpoint_ns = '';
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
CREATE TRIGGER store_items_vectors AFTER DELETE ON store_items BEGIN
  DELETE FROM store_vectors WHERE owner = old.owner AND namespace = old.namespace AND key = old.key;
END;
CREATE TRIGGER count_added_store_items AFTER INSERT ON store_items BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('store_items', NEW.owner, 1)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + 1;
END;
CREATE TRIGGER count_deleted_store_items AFTER DELETE ON store_items BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'store_items' AND owner = OLD.owner;
END;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

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
-- The rows of checkpoint_writes, and the results in rows of checkpoints as if they were some.
CREATE VIEW all_checkpoint_writes AS
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes FROM checkpoint_writes
  UNION ALL
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, result_task, 0,
         CAST(substr(CAST(result_header AS BLOB), instr(CAST(result_header AS BLOB), x'20') + 1) AS TEXT), -- names may have NUL
         NULL, substr(result_header, 1, instr(result_header, ' ') - 1), result
    FROM checkpoints WHERE result_task IS NOT NULL;
