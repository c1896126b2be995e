-- Lists of threads go by an index, those of one owner too; and what tells whether the disk is full.

-- The owner of the tree, whose row is the truth.
ALTER TABLE threads ADD COLUMN owner text NOT NULL DEFAULT '';
UPDATE threads t SET owner = o.owner FROM trees o WHERE o.tree_id = t.tree_id;

-- Newest change first. Within a run only `branches.updated_at` moves on, so that threads with a
-- running one are looked at by themselves.
CREATE INDEX threads_recent ON threads (updated_at, thread_id);
CREATE INDEX threads_of_owner ON threads (owner, updated_at, thread_id);
CREATE INDEX threads_created ON threads (created_at, thread_id);
-- The newest of a family of forks.
DROP INDEX threads_tree;
CREATE INDEX threads_tree ON threads (tree_id, updated_at, thread_id);

-- Written and emptied again; what is in it means nothing.
CREATE UNLOGGED TABLE disk_probe (filler bytea NOT NULL);
ALTER TABLE disk_probe ALTER COLUMN filler SET STORAGE EXTERNAL;
