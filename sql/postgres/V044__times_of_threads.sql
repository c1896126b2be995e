-- No state is newer than its thread: lists follow the time of the thread. Edits of a state left it behind.
UPDATE threads t SET updated_at = b.updated_at FROM branches b
 WHERE b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id AND b.updated_at > t.updated_at;
