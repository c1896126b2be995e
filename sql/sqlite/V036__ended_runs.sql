-- Runs that have gone with their threads, as long as their log stays: whose they were, and how they failed.
CREATE TABLE ended_runs (
  run_id BLOB NOT NULL,
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  principal TEXT,
  error TEXT,
  ended_at INTEGER NOT NULL,              -- microseconds
  PRIMARY KEY (run_id, tree_id)
) WITHOUT ROWID;
CREATE INDEX ended_runs_age ON ended_runs (ended_at);

CREATE TRIGGER keep_ended_run AFTER DELETE ON runs
WHEN OLD.temporary AND OLD.status NOT IN ('pending', 'running')
BEGIN
  INSERT OR IGNORE INTO ended_runs (run_id, tree_id, thread_id, principal, error, ended_at)
  SELECT OLD.run_id, OLD.tree_id, OLD.thread_id, OLD.principal, OLD.error, OLD.updated_at
   WHERE EXISTS (SELECT 1 FROM run_events e WHERE e.run_id = OLD.run_id);
END;
