-- 2,000 small trees and a large one of 4,000 checkpoints and 20 forks, with statistics.
-- Ids follow from numbers, so that rows find each other: kind, thread, number.
CREATE FUNCTION pg_temp.id(kind int, thread int, number int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(number), 8, '0') || lpad(to_hex(thread), 8, '0') || '8000' || lpad(to_hex(kind), 12, '0'))::uuid $$;

CREATE TEMP TABLE t AS   -- thread, tree, checkpoints
  SELECT n AS thread, n AS tree, 2 AS checkpoints FROM generate_series(1, 2000) n
  UNION ALL SELECT 0, 0, 4000
  UNION ALL SELECT 10000 + n, 0, 2 FROM generate_series(1, 20) n;

INSERT INTO trees (tree_id, owner) SELECT DISTINCT pg_temp.id(1, tree, 0), 'owner' FROM t;
INSERT INTO threads (thread_id, tree_id, parent_thread_id, fork_checkpoint_id, fork_checkpoint_depth, active_branch_id, last_event_number)
SELECT pg_temp.id(1, thread, 0), pg_temp.id(1, tree, 0), CASE WHEN thread <> tree THEN pg_temp.id(1, tree, 0) END,
       CASE WHEN thread <> tree THEN pg_temp.id(3, tree, 100) END, CASE WHEN thread <> tree THEN 100 ELSE -1 END,
       pg_temp.id(2, thread, 0), checkpoints FROM t;
INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, origin)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(2, thread, 0), pg_temp.id(1, thread, 0), 'main', pg_temp.id(3, thread, checkpoints), checkpoints, 'root' FROM t;
INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(1, thread, 0), 'tag', pg_temp.id(3, thread, 1), 1 FROM t;
INSERT INTO checkpoints (tree_id, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, last_node_id, run_id, source, step, checkpoint, blob_versions, metadata)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(3, thread, n), CASE WHEN n > 1 THEN pg_temp.id(3, thread, n - 1) END, n, pg_temp.id(1, thread, 0),
       pg_temp.id(2, thread, 0), pg_temp.id(4, thread, n / 4), pg_temp.id(5, thread, n / 4), 'loop', n,
       '\x01'::bytea, jsonb_build_object('messages', n || '.aaaaaa'), '{}'
  FROM t, generate_series(1, checkpoints) n;
INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, root_checkpoint_id, depth, thread_id, branch_id, source, step, checkpoint, blob_versions, metadata)
SELECT c.tree_id, 'child', pg_temp.id(6, c.depth, 0), c.checkpoint_id, 0, c.thread_id, c.branch_id, 'loop', 0, c.checkpoint, c.blob_versions, '{}'
  FROM checkpoints c WHERE c.tree_id = pg_temp.id(1, 0, 0) AND c.thread_id = c.tree_id AND c.depth % 20 = 0;
INSERT INTO checkpoint_blobs (tree_id, channel, version, type, blob)
SELECT DISTINCT pg_temp.id(1, tree, 0), 'messages', n || '.aaaaaa', 'bincode', '\x00'::bytea FROM t, generate_series(1, checkpoints) n;
INSERT INTO checkpoint_writes (tree_id, checkpoint_id, branch_id, task_id, idx, type, writes)
SELECT tree_id, checkpoint_id, branch_id, checkpoint_id, 0, 'bincode', '\x00'::bytea FROM checkpoints WHERE checkpoint_ns = '';
INSERT INTO message_nodes (tree_id, node_id, parent_node_id, checkpoint_id, thread_id, branch_id, run_id, ordinal, depth, seq, kind, message_id, role)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(4, thread, n), CASE WHEN n > 0 THEN pg_temp.id(4, thread, n - 1) END, pg_temp.id(3, thread, n * 4 + 1),
       pg_temp.id(1, thread, 0), pg_temp.id(2, thread, 0), pg_temp.id(5, thread, n), n + 1, n * 4, 0, 'add', 'm' || thread || '.' || n, 'ai'
  FROM t, generate_series(0, checkpoints / 4) n;
INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, type, epoch, worker_id)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(5, thread, n), pg_temp.id(1, thread, 0), pg_temp.id(2, thread, 0), pg_temp.id(7, 0, 0),
       CASE WHEN n = 0 AND thread % 100 = 1 THEN 'running' WHEN n = 0 AND thread % 100 = 2 THEN 'pending' ELSE 'success' END, 'enqueue', 'bincode', 1, pg_temp.id(8, 0, 0)
  FROM t, generate_series(0, checkpoints / 4) n;
INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id)
SELECT pg_temp.id(1, tree, 0), pg_temp.id(1, thread, 0), n, CASE n WHEN 1 THEN 9 ELSE 8 END, pg_temp.id(2, thread, 0), pg_temp.id(3, thread, n)
  FROM t, generate_series(1, checkpoints) n;
INSERT INTO event_facts (tree_id, thread_id, event_number, facts) SELECT tree_id, thread_id, event_number, '{}' FROM events WHERE event_number % 100 = 2;
INSERT INTO thread_heads (tree_id, thread_id, event_number, messages, branches, runs, updated_at)
SELECT tree_id, thread_id, last_event_number, 1, 1, 1, now() FROM threads;
INSERT INTO projection_offsets (projection, thread_id, tree_id, last_event_number) SELECT p, thread_id, tree_id, last_event_number
  FROM threads, unnest(ARRAY['thread_heads']) p;
ANALYZE;
