-- Runs whose checkpoints lists of states leave out: they were deleted, and later states build on
-- what they wrote.
CREATE TABLE deleted_runs (
  tree_id BLOB NOT NULL,
  run_id BLOB NOT NULL,
  PRIMARY KEY (tree_id, run_id)
) WITHOUT ROWID;
