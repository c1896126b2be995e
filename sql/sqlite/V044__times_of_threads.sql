-- No state is newer than its thread: lists follow the time of the thread. Edits of a state, and runs in
-- process, left it behind.
UPDATE threads SET updated_at = max(updated_at, coalesce((SELECT b.updated_at FROM branches b
  WHERE b.tree_id = threads.tree_id AND b.branch_id = threads.active_branch_id), 0));
