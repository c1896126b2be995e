-- 2,000 small trees and a large one of 4,000 checkpoints and 20 forks.
-- Ids follow from numbers, so that rows find each other: number, thread, kind (1 thread and tree, 2 branch, 3 checkpoint,
-- 4 node, 5 run, 6 checkpoint of a subgraph).
BEGIN;
CREATE TEMP TABLE n (n INTEGER PRIMARY KEY);
INSERT INTO temp.n WITH RECURSIVE upto (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM upto WHERE n < 4000) SELECT n FROM upto;
CREATE TEMP TABLE t AS   -- thread, tree, checkpoints
  SELECT n AS thread, n AS tree, 2 AS checkpoints FROM n WHERE n BETWEEN 1 AND 2000
  UNION ALL SELECT 0, 0, 4000
  UNION ALL SELECT 10000 + n, 0, 2 FROM n WHERE n BETWEEN 1 AND 20;
CREATE TEMP TABLE i AS   -- ids of a thread, and how those of its rows end
  SELECT t.*, unhex(printf('%08x%08x8000%012x', 0, tree, 1)) AS tree_id, unhex(printf('%08x%08x8000%012x', 0, thread, 1)) AS thread_id,
         unhex(printf('%08x%08x8000%012x', 0, thread, 2)) AS branch_id, printf('%08x8000', thread) AS rest FROM t;

INSERT INTO trees (tree_id, owner, created_at) SELECT tree_id, 'owner', tree FROM i WHERE thread = tree;
INSERT INTO threads (thread_id, tree_id, parent_thread_id, fork_checkpoint_id, fork_checkpoint_depth, active_branch_id, last_event_number,
                     created_at, updated_at, owner)
SELECT thread_id, tree_id, CASE WHEN thread <> tree THEN tree_id END,
       CASE WHEN thread <> tree THEN unhex(printf('%08x%08x8000%012x', 100, tree, 3)) END, CASE WHEN thread <> tree THEN 100 ELSE -1 END,
       branch_id, checkpoints, thread, thread, 'owner' FROM i;
INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, origin, created_at, updated_at)
SELECT tree_id, branch_id, thread_id, 'main', unhex(printf('%08x', checkpoints) || rest || printf('%012x', 3)), checkpoints, 'root', 0, 0 FROM i;
INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, created_at, updated_at)
SELECT tree_id, thread_id, 'tag', unhex(printf('%08x', 1) || rest || printf('%012x', 3)), 1, 0, 0 FROM i;
INSERT INTO checkpoints (tree_id, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, last_node_id, run_id, source, step,
                         created_at, blob_versions, metadata, checkpoint)
SELECT tree_id, unhex(printf('%08x', n) || rest || printf('%012x', 3)),
       CASE WHEN n > 1 THEN unhex(printf('%08x', n - 1) || rest || printf('%012x', 3)) END, n, thread_id, branch_id,
       unhex(printf('%08x', n / 4) || rest || printf('%012x', 4)), unhex(printf('%08x', n / 4) || rest || printf('%012x', 5)), 'loop', n,
       0, json_object('messages', n || '.aaaaaa'), '{}', x'01'
  FROM i CROSS JOIN n ON n BETWEEN 1 AND checkpoints;
INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, root_checkpoint_id, depth, thread_id, branch_id, source, step,
                         created_at, blob_versions, metadata, checkpoint)
SELECT c.tree_id, 'child', unhex(printf('%08x%08x8000%012x', c.depth, 0, 6)), c.checkpoint_id, 0, c.thread_id, c.branch_id, 'loop', 0,
       0, c.blob_versions, '{}', x'01'
  FROM checkpoints c WHERE c.depth % 20 = 0;
INSERT INTO checkpoint_blobs (tree_id, channel, version, type, blob)
SELECT DISTINCT tree_id, 'messages', n || '.aaaaaa', 'bincode', x'00' FROM i CROSS JOIN n ON n BETWEEN 1 AND checkpoints;
INSERT INTO checkpoint_writes (tree_id, checkpoint_id, branch_id, task_id, idx, type, writes)
SELECT tree_id, checkpoint_id, branch_id, checkpoint_id, 0, 'bincode', x'00' FROM checkpoints WHERE checkpoint_ns = '';
INSERT INTO message_nodes (tree_id, node_id, parent_node_id, checkpoint_id, thread_id, branch_id, run_id, ordinal, depth, seq, kind,
                           message_id, role, created_at)
SELECT tree_id, unhex(printf('%08x', n) || rest || printf('%012x', 4)),
       CASE WHEN n > 0 THEN unhex(printf('%08x', n - 1) || rest || printf('%012x', 4)) END,
       unhex(printf('%08x', n * 4 + 1) || rest || printf('%012x', 3)), thread_id, branch_id,
       unhex(printf('%08x', n) || rest || printf('%012x', 5)), n + 1, n * 4, 0, 'add', 'm' || thread || '.' || n, 'ai', 0
  FROM i CROSS JOIN n ON n <= checkpoints / 4;
INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, type, epoch, worker_id, run_at, created_at, updated_at,
                  kwargs)
SELECT tree_id, unhex(printf('%08x', n) || rest || printf('%012x', 5)), thread_id, branch_id, x'07',
       CASE WHEN n = 0 AND thread % 100 = 1 THEN 'running' WHEN n = 0 AND thread % 100 = 2 THEN 'pending' ELSE 'success' END,
       'enqueue', 'bincode', 1, x'08', 0, 0, 0, x'00'
  FROM i CROSS JOIN n ON n <= checkpoints / 4;
INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id, created_at)
SELECT tree_id, thread_id, n, CASE n WHEN 1 THEN 9 ELSE 8 END, branch_id, unhex(printf('%08x', n) || rest || printf('%012x', 3)), 0
  FROM i CROSS JOIN n ON n BETWEEN 1 AND checkpoints;
INSERT INTO event_facts (tree_id, thread_id, event_number, facts)
SELECT tree_id, thread_id, event_number, '{}' FROM events WHERE event_number % 100 = 2;
INSERT INTO thread_heads (tree_id, thread_id, event_number, messages, branches, runs, updated_at)
SELECT tree_id, thread_id, last_event_number, 1, 1, 1, 0 FROM threads;
INSERT INTO projection_offsets (projection, thread_id, tree_id, last_event_number)
SELECT 'thread_heads', thread_id, tree_id, last_event_number FROM threads;
DROP TABLE temp.i;
DROP TABLE temp.t;
DROP TABLE temp.n;
COMMIT;
