-- The result of the only task that ran from a checkpoint stands in the row of that checkpoint where one transaction
-- writes both: a row of checkpoint_writes, with its key, costs a superstep a fifth of what it writes. The planner takes
-- the rows of an empty table for as wide as its columns may be, and walks narrow keys if they are wider than this.
ALTER TABLE checkpoints
  ADD COLUMN result_task uuid,                    -- NULL: results are in checkpoint_writes
  ADD COLUMN result_header text COLLATE "C",      -- checkpoint_writes.type, a space, checkpoint_writes.task_path
  ADD COLUMN result bytea;                        -- checkpoint_writes.writes
CREATE VIEW all_checkpoint_writes AS              -- the rows of checkpoint_writes, and those results as if they were some
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes FROM checkpoint_writes
  UNION ALL
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, result_task, 0, substr(result_header, strpos(result_header, ' ') + 1),
         '' COLLATE "C", split_part(result_header, ' ', 1), result
    FROM checkpoints WHERE result_task IS NOT NULL;
