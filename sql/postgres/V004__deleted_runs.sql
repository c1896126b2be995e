-- Runs whose checkpoints lists of states leave out: they were deleted, and later states build on
-- what they wrote.
CREATE TABLE deleted_runs (
  tree_id uuid,
  run_id uuid,
  PRIMARY KEY (tree_id, run_id)
);
