-- The view of a tree reads the page that it shows: the checkpoints of a thread by depth, the forks of a
-- tree and those of one thread oldest first. Roots are in no list of forks, so that they cost nothing here.
-- That of checkpoints has all namespaces: while nothing is known of a table, one with a condition promises
-- so little to read that statements with keys of their own would go through it.
CREATE INDEX checkpoints_depth ON checkpoints (thread_id, checkpoint_ns, depth, checkpoint_id, tree_id);
CREATE INDEX threads_forks ON threads (tree_id, created_at, thread_id) WHERE parent_thread_id IS NOT NULL;
DROP INDEX threads_parent;
CREATE INDEX threads_parent ON threads (parent_thread_id, created_at, thread_id) WHERE parent_thread_id IS NOT NULL;
