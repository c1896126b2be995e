-- The result of the only task that ran from a checkpoint stands in the row of that checkpoint where one transaction
-- writes both.
ALTER TABLE checkpoints ADD COLUMN result_task BLOB;   -- NULL: results are in checkpoint_writes
ALTER TABLE checkpoints ADD COLUMN result_header TEXT; -- checkpoint_writes.type, a space, checkpoint_writes.task_path
ALTER TABLE checkpoints ADD COLUMN result BLOB;        -- checkpoint_writes.writes
-- The rows of checkpoint_writes, and those results as if they were some.
CREATE VIEW all_checkpoint_writes AS
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes FROM checkpoint_writes
  UNION ALL
  SELECT tree_id, checkpoint_ns, checkpoint_id, branch_id, result_task, 0,
         CAST(substr(CAST(result_header AS BLOB), instr(CAST(result_header AS BLOB), x'20') + 1) AS TEXT), -- names may have NUL
         NULL, substr(result_header, 1, instr(result_header, ' ') - 1), result
    FROM checkpoints WHERE result_task IS NOT NULL;
