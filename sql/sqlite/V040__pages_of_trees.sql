-- The view of a tree reads the page that it shows: the checkpoints and messages of a thread by depth, the
-- forks of a tree and those of one thread oldest first. Roots are in no list of forks, so that they cost
-- nothing here.
CREATE INDEX checkpoints_depth ON checkpoints (thread_id, depth, checkpoint_id) WHERE checkpoint_ns = '';
CREATE INDEX message_nodes_thread ON message_nodes (thread_id, ordinal, tree_id) WHERE kind = 'add';
CREATE INDEX threads_forks ON threads (tree_id, created_at, thread_id) WHERE parent_thread_id IS NOT NULL;
DROP INDEX threads_parent;
CREATE INDEX threads_parent ON threads (parent_thread_id, created_at, thread_id) WHERE parent_thread_id IS NOT NULL;
