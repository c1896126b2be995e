-- Runs that have gone with their threads, as long as their log stays: whose they were, and how they failed.
CREATE TABLE ended_runs (
  run_id uuid,
  tree_id uuid,
  thread_id uuid NOT NULL,
  principal text,
  error jsonb,
  ended_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (run_id, tree_id)
);
CREATE INDEX ended_runs_age ON ended_runs (ended_at);

CREATE FUNCTION keep_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ended_runs (run_id, tree_id, thread_id, principal, error)
  SELECT OLD.run_id, OLD.tree_id, OLD.thread_id, OLD.principal, OLD.error
   WHERE EXISTS (SELECT 1 FROM run_events e WHERE e.run_id = OLD.run_id)
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER keep_ended_run AFTER DELETE ON runs FOR EACH ROW
  WHEN (OLD.temporary AND OLD.status NOT IN ('pending', 'running'))
  EXECUTE FUNCTION keep_ended_run();
