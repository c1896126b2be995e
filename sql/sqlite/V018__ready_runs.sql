-- What a claim reads are the runs whose turn has come, by principal, and no others: one that was created
-- behind others of its branch is marked until they are gone. Runs that start at once are in none of these.
ALTER TABLE runs ADD COLUMN behind INTEGER NOT NULL DEFAULT 0;
DROP INDEX runs_queue;
CREATE INDEX runs_ready ON runs (coalesce(principal, ''), run_at, seq) WHERE status = 'pending' AND behind = 0;
CREATE INDEX runs_waiting ON runs (thread_id, branch_id, seq) WHERE status = 'pending';
CREATE INDEX runs_behind ON runs (thread_id) WHERE status = 'pending' AND behind = 1;
