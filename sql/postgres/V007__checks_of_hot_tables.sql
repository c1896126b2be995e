-- Postgres reads and plans a table's CHECK expressions anew for every statement that writes to it:
-- a tenth of the time of a superstep. What they guard is written by typed code alone.
ALTER TABLE branches
  DROP CONSTRAINT IF EXISTS branches_outcome_check,
  DROP CONSTRAINT IF EXISTS branches_origin_check;
ALTER TABLE checkpoint_writes
  DROP CONSTRAINT IF EXISTS checkpoint_writes_idx_check,
  DROP CONSTRAINT IF EXISTS checkpoint_writes_check;
ALTER TABLE message_nodes DROP CONSTRAINT IF EXISTS message_nodes_kind_check;
ALTER TABLE runs DROP CONSTRAINT IF EXISTS runs_status_check;
ALTER TABLE threads DROP CONSTRAINT IF EXISTS threads_fork_position_check;
