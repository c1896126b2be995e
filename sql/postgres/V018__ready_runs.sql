-- What a claim reads are the runs whose turn has come, by principal, and no others: one that was created
-- behind others of its branch is marked until they are gone. Runs that start at once are in none of these.
ALTER TABLE runs ADD COLUMN behind boolean NOT NULL DEFAULT false;
DROP INDEX runs_queue;
CREATE INDEX runs_ready ON runs (COALESCE(principal, ''), run_at, seq, tree_id) WHERE status = 'pending' AND NOT behind;
CREATE INDEX runs_waiting ON runs (thread_id, branch_id, seq, tree_id) WHERE status = 'pending';
CREATE INDEX runs_behind ON runs (thread_id, tree_id) WHERE status = 'pending' AND behind;
