-- The index of a worker's runs fits only those statements that name the worker: to others, which ask whether
-- a branch has a running run, it offered itself without any condition while it was empty.
DROP INDEX runs_worker;
CREATE INDEX runs_worker ON runs (worker_id) WHERE status = 'running' AND worker_id IS NOT NULL;
