-- No key begins with the tree: an index whose first column is tree_id promises one row while nothing
-- is known of a table, and still after ANALYZE where most trees are small, so that a statement which
-- names a row by its whole key may walk its tree instead. The unique column leads, and tree_id is in
-- every key, which is all that a distribution by tree needs. What reads a whole tree goes by its
-- threads. Tables with one key alone, by which rows are named as a whole, stay as they are.

ALTER TABLE branches DROP CONSTRAINT branches_pkey, ADD PRIMARY KEY (branch_id, tree_id);
-- The name of the constraint is known to programs of the version before, which may still run.
ALTER TABLE branches DROP CONSTRAINT branches_tree_id_thread_id_name_key;
ALTER TABLE branches ADD CONSTRAINT branches_tree_id_thread_id_name_key UNIQUE (thread_id, name, tree_id);

ALTER TABLE tags DROP CONSTRAINT tags_pkey, ADD PRIMARY KEY (thread_id, name, tree_id);

ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_pkey,
  ADD PRIMARY KEY (checkpoint_id, checkpoint_ns, tree_id);
DROP INDEX checkpoints_thread;
CREATE INDEX checkpoints_thread ON checkpoints (thread_id, checkpoint_ns, checkpoint_id DESC, tree_id);
DROP INDEX checkpoints_sub;
CREATE INDEX checkpoints_sub ON checkpoints (root_checkpoint_id, checkpoint_ns, tree_id) WHERE checkpoint_ns <> '';

ALTER TABLE checkpoint_writes DROP CONSTRAINT checkpoint_writes_pkey,
  ADD PRIMARY KEY (checkpoint_id, branch_id, task_id, idx, checkpoint_ns, tree_id);

ALTER TABLE message_nodes DROP CONSTRAINT message_nodes_pkey, ADD PRIMARY KEY (node_id, tree_id);
DROP INDEX message_nodes_message;
CREATE INDEX message_nodes_message ON message_nodes (message_id, tree_id);
DROP INDEX message_nodes_parent;
CREATE INDEX message_nodes_parent ON message_nodes (parent_node_id, tree_id) WHERE kind = 'add';
DROP INDEX message_nodes_checkpoint;
CREATE INDEX message_nodes_checkpoint ON message_nodes (checkpoint_id, tree_id);
-- The messages of a thread in their order: for its outline, and when it is deleted.
CREATE INDEX message_nodes_thread ON message_nodes (thread_id, ordinal, tree_id);

ALTER TABLE runs DROP CONSTRAINT runs_pkey, ADD PRIMARY KEY (run_id, tree_id);
DROP INDEX one_running_per_branch;
CREATE UNIQUE INDEX one_running_per_branch ON runs (branch_id, thread_id, tree_id) WHERE status = 'running';
-- Made after it: of two empty indexes the one made last is taken, and this one is for the worker alone.
DROP INDEX runs_worker;
CREATE INDEX runs_worker ON runs (worker_id) WHERE status = 'running';
DROP INDEX runs_open;
CREATE INDEX runs_open ON runs (thread_id, seq, tree_id) WHERE status IN ('pending', 'running');

ALTER TABLE events DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (thread_id, event_number, tree_id);
DROP INDEX events_names;
CREATE INDEX events_names ON events (branch_id, event_number, tree_id) WHERE kind IN (9, 12, 13);
ALTER TABLE event_facts DROP CONSTRAINT event_facts_pkey, ADD PRIMARY KEY (thread_id, event_number, tree_id);

ALTER TABLE thread_timeline DROP CONSTRAINT thread_timeline_pkey, ADD PRIMARY KEY (thread_id, event_number, tree_id);
ALTER TABLE thread_heads DROP CONSTRAINT thread_heads_pkey, ADD PRIMARY KEY (thread_id, tree_id);
ALTER TABLE search DROP CONSTRAINT search_pkey, ADD PRIMARY KEY (thread_id, event_number, tree_id);
ALTER TABLE fork_index DROP CONSTRAINT fork_index_pkey,
  ADD PRIMARY KEY (parent_thread_id, thread_id, tree_id);

DROP INDEX threads_tree;
CREATE INDEX threads_tree ON threads (tree_id, thread_id);

-- Every part of it begins with the threads of a tree and looks each further row up.
CREATE OR REPLACE VIEW pins AS            -- checkpoints whose whole path must stay
  SELECT t.tree_id, b.head_checkpoint_id AS checkpoint_id, b.head_depth AS depth
    FROM threads t CROSS JOIN LATERAL (SELECT b.head_checkpoint_id, b.head_depth FROM branches b
      WHERE b.thread_id = t.thread_id AND b.tree_id = t.tree_id OFFSET 0) b
   WHERE t.deleted_at IS NULL AND b.head_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT t.tree_id, g.checkpoint_id, g.depth
    FROM threads t CROSS JOIN LATERAL (SELECT g.checkpoint_id, g.depth FROM tags g
      WHERE g.thread_id = t.thread_id AND g.tree_id = t.tree_id OFFSET 0) g
   WHERE t.deleted_at IS NULL
  UNION ALL
  SELECT tree_id, fork_checkpoint_id, fork_checkpoint_depth
    FROM threads WHERE deleted_at IS NULL AND fork_checkpoint_id IS NOT NULL
  UNION ALL
  SELECT t.tree_id, c.checkpoint_id, c.depth
    FROM threads t CROSS JOIN LATERAL (SELECT (r.address->>'checkpoint_id')::uuid AS base FROM runs r
      WHERE r.thread_id = t.thread_id AND r.tree_id = t.tree_id AND r.status IN ('pending', 'running') AND r.address IS NOT NULL OFFSET 0) r
   CROSS JOIN LATERAL (SELECT c.checkpoint_id, c.depth FROM checkpoints c
      WHERE c.checkpoint_id = r.base AND c.checkpoint_ns = '' AND c.tree_id = t.tree_id LIMIT 1) c;
